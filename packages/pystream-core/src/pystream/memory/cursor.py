"""`Cursor`: how far one subscription has read a log, and what it has acknowledged."""

from __future__ import annotations

__all__ = ["Cursor"]


class Cursor:
    """The place of one subscription in a `Log`.

    Everything below `mark` is acknowledged (the mark-delete position), and so is the set
    of offsets acknowledged out of order beyond it; the mark advances over that set as the
    gaps close. `position` is the next offset to be read. Acknowledging in order costs no
    more than adding one. Not thread-safe: one thread owns a cursor.

    Args:
        start: The offset the subscription begins at, 0 or more.

    Attributes:
        mark: The lowest offset that is not acknowledged. To be read, not set.
        position: The offset from which `next` goes on. To be read, not set.
    """

    __slots__ = ("_beyond", "mark", "position")

    def __init__(self, start: int = 0) -> None:
        self.mark: int = start
        self.position: int = start
        self._beyond: set[int] = set()

    def next(self, end: int) -> int | None:
        """The next offset to read, passing over acknowledged ones; none when `end` is reached.

        Args:
            end: The end of the log, which is the offset its next entry will get.
        """
        position = self.position
        if position < self.mark:
            position = self.mark

        while position in self._beyond:
            position += 1

        if position >= end:
            self.position = position
            return None

        self.position = position + 1
        return position

    def acknowledge(self, offset: int) -> int:
        """Have one offset done, without effect if it was done before; returns the mark."""
        mark = self.mark
        if offset == mark:
            self.mark = mark = offset + 1
            if mark in self._beyond:
                self._close_gap()
                return self.mark
        elif offset > mark:
            self._beyond.add(offset)

        return mark

    def is_acknowledged(self, offset: int) -> bool:
        """Whether `offset` is done."""
        return offset < self.mark or offset in self._beyond

    def rewind(self) -> None:
        """Read again from the lowest offset that is not acknowledged."""
        self.position = self.mark

    def backlog(self, end: int) -> int:
        """How many entries below `end`, the end of the log, are not acknowledged."""
        return end - self.mark - len(self._beyond)

    def _close_gap(self) -> None:
        mark = self.mark
        while mark in self._beyond:
            self._beyond.remove(mark)
            mark += 1

        self.mark = mark
