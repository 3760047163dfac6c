"""The few rules of protobuf's encoding that message ids and the opening handshake need."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["fields", "number_field", "text_field"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of an encoded message: their numbers, and a number or bytes each.

    Raises:
        ValueError: The bytes are no encoded message.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue

        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {kind}")

        if at + size > len(data):
            raise ValueError("the message is cut short")

        yield tag >> 3, data[at : at + size]
        at += size


def number_field(number: int, value: int) -> bytes:
    """An encoded field with a number of 0 or more."""
    return _encode(number << 3 | _VARINT) + _encode(value)


def text_field(number: int, value: bytes) -> bytes:
    """An encoded field with bytes, text or an encoded message."""
    return _encode(number << 3 | _BYTES) + _encode(len(value)) + value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at

        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")

    raise ValueError("a number is cut short")


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7

    out.append(value)
    return bytes(out)
