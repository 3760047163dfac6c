"""Dead letters: which deliveries become one, what it says of them, and the cap that makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel
from pystream import (
    Backoff,
    Context,
    FailurePolicy,
    Outcome,
    Settle,
    Settled,
    ack,
    dead_letter,
    drop,
    retry,
)
from pystream.errors import DecodeError
from pystream.headers import (
    DEAD_LETTER_ATTEMPTS,
    DEAD_LETTER_DESTINATION,
    DEAD_LETTER_MESSAGE_ID,
    DEAD_LETTER_REASON,
    DEAD_LETTER_SUBSCRIPTION,
)

from tests.core.retrying import COUNT, IN_PLACE, levels, returning
from tests.core.rig import rig
from tests.core.scripted import DelayableDelivery, ScriptedDelivery, ScriptedSource

pytestmark = pytest.mark.anyio


# Dead letters.


def _dead(running: Any) -> Mapping[str, bytes]:
    (sent,) = running.broker.sent
    assert sent.destination == "dead"
    headers: Mapping[str, bytes] = sent.headers
    return headers


@pytest.mark.promise("RETRY-29")
async def test_a_dead_letter_says_why_and_where_from() -> None:
    """Payload, key and headers are kept; reason, subscription, destination, id and attempts come with them."""
    delivery = ScriptedDelivery("17", b"body", headers={"X-Trace": b"t"}, key="k", count=4)
    async with rig(returning(dead_letter("no such currency")), delivery, dead_letter="dead") as running:
        await running.ends(1)

    assert running.broker.sent[0].payload == b"body"
    assert running.broker.sent[0].key == "k"
    assert _dead(running) == {
        "X-Trace": b"t",
        DEAD_LETTER_REASON: b"no such currency",
        DEAD_LETTER_SUBSCRIPTION: b"orders",
        DEAD_LETTER_DESTINATION: b"orders",
        DEAD_LETTER_MESSAGE_ID: b"17",
        DEAD_LETTER_ATTEMPTS: b"4",
    }
    assert running.lines[-1] == "ack 17"


@pytest.mark.promise("RETRY-29")
async def test_the_first_origin_is_kept() -> None:
    """A dead letter that became a message again, and dies again, tells of its first death where it came from."""
    origin = {
        "X-PyStream-Dead-Letter-Subscription": b"first",
        "X-PyStream-Dead-Letter-Destination": b"old",
        "X-PyStream-Dead-Letter-Message-Id": b"7",
    }
    headers = {**origin, "X-PyStream-Dead-Letter-Reason": b"before", "X-PyStream-Dead-Letter-Attempts": b"9"}
    async with rig(
        returning(dead_letter("again")), ScriptedDelivery("17", headers=headers), dead_letter="dead"
    ) as running:
        await running.ends(1)

    assert _dead(running) == {**origin, DEAD_LETTER_REASON: b"again", DEAD_LETTER_ATTEMPTS: b"1"}


@pytest.mark.promise("RETRY-29")
async def test_a_reason_that_is_no_text_of_utf_8_is_sent_all_the_same() -> None:
    """A lone surrogate in a reason does not keep the dead letter from being sent."""
    async with rig(returning(dead_letter("odd \ud800")), ScriptedDelivery("1"), dead_letter="dead") as running:
        await running.ends(1)

    assert _dead(running)[DEAD_LETTER_REASON] == b"odd \\ud800"


@pytest.mark.promise("RETRY-31")
@pytest.mark.parametrize("raised", [False, True], ids=["returned", "raised"])
async def test_a_dead_letter_is_sent_at_once(raised: bool) -> None:
    """`dead_letter` does not wait for the cap, whether it is returned or raised."""

    async def handler(body: bytes) -> Outcome:
        if raised:
            raise Settle(dead_letter("odd"))

        return dead_letter("odd")

    async with rig(handler, ScriptedDelivery("1", count=1), dead_letter="dead", max_attempts=9) as running:
        await running.ends(1)

    assert running.lines == ["publish dead {}", "ack 1"]


@pytest.mark.promise("RETRY-31")
async def test_without_a_place_for_it_a_dead_letter_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    """`dead_letter` on a mount that declares none is an ERROR and a retry with the backoff of the attempt."""
    async with rig(returning(dead_letter("odd")), DelayableDelivery("1", count=3)) as running:
        await running.ends(1)

    assert running.lines == ["retry_after 1"]
    (delay,) = running.journal.delays
    assert 3.2 <= delay <= 4.8
    assert levels(caplog) == [
        (
            "ERROR",
            "orders: no dead letter: message 1: dead_letter('odd'), and the mount declares no dead_letter=; "
            f"retry_after({delay:g})",
        )
    ]


@pytest.mark.promise("RETRY-31", "RETRY-22")
async def test_the_cap_holds_for_such_retries_too() -> None:
    """At the cap a `dead_letter` that has nowhere to go is rejected like any other spent delivery."""
    async with rig(returning(dead_letter("odd")), DelayableDelivery("1", count=3), max_attempts=3) as running:
        await running.ends(1)

    assert running.lines == ["reject 1"]


class Order(BaseModel):
    id: int


async def take_order(order: Order) -> None: ...


@pytest.mark.promise("RETRY-32")
async def test_what_cannot_be_read_is_a_dead_letter_by_default(caplog: pytest.LogCaptureFixture) -> None:
    """Where dead letters are declared an unreadable delivery becomes one, its reason free of the payload."""
    async with rig(take_order, ScriptedDelivery("1", b'{"id": "secret"}'), dead_letter="dead") as running:
        await running.ends(1)

    assert _dead(running)[DEAD_LETTER_REASON] == b"the payload is not valid: id: int_parsing"
    ((level, text),) = levels(caplog)
    assert level == "ERROR"
    assert text == (
        "orders: unreadable delivery: message 1: the payload is not valid: id: int_parsing; "
        "dead_letter('the payload is not valid: id: int_parsing')"
    )


@pytest.mark.promise("RETRY-32", "RETRY-29")
async def test_what_has_unreadable_headers_is_a_dead_letter_without_them() -> None:
    """Headers that cannot be read cannot be kept; the dead letter is sent all the same."""

    async def handler(body: bytes, context: Context) -> None:
        assert context.headers

    delivery = ScriptedDelivery("1", header_error=DecodeError("broken"), decode_error=DecodeError("broken"))
    async with rig(handler, delivery, dead_letter="dead") as running:
        await running.ends(1)

    assert _dead(running)[DEAD_LETTER_REASON] == b"broken"
    assert len(_dead(running)) == 5


@pytest.mark.promise("RETRY-32")
@pytest.mark.parametrize(
    ("rule", "line"), [(drop(), "reject"), (ack(), "ack"), (dead_letter("unread"), "ack")], ids=repr
)
async def test_a_decode_rule_goes_before_the_default(rule: Outcome, line: str) -> None:
    """A policy that says what becomes of unreadable deliveries is obeyed, dead letters or not."""
    policy = FailurePolicy(decode=rule)
    async with rig(take_order, ScriptedDelivery("1", b"x"), dead_letter="dead", policy=policy) as running:
        await running.ends(1)

    assert running.lines[-1] == f"{line} 1"
    assert len(running.broker.sent) == (rule.kind == "dead_letter")


@pytest.mark.promise("RETRY-32")
@pytest.mark.parametrize("declared", [False, True], ids=["none declared", "declared"])
async def test_unreadable_deliveries_count_only_where_they_are_lost(declared: bool) -> None:
    """The limit of unreadable deliveries in a row stops a service only where no dead letters are declared."""
    deliveries = [ScriptedDelivery(str(number), b"x") for number in range(5)]
    settings: dict[str, Any] = {"dead_letter": "dead"} if declared else {}
    async with rig(take_order, *deliveries, policy=FailurePolicy(decode_limit=3), **settings) as running:
        await running.ends(5 if declared else 3)

    assert (len(running.broker.sent), len(running.failures)) == ((5, 0) if declared else (0, 1))


# The cap.


@pytest.mark.promise("RETRY-22", "RETRY-23")
@pytest.mark.parametrize("cap", [1, 2, 3])
@pytest.mark.parametrize("dead", [None, "dead"])
@pytest.mark.parametrize("counted", [False, True], ids=["by header", "by the broker"])
async def test_at_the_cap_it_is_given_up(
    cap: int, dead: str | None, counted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The last attempt that the cap allows ends in the dead letters or a rejection; the one before it does not."""

    def delivery(attempt: int) -> ScriptedDelivery:
        if counted:
            return ScriptedDelivery(str(attempt), count=attempt)

        return ScriptedDelivery(str(attempt), headers={COUNT: str(attempt - 1).encode()})

    seen: list[Any] = []
    async with rig(
        returning(retry(), seen), *map(delivery, range(1, cap + 1)), max_attempts=cap, dead_letter=dead
    ) as running:
        await running.ends(cap)

    assert [attempt for _, attempt in seen] == list(range(1, cap + 1))
    earlier = [delivery.ends for delivery in running.stream.taken[:-1]]
    assert earlier == [["requeue"] if counted else ["ack"]] * (cap - 1)
    assert running.lines[-1] == (f"ack {cap}" if dead else f"reject {cap}")
    assert [sent.destination for sent in running.broker.sent].count("dead") == (dead is not None)
    warned = (
        "WARNING",
        f"orders: no attempt left: message {cap} is rejected at attempt {cap}, since max_attempts={cap} "
        "and no dead_letter= is declared",
    )
    assert levels(caplog) == ([] if dead else [warned])


