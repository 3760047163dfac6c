"""What the tests share: a server, and the event loops that redis-py knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from server import Server, running


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that do not stop it."""
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Each of asyncio and uvloop in turn."""
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
def client(redis_server: Server) -> Iterator[Any]:
    """A look at the server past the plugin."""
    with redis.Redis(port=redis_server.port, protocol=2) as client:
        yield client
