"""The refusals in process are those of a live connection, word for word."""

from __future__ import annotations

import pytest
from pystream_pulsar._client import results
from pystream_pulsar.transport import ConsumerSpec, SubscriptionTypeName
from pystream_testing.pulsar._in_process import refusals

TOPIC = "persistent://public/default/orders"


class Answer:
    """A result of the client, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name


def spec(kind: SubscriptionTypeName = "Shared") -> ConsumerSpec:
    return ConsumerSpec(
        topic=TOPIC, subscription="billing", type=kind, initial_position="Latest", receiver_queue_size=1
    )


def same(ours: Exception, live: Exception) -> bool:
    return (type(ours), str(ours), vars(ours)) == (type(live), str(live), vars(live))


@pytest.mark.promise("TESTING-73")
@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared", "KeyShared"])
def test_busy(kind: SubscriptionTypeName) -> None:
    """A consumer that may not join is refused with the live error."""
    assert same(refusals.busy(spec(kind)), results.subscribe_error(spec(kind), Answer("ConsumerBusy")))


@pytest.mark.promise("TESTING-73")
@pytest.mark.parametrize("result", ["InvalidConfiguration", "TopicNotFound"])
def test_opening(result: str) -> None:
    """A consumer or producer that cannot be opened is refused with the live error."""
    assert same(refusals.no_subscription(spec(), result), results.subscribe_error(spec(), Answer(result)))
    assert same(refusals.no_producer(TOPIC, result), results.open_producer_error(TOPIC, Answer(result)))


@pytest.mark.promise("TESTING-73")
@pytest.mark.parametrize("result", ["AlreadyClosed", "MessageTooBig", "ProducerQueueIsFull"])
def test_sending(result: str) -> None:
    """A message is refused with the live error."""
    assert same(refusals.not_confirmed(TOPIC, result), results.publish_error(TOPIC, Answer(result)))


@pytest.mark.promise("TESTING-73")
def test_closed_consumers() -> None:
    """A closed consumer answers with the live errors."""

    class AlreadyClosed(Exception):
        """What the client raises."""

    live = results.settlement_error("an acknowledgement", spec(), AlreadyClosed())
    assert same(refusals.not_settled(spec()), live)
    assert same(refusals.ended(spec()), results.ended_error(spec(), "AlreadyClosed"))
