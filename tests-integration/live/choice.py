"""Which Pulsar server the tests take: a running one, the real one as a child, or the embedded one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from live.admin import Admin
from live.jars import VERSION
from live.real import RealPulsar
from pystream_testing.pulsar import EmbeddedPulsar

__all__ = ["Choice", "Kind", "LiveServer", "choose", "open_server", "required"]

Kind: TypeAlias = Literal["running", "real", "embedded"]

_URL, _ADMIN_URL = "PYSTREAM_PULSAR_URL", "PYSTREAM_PULSAR_ADMIN_URL"
_SERVER, _REQUIRE = "PYSTREAM_PULSAR_SERVER", "PYSTREAM_REQUIRE_LIVE"


@dataclass(frozen=True)
class Choice:
    """The server that was chosen, and why.

    Attributes:
        kind: Which of the three.
        reason: What pytest's header says of it.
        obstacle: Why no server of the tests' own can be started, or none.
        url: The running server's, else empty.
        admin_url: The running server's admin interface, or none.
    """

    kind: Kind
    reason: str
    obstacle: str | None = None
    url: str = ""
    admin_url: str | None = None


@dataclass(frozen=True)
class LiveServer:
    """A server that runs.

    Attributes:
        url: Its service URL.
        kind: Which of the three it is.
        admin: Its admin interface, or none.
    """

    url: str
    kind: Kind
    admin: Admin | None


def required(environment: Mapping[str, str]) -> bool:
    """Whether a test that cannot run is a failure."""
    return environment.get(_REQUIRE, "") not in ("", "0")


def choose(environment: Mapping[str, str], obstacle: str | None) -> Choice:
    """The server for these variables.

    Args:
        environment: The process's variables.
        obstacle: Why the real server cannot run here, or none.

    Raises:
        ValueError: The variables contradict each other or what is there.
    """
    wanted, url = environment.get(_SERVER, ""), environment.get(_URL, "")
    if wanted not in ("", "embedded", "real"):
        raise ValueError(f"{_SERVER}={wanted}: write embedded or real, or leave it out")

    if url and wanted:
        raise ValueError(f"{_URL} names a server and {_SERVER} another; set one of them")

    if url:
        return Choice("running", f"{url} ({_URL})", obstacle, url, environment.get(_ADMIN_URL) or None)

    if wanted == "embedded":
        return _embedded(environment, f"asked for by {_SERVER}", obstacle)

    if obstacle is None:
        return Choice("real", f"Apache Pulsar {VERSION}, started here")

    if wanted == "real":
        raise ValueError(f"{_SERVER}=real: {obstacle}")

    return _embedded(environment, f"the real one cannot run: {obstacle}", obstacle)


def _embedded(environment: Mapping[str, str], why: str, obstacle: str | None) -> Choice:
    if required(environment):
        raise ValueError(f"{_REQUIRE} asks for a real server, and there is only the embedded one ({why})")

    return Choice("embedded", f"the embedded server ({why})", obstacle)


@contextmanager
def open_server(choice: Choice) -> Iterator[LiveServer]:
    """The chosen server, for as long as the block lasts."""
    if choice.kind == "running":
        yield LiveServer(choice.url, choice.kind, None if choice.admin_url is None else Admin(choice.admin_url))
    elif choice.kind == "real":
        with RealPulsar() as real:
            yield LiveServer(real.url, choice.kind, real.admin)
    else:
        with EmbeddedPulsar() as embedded:
            yield LiveServer(embedded.url, choice.kind, None)
