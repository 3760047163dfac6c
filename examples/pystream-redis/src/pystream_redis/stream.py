"""`RedisStream`: which stream a handler reads, and through which consumer group."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pystream.errors import ConfigurationError
from pystream.protocols import RetryKind, SourceParameters

__all__ = ["EntryId", "RedisStream", "Start"]

Start: TypeAlias = Literal["new", "oldest"]
"""Where a new group begins: with the next entry added, or with the oldest the stream still has."""


class _Marker(enum.Enum):
    ENTRY_ID = "entry id"


EntryId: TypeAlias = Annotated[str, _Marker.ENTRY_ID]
"""The annotation of a handler's parameter that receives the entry's id, such as `1526919030474-55`."""

_PARAMETERS: Final[SourceParameters] = MappingProxyType({_Marker.ENTRY_ID: attrgetter("entry_id")})
_STARTS: Final = get_args(Start)


@dataclass(frozen=True, slots=True)
class RedisStream:
    """A consumer group of one stream; implements `pystream.protocols.SubscriptionSource`.

    Every subscriber of a group is a consumer of its own, and they share the stream's entries.

    Args:
        stream: The stream's key, one character or more. It is made if it is not there.
        group: The group's name, one character or more. It is made if it is not there.
        start: Where a group begins that is made.
        read_ahead: How many new entries a subscriber holds ready, 1 or more, and as many that
            came back. None: 16, or twice what the handler's mount holds if that is more.
        claim_after: Seconds without a sign of life after which the entries of a consumer go
            to another, 1 to 86,400. A living subscriber renews its entries every third of it,
            so a handler may take longer.
        claim_every: Seconds between two looks for such entries, 0.05 or more, and at most
            a third of `claim_after`.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    stream: str
    group: str
    start: Start = "new"
    read_ahead: int | None = None
    claim_after: float = 30.0
    claim_every: float = 1.0

    def __post_init__(self) -> None:
        for option in ("stream", "group"):
            value = getattr(self, option)
            if not isinstance(value, str) or not value:
                raise ConfigurationError(f"RedisStream({option}={value!r}): give a name of one character or more")

        if self.start not in _STARTS:
            raise self._refusal("start", " or ".join(map(repr, _STARTS)))

        if self.read_ahead is not None and not (type(self.read_ahead) is int and self.read_ahead >= 1):
            raise self._refusal("read_ahead", "a whole number of 1 or more, or leave it out")

        if not _is_seconds(self.claim_after, 1, 86_400):
            raise self._refusal("claim_after", "a number of seconds from 1 to 86400")

        if not _is_seconds(self.claim_every, 0.05, self.claim_after / 3):
            raise self._refusal("claim_every", "seconds from 0.05 to a third of claim_after")

    @property
    def name(self) -> str:
        """The stream's key."""
        return self.stream

    @property
    def retry(self) -> RetryKind:
        """`broker`: the entry stays pending on the server until it was handled."""
        return "broker"

    @property
    def batch_wait(self) -> float | None:
        """None: the runtime's own wait for a batch to fill."""
        return None

    @property
    def max_delay(self) -> float | None:
        """None: a held entry is renewed for as long as it takes."""
        return None

    @property
    def copies_to(self) -> str | None:
        """The stream's key; a copy reaches every group of the stream."""
        return self.stream

    @property
    def parameters(self) -> SourceParameters:
        """`EntryId`."""
        return _PARAMETERS

    def _refusal(self, option: str, way_out: str) -> ConfigurationError:
        return ConfigurationError(
            f"group {self.group!r} of stream {self.stream!r}: {option}={getattr(self, option)!r}; give {way_out}"
        )


def _is_seconds(value: Any, least: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most < inf
