"""`Log`: what was published to one name, from the oldest entry that is still needed."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["Log"]

T = TypeVar("T")


class Log(Generic[T]):
    """An append-only sequence of entries with lasting offsets, trimmed at its old end.

    Offsets start at 0, rise by one and are never used twice, so a reader that remembers
    an offset finds its place again however much was trimmed. Appending and reading cost
    the same whatever the length; trimming is amortised to one move per entry. Not
    thread-safe: one thread owns a log.

    Attributes:
        first: The offset of the oldest entry kept; equal to `end` when the log is empty.
        end: The offset that the next entry will get. To be read, not set.
    """

    __slots__ = ("_base", "_entries", "end", "first")

    def __init__(self) -> None:
        self._entries: list[T | None] = []
        self._base = 0
        self.first: int = 0
        self.end: int = 0

    def __len__(self) -> int:
        return self.end - self.first

    def append(self, entry: T) -> int:
        """Store an entry at the end, and return its offset."""
        offset = self.end
        self._entries.append(entry)
        self.end = offset + 1
        return offset

    def read(self, offset: int) -> T:
        """The entry at `offset`.

        Raises:
            IndexError: The offset was trimmed away, or nothing is stored there yet.
        """
        if offset < self.first:
            raise IndexError(f"offset {offset} was trimmed away; the log begins at {self.first}")

        return self._entries[offset - self._base]  # type: ignore[return-value]  # none only below `first`

    def trim(self, before: int) -> None:
        """Forget every entry below the offset `before`; without effect if there is none."""
        before = min(before, self.end)
        if before <= self.first:
            return

        dead = before - self._base
        if dead * 2 >= len(self._entries):
            del self._entries[:dead]
            self._base = before
        else:
            # The list is not moved until half of it is dead; the entries are let go at once.
            self._entries[self.first - self._base : dead] = [None] * (before - self.first)

        self.first = before
