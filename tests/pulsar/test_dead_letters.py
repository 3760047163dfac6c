"""Caps and dead letters on Pulsar's subscription types, over the in-process transport."""

from __future__ import annotations

import pytest
from pystream import Context, Outcome, PyStream, mount, retry, retry_after
from pystream.headers import DEAD_LETTER_ATTEMPTS, DEAD_LETTER_DESTINATION, DEAD_LETTER_REASON
from pystream_pulsar import InitialPosition, PulsarBroker, PulsarSubscription, SubscriptionType
from pystream_testing import TestApp

pytestmark = pytest.mark.anyio


@pytest.mark.promise("RETRY-44")
@pytest.mark.parametrize("kind", list(SubscriptionType), ids=lambda kind: kind.name)
@pytest.mark.parametrize("outcome", [retry(), retry_after(5)], ids=repr)
async def test_a_spent_message_is_a_dead_letter_on_every_type(kind: SubscriptionType, outcome: Outcome) -> None:
    """Whether the broker redelivers or the service runs it in place, the cap holds and the message is kept."""
    attempts: list[int] = []
    dead: list[Context] = []

    async def handler(body: bytes, context: Context) -> Outcome:
        attempts.append(context.attempt)
        return outcome

    async def look(body: bytes, context: Context) -> None:
        assert (body, context.key, context.headers["trace"]) == (b"1", "k", b"t")
        dead.append(context)

    source = PulsarSubscription("orders", "billing", type=kind, initial_position=InitialPosition.EARLIEST)
    letters = PulsarSubscription("orders.dead", "look", initial_position=InitialPosition.EARLIEST)
    app = PyStream("shop").with_broker(
        PulsarBroker("pulsar://localhost:6650"),
        mount(handler, source, max_attempts=3, dead_letter="orders.dead"),
        mount(look, letters),
    )
    async with TestApp.start(app) as test:
        await test.broker().publish("orders", b"1", key="k", headers={"trace": "t"})
        await test.advance(60)

    assert attempts == [1, 2, 3]
    (context,) = dead
    assert context.headers[DEAD_LETTER_ATTEMPTS] == b"3"
    assert context.headers[DEAD_LETTER_REASON] == b"given up at attempt 3 (max_attempts=3)"
    assert context.headers[DEAD_LETTER_DESTINATION] == b"persistent://public/default/orders"
