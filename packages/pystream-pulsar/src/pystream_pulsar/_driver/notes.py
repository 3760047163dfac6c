"""What is noted of entries that were asked back, or will be (trap 4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from pystream_pulsar._driver.defence import Entry, entry_of
from pystream_pulsar._driver.watch import Watch
from pystream_pulsar.message import PulsarMessage

__all__ = ["Note", "Notes", "indices_by_entry"]

_MANY = 1024


@dataclass(slots=True)
class Note:
    """What is known of one entry.

    Attributes:
        size: How many messages it has.
        received: The highest index that was received for certain.
        settled: The indices settled for certain; none until the entry is asked back.
    """

    size: int
    received: int = -1
    settled: set[int] | None = None

    @property
    def complete(self) -> bool:
        """Whether all of the entry is settled."""
        return self.settled is not None and len(self.settled) == self.size


class Notes(dict[Entry, Note]):
    """The notes, the latest retry last.

    A note is thrown away only when nothing of its entry is in hand. Otherwise a later retry
    would have to guess, and could take a message for settled that was asked back.
    """

    __slots__ = ("_bound",)

    def __init__(self) -> None:
        super().__init__()
        self._bound = _MANY

    def renew(self, entry: Entry, size: int) -> Note:
        """The note of an entry, made if there is none; it is the latest now."""
        note = self.pop(entry, None) or Note(size)
        self[entry] = note
        return note

    def shrink(self, watched: Watch, in_hand: Iterable[PulsarMessage]) -> bool:
        """Throw away the older half if there are too many; whether something was thrown away."""
        if len(self) <= self._bound:
            return False

        held = indices_by_entry(in_hand)
        old = [entry for entry in list(self)[: len(self) // 2] if entry not in watched and entry not in held]
        for entry in old:
            del self[entry]

        self._bound = max(_MANY, 2 * len(self))  # if all are needed, the next look is not soon
        return bool(old)


def indices_by_entry(messages: Iterable[PulsarMessage]) -> defaultdict[Entry, set[int]]:
    """The indices of these messages, by entry."""
    indices: defaultdict[Entry, set[int]] = defaultdict(set)
    for message in messages:
        indices[entry_of(message)].add(message.identity.batch_index)

    return indices
