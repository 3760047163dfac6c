"""What is published, and the arithmetic of the report."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.orders.plan import LANES, Plan
from examples.orders.report import percentile
from examples.orders.service import Movement, Order

_PLANS = st.integers(1, 3000).map(Plan)


@given(_PLANS)
@pytest.mark.promise("DEMO-6")
def test_a_plan_has_as_many_messages_as_asked_for(plan: Plan) -> None:
    """Bulk and timed orders are together what was asked for, each with an id of its own."""
    bulk = [message for lane in range(LANES) for message in plan.bulk_of(lane)]
    timed = [message for lane in range(LANES) for message in plan.timed_of(lane)]
    assert len(bulk) + len(timed) == plan.messages
    values = [message.value for message in chain(bulk, timed)]
    readable = [value.id for value in values if isinstance(value, Order | Movement)]
    assert len(set(readable)) == len(readable) == plan.messages - plan.unreadable
    assert sum(isinstance(value, Movement) for value in values) == plan.movements
    assert all(message.due is None for message in bulk)
    assert all(message.due is not None and message.value.payment == "accepted" for message in timed)


@given(_PLANS)
@pytest.mark.promise("DEMO-6")
def test_the_movements_of_an_article_are_sent_by_one_lane_in_order(plan: Plan) -> None:
    """An article's movements belong to one lane, are numbered from 1 without a gap, and have it as their key."""
    lanes: dict[str, set[int]] = defaultdict(set)
    for lane in range(LANES):
        moves = [message for message in plan.bulk_of(lane) if isinstance(message.value, Movement)]
        assert [message.value.number for message in moves] == list(range(1, len(moves) + 1))
        for message in moves:
            assert message.key == message.value.sku
            lanes[message.value.sku].add(lane)

    assert all(len(found) == 1 for found in lanes.values())


@pytest.mark.promise("DEMO-6")
def test_a_large_plan_has_every_kind_of_order() -> None:
    """The default plan has orders that are retried in both ways, and both kinds of unreadable ones."""
    values = [message.value for lane in range(LANES) for message in Plan(20_000).bulk_of(lane)]
    assert {value.payment for value in values if isinstance(value, Order)} == {"accepted", "busy", "closed"}
    assert {type(value) for value in values} == {Order, Movement, bytes, dict}


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(1, 64))
@pytest.mark.promise("DEMO-7")
def test_a_percentile_is_the_smallest_value_that_covers_its_share(values: list[float], sixty_fourths: int) -> None:
    """At least the share of the values is not above the percentile, and no smaller value would do."""
    found = percentile(values, sixty_fourths / 64)
    assert found is not None
    assert found in values

    def covers(limit: float) -> bool:
        return 64 * sum(value <= limit for value in values) >= sixty_fourths * len(values)

    assert covers(found)
    assert not any(covers(value) for value in values if value < found)


@pytest.mark.promise("DEMO-7")
def test_no_values_have_no_percentile() -> None:
    """Without a timed order there is no latency, instead of one of zero."""
    assert percentile([], 0.5) is None
