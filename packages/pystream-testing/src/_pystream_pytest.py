"""The pytest plugin of pystream-testing: a module of its own, so that it imports nothing of ours until it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from pystream_testing import TestApp, VirtualClock

__all__ = ["pytest_configure", "test_app", "virtual_clock"]


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", "live: the fixture test_app of this test runs the app on its real servers")


@pytest.fixture
def test_app(request: pytest.FixtureRequest) -> Callable[..., AbstractAsyncContextManager[TestApp]]:
    """`TestApp.start`; in a test with the marker `live`, `TestApp.start_live`."""
    from pystream_testing import TestApp

    return TestApp.start if request.node.get_closest_marker("live") is None else TestApp.start_live


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """A clock that stands still until it is moved, for `TestApp.start(clock=...)` and the code under test."""
    from pystream_testing import VirtualClock

    return VirtualClock()
