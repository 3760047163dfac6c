"""What a schedule is made of, and how hypothesis draws one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hypothesis import strategies as st

__all__ = ["Decided", "Flavour", "Key", "Move", "Plan", "Schedule", "decide", "filling", "schedules"]

End = Literal["ack", "drop", "retry", "raise", "fatal"]
Decided = Literal["ack", "reject", "requeue", "retry_after", "again", "fatal"]
Flavour = Literal["confluent", "gated", "loose"]
Kind = Literal[
    "feed",  # so many more deliveries arrive at once
    "feed singly",  # so many, each only when nothing moves any more
    "open",  # one gate opens
    "open many",  # so many gates open at once
    "tick",  # time passes: what waits for a delay goes on
    "turns",  # the loop goes round so often, and whatever runs is left where it is
    "stop",  # the graceful stop
    "feed, stop",  # before the form can look
    "open, stop",  # before the handler can go on
    "cancel",  # the budget is spent
]

_KEYS = "aaabcd"  # one key more often than others, so that its lane fills


class Key(str):
    """A key whose lane is the same in every process."""

    __slots__ = ()

    def __hash__(self) -> int:
        return ord(self)


class Move(NamedTuple):
    """One move of the world around a form; `n` is a count, or chooses one of the gates."""

    kind: Kind
    n: int = 0


class Plan(NamedTuple):
    """One delivery.

    Attributes:
        key: Its key, or none.
        steps: Its suspensions: true until the schedule opens a gate, false until the loop comes round.
        end: How its handler ends.
        failures: How often it fails before it succeeds, where it is run again in place.
    """

    key: str | None
    steps: tuple[bool, ...] = (True,)
    end: End = "ack"
    failures: int = 0

    @property
    def gates(self) -> int:
        return sum(self.steps)


@dataclass(frozen=True)
class Schedule:
    """What happens.

    Attributes:
        size: The n of the form.
        flavour: `confluent` if what happens at the same time may happen in any order, `gated`
            if nothing happens at the same time, `loose` if neither: then no model can say where
            the form stands between two moves.
        plans: The deliveries, in the order of the stream.
        moves: What happens to them.
        in_place: Whether a retried delivery is run again in place.
    """

    size: int
    flavour: Flavour
    plans: tuple[Plan, ...]
    moves: tuple[Move, ...]
    in_place: bool = False


def decide(plans: Sequence[Plan], run: Sequence[int], runs: Mapping[int, int], *, in_place: bool) -> dict[int, Decided]:
    """What the handler of the tests decides of each delivery of one run.

    Args:
        plans: Of all deliveries.
        run: The delivery, or those of the batch. The first of a batch decides how long it takes, and
            whether it raises: then all are decided alike.
        runs: How often each was run, this time included.
        in_place: Whether a retried delivery is run again in place.
    """
    first = _decide(plans[run[0]], runs[run[0]], in_place=in_place)
    if plans[run[0]].end in ("raise", "fatal") and first != "ack":
        return dict.fromkeys(run, first)

    decided = {index: _decide(plans[index], runs[index], in_place=in_place) for index in run}
    tame: dict[Decided, Decided] = {"fatal": "ack", "retry_after": "requeue"}
    return {index: what if index == run[0] else tame.get(what, what) for index, what in decided.items()}


def _decide(plan: Plan, runs: int, *, in_place: bool) -> Decided:
    if in_place and plan.end in ("retry", "raise"):
        return "again" if runs <= plan.failures else "ack"

    return _DECIDED[plan.end]


_DECIDED: dict[End, Decided] = {
    "ack": "ack",
    "drop": "reject",
    "retry": "requeue",
    "raise": "retry_after",
    "fatal": "fatal",
}


def filling(size: int, key: str | None, count: int, flavour: Flavour) -> Schedule:
    """Deliveries of one key, or none, arrive one by one, and nothing ends before all are there."""
    return Schedule(size, flavour, (Plan(key),) * count, (Move("feed singly", count),))


def schedules(
    *, sizes: Sequence[int], flavours: Sequence[Flavour], keyed: bool, most: int
) -> st.SearchStrategy[Schedule]:
    """All kinds of schedules for one form.

    Args:
        sizes: Of the form.
        flavours: Which are wanted.
        keyed: Whether the form looks at the key; then a mixture of deliveries with and without
            one is confluent only if nothing happens at the same time.
        most: The largest number of deliveries.
    """
    return st.one_of(
        *[_crowded(sizes, flavours[0], most)] * 2,
        *[
            st.builds(
                Schedule,
                size=st.sampled_from(sizes),
                flavour=st.just(flavour),
                plans=_lists(_plans(flavour, keyed=keyed and flavour == "confluent"), most),
                moves=_moves(flavour, most),
                in_place=st.booleans(),
            )
            for flavour in flavours
        ],
    )


def _crowded(sizes: Sequence[int], flavour: Flavour, most: int) -> st.SearchStrategy[Schedule]:
    """Everything waits behind one delivery, also in the loop's hand, when that one fails or all is stopped."""
    feed = Move("feed singly" if flavour == "gated" else "feed", most)
    heads = [Plan("a"), Plan("a", (True,), "fatal"), Plan("a", (True,), "retry", 1), Plan("a", (True,), "raise", 2)]
    open_, tick = Move("open"), Move("tick")
    moves = [(open_,), (), (open_, open_), (open_, tick), (open_, tick, open_)]
    stop, cancel = Move("stop"), Move("cancel")
    ends: list[tuple[Move, ...]] = [(stop,), (stop,), (cancel,), (cancel,), (Move("open, stop"),), ()]
    return st.builds(
        lambda size, head, behind, before, end, in_place: Schedule(
            size, flavour, (head, *(Plan("a"),) * behind), (feed, *before, *end), in_place
        ),
        st.sampled_from(sizes),
        st.sampled_from(heads),
        st.sampled_from([2, most // 2, most - 1, most - 1]),
        st.sampled_from(moves),
        st.sampled_from(ends),
        st.sampled_from([True, True, False]),
    )


def _lists(plans: st.SearchStrategy[Plan], most: int) -> st.SearchStrategy[tuple[Plan, ...]]:
    # Left alone, hypothesis makes most lists short, and nothing fills up.
    return st.one_of(st.lists(plans, max_size=most), st.lists(plans, min_size=most // 2, max_size=most)).map(tuple)


def _plans(flavour: Flavour, *, keyed: bool) -> st.SearchStrategy[Plan]:
    keys = _KEYS if keyed else (*_KEYS, None, None)
    steps = [steps for steps in _STEPS if sum(steps) or flavour != "gated"]
    # One choice instead of four: most of the time of a schedule goes into making it.
    return st.sampled_from([_plan(*parts) for parts in itertools.product(_ENDS, range(3), keys, steps)])


def _plan(end: End, failures: int, key: str | None, steps: tuple[bool, ...]) -> Plan:
    # What stops the service does so alone, after a gate: else nobody can say what was taken by then.
    return Plan(key, (True,), "fatal") if end == "fatal" else Plan(key, steps, end, failures)


_ENDS: list[End] = ["ack"]
_ENDS += [*_ENDS * 13, "drop", "drop", "retry", "retry", "raise", "raise", "fatal"]
_STEPS: list[tuple[bool, ...]] = [(True,), (), (False,), (True, False), (False, True), (True, True), (False, False)]


def _moves(flavour: Flavour, most: int) -> st.SearchStrategy[tuple[Move, ...]]:
    open_ = [Move("open", n) for n in (0, 0, 0, 1, 2, 3)]
    feed = [Move("feed singly", n) for n in (1, 3, most // 2, most // 2)]
    more: list[Move] = []
    if flavour != "gated":
        feed = [Move("feed", n) for n in (1, 2, 3, most // 2)]
        more = [Move("open many", n) for n in (2, 3)]

    if flavour == "loose":
        more += [Move("turns", n) for n in (1, 1, 2, 3)]

    ends: list[tuple[Move, ...]] = [(), (), (Move("stop"),), (Move("feed, stop", 2),), (Move("open, stop", 0),)]
    return st.builds(
        lambda before, end, after: (*before, *end, *after),
        st.lists(st.sampled_from([*feed, *open_, Move("tick"), *more]), max_size=20),
        st.sampled_from([*ends, *ends, (Move("cancel"),)]),
        st.lists(st.sampled_from([*open_, Move("tick"), Move("tick"), Move("cancel")]), max_size=4),
    )
