"""The model: where a form stands once nothing can move any more, by its promises alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.core.model.schedules import Key, Plan, decide

__all__ = ["BatchModel", "LanesModel", "Model", "PoolModel", "RingsModel"]


@dataclass
class Model:
    """What all forms have in common: how one delivery goes, or one batch.

    Attributes:
        taken: How many were taken.
        begun: How often each was begun.
        ends: How each ended.
        running: What runs, by its first delivery.
        gates: Of that, how many gates are closed.
        waiting: What waits for a delay, to be run again in place.
        open: Whether more is taken.
    """

    size: int
    plans: Sequence[Plan]
    in_place: bool
    stream: deque[int] = field(default_factory=deque)
    taken: int = 0
    begun: dict[int, int] = field(default_factory=dict)
    ends: dict[int, str] = field(default_factory=dict)
    running: dict[int, Sequence[int]] = field(default_factory=dict)
    gates: dict[int, int] = field(default_factory=dict)
    waiting: list[Sequence[int]] = field(default_factory=list)
    open: bool = True

    def feed(self, indexes: Sequence[int]) -> None:
        self.stream.extend(indexes)

    def advance(self) -> None:
        """Do all that can be done."""
        raise NotImplementedError

    def left(self, index: int) -> None:
        """A delivery is left unsettled; where there is an order, what comes after it is, too."""

    def let_go(self, index: int) -> None:
        """One of its gates opens."""
        self.gates[index] -= 1
        if self.gates[index] == 0:
            del self.gates[index]
            self._finish(self.running.pop(index))

    def tick(self) -> None:
        again, self.waiting = self.waiting, []
        for run in again:
            self.begin(run)

    def stop(self) -> None:
        self.open = False
        again, self.waiting = self.waiting, []
        for run in again:
            self._release(run)

    def begin(self, run: Sequence[int]) -> None:
        for index in run:
            self.begun[index] = self.begun.get(index, 0) + 1

        gates = self.plans[run[0]].gates
        if gates:
            self.running[run[0]], self.gates[run[0]] = run, gates
        else:
            self._finish(run)

    def give_back(self, index: int) -> None:
        self.ends[index] = "release"

    @property
    def unsettled(self) -> int:
        return self.taken - len(self.ends)

    @property
    def unfinished(self) -> set[int]:
        """The deliveries that are handled now."""
        return {index for run in self.running.values() for index in run}

    def _finish(self, run: Sequence[int]) -> None:
        decided = decide(self.plans, run, self.begun, in_place=self.in_place)
        if "fatal" in decided.values():
            self._release(run)
            self.stop()
            return

        again = [index for index, what in decided.items() if what == "again"]
        self.ends |= {index: what for index, what in decided.items() if what != "again"}
        if again and self.open:
            self.waiting.append(again)
        elif again:
            self._release(again)

    def _release(self, run: Sequence[int]) -> None:
        for index in run:
            self.give_back(index)
            self.left(index)


class PoolModel(Model):
    """`size` at once, each taken only when it can begin; the default form is a pool of one."""

    def advance(self) -> None:
        while self.open and self.stream and self.unsettled < self.size:
            self.taken += 1
            self.begin([self.stream.popleft()])


@dataclass
class BatchModel(Model):
    """Batches of up to `size`; a worker that is free fills one, until it is full, due, or all stops.

    Attributes:
        workers: How many batches run at once.
        partial: The batch that is being filled.
        is_due: Whether it has waited long enough.
    """

    workers: int = 1
    partial: list[int] = field(default_factory=list)
    is_due: bool = False

    def advance(self) -> None:
        while len(self.running) + len(self.waiting) < self.workers and self._step():
            pass

    def tick(self) -> None:
        self.is_due = bool(self.partial)
        super().tick()

    def _step(self) -> bool:
        if self.open and self.stream and len(self.partial) < self.size and not self.is_due:
            self.taken += 1
            self.partial.append(self.stream.popleft())
            return True

        if not self.partial or (self.open and not self.is_due and len(self.partial) < self.size):
            return False

        run, self.partial, self.is_due = self.partial, [], False
        self.begin(run)
        return True


@dataclass
class _Lane:
    held: list[int] = field(default_factory=list)
    broken: bool = False


@dataclass
class LanesModel(Model):
    """Lanes; a delivery for which its lane has no room stays in the loop's hand.

    Attributes:
        room: How many deliveries a lane holds, the one that runs included.
        keyed: Whether a key has its lane.
    """

    room: int = 2
    keyed: bool = True
    lanes: list[_Lane] = field(default_factory=list)
    hand: tuple[int, _Lane] | None = None
    turn: int = 0

    def __post_init__(self) -> None:
        self.lanes = [_Lane() for _ in range(self.size)]

    def advance(self) -> None:
        while self._step():
            pass

    def _step(self) -> bool:
        for lane in self.lanes:
            while lane.held and lane.held[0] in self.ends:
                lane.held.pop(0)

            if lane.held and lane.held[0] not in self.begun:
                self.begin(lane.held[:1])
                return True

        if self.hand is not None:
            return self._hand_over(*self.hand)

        return self._may_take() and self._take()

    def _may_take(self) -> bool:
        return self.open and bool(self.stream)

    def _take(self) -> bool:
        index = self.stream.popleft()
        self.taken += 1
        self.hand = index, self._lane_of(self.plans[index].key)
        return True

    def _hand_over(self, index: int, lane: _Lane) -> bool:
        if lane.broken:
            self.give_back(index)
        elif len(lane.held) < self.room:
            lane.held.append(index)
        else:
            return False

        self.hand = None
        return True

    def _lane_of(self, key: str | None) -> _Lane:
        if key is not None and self.keyed:
            return self.lanes[hash(Key(key)) % self.size]

        turns = [(self.turn + step) % self.size for step in range(self.size)]
        chosen = next((turn for turn in turns if len(self.lanes[turn].held) < self.room), self.turn)
        self.turn = (chosen + 1) % self.size
        return self.lanes[chosen]

    def left(self, index: int) -> None:
        if not self.keyed and self.size > 1:
            return

        for lane in self.lanes:
            if index in lane.held:
                lane.broken = True
                for behind in lane.held[lane.held.index(index) + 1 :]:
                    self.give_back(behind)

                lane.held.clear()


@dataclass
class RingsModel(LanesModel):
    """Rings without keys: nothing is taken but for a ring with room; when all are full, one has to drain to half.

    Attributes:
        parked: Whether that is waited for.
    """

    room: int = 9
    keyed: bool = False
    parked: bool = False

    def _may_take(self) -> bool:
        waiting = [len(lane.held) - 1 for lane in self.lanes]
        if self.parked:
            self.parked = min(waiting) > 4
        else:
            self.parked = min(waiting) == self.room - 1

        return not self.parked and super()._may_take()
