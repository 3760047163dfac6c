"""Trap 4: a negative acknowledgement brings back a whole entry, settled neighbours included.

When an entry is asked back, what is settled of it is noted: all that was received, less
what is in hand, less what is asked back. A copy of one of these, or of one settled later,
is acknowledged without being handled. Nothing is noted of entries that nobody asks back.

A watched entry costs every message a look at its identity, so the watch ends: a few
seconds after all of the entry is settled, or after a minute when it does not come back (a
sibling may have got it). What was noted of an unfinished entry is kept, since guessing it
again later could take a message for settled that is only asked back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pystream.protocols import Clock, Timer

from pystream_pulsar._driver.defence import Defence, Entry, entry_of
from pystream_pulsar._driver.received import Received
from pystream_pulsar.message import PulsarMessage

__all__ = ["Neighbours"]

_COMPLETE = 5.0  # seconds that copies of a settled entry may be late
_INCOMPLETE = 60.0
_RECEIVING = 5.0  # seconds that the rest of an entry may take to be pulled
_SWEEP = 5.0
_NOTES = 1024


@dataclass(slots=True)
class _Note:
    """What is known of one entry: `settled` is none until it is asked back."""

    size: int
    received: int = -1
    settled: set[int] | None = None


class Neighbours(Defence):
    """The entries that were asked back.

    Args:
        clock: Ends the watch over an entry.
        in_hand: All messages in hand.
        received: How far entries were received.
        acknowledge: Acknowledges a copy; does not raise.
        forgotten: Called when the watch over an entry has ended.
    """

    __slots__ = ("_acknowledge", "_clock", "_forgotten", "_in_hand", "_notes", "_received", "_timer", "_watched")

    def __init__(
        self,
        clock: Clock,
        *,
        in_hand: Iterable[PulsarMessage],
        received: Received,
        acknowledge: Callable[[PulsarMessage], None],
        forgotten: Callable[[Entry], None],
    ) -> None:
        self._clock = clock
        self._in_hand = in_hand
        self._received = received
        self._acknowledge = acknowledge
        self._forgotten = forgotten
        self._notes: dict[Entry, _Note] = {}
        self._watched: dict[Entry, float] = {}
        self._timer: Timer | None = None

    @property
    def quiet(self) -> bool:
        return not self._watched

    def arrived(self, message: PulsarMessage) -> bool:
        if not self._notes:
            return False

        entry = entry_of(message)
        note = self._notes.get(entry)
        if note is None:
            return False

        index = message.identity.index
        note.received = max(note.received, index)
        if note.settled is None:
            if note.received == note.size - 1:
                self._end_watch(entry)

            return False

        if index not in note.settled:
            return False

        self._acknowledge(message)
        return True

    def settled(self, message: PulsarMessage) -> None:
        if not self._notes:
            return

        entry = entry_of(message)
        note = self._notes.get(entry)
        if note is None or note.settled is None:
            return

        note.settled.add(message.identity.index)
        if len(note.settled) == note.size and entry in self._watched:
            self._watch(entry, _COMPLETE)

    def held(self, message: PulsarMessage, delay: float) -> None:  # a hook's signature
        size = message.raw.batch_size
        if size < 2:
            return

        entry = entry_of(message)
        note = self._notes.pop(entry, None) or _Note(size)
        self._notes[entry] = note
        self._look(entry, note, message)
        if note.settled is None and note.received < size - 1:
            self._watch(entry, _RECEIVING)

        self._limit()

    def asked_back(self, burst: Sequence[PulsarMessage]) -> None:
        if not self._notes:
            return

        asked: dict[Entry, set[int]] = defaultdict(set)
        for message in burst:
            entry = entry_of(message)
            note = self._notes.get(entry)
            if note is not None:
                asked[entry].add(message.identity.index)
                self._look(entry, note, message)

        self._note_settled(asked)
        for entry in asked:
            self._watch(entry, _INCOMPLETE)

    def stop(self) -> None:
        """Watch nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, entry: Entry, note: _Note, message: PulsarMessage) -> None:
        note.received = max(note.received, message.identity.index, self._received.highest(entry))

    def _note_settled(self, asked: dict[Entry, set[int]]) -> None:
        fresh = {entry: note for entry in asked if (note := self._notes[entry]).settled is None}
        if not fresh:
            return

        unsettled: dict[Entry, set[int]] = defaultdict(set)
        for message in self._in_hand:
            unsettled[entry_of(message)].add(message.identity.index)

        for entry, note in fresh.items():
            received = max(note.received, *unsettled[entry], -1)
            note.settled = set(range(received + 1)) - unsettled[entry] - asked[entry]

    def _watch(self, entry: Entry, seconds: float) -> None:
        self._watched[entry] = self._clock.now() + seconds
        if self._timer is None:
            self._timer = self._clock.call_later(_SWEEP, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self._clock.now()
        for entry in [entry for entry, until in self._watched.items() if until <= now]:
            self._end_watch(entry)

        if self._watched:
            self._timer = self._clock.call_later(_SWEEP, self._sweep)

    def _end_watch(self, entry: Entry) -> None:
        self._watched.pop(entry, None)
        note = self._notes[entry]
        if note.settled is not None and len(note.settled) == note.size:
            del self._notes[entry]

        self._forgotten(entry)

    def _limit(self) -> None:
        """Keep the notes of unwatched entries within a bound; past it nothing may be guessed of them."""
        if len(self._notes) <= _NOTES:
            return

        oldest = next((entry for entry in self._notes if entry not in self._watched), None)
        if oldest is not None:
            del self._notes[oldest]
            self._received.forget()
