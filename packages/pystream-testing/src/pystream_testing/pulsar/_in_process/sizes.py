"""How large a message is to the client: what it compares with the server's limit.

The client refuses by the encoded size: in a producer batch the payload with the metadata
of the single message before it, outside one the payload and the metadata of its entry.
"""

from __future__ import annotations

from collections.abc import Mapping

from pystream_testing.pulsar._in_process.entries import Stored

__all__ = ["batched_size", "single_size"]

_LENGTH_PREFIX = 4


def batched_size(message: Stored) -> int:
    """Bytes of a message in a producer batch."""
    return (
        _LENGTH_PREFIX
        + _number(len(message.payload))
        + _number(message.sequence)
        + _key_and_properties(message.key, message.properties)
        + len(message.payload)
    )


def single_size(message: Stored, producer: str) -> int:
    """Bytes of a message that is an entry of its own."""
    return (
        _text(producer)
        + _number(message.sequence)
        + _number(round(message.publish_time * 1000))
        + _key_and_properties(message.key, message.properties)
        + len(message.payload)
    )


def _key_and_properties(key: str | None, properties: Mapping[str, str]) -> int:
    pairs = (_text(name) + _text(value) for name, value in properties.items())
    return (_text(key) if key else 0) + sum(_bytes(pair) for pair in pairs)


def _text(value: str) -> int:
    return _bytes(len(value.encode()))


def _bytes(length: int) -> int:
    """A field of that many bytes: its tag, its length and itself."""
    return _number(length) + length


def _number(value: int) -> int:
    """A field with that number: its tag, and seven bits a byte."""
    return 1 + max(1, -(-value.bit_length() // 7))
