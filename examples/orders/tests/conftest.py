"""Where the service is tested: over the memory broker, over Pulsar in process, and on a Pulsar server.

The server is the one of `PYSTREAM_PULSAR_URL`, or else an embedded one. `pytest -m "not live"`
leaves it out.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager

import pytest
from pystream.memory import MemoryBroker
from pystream.protocols import Broker
from pystream_pulsar import PulsarBroker
from pystream_testing import TestApp
from pystream_testing.pulsar import EmbeddedPulsar, EmbeddedServerMissing

from examples.orders.books import Books
from examples.orders.service import Topics, make_app


@pytest.fixture
def anyio_backend() -> str:
    """One event loop: what the service does is the same on all."""
    return "asyncio"


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The server's address."""
    given = os.environ.get("PYSTREAM_PULSAR_URL")
    if given:
        yield given
        return

    try:
        server = EmbeddedPulsar().__enter__()
    except EmbeddedServerMissing as missing:
        pytest.skip(str(missing))

    try:
        yield server.url
    finally:
        server.__exit__(None, None, None)


@pytest.fixture(params=["memory", "pulsar in process", pytest.param("pulsar", marks=pytest.mark.live)])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each broker in turn."""
    match request.param:
        case "memory":
            return MemoryBroker()
        case "pulsar":
            return PulsarBroker(request.getfixturevalue("server_url"))

    return PulsarBroker("pulsar://localhost:6650")


@pytest.fixture
def topics() -> Topics:
    """Topics that no other test uses."""
    return Topics.of(secrets.token_hex(4))


@pytest.fixture
def books() -> Books:
    """What the service writes into."""
    return Books()


@pytest.fixture
async def t(
    test_app: Callable[..., AbstractAsyncContextManager[TestApp]], broker: Broker, topics: Topics, books: Books
) -> AsyncIterator[TestApp]:
    """The service, running."""
    async with test_app(make_app(broker, topics, books)) as running:
        yield running
