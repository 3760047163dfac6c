"""Fixtures of the live tests: the three event loops, and the embedded server."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest
from pystream_testing.pulsar import pulsar_server

__all__ = ["pulsar_server"]

_BACKENDS = [
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    pytest.param(("trio", {}), id="trio"),
]
_numbers = itertools.count(1)


@pytest.fixture(params=_BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Each of asyncio, uvloop and trio in turn."""
    return request.param


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Makes names that no other test and no other run uses, from a readable beginning."""

    def name(beginning: str) -> str:
        return f"{beginning}-{os.getpid()}-{next(_numbers)}"

    return name
