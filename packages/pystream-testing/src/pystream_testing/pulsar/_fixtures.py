"""The pytest fixture `pulsar_server`: one embedded server for a whole test session.

Import it in a `conftest.py`: `from pystream_testing.pulsar import pulsar_server`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pystream_testing.pulsar._embedded import EmbeddedPulsar

__all__ = ["pulsar_server"]


@pytest.fixture(scope="session")
def pulsar_server() -> Iterator[EmbeddedPulsar]:
    """A running server; its `url` is what a broker is given."""
    with EmbeddedPulsar() as server:
        yield server
