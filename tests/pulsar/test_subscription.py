"""`PulsarSubscription`: a value, its refusals, and what it offers handlers."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pystream.errors import ConfigurationError
from pystream.protocols import SubscriptionSource
from pystream_pulsar import (
    InitialPosition,
    MessageKey,
    MessageTopic,
    PulsarMessage,
    PulsarPosition,
    PulsarSubscription,
    PulsarTopic,
    SubscriptionType,
)

_COMPACTED = (
    "{}: read_compacted works on EXCLUSIVE and FAILOVER only, and its type is SHARED; choose one of these types or "
    "leave read_compacted out"
)


@pytest.mark.promise("PULSAR-3")
def test_is_a_value() -> None:
    """A subscription is compared by its options, can be kept in a set, and is replaced, not changed."""
    one = PulsarSubscription("orders", "billing", properties={"a": "b"})
    assert one == PulsarSubscription("public/default/orders", "billing", properties={"a": "b"})
    assert one != PulsarSubscription("orders", "billing")
    assert len({one, PulsarSubscription(PulsarTopic("orders"), "billing", properties={"a": "b"})}) == 1
    other = one.replace(type=SubscriptionType.EXCLUSIVE, name="audit")
    assert (other.subscription_name, other.type, other.properties) == (
        "audit",
        SubscriptionType.EXCLUSIVE,
        {"a": "b"},
    )
    assert one.type is SubscriptionType.SHARED
    with pytest.raises(ConfigurationError):
        one.replace(ack_timeout=1)


@pytest.mark.promise("PULSAR-3")
def test_defaults() -> None:
    """It is SHARED, begins with the next message, and is reported by its topic's full name."""
    source: SubscriptionSource = PulsarSubscription("orders", "billing")
    assert source.name == source.copies_to == "persistent://public/default/orders"
    assert (source.batch_wait, source.max_delay) == (None, None)
    subscription = PulsarSubscription("orders", "billing", ack_timeout=30)
    assert (subscription.type, subscription.initial_position) == (SubscriptionType.SHARED, InitialPosition.LATEST)
    assert subscription.max_delay == 30


@pytest.mark.promise("PULSAR-4")
@pytest.mark.parametrize(
    ("topic", "type_", "kind"),
    [
        ("orders", SubscriptionType.SHARED, "broker"),
        ("orders", SubscriptionType.KEY_SHARED, "broker"),
        ("orders", SubscriptionType.EXCLUSIVE, "in_place"),
        ("orders", SubscriptionType.FAILOVER, "in_place"),
        ("non-persistent://public/default/orders", SubscriptionType.SHARED, "in_place"),
        ("non-persistent://public/default/orders", SubscriptionType.KEY_SHARED, "in_place"),
    ],
)
def test_retry(topic: str, type_: SubscriptionType, kind: str) -> None:
    """Where a negative acknowledgement is of no use, messages are retried in place."""
    assert PulsarSubscription(topic, "billing", type=type_).retry == kind


@pytest.mark.promise("PULSAR-5")
def test_parameters() -> None:
    """A handler may ask for the message, its position, its key and its topic."""
    parameters = PulsarSubscription("orders", "billing").parameters
    asked = [PulsarMessage, PulsarPosition, get_args(MessageKey)[1], get_args(MessageTopic)[1]]
    assert list(parameters) == asked


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "a subscription to persistent://public/default/orders needs a name, not ''"),
    ({"name": "  "}, "a subscription to persistent://public/default/orders needs a name, not '  '"),
    ({"name": None}, "a subscription to persistent://public/default/orders needs a name, not None"),
    ({"type": "Shared"}, "{}: type must be a SubscriptionType, not 'Shared'"),
    ({"initial_position": "Latest"}, "{}: initial_position must be an InitialPosition, not 'Latest'"),
    ({"receiver_queue_size": 0}, "{}: receiver_queue_size must be a whole number of 1 or more, not 0"),
    ({"receiver_queue_size": True}, "{}: receiver_queue_size must be a whole number of 1 or more, not True"),
    (
        {"ack_timeout": 9.9},
        "{}: ack_timeout=9.9: the client takes 10 seconds or more; raise it, or leave it out for none",
    ),
    (
        {"ack_timeout": float("nan")},
        "{}: ack_timeout=nan: the client takes 10 seconds or more; raise it, or leave it out for none",
    ),
    (
        {"read_compacted": True},
        _COMPACTED,
    ),
    ({"consumer_name": ""}, "{}: consumer_name is empty; give a name, or leave it out for a generated one"),
    ({"properties": {"a": 1}}, "{}: properties are text to text, and one of them holds int"),
]
"""Options of a subscription, and the whole text of the refusal; {} is how the subscription is named."""


@pytest.mark.promise("PULSAR-6")
@pytest.mark.parametrize(("options", "message"), REFUSALS)
def test_refusals(options: dict[str, Any], message: str) -> None:
    """An option that cannot work is refused at construction, naming the subscription and the way out."""
    with pytest.raises(ConfigurationError) as caught:
        PulsarSubscription(**{"topic": "orders", "name": "billing", **options})

    assert str(caught.value) == message.format("subscription 'billing' to persistent://public/default/orders")


@pytest.mark.promise("PULSAR-6")
def test_bad_topic() -> None:
    """A subscription to something that is no topic is refused."""
    with pytest.raises(ConfigurationError, match="is no name of a Pulsar topic"):
        PulsarSubscription("a/b", "billing")
