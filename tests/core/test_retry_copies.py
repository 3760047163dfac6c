"""Copies for another attempt: what they carry, where they go, when the original is settled, and what goes wrong."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pystream import (
    Context,
    Outcome,
    Settled,
    dead_letter,
    retry,
    retry_after,
)
from pystream.errors import PublishError, SettlementUnsupported
from pystream.layers import PublishNext
from pystream.protocols import Outgoing

from tests.core.retrying import COUNT, IN_PLACE, levels, returning
from tests.core.rig import idle, rig
from tests.core.scripted import DelayableDelivery, ScriptedDelivery, ScriptedSource

pytestmark = pytest.mark.anyio


# Copies.


@pytest.mark.promise("RETRY-26")
async def test_a_copy_is_the_message_with_its_count_raised() -> None:
    """Payload, key and headers are those that came, as they were written; the count alone is another."""
    headers = {"X-Trace": b"\x00\xff", "x-trace2": b"", "X-PYSTREAM-Retry-Count": b"3"}
    delivery = ScriptedDelivery("1", b"\x00body", headers=headers, key=b"\x01k")
    async with rig(returning(retry()), delivery, max_attempts=9) as running:
        await running.ends(1)

    (sent,) = running.broker.sent
    assert sent == Outgoing("orders", b"\x00body", {"X-Trace": b"\x00\xff", "x-trace2": b"", COUNT: b"4"}, b"\x01k")
    assert running.lines[-1] == "ack 1"


@pytest.mark.promise("RETRY-26")
async def test_copies_count_from_round_to_round() -> None:
    """Fed back, the copies let the handler see the message as often as the cap says, and no more."""
    seen: list[Any] = []
    async with rig(returning(retry(), seen), ScriptedDelivery("1"), max_attempts=3) as running:
        for number in (1, 2, 3):
            await running.ends(number)
            if number < 3:
                copy = running.broker.sent[-1]
                running.feed(ScriptedDelivery("1", copy.payload, headers=copy.headers))

    assert [attempt for _, attempt in seen] == [1, 2, 3]
    assert [sent.headers[COUNT] for sent in running.broker.sent] == [b"1", b"2"]
    assert running.lines[-1] == "reject 1"


@pytest.mark.promise("RETRY-26")
async def test_what_layers_change_in_the_headers_stays_with_the_handler() -> None:
    """A copy carries the headers that came, not the working copy of this attempt."""

    async def layer(ctx: Context, call_next: Any) -> Outcome:
        ctx.headers["seen"] = b"1"
        outcome: Outcome = await call_next(ctx)
        return outcome

    delivery = ScriptedDelivery("1", headers={"a": b"b"})
    async with rig(returning(retry()), delivery, max_attempts=9, layers=[layer]) as running:
        await running.ends(1)

    assert running.broker.sent[0].headers == {"a": b"b", COUNT: b"1"}


@pytest.mark.promise("RETRY-27")
@pytest.mark.parametrize(
    ("retry_to", "copies_to", "destination"),
    [("again", "topic", "again"), (None, "topic", "topic"), ("again", None, "again")],
)
async def test_where_copies_go(retry_to: str | None, copies_to: str | None, destination: str) -> None:
    """To the mount's retry_to=, else to where the source says its copies belong."""
    source = ScriptedSource(copies_to=copies_to)
    async with rig(
        returning(retry()), ScriptedDelivery("1"), source=source, max_attempts=9, retry_to=retry_to
    ) as running:
        await running.ends(1)

    assert [sent.destination for sent in running.broker.sent] == [destination]


@pytest.mark.promise("RETRY-27")
async def test_a_copy_of_a_source_of_several_goes_where_its_message_came_from() -> None:
    """Without a cap such a source needs no retry_to=; where the broker cannot requeue, the copy goes back."""
    delivery = ScriptedDelivery("1", refusals={"requeue": SettlementUnsupported("no")})
    delivery.destination = "orders-7"
    async with rig(returning(retry()), delivery, source=ScriptedSource("orders", copies_to=None)) as running:
        await running.ends(2)

    assert [sent.destination for sent in running.broker.sent] == ["orders-7"]


