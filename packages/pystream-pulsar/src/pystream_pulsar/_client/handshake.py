"""The opening frames of the Pulsar protocol: the one we send, and the answers to it."""

from __future__ import annotations

from pystream_pulsar._client.jwt import expired_at
from pystream_pulsar._client.wire import fields, number_field, text_field
from pystream_pulsar.errors import PulsarConnectError
from pystream_pulsar.transport import ServerInfo

__all__ = ["MAX_ANSWER", "connect_frame", "read_answer", "stray_answer"]

MAX_ANSWER = 64 * 1024
"""The longest first answer that is taken for Pulsar's, in bytes."""

# The kinds of command; the field of a command that holds its content has the same number.
_CONNECT, _CONNECTED, _ERROR, _AUTH_CHALLENGE = 2, 3, 14, 36
_PROTOCOL_VERSION = 19

_SERVER_ERRORS = {3: "AuthenticationError", 4: "AuthorizationError", 11: "UnsupportedVersionError"}


def connect_frame(token: str | None = None) -> bytes:
    """What a client says first."""
    content = text_field(1, b"pystream")
    if token is not None:
        content += text_field(3, token.encode())

    content += number_field(4, _PROTOCOL_VERSION)
    if token is not None:
        content += text_field(5, b"token")  # the kind of credentials

    command = number_field(1, _CONNECT) + text_field(_CONNECT, content)
    sized = len(command).to_bytes(4, "big") + command
    return len(sized).to_bytes(4, "big") + sized


def read_answer(frame: bytes, token: str | None = None) -> ServerInfo:
    """What the server is, from its first frame without the frame's own length.

    Args:
        frame: The frame.
        token: What was sent; a refusal that repeats it is not quoted with it.

    Raises:
        PulsarConnectError: The server refused; the message is only the reason.
        ValueError: The frame is not of the Pulsar protocol.
    """
    size = int.from_bytes(frame[:4], "big")
    command = dict(fields(frame[4 : 4 + size]))
    kind = command.get(1)
    content = command.get(kind) if isinstance(kind, int) else None
    if kind == _AUTH_CHALLENGE:
        raise PulsarConnectError("the server asks for credentials", result="AuthenticationError")

    if kind not in (_CONNECTED, _ERROR) or not isinstance(content, bytes):
        raise ValueError("neither CONNECTED nor ERROR")

    if kind == _ERROR:
        raise _refusal(content, token)

    answer = dict(fields(content))
    version, limit = answer.get(1), answer.get(3)
    if not isinstance(version, bytes):
        raise ValueError("CONNECTED without a version")

    info = ServerInfo(version=version.decode(errors="replace"))
    return ServerInfo(version=info.version, max_message_size=limit) if isinstance(limit, int) and limit > 0 else info


def _refusal(content: bytes, token: str | None) -> PulsarConnectError:
    error = dict(fields(content))
    text, code = error.get(3), error.get(2)
    said = text.decode(errors="replace") if isinstance(text, bytes) else "no reason given"
    name = _SERVER_ERRORS.get(code, "ConnectError") if isinstance(code, int) else "ConnectError"
    if token is not None:
        said = said.replace(token, "(the token)")

    hint = _hint(token) if name == "AuthenticationError" else ""
    return PulsarConnectError(f"the server refused the connection: {said}{hint}", result=name)


def _hint(token: str | None) -> str:
    """What the server keeps to itself: it says the same to every client it does not know."""
    if token is None:
        return "; no token was sent: give PulsarBroker(auth=Token(...))"

    expiry = expired_at(token)
    return f"; the token expired at {expiry}" if expiry else "; it does not accept the token that was sent"


def stray_answer(start: bytes) -> str:
    """What else may be listening there, judged by the first bytes it sent."""
    if start.startswith(b"HTTP"):
        return "an HTTP server answers there; give the port of the binary protocol, 6650 by default"

    if start[:1] in (b"\x15", b"\x16") and start[1:2] == b"\x03":
        return "a TLS server answers there; use pulsar+ssl:// and its port, 6651 by default"

    return "what answers there does not speak the Pulsar protocol"
