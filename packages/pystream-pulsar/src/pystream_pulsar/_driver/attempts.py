"""Trap 4, the counts: the server counts per entry, so a message never tried may look spent.

For entries that this session asked back, its own failures are counted per message, and the
smaller count is told. It is trusted only where the session has seen them all: the entry
had never been redelivered before its first failure here, and no more often since than it
was asked back from here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pystream_pulsar._driver.defence import Defence, Entry, entry_of
from pystream_pulsar.message import PulsarMessage

__all__ = ["Attempts"]


@dataclass(slots=True)
class _Record:
    """How often an entry was asked back from here, and which of its messages had failed how often."""

    asked: int = 0
    failures: Counter[int] = field(default_factory=Counter)


class Attempts(Defence):
    """The failures of batched messages in this session."""

    __slots__ = ("_records",)

    def __init__(self) -> None:
        self._records: dict[Entry, _Record] = {}

    @property
    def quiet(self) -> bool:
        return not self._records

    def arrived(self, message: PulsarMessage) -> bool:
        if not self._records:
            return False

        record = self._records.get(entry_of(message))
        if record is None:
            return False

        redelivered = message._raw.redelivery_count
        if redelivered <= record.asked:
            redelivered = min(redelivered, record.failures[message.identity.batch_index])

        message._counted(redelivered + 1)
        return False

    def settled(self, message: PulsarMessage) -> None:
        if not self._records:
            return

        record = self._records.get(entry_of(message))
        if record is not None:
            record.failures.pop(message.identity.batch_index, None)

    def asked_back(self, burst: Sequence[PulsarMessage]) -> None:
        entries: set[Entry] = set()
        for message in burst:
            record = self._record(message)
            if record is not None:
                record.failures[message.identity.batch_index] += 1
                entries.add(entry_of(message))

        for entry in entries:  # the client joins the requests of one burst into one per entry
            self._records[entry].asked += 1

    def cleared(self, entry: Entry) -> None:
        self._records.pop(entry, None)

    def _record(self, message: PulsarMessage) -> _Record | None:
        entry = entry_of(message)
        record = self._records.get(entry)
        if record is None and message._raw.batch_size > 1 and message._raw.redelivery_count == 0:
            record = self._records[entry] = _Record()

        return record