@pytest.mark.promise("RETRY-28")
@pytest.mark.parametrize("what", ["copy", "dead letter"])
async def test_publish_layers_stand_around_them(what: str) -> None:
    """Copies and dead letters go through the publish layers, which may change or refuse them."""
    passed: list[str] = []

    async def layer(outgoing: Outgoing, call_next: PublishNext) -> None:
        passed.append(outgoing.destination)
        outgoing.payload += b"!"
        await call_next(outgoing)

    given: dict[str, Any] = {"max_attempts": 9} if what == "copy" else {"max_attempts": 1, "dead_letter": "dead"}
    async with rig(returning(retry()), ScriptedDelivery("1"), publish_layers=[layer], **given) as running:
        await running.ends(1)

    assert passed == ["orders" if what == "copy" else "dead"]
    assert running.broker.sent[0].payload == b"{}!"


@pytest.mark.promise("RETRY-26", "RETRY-29")
@pytest.mark.parametrize("given", [{"max_attempts": 9}, {"max_attempts": 1, "dead_letter": "dead"}], ids=str)
async def test_the_original_is_acknowledged_after_the_receipt(given: dict[str, Any]) -> None:
    """While the broker has not confirmed it, the original is unsettled; then it is acknowledged."""
    confirmed = anyio.Event()

    async def layer(outgoing: Outgoing, call_next: PublishNext) -> None:
        await call_next(outgoing)
        await confirmed.wait()

    async with rig(returning(retry()), ScriptedDelivery("1"), publish_layers=[layer], **given) as running:
        await running.journal.until(lambda: bool(running.broker.sent))
        await idle()
        assert running.stream.taken[0].ends == []
        confirmed.set()
        await running.ends(1)

    assert running.lines[-1] == "ack 1"


@pytest.mark.promise("RETRY-26")
@pytest.mark.parametrize("refused", [False, True], ids=["at once", "in place of a requeue"])
async def test_cancelled_while_it_is_published_the_original_is_given_back(refused: bool) -> None:
    """A stop that is out of patience leaves the original unsettled: it may come twice, and is not lost."""
    delivery = ScriptedDelivery("1", refusals={"requeue": SettlementUnsupported("no")} if refused else {})
    cap = None if refused else 9

    async def layer(outgoing: Outgoing, call_next: PublishNext) -> None:
        await anyio.sleep_forever()

    async with rig(returning(retry()), delivery, publish_layers=[layer], max_attempts=cap) as running:
        await idle()
        running.subscription.cancel()
        await running.finished()

    assert running.lines == [*(["refused requeue 1"] if refused else []), "release 1"]


# What cannot be published, and what the broker cannot do.