@pytest.mark.promise("RETRY-30")
@pytest.mark.parametrize("dead", [None, "dead"])
@pytest.mark.parametrize("source", [ScriptedSource(), IN_PLACE], ids=["broker", "in place"])
@pytest.mark.parametrize("count", [3, 7])
async def test_what_arrives_past_the_cap_is_not_handled(source: ScriptedSource, dead: str | None, count: int) -> None:
    """A delivery whose count is past the cap already is given up without the handler; at the cap it is handled."""
    seen: list[Any] = []

    async def handler(body: bytes, context: Context) -> None:
        seen.append(context.attempt)

    async with rig(
        handler,
        DelayableDelivery("1", count=2),
        DelayableDelivery("2", count=count),
        source=source,
        max_attempts=2,
        dead_letter=dead,
    ) as running:
        await running.ends(2)

    assert seen == [2]
    assert running.lines == ["ack 1", "publish dead {}", "ack 2"] if dead else ["ack 1", "reject 2"]
    if dead:
        assert _dead(running)[DEAD_LETTER_ATTEMPTS] == str(count).encode()


@pytest.mark.promise("RETRY-33")
@pytest.mark.parametrize("dead", [None, "dead"])
async def test_hooks_and_continuations_are_told_what_became_of_it(dead: str | None) -> None:
    """At the cap they see the dead letter or the drop, and not the retry that was asked for."""
    events: list[Settled] = []
    calls: list[str] = []

    async def handler(body: bytes, context: Context) -> Outcome:
        context.after("retry", calls.append, "retry")
        context.after("drop", calls.append, "drop")
        context.after("dead_letter", calls.append, "dead_letter")
        return retry().and_after(calls.append, "its own")

    async with rig(
        handler, ScriptedDelivery("1", count=2), hooks=(events.append,), max_attempts=2, dead_letter=dead
    ) as running:
        await running.ends(1)

    kind = "dead_letter" if dead else "drop"
    assert calls == ["its own", kind]
    (event,) = events
    assert (event.outcome.kind, event.attempt, event.error) == (kind, 2, None)


@pytest.mark.promise("RETRY-33")
async def test_a_copy_is_a_retry_for_hooks() -> None:
    """Of a delivery that was copied for another attempt hooks are told that it is retried."""
    events: list[Settled] = []
    async with rig(returning(retry()), ScriptedDelivery("1"), hooks=(events.append,), max_attempts=2) as running:
        await running.ends(1)

    assert [event.outcome for event in events] == [retry()]


@pytest.mark.promise("RETRY-31")
async def test_a_rule_of_the_policy_may_send_dead_letters() -> None:
    """An error that is mapped to a dead letter becomes one at once; others are retried with backoff."""
    policy = FailurePolicy(error={ValueError: dead_letter("odd value"), KeyError: Backoff(initial=5)})

    async def handler(body: bytes) -> None:
        raise ValueError if body == b"v" else KeyError

    deliveries = [DelayableDelivery("1", b"v"), DelayableDelivery("2", b"k")]
    async with rig(handler, *deliveries, policy=policy, dead_letter="dead") as running:
        await running.ends(2)

    assert running.lines == ["publish dead v", "ack 1", "retry_after 2"]
    assert _dead(running)[DEAD_LETTER_REASON] == b"odd value"
