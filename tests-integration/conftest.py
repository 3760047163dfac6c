"""Fixtures of the live tests: the three event loops, and the servers."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from live.choice import Choice, LiveServer, choose, open_server
from live.credentials import Credentials
from live.jars import fetch_jars, obstacle
from live.real import RealPulsar
from live.requiring import skips_fail as pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]

_BACKENDS = [
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    pytest.param(("trio", {}), id="trio"),
]
_OWN_SERVERS = {"secured", "own_server", "startable"}
_SERVERS = {"pulsar_server", "real_server"} | _OWN_SERVERS
_choice = pytest.StashKey[Choice]()
_notes = pytest.StashKey[list[str]]()
_TEST_TIMEOUT = 180
_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the server before anything is collected: contradicting variables end the run."""
    config.stash[_notes] = []
    try:
        config.stash[_choice] = choose(os.environ, obstacle(os.environ))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_report_header(config: pytest.Config) -> str:
    """Which server it is."""
    return f"pulsar: {config.stash[_choice].reason}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The figures that tests have noted."""
    if config.stash[_notes]:
        terminalreporter.section("figures")
        for line in config.stash[_notes]:
            terminalreporter.line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that may have to start a server the time for it; a busy machine takes most of a minute."""
    for item in items:
        if _SERVERS & set(_fixtures(item)) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TEST_TIMEOUT))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch the real server outside any test, whose time is bounded; it takes minutes, once."""
    choice = session.config.stash[_choice]
    started = {"real": _SERVERS, "running": _OWN_SERVERS, "embedded": set()}[choice.kind]
    wanted = any(started & set(_fixtures(item)) for item in session.items)
    if wanted and choice.obstacle is None and not session.config.option.collectonly:
        fetch_jars(os.environ)


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


@pytest.fixture
def note(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Notes a line with figures for the end of the run."""
    return pytestconfig.stash[_notes].append


@pytest.fixture(scope="session")
def pulsar_server(pytestconfig: pytest.Config) -> Iterator[LiveServer]:
    """The chosen server, whichever it is."""
    with open_server(pytestconfig.stash[_choice]) as server:
        yield server


@pytest.fixture
def real_server(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> LiveServer:
    """The chosen server, for a test of what the embedded one cannot do."""
    choice = pytestconfig.stash[_choice]
    if choice.kind == "embedded":
        pytest.skip(f"needs a real Pulsar server; this is {choice.reason}")

    server: LiveServer = request.getfixturevalue("pulsar_server")
    return server


@pytest.fixture(scope="session")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    """What the secured server asks for."""
    return Credentials(tmp_path_factory.mktemp("credentials"))


@pytest.fixture(scope="session")
def startable(pytestconfig: pytest.Config) -> None:
    """Skips a test where no real server can be started for it."""
    choice = pytestconfig.stash[_choice]
    if choice.kind == "embedded" or choice.obstacle is not None:
        pytest.skip(f"needs a real Pulsar server of its own; {choice.obstacle or choice.reason}")


@pytest.fixture(scope="session")
def secured(startable: None, credentials: Credentials) -> Iterator[RealPulsar]:
    """A real server that asks for a token, on a plain and on a TLS port."""
    with RealPulsar(credentials) as server:
        yield server


@pytest.fixture(scope="module")
def own_server(startable: None) -> Iterator[RealPulsar]:
    """A real server that the tests of a module may kill."""
    with RealPulsar() as server:
        yield server


def _fixtures(item: pytest.Item) -> Sequence[str]:
    names: Sequence[str] = getattr(item, "fixturenames", ())
    return names
