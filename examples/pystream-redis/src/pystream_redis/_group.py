"""`Group`: one consumer of a group, and what the server keeps about it: the pending entries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from pystream_redis._link import Answer, Command, Refusal
from pystream_redis._pipe import Pipe
from pystream_redis.stream import RedisStream

__all__ = ["PARKED", "Entry", "Group"]

PARKED: Final = "pystream-parked"
"""The consumer that holds what was given back, until one that reads claims it."""

_WINDOW = 1000

# Atomic, since deleting a consumer forgets what is pending with it.
_REMOVE_IF_EMPTY = """
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
    return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
"""


class Entry(NamedTuple):
    """An entry that this consumer has been given."""

    id: bytes
    fields: list[bytes]
    tries: int


class Group:
    """The commands about one consumer's pending entries.

    Args:
        pipe: Sends them.
        source: Names stream and group.
        consumer: The consumer's name, used by nobody else.
    """

    __slots__ = ("_consumer", "_pipe", "_source")

    def __init__(self, pipe: Pipe, source: RedisStream, consumer: str) -> None:
        self._pipe = pipe
        self._source = source
        self._consumer = consumer

    def reading(self, count: int, block: float) -> Command:
        """The command that hands out new entries, waiting `block` seconds for the first."""
        words = ("COUNT", count, "BLOCK", int(block * 1000), "STREAMS", self._source.stream, ">")
        return ("XREADGROUP", "GROUP", self._source.group, self._consumer, *words)

    def acknowledging(self, entry: bytes) -> Command:
        """The command that has an entry done."""
        return ("XACK", *self._names(), entry)

    def claiming(self, entry: bytes, count: int) -> Command:
        """The command that begins another try of an entry, as number `count`, with this consumer.

        It may be sent twice. Its answer is empty if the entry is not pending any more.
        """
        return ("XCLAIM", *self._names(), self._consumer, 0, entry, "RETRYCOUNT", count, "JUSTID")

    async def create(self) -> None:
        """Make sure that stream and group are there.

        Raises:
            Refusal: The server will not.
            BrokenLink: It has not answered.
        """
        start = "$" if self._source.start == "new" else "0"
        [answer] = await self._pipe.ask(("XGROUP", "CREATE", *self._names(), start, "MKSTREAM"))
        if isinstance(answer, Refusal) and not str(answer).startswith("BUSYGROUP"):
            raise answer

    async def renew(self, mine: Collection[bytes]) -> None:
        """Show that this consumer lives: no other may claim the entries of `mine` for a while.

        Only entries that are this consumer's still; one that another has claimed meanwhile,
        because this process stood still for too long, is left to it.
        """
        idle = int(self._source.claim_after * 1000 / 3)
        owned = await self._owned(_WINDOW + len(mine), "IDLE", idle)
        renewed = [entry for entry, _ in owned if entry in mine]
        if renewed:
            await self._checked(("XCLAIM", *self._names(), self._consumer, 0, *renewed, "JUSTID"))

    async def claim(self, room: int, is_mine: Callable[[bytes], bool]) -> list[Entry]:
        """Up to `room` entries of consumers without a sign of life, and parked ones, from the oldest.

        Raises:
            Refusal: The server will not.
            BrokenLink: It has not answered. What it has claimed comes back by a later claim.
        """
        idle, cursor = int(self._source.claim_after * 1000), b"0-0"
        claimed: list[tuple[bytes, list[bytes]]] = []
        while len(claimed) < room:
            words = (self._consumer, idle, cursor, "COUNT", room - len(claimed))
            cursor, entries, *_ = await self._checked(("XAUTOCLAIM", *self._names(), *words))
            # Before version 7 an entry that was trimmed away is none.
            claimed += [(entry[0], entry[1]) for entry in entries if entry and not is_mine(entry[0])]
            if cursor == b"0-0":
                break

        return await self._counted(claimed)

    async def park(self, counts: Mapping[bytes, int]) -> None:
        """Give back every entry that is pending with this consumer, so that any may claim it at once.

        Args:
            counts: How often the known ones count as handed out; others keep their count.
        """
        while owned := await self._owned(_WINDOW):
            await self._park((entry, counts.get(entry, count)) for entry, count in owned)

    async def remove(self) -> None:
        """Have the server forget this consumer, unless entries are pending with it."""
        await self._pipe.ask(("EVAL", _REMOVE_IF_EMPTY, 1, *self._names(), self._consumer))

    async def _park(self, entries: Iterable[tuple[bytes, int]]) -> None:
        # Time 0: nobody has had them for longer.
        commands = [
            ("XCLAIM", *self._names(), PARKED, 0, entry, "TIME", 0, "RETRYCOUNT", count, "JUSTID")
            for entry, count in entries
        ]
        for answer in await self._pipe.ask(*commands):
            if isinstance(answer, Refusal):
                raise answer

    def _names(self) -> tuple[str, str]:
        return self._source.stream, self._source.group

    async def _owned(self, most: int, *idle: str | int) -> list[tuple[bytes, int]]:
        answer = await self._checked(("XPENDING", *self._names(), *idle, "-", "+", most, self._consumer))
        return [(entry, count) for entry, _, _, count in answer]

    async def _counted(self, claimed: list[tuple[bytes, list[bytes]]]) -> list[Entry]:
        """With their counts, which the server tells of pending entries only."""
        if not claimed:
            return []

        answers = await self._pipe.ask(*(("XPENDING", *self._names(), entry, entry, 1) for entry, _ in claimed))
        return [
            Entry(entry, fields, answer[0][3])
            for (entry, fields), answer in zip(claimed, answers, strict=True)
            if answer and not isinstance(answer, Refusal)
        ]

    async def _checked(self, command: Command) -> Answer:
        [answer] = await self._pipe.ask(command)
        if isinstance(answer, Refusal):
            raise answer

        return answer
