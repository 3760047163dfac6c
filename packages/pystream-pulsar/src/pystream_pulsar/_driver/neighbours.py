"""Trap 4: a negative acknowledgement brings back a whole entry, settled neighbours included.

When an entry is asked back, what is settled of it is noted: all that was received, less
what is in hand, less what is asked back. A copy of one of these, or of one settled later,
is acknowledged without being handled. Nothing is noted of entries that nobody asks back.

A watched entry costs every message a look at its identity, so the watch ends: a few
seconds after all of the entry is settled, or after a minute when it does not come back (a
sibling may have got it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pystream.protocols import Clock

from pystream_pulsar._driver.defence import Defence, Entry, entry_of
from pystream_pulsar._driver.notes import Note, Notes, indices_by_entry
from pystream_pulsar._driver.received import Received
from pystream_pulsar._driver.watch import Watch
from pystream_pulsar.message import PulsarMessage

__all__ = ["Neighbours"]

_COMPLETE = 5.0  # seconds that copies of a settled entry may be late
_INCOMPLETE = 60.0
_RECEIVING = 5.0  # seconds that the rest of an entry may take to be pulled


class Neighbours(Defence):
    """The entries that were asked back.

    Args:
        clock: Ends the watch over an entry.
        in_hand: All messages in hand.
        received: How far entries were received.
        acknowledge: Acknowledges a copy; does not raise.
        forgotten: Called when the watch over an entry has ended.
    """

    __slots__ = ("_acknowledge", "_forgotten", "_in_hand", "_notes", "_received", "_watch")

    def __init__(
        self,
        clock: Clock,
        *,
        in_hand: Iterable[PulsarMessage],
        received: Received,
        acknowledge: Callable[[PulsarMessage], None],
        forgotten: Callable[[Entry], None],
    ) -> None:
        self._in_hand = in_hand
        self._received = received
        self._acknowledge = acknowledge
        self._forgotten = forgotten
        self._notes = Notes()
        self._watch = Watch(clock, self._unwatched)

    @property
    def quiet(self) -> bool:
        return not self._watch

    def arrived(self, message: PulsarMessage) -> bool:
        note = self._note(message)
        if note is None:
            return False

        index = message.identity.batch_index
        note.received = max(note.received, index)
        if note.settled is None:
            self._received_so_far(entry_of(message), note)
            return False

        if index not in note.settled:
            return False

        self._acknowledge(message)
        return True

    def settled(self, message: PulsarMessage) -> None:
        note = self._note(message)
        if note is None or note.settled is None:
            return

        note.settled.add(message.identity.batch_index)
        entry = entry_of(message)
        if note.complete and entry in self._watch:
            self._watch.begin(entry, _COMPLETE)

    def held(self, message: PulsarMessage, delay: float) -> None:
        size = message._raw.batch_size
        if size < 2:
            return

        entry = entry_of(message)
        note = self._notes.renew(entry, size)
        self._look(entry, note, message)
        if note.settled is None and note.received < size - 1:
            self._watch.begin(entry, _RECEIVING)

        if self._notes.shrink(self._watch, self._in_hand):
            self._received.forget()

    def asked_back(self, burst: Sequence[PulsarMessage]) -> None:
        batched = [message for message in burst if self._note(message) is not None]
        for message in batched:
            entry = entry_of(message)
            self._look(entry, self._notes[entry], message)
            self._watch.begin(entry, _INCOMPLETE)

        fresh = [message for message in batched if self._notes[entry_of(message)].settled is None]
        if fresh:
            self._note_settled(fresh)

    def stop(self) -> None:
        """Watch nothing any more."""
        self._watch.stop()

    def _note(self, message: PulsarMessage) -> Note | None:
        return self._notes.get(entry_of(message)) if self._notes else None

    def _look(self, entry: Entry, note: Note, message: PulsarMessage) -> None:
        note.received = max(note.received, message.identity.batch_index, self._received.highest(entry))

    def _received_so_far(self, entry: Entry, note: Note) -> None:
        if note.received == note.size - 1:
            self._watch.end(entry)
            self._unwatched(entry)

    def _note_settled(self, asked: Iterable[PulsarMessage]) -> None:
        unsettled = indices_by_entry(self._in_hand)
        for entry, indices in indices_by_entry(asked).items():
            note = self._notes[entry]
            received = max(note.received, *unsettled[entry], -1)
            note.settled = set(range(received + 1)) - unsettled[entry] - indices

    def _unwatched(self, entry: Entry) -> None:
        if self._notes[entry].complete:
            del self._notes[entry]

        self._forgotten(entry)
