"""How a message lies in the fields of a stream's entry: `payload`, `key`, and `header:NAME` for each header."""

from __future__ import annotations

from collections.abc import Sequence

from pystream.errors import DecodeError, PublishError
from pystream.protocols import Outgoing

__all__ = ["fields_of", "headers_in", "value_of"]

PAYLOAD = b"payload"
KEY = b"key"
_HEADER = b"header:"


def fields_of(outgoing: Outgoing) -> list[bytes]:
    """The fields of a message, names and values in turn.

    Raises:
        PublishError: The payload, the key or a header is not what it has to be.
    """
    if not isinstance(outgoing.payload, bytes):
        raise _refusal(outgoing, f"a payload of {type(outgoing.payload).__name__}; encode it to bytes")

    fields = [PAYLOAD, outgoing.payload]
    key = outgoing.key
    if key:
        if not isinstance(key, str | bytes):
            raise _refusal(outgoing, f"a key of {type(key).__name__}; give str or bytes")

        fields += (KEY, _encoded(outgoing, key) if isinstance(key, str) else key)

    for name, value in outgoing.headers.items():
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise _refusal(outgoing, "a header that is not a str name with a bytes value")

        fields += (_HEADER + _encoded(outgoing, name), value)

    return fields


def value_of(fields: Sequence[bytes], name: bytes) -> bytes | None:
    """The value of the first field of that name, or none."""
    for place in range(0, len(fields), 2):
        if fields[place] == name:
            return fields[place + 1]

    return None


def headers_in(fields: Sequence[bytes]) -> dict[str, bytes]:
    """The headers.

    Raises:
        DecodeError: A name is no UTF-8.
    """
    headers: dict[str, bytes] = {}
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        if name.startswith(_HEADER):
            try:
                headers[name[len(_HEADER) :].decode()] = value
            except UnicodeDecodeError as error:
                raise DecodeError("a header's name is no UTF-8") from error

    return headers


def _encoded(outgoing: Outgoing, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _refusal(outgoing, "a key or header name that is no UTF-8 text") from error


def _refusal(outgoing: Outgoing, what: str) -> PublishError:
    return PublishError(f"a message to {outgoing.destination!r} has {what}")
