"""The table of retries, cell by cell: what is done with a delivery, before anything is done."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pystream import Outcome, ack, dead_letter, drop, retry, retry_after
from pystream._runtime.retries import LEAST_PAUSE, Plan, RetryRules, Situation, Step, check_retries
from pystream.errors import RegistrationError
from pystream.failures import FailurePolicy

from tests.core.scripted import ScriptedSource

OUTCOMES = [ack(), drop(), retry(), retry_after(0), retry_after(5), dead_letter("odd")]


def _at(attempt: int = 1, *, in_place: bool = False, counts: bool = True, can_delay: bool = True) -> Situation:
    return Situation(attempt=attempt, in_place=in_place, counts=counts, can_delay=can_delay)


def _rules(max_attempts: int | None = None, *, has_dead_letter: bool = False) -> RetryRules:
    return RetryRules(max_attempts=max_attempts, has_dead_letter=has_dead_letter)


# One row each: cap, does the broker count, can the delivery be delayed, the outcome, and what is done.
_BROKER = [
    (None, True, True, retry(), (Step.REQUEUE, 0.0)),
    (None, True, False, retry(), (Step.REQUEUE, 0.0)),
    (None, False, True, retry(), (Step.REQUEUE, 0.0)),
    (None, False, False, retry(), (Step.REQUEUE, 0.0)),
    (None, True, True, retry_after(5), (Step.DELAY, 5.0)),
    (None, False, True, retry_after(5), (Step.DELAY, 5.0)),
    (None, True, False, retry_after(5), (Step.HOLD, 5.0, Step.REQUEUE)),
    (None, False, False, retry_after(5), (Step.HOLD, 5.0, Step.COPY)),
    (9, True, True, retry(), (Step.REQUEUE, 0.0)),
    (9, True, False, retry(), (Step.REQUEUE, 0.0)),
    (9, False, True, retry(), (Step.COPY, 0.0)),
    (9, False, False, retry(), (Step.COPY, 0.0)),
    (9, True, True, retry_after(5), (Step.DELAY, 5.0)),
    (9, True, False, retry_after(5), (Step.HOLD, 5.0, Step.REQUEUE)),
    (9, False, True, retry_after(5), (Step.HOLD, 5.0, Step.COPY)),
    (9, False, False, retry_after(5), (Step.HOLD, 5.0, Step.COPY)),
]


@pytest.mark.promise("RETRY-20")
@pytest.mark.parametrize(("cap", "counts", "can_delay", "outcome", "expected"), _BROKER)
def test_below_the_cap_a_broker_retries(
    cap: int | None, counts: bool, can_delay: bool, outcome: Outcome, expected: tuple[Step, float, Step]
) -> None:
    """Requeued or delayed by the broker, else held by the runtime or copied, so that the count survives."""
    plan = _rules(cap).plan(outcome, _at(8, counts=counts, can_delay=can_delay))
    assert plan == Plan(expected[0], outcome, *expected[1:])


@pytest.mark.promise("RETRY-21")
@pytest.mark.parametrize("outcome", [retry(), retry_after(0), retry_after(0.05), retry_after(5)], ids=repr)
@pytest.mark.parametrize("cap", [None, 9])
def test_in_place_the_handling_task_runs_it_again(cap: int | None, outcome: Outcome) -> None:
    """A source that retries in place waits for the delay, a tenth of a second at least, whatever the broker can."""
    for counts, can_delay in product((False, True), repeat=2):
        plan = _rules(cap).plan(outcome, _at(8, in_place=True, counts=counts, can_delay=can_delay))
        assert plan == Plan(Step.RUN_AGAIN, outcome, max(outcome.delay or 0, LEAST_PAUSE))


@pytest.mark.promise("RETRY-22")
@pytest.mark.parametrize("cap", [1, 2, 5])
@pytest.mark.parametrize("in_place", [False, True], ids=["broker", "in place"])
@pytest.mark.parametrize("outcome", [retry(), retry_after(5)], ids=repr)
def test_the_cap_is_how_often_the_handler_sees_it(cap: int, in_place: bool, outcome: Outcome) -> None:
    """Attempt n of at most n is the last; n - 1 is not."""
    for counts, can_delay in product((False, True), repeat=2):
        for attempt in range(1, cap + 3):
            plan = _rules(cap).plan(outcome, _at(attempt, in_place=in_place, counts=counts, can_delay=can_delay))
            assert (plan.step is Step.REJECT) == (attempt >= cap)


@pytest.mark.promise("RETRY-23")
def test_at_the_cap_it_is_a_dead_letter_or_rejected() -> None:
    """Spent, it goes to the declared dead letters with the attempts for a reason; with none declared it is rejected."""
    spent = retry_after(5).and_after(print, 1)
    plan = _rules(3).plan(spent, _at(3))
    assert plan == Plan(Step.REJECT, drop().and_after(print, 1), is_spent=True)

    plan = _rules(3, has_dead_letter=True).plan(spent, _at(4))
    assert plan == Plan(Step.BURY, dead_letter("given up at attempt 4 (max_attempts=3)").and_after(print, 1))


@pytest.mark.promise("RETRY-20")
@pytest.mark.parametrize(
    ("outcome", "step"), [(ack(), Step.ACKNOWLEDGE), (drop(), Step.REJECT), (dead_letter("odd"), Step.BURY)], ids=repr
)
def test_the_cap_is_for_retries_alone(outcome: Outcome, step: Step) -> None:
    """Acknowledged, dropped and buried deliveries are so at every attempt and on every broker."""
    rules = _rules(3, has_dead_letter=True)
    for attempt, in_place, counts in product((1, 3, 4), (False, True), (False, True)):
        assert rules.plan(outcome, _at(attempt, in_place=in_place, counts=counts)) == Plan(step, outcome)


@pytest.mark.promise("RETRY-24")
@pytest.mark.parametrize("counts", [False, True], ids=["not counted", "counted"])
def test_a_settlement_that_the_broker_has_not_is_replaced(counts: bool) -> None:
    """A delay is kept by a timer in its place, a requeue made by a copy; nothing replaces the others."""
    rules, at = _rules(9), _at(counts=counts)
    after = Step.REQUEUE if counts else Step.COPY
    assert rules.instead(Plan(Step.DELAY, retry_after(5), 5.0), at) == Plan(Step.HOLD, retry_after(5), 5.0, after)
    assert rules.instead(Plan(Step.REQUEUE, retry()), at) == Plan(Step.COPY, retry())
    for step in (Step.ACKNOWLEDGE, Step.REJECT, Step.COPY, Step.BURY):
        assert rules.instead(Plan(step, retry()), at) is None


@pytest.mark.promise("RETRY-25")
@pytest.mark.parametrize("counts", [False, True], ids=["not counted", "counted"])
def test_what_could_not_be_published_goes_back_with_a_delay(counts: bool) -> None:
    """The original goes back to the broker after the backoff: it is no dead letter, and not copied again."""
    unpublished = dead_letter("odd").and_after(print)
    retried = retry_after(2).and_after(print)
    rules = _rules(9, has_dead_letter=True)
    assert rules.given_back(unpublished, _at(counts=counts), 2.0) == Plan(Step.DELAY, retried, 2.0)
    held = rules.given_back(unpublished, _at(counts=counts, can_delay=False), 2.0)
    assert held == Plan(Step.HOLD, retried, 2.0, Step.REQUEUE)


@pytest.mark.promise("RETRY-22")
@given(
    cap=st.integers(1, 6),
    in_place=st.booleans(),
    counts=st.booleans(),
    can_delay=st.booleans(),
    delays=st.lists(st.sampled_from([None, 0.0, 5.0]), min_size=12, max_size=12),
)
def test_no_way_of_retrying_escapes_the_cap(
    cap: int, in_place: bool, counts: bool, can_delay: bool, delays: list[float | None]
) -> None:
    """Whatever a handler asks for from attempt to attempt, it sees a delivery as often as the cap says."""
    rules = _rules(cap)
    seen = brokers_count = header = reruns = 0
    brokers_count = 1
    for delay in delays:
        attempt = (brokers_count if counts else header + 1) + reruns
        seen += 1
        outcome = retry() if delay is None else retry_after(delay)
        plan = rules.plan(outcome, _at(attempt, in_place=in_place, counts=counts, can_delay=can_delay))
        if plan.step is Step.REJECT:
            break

        last = plan.then if plan.step is Step.HOLD else plan.step
        if last is Step.COPY:
            header, brokers_count = attempt, 1
        elif last is Step.RUN_AGAIN:
            reruns += 1
        else:
            brokers_count += 1

    assert seen == cap


# What is refused at registration.


@pytest.mark.promise("RETRY-35")
def test_a_cap_without_a_place_for_copies_is_refused() -> None:
    """A source of several destinations needs retry_to= as soon as the attempts are capped; in place it does not."""

    def check(source: ScriptedSource, max_attempts: int | None = 3, retry_to: str | None = None) -> None:
        check_retries(
            "confirm", source, FailurePolicy(), max_attempts=max_attempts, dead_letter=None, retry_to=retry_to
        )

    several = ScriptedSource("orders.*", copies_to=None)
    with pytest.raises(RegistrationError) as refused:
        check(several)

    assert str(refused.value) == (
        "confirm: max_attempts=3 may need a copy for another attempt, and 'orders.*' reads several destinations; "
        "name the one for copies with retry_to="
    )
    check(several, retry_to="orders.retry")
    check(several, max_attempts=None)
    check(ScriptedSource("orders.*", retry="in_place", copies_to=None))
    check(ScriptedSource())


@pytest.mark.promise("RETRY-34")
@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        pytest.param(FailurePolicy(error=dead_letter("odd")), "error=dead_letter('odd')", id="error"),
        pytest.param(
            FailurePolicy(error={KeyError: retry(), ValueError: dead_letter("odd")}),
            "error={ValueError: dead_letter('odd')}",
            id="class",
        ),
        pytest.param(FailurePolicy(decode=dead_letter("odd")), "decode=dead_letter('odd')", id="decode"),
    ],
)
def test_a_policy_of_dead_letters_needs_a_place_for_them(policy: FailurePolicy, rule: str) -> None:
    """A failure policy that is known to ask for dead letters is refused on a mount that declares none."""
    with pytest.raises(RegistrationError) as refused:
        check_retries("confirm", ScriptedSource(), policy, max_attempts=None, dead_letter=None, retry_to=None)

    assert str(refused.value) == (
        f"confirm: its failure policy says {rule}, and the mount declares no dead letters; "
        "give dead_letter=, or choose another outcome"
    )
    check_retries("confirm", ScriptedSource(), policy, max_attempts=None, dead_letter="dead", retry_to=None)


@pytest.mark.promise("RETRY-34")
@pytest.mark.parametrize(
    "policy", [FailurePolicy(), FailurePolicy.strict(), FailurePolicy(error={ValueError: drop()})], ids=repr
)
def test_other_policies_need_none(policy: FailurePolicy) -> None:
    """Policies without dead letters are for every mount."""
    check_retries("confirm", ScriptedSource(), policy, max_attempts=None, dead_letter=None, retry_to=None)
