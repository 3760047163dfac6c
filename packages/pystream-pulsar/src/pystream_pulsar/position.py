"""`PulsarPosition`: the place of one message in its topic, to be kept and compared."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pystream.errors import ConfigurationError

from pystream_pulsar.topic import PulsarTopic

__all__ = ["PulsarPosition"]

_MAGIC = b"PSP\x01"  # the last byte is the version of the form
_LENGTH = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class PulsarPosition:
    """Where one message stands. A handler gets it by a parameter of this type.

    Attributes:
        topic: The full topic name, with `-partition-N` where there is one: a message id
            means nothing on another topic.
        message_id: The message id in the client's serialised form.
    """

    topic: str
    message_id: bytes

    def to_bytes(self) -> bytes:
        """The position for storage; `from_bytes` reads it, in this and in later versions."""
        topic = self.topic.encode()
        return b"".join((_MAGIC, _LENGTH.pack(len(topic)), topic, self.message_id))

    @classmethod
    def from_bytes(cls, data: bytes) -> PulsarPosition:
        """The position that `to_bytes` has written.

        Raises:
            ConfigurationError: These bytes are none.
        """
        start = len(_MAGIC) + _LENGTH.size
        if not data.startswith(_MAGIC) or len(data) <= start:
            raise _refusal(data)

        (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
        topic, message_id = data[start : start + length], data[start + length :]
        if not message_id:
            raise _refusal(data)

        try:
            return cls(PulsarTopic(topic.decode()).full_name, message_id)
        except (UnicodeDecodeError, ConfigurationError) as error:
            raise _refusal(data) from error


def _refusal(data: bytes) -> ConfigurationError:
    return ConfigurationError(
        f"these {len(data)} bytes are no position; give what PulsarPosition.to_bytes() returned, unchanged"
    )
