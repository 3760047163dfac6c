"""Facts about the client and the server, pinned with the public client alone: none of our code is between."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pulsar
import pytest
from facts.support import Session
from live.admin import Admin
from live.choice import LiveServer
from pystream_pulsar._client.logs import log_file


@pytest.fixture
def anyio_backend() -> str:
    """The facts are not about event loops, and the client's own awaitable form has asyncio alone."""
    return "asyncio"


@pytest.fixture
def session(real_server: LiveServer, unique: Callable[[str], str]) -> Iterator[Session]:
    """A client, and a topic of the test's own."""
    level, path = log_file()  # the client keeps the first log it is given, for the whole process
    logger = pulsar.FileLogger(getattr(pulsar.LoggerLevel, level), path)
    client = pulsar.Client(real_server.url, operation_timeout_seconds=10, logger=logger)
    yield Session(client, f"persistent://public/default/{unique('fact')}")
    client.close()


@pytest.fixture
def admin(real_server: LiveServer) -> Admin:
    """The server's admin interface."""
    if real_server.admin is None:
        pytest.skip("the running server's admin interface is not known: set PYSTREAM_PULSAR_ADMIN_URL")

    return real_server.admin
