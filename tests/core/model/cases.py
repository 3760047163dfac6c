"""The dispatch forms, and what each promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from pystream import by_key

from tests.core.model.reference import BatchModel, LanesModel, Model, PoolModel, RingsModel
from tests.core.model.schedules import Flavour, Key, Schedule, filling, schedules

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """One dispatch form.

    Attributes:
        name: As it is written at a mount.
        sizes: The n that are tried.
        settings: The settings of the mount.
        bound: How many deliveries are in hand at most.
        model: The reference.
        order: Whether it keeps the order of the stream, of each key, or none.
        least: How many deliveries are in hand at least while more wait.
        flavours: The schedules it is put through.
        most: The longest schedule's deliveries.
        threads: Whether deliveries are handled on threads, which run while the loop is idle.
        batches: How many batches of `size` are handled at once, or none.
    """

    name: str
    sizes: Sequence[int]
    settings: Callable[[int], dict[str, Any]]
    bound: Callable[[int], int]
    model: Callable[[Schedule], Model]
    order: str | None
    least: Callable[[int], int]
    flavours: Sequence[Flavour] = ("confluent", "loose")
    most: int = 14
    threads: bool = False
    batches: int = 0

    def at_once(self, size: int) -> int:
        """How many deliveries are handled at once, at most."""
        return size * (self.batches or 1)

    def group(self, schedule: Schedule) -> Callable[[int], object | None]:
        """The group of deliveries that keep their order, by the index of one of them."""
        if self.order == "stream" or (self.threads and schedule.size == 1):
            return lambda index: "stream"

        return lambda index: schedule.plans[index].key if self.order == "key" else None

    def follows(self, schedule: Schedule, index: int, other: int) -> bool:
        """Whether a delivery may have to be given back because another one was, which came before."""
        if other >= index:
            return False

        if self.order != "key":
            return self.threads and schedule.size == 1

        keys = [schedule.plans[index].key, schedule.plans[other].key]
        return None in keys or len({hash(Key(key)) % schedule.size for key in keys if key is not None}) == 1

    def schedules(self) -> st.SearchStrategy[Schedule]:
        return schedules(sizes=self.sizes, flavours=self.flavours, keyed=self.order == "key", most=self.most)

    def filling(self) -> Schedule:
        """A schedule that fills the largest one, so that its bound is reached."""
        size = self.sizes[-1]
        return filling(size, None, self.bound(size) + 3, "gated")


def _pool(schedule: Schedule) -> Model:
    return PoolModel(schedule.size, schedule.plans, schedule.in_place)


def _lanes(schedule: Schedule) -> Model:
    return LanesModel(schedule.size, schedule.plans, schedule.in_place)


def _batches(schedule: Schedule) -> Model:
    return BatchModel(schedule.size, schedule.plans, schedule.in_place)


def _two_batches(schedule: Schedule) -> Model:
    return BatchModel(schedule.size, schedule.plans, schedule.in_place, workers=2)


def _rings(schedule: Schedule) -> Model:
    return RingsModel(schedule.size, schedule.plans, schedule.in_place)


def _keyed_rings(schedule: Schedule) -> Model:
    return LanesModel(schedule.size, schedule.plans, schedule.in_place, room=9)


_KEYED: Sequence[Flavour] = ("confluent", "gated", "loose")

CASES = {
    case.name: case
    for case in [
        Case("default", (1,), lambda n: {}, lambda n: 1, _pool, "stream", lambda n: 1),
        Case("workers=n", (2, 3, 4), lambda n: {"workers": n}, lambda n: n, _pool, None, lambda n: n),
        Case(
            name="workers=by_key(n)",
            sizes=(2, 3),
            settings=lambda n: {"workers": by_key(n)},
            bound=lambda n: 2 * n + 1,
            model=_lanes,
            order="key",
            least=lambda n: 3,  # a lane and the loop's hand
            flavours=_KEYED,
        ),
        Case(
            name="batch=n",
            sizes=(2, 3, 5),
            settings=lambda n: {"batch": n},
            bound=lambda n: n,
            model=_batches,
            order=None,  # within a batch there is none; the model holds that of the batches
            least=lambda n: 1,
            batches=1,
        ),
        Case(
            name="batch=n, workers=2",
            sizes=(2, 3),
            settings=lambda n: {"batch": n, "workers": 2},
            bound=lambda n: 2 * n,
            model=_two_batches,
            order=None,
            least=lambda n: 2,
            batches=2,
        ),
        Case(
            name="threads=n",
            sizes=(1, 2),
            settings=lambda n: {"threads": n},
            bound=lambda n: n * 9,
            model=_rings,
            order=None,
            least=lambda n: n * 6,  # each thread has one in hand and more than half a ring
            flavours=("gated", "loose"),
            most=26,
            threads=True,
        ),
        Case(
            name="threads=by_key(n)",
            sizes=(2, 3),
            settings=lambda n: {"threads": by_key(n)},
            bound=lambda n: n * 9 + 1,
            model=_keyed_rings,
            order="key",
            least=lambda n: 10,  # a thread's, its ring and the feeder's hand
            flavours=_KEYED,
            most=26,
            threads=True,
        ),
    ]
}