@pytest.mark.promise("RETRY-25")
@pytest.mark.parametrize(
    ("settings", "what"), [({"max_attempts": 9}, "a copy"), ({"dead_letter": "dead"}, "a dead letter")], ids=str
)
@pytest.mark.parametrize("error", [PublishError("no room"), RuntimeError("odd")], ids=repr)
async def test_what_cannot_be_published_goes_back_to_the_broker(
    settings: dict[str, Any], what: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The original is retried with the attempt's backoff, with an ERROR, and hooks see a retry."""
    events: list[Settled] = []
    outcome = retry() if what == "a copy" else dead_letter("odd")
    delivery = DelayableDelivery("1", headers={COUNT: b"2"})
    async with rig(returning(outcome), hooks=(events.append,), **settings) as running:
        running.broker.publish_errors.append(error)
        running.feed(delivery)
        await running.ends(1)

    assert running.lines[-1] == "retry_after 1"
    (delay,) = running.journal.delays
    assert 3.2 <= delay <= 4.8
    assert [event.outcome for event in events] == [retry_after(delay)]
    assert levels(caplog) == [
        (
            "ERROR",
            f"orders: {what} not published: message 1: {type(error).__name__}: {error}; another try in {delay:.3g} s",
        )
    ]


@pytest.mark.promise("RETRY-25")
async def test_without_a_delay_of_the_broker_the_backoff_is_kept_by_a_timer() -> None:
    """The original is held for the backoff, and then requeued, not copied: the copy could not be published."""
    async with rig(returning(dead_letter("odd")), dead_letter="dead") as running:
        running.broker.publish_errors.append(PublishError("no room"))
        running.feed(ScriptedDelivery("1"))
        await running.timer()
        running.clock.advance(0.79)
        await idle()
        assert running.stream.taken[0].ends == []
        running.clock.advance(0.42)
        await running.ends(1)

    assert running.lines == ["unpublished dead", "requeue 1"]


@pytest.mark.promise("RETRY-25")
async def test_in_place_the_publish_is_tried_again_in_place(caplog: pytest.LogCaptureFixture) -> None:
    """Where the broker runs nothing again, the handling task tries to publish again, its backoff growing."""
    seen: list[Any] = []
    async with rig(returning(retry(), seen), source=IN_PLACE, dead_letter="dead", max_attempts=1) as running:
        running.broker.publish_errors.extend([PublishError("no room"), PublishError("no room")])
        running.feed(ScriptedDelivery("1"), ScriptedDelivery("2"))
        for seconds in (1, 2):
            await running.timer()
            running.clock.advance(0.8 * seconds - 0.01)
            await idle()
            assert running.stream.ends == 0
            running.clock.advance(0.4 * seconds + 0.02)
            await idle()

        await running.ends(2)

    assert seen == [("1", 1), ("2", 1)]
    assert running.lines == [
        "unpublished dead",
        "unpublished dead",
        "publish dead {}",
        "ack 1",
        "publish dead {}",
        "ack 2",
    ]


@pytest.mark.promise("RETRY-25")
async def test_a_stop_ends_the_tries_in_place() -> None:
    """Such a delivery is given back by a stop, unsettled."""
    async with rig(returning(retry()), source=IN_PLACE, dead_letter="dead", max_attempts=1) as running:
        running.broker.publish_errors.append(PublishError("no room"))
        running.feed(ScriptedDelivery("1"))
        await running.timer()

    assert running.lines == ["unpublished dead", "release 1"]


@pytest.mark.promise("RETRY-24")
@pytest.mark.parametrize("cap", [None, 9])
async def test_what_the_broker_cannot_requeue_is_copied(cap: int | None) -> None:
    """A requeue that the broker does not have becomes a copy, its count raised; no failure is counted."""
    delivery = ScriptedDelivery("1", count=2, refusals={"requeue": SettlementUnsupported("no")})
    async with rig(returning(retry()), delivery, max_attempts=cap) as running:
        await running.ends(2)
        assert running.board.view.settlement_failures == 0

    assert running.lines == ["refused requeue 1", "publish orders {}", "ack 1"]
    assert running.broker.sent[0].headers == {COUNT: b"2"}


@pytest.mark.promise("RETRY-24")
@pytest.mark.parametrize(("count", "line"), [(2, "requeue 1"), (None, "ack 1")], ids=["counted", "not counted"])
async def test_what_the_broker_cannot_delay_is_held(count: int | None, line: str) -> None:
    """A delay that the broker does not have is kept by a timer; then it is requeued, or copied."""
    delivery = DelayableDelivery("1", count=count, refusals={"retry_after": SettlementUnsupported("no")})
    async with rig(returning(retry_after(5)), delivery) as running:
        await running.timer()
        running.clock.advance(4.99)
        await idle()
        assert running.lines == ["refused retry_after 1"]
        running.clock.advance(0.01)
        await running.ends(2)

    assert running.lines[-1] == line


@pytest.mark.promise("RETRY-24", "SETTLE-6")
async def test_a_broker_without_any_settlement_still_gets_its_copies(caplog: pytest.LogCaptureFixture) -> None:
    """Copies and dead letters are published; that the original cannot be acknowledged is a WARNING."""
    no = SettlementUnsupported("no such thing")
    refusals = {"ack": no, "requeue": no, "reject": no}
    first = ScriptedDelivery("1", refusals=refusals)
    last = ScriptedDelivery("2", headers={COUNT: b"1"}, refusals=refusals)
    async with rig(returning(retry()), first, last, max_attempts=2, dead_letter="dead") as running:
        await running.ends(2)

    assert [sent.destination for sent in running.broker.sent] == ["orders", "dead"]
    assert {level for level, _ in levels(caplog)} == {"WARNING"}


@pytest.mark.promise("RETRY-33", "SETTLE-5")
async def test_a_place_that_a_refused_settlement_has_taken_is_free_again() -> None:
    """A settlement that is replaced does not use up the room for tasks that follow settlements."""
    done: list[str] = []

    async def follow(number: str) -> None:
        done.append(number)

    deliveries = [
        ScriptedDelivery(str(number), refusals={"requeue": SettlementUnsupported("no")}) for number in range(3)
    ]
    async with rig(returning(retry().and_after(follow, "x")), *deliveries, max_tracked=1) as running:
        await running.ends(6)

    assert done == ["x"] * 3
