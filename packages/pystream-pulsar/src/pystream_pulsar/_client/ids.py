"""What a serialised message id tells and the binding does not: the size of the batch."""

from __future__ import annotations

from pystream_pulsar._client.wire import fields

__all__ = ["batch_size"]

_BATCH_SIZE = 6  # of `MessageIdData` in the protocol


def batch_size(position: bytes) -> int:
    """How many messages share the entry that a serialised id is about; 1 when it does not say."""
    try:
        for number, value in fields(position):
            if number == _BATCH_SIZE and isinstance(value, int):
                return max(1, value)

    except ValueError:
        return 1

    return 1
