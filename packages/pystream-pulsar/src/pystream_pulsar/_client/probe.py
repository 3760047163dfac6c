"""Proves that a server answers, which the client cannot: it never dials by itself.

One short-lived connection, on which the opening frame of the protocol is sent by hand.
The answer comes at once: the server's version and its largest message, or its reason for
refusing; everything else (nobody there, no such host, silence, another protocol) gets a
sentence that says which.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream

from pystream_pulsar._client.handshake import MAX_ANSWER, connect_frame, read_answer, stray_answer
from pystream_pulsar._client.tls import secure
from pystream_pulsar.errors import PulsarConnectError
from pystream_pulsar.transport import ServerInfo

__all__ = ["Address", "addresses", "probe"]

Address = tuple[str, int]

_SILENT_CLOSE = (
    "it closed the connection without an answer, as a port with TLS does, which is reached by pulsar+ssl://, "
    "and a server that is starting"
)
_DEFAULT_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}


def addresses(url: str) -> tuple[Address, ...]:
    """The hosts and ports of a service URL, in its order.

    Raises:
        PulsarConnectError: The URL has another scheme than `pulsar` or `pulsar+ssl`, or no host, or no valid port.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _DEFAULT_PORTS:
        raise PulsarConnectError(
            "cannot connect: the service URL must begin with pulsar:// or pulsar+ssl://", result="InvalidUrl"
        )

    return tuple(_address(part, _DEFAULT_PORTS[scheme]) for part in rest.split("/", 1)[0].split(","))


def _address(part: str, default_port: int) -> Address:
    try:
        split = urlsplit(f"//{part}")
        host, port = split.hostname, split.port
    except ValueError:
        # Without the cause: it quotes what it could not read, which may be a password.
        raise PulsarConnectError(
            "cannot connect: the service URL has a port that is no port", result="InvalidUrl"
        ) from None

    if not host:
        raise PulsarConnectError("cannot connect: the service URL names no host", result="InvalidUrl")

    return host, port or default_port


async def probe(
    hosts: Sequence[Address], *, timeout: float, token: str | None = None, context: ssl.SSLContext | None = None
) -> ServerInfo:
    """What the first host that answers is. They are asked one after the other.

    Args:
        hosts: At least one.
        timeout: Seconds for all of them together; each gets an equal share of what is left.
        token: What we are known by, or none.
        context: How the server's certificate is judged, or none for a connection without TLS.

    Raises:
        PulsarConnectError: None of them answers as a Pulsar server, or the first that does refuses.

    Cancel safety: the connection is closed.
    """
    deadline = anyio.current_time() + timeout
    failures: list[str] = []
    for index, (host, port) in enumerate(hosts):
        share = max(0.0, deadline - anyio.current_time()) / (len(hosts) - index)
        try:
            return await _ask(host, port, share, token, context)
        except PulsarConnectError as error:
            name = f"[{host}]" if ":" in host else host
            failures.append(f"cannot connect to {name}:{port}: {error}")
            cause = error

    raise PulsarConnectError("; ".join(failures), result=cause.result) from cause.__cause__


async def _ask(host: str, port: int, timeout: float, token: str | None, context: ssl.SSLContext | None) -> ServerInfo:
    reached = False
    try:
        with anyio.fail_after(timeout):
            async with await anyio.connect_tcp(host, port) as connection:
                reached = True
                stream = connection if context is None else await secure(connection, host, context)
                await stream.send(connect_frame(token))
                return await _read(stream, token)

    except TimeoutError as error:
        where = "accepts connections but stays silent" if reached else "does not answer (a firewall may drop us)"
        raise PulsarConnectError(f"it {where} within {timeout:.3g} s", result="Timeout") from error
    except (OSError, UnicodeError, anyio.BrokenResourceError) as error:
        raise PulsarConnectError(_unreachable(error), result="ConnectError") from error


async def _read(stream: ByteStream, token: str | None) -> ServerInfo:
    received = b""
    try:
        while True:
            received += await stream.receive()
            if len(received) < 4:
                continue

            size = int.from_bytes(received[:4], "big")
            if not 4 < size <= MAX_ANSWER:
                raise PulsarConnectError(stray_answer(received), result="ConnectError")

            if len(received) >= 4 + size:
                return read_answer(received[4 : 4 + size], token)

    except anyio.EndOfStream as error:
        why = stray_answer(received) if received else _SILENT_CLOSE
        raise PulsarConnectError(why, result="ConnectError") from error
    except ValueError as error:
        raise PulsarConnectError(stray_answer(received), result="ConnectError") from error


def _unreachable(error: BaseException) -> str:
    # anyio's own error says only that every attempt failed; what failed is its cause.
    innermost = error
    while innermost.__cause__ is not None:
        innermost = innermost.__cause__

    if isinstance(innermost, BaseExceptionGroup):
        innermost = innermost.exceptions[0]

    if isinstance(innermost, socket.gaierror | UnicodeError):
        return "there is no host of that name"

    if isinstance(innermost, ConnectionRefusedError):
        return "nothing listens there (connection refused)"

    if isinstance(innermost, ConnectionResetError | anyio.BrokenResourceError):
        return "it cut the connection; a port with TLS does that, and so does a server that is starting"

    return (innermost.strerror if isinstance(innermost, OSError) else None) or type(innermost).__name__
