"""The client's results as errors of ours."""

from __future__ import annotations

import pickle

import pytest
from _pulsar import Result
from pystream.errors import ConnectError, PublishError, SettlementError, SubscribeError, SubscriptionEnded
from pystream_pulsar import errors
from pystream_pulsar._client import results
from pystream_pulsar.transport import ConsumerSpec

from tests.pulsar.client.scripted import BUSY, AlreadyClosed
from tests.pulsar.client.scripted import Result as Scripted

TOPIC = "persistent://public/default/orders"
SPEC = ConsumerSpec(
    topic=TOPIC, subscription="billing", type="KeyShared", initial_position="Latest", receiver_queue_size=1
)


@pytest.mark.promise("PULSAR-48")
@pytest.mark.parametrize("name", [name for name in Result.__members__ if name != "Ok"])
def test_every_result_has_a_sentence(name: str) -> None:
    """Each result of the installed client is explained in words, with its name."""
    text = results.reason(name)
    assert text.endswith(f"({name})")
    assert len(text) > len(name) + 20


@pytest.mark.promise("PULSAR-48")
def test_an_unknown_result_keeps_its_name() -> None:
    """A result that a later client adds is told by its name."""
    assert results.reason("Novelty") == "Novelty"


@pytest.mark.promise("PULSAR-48")
def test_a_busy_subscription_names_both_causes() -> None:
    """ConsumerBusy says which type was asked for and that the other may be exclusive or of another type."""
    error = results.subscribe_error(SPEC, BUSY)
    assert isinstance(error, SubscribeError)
    assert error.result == "ConsumerBusy"
    for part in ("'billing'", TOPIC, "KEY_SHARED", "exclusively", "another type"):
        assert part in str(error)


@pytest.mark.promise("PULSAR-48")
def test_a_missing_topic_names_namespace_and_tenant() -> None:
    """TopicNotFound says that the topic, its namespace or its tenant may be what is missing."""
    error = results.subscribe_error(SPEC, Scripted("TopicNotFound", 29))
    for part in ("topic", "namespace", "tenant"):
        assert part in str(error)


@pytest.mark.promise("PULSAR-48")
def test_each_error_is_of_its_family() -> None:
    """Every error is a subclass of core's for the same condition and carries the result's name."""
    made: list[tuple[Exception, type[Exception]]] = [
        (results.publish_error(TOPIC, BUSY), PublishError),
        (results.open_producer_error(TOPIC, BUSY), PublishError),
        (results.settlement_error("an acknowledgement", SPEC, AlreadyClosed()), SettlementError),
        (results.ended_error(SPEC, "AlreadyClosed"), SubscriptionEnded),
        (errors.PulsarConnectError("x", result="ConnectError"), ConnectError),
    ]
    for error, family in made:
        assert isinstance(error, family)
        assert getattr(error, "result", None)


@pytest.mark.promise("PULSAR-48")
@pytest.mark.parametrize("name", errors.__all__)
def test_errors_are_picklable(name: str) -> None:
    """An error survives the way to another process, result included."""
    error = getattr(errors, name)("a sentence", result="Timeout")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # made here
    assert (type(copy), str(copy), copy.result) == (type(error), "a sentence", "Timeout")
