"""Where a form stands, seen from outside, and whether that is where the model says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.core.model.reference import Model
from tests.core.model.watching import Check, Event, Rejected

__all__ = ["Seen", "compare"]


class Seen:
    """What has happened, added up.

    Attributes:
        taken: How many deliveries were taken.
        begun: How often each was begun.
        finished: How often its handler has ended.
        ends: How each ended.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.begun: Counter[int] = Counter()
        self.finished: Counter[int] = Counter()
        self.ends: dict[int, str] = {}

    def add(self, event: Event) -> None:
        if event.kind == "take":
            self.taken += 1
        elif event.kind == "begin":
            self.begun[event.number] += 1
        elif event.kind == "end":
            self.finished[event.number] += 1
        elif event.kind not in ("stop", "cancel"):
            self.ends[event.number] = event.kind


def compare(seen: Seen, gates: Iterable[int], model: Model, *, is_stopping: bool) -> None:
    """Compare.

    Args:
        seen: What the form has done.
        gates: What its handlers wait for.
        model: Where it should stand.
        is_stopping: Whether a stop has begun, so that what is missing is missing in the drain.

    Raises:
        Rejected: It stands elsewhere. Final if it has done too much; else threads may still do it.
    """
    if seen.taken > model.taken:
        raise Rejected("free worker", f"{seen.taken} were taken, and there is room for {model.taken} only")

    if seen.taken < model.taken:
        raise Rejected("bound reached", f"{seen.taken} were taken, and there is room for {model.taken}", final=False)

    _compare_begun(seen, model)
    _compare_ends(seen, model, is_stopping=is_stopping)
    if set(model.gates) != set(gates):
        raise Rejected("liveness", f"{sorted(gates)} wait, not {sorted(model.gates)}", final=False)


def _compare_begun(seen: Seen, model: Model) -> None:
    for index, count in seen.begun.items():
        if count > model.begun.get(index, 0):
            raise Rejected("order", f"{index} was begun before its turn")

    unfinished = model.unfinished
    for index, count in model.begun.items():
        if seen.begun[index] < count:
            raise Rejected("liveness", f"{index} could begin, and does not", final=False)

        if seen.finished[index] < count - (index in unfinished):
            raise Rejected("liveness", f"the handler of {index} could end, and does not", final=False)


def _compare_ends(seen: Seen, model: Model, *, is_stopping: bool) -> None:
    for index, kind in seen.ends.items():
        expected = model.ends.get(index)
        if kind != expected:
            check: Check = "drain" if kind == "release" else "outcome"
            raise Rejected(check, f"{index} has ended: {kind}; expected: {expected}")

    for index, expected in model.ends.items():
        if index not in seen.ends:
            check = "drain" if is_stopping else "liveness"
            raise Rejected(check, f"{index} should have ended by now: {expected}", final=False)
