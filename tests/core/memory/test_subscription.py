"""The descriptor: a plain, comparable value that is refused where it is written."""

from __future__ import annotations

from typing import Any

import pytest
from pystream.errors import ConfigurationError
from pystream.memory import MemorySubscription
from pystream.protocols import SubscriptionSource


@pytest.mark.promise("MEMORY-12")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "at least one character"),
        ("a\nb", "no control characters"),
        ("\x00", "no control characters"),
        ("a\x85", "no control characters"),
        (b"orders", "not bytes"),
        (None, "not NoneType"),
    ],
)
def test_a_name_that_is_none_is_refused(name: Any, reason: str) -> None:
    """An empty name, a control character or another type is refused at construction."""
    with pytest.raises(ConfigurationError, match=reason):
        MemorySubscription(name)


@pytest.mark.promise("MEMORY-18")
def test_a_descriptor_is_a_value() -> None:
    """Descriptors of one name are equal, hash alike and cannot be changed."""
    one = MemorySubscription("orders")
    assert one == MemorySubscription("orders")
    assert one != MemorySubscription("Orders")
    assert len({one, MemorySubscription("orders")}) == 1
    with pytest.raises(AttributeError):
        one.name = "other"  # type: ignore[misc]  # the point of the test


@pytest.mark.promise("MEMORY-18")
def test_a_descriptor_is_a_subscription_source() -> None:
    """The broker redelivers, delays have no bound, and no parameter of its own is offered."""
    source: SubscriptionSource = MemorySubscription("orders")
    assert (source.name, source.retry, source.batch_wait, source.max_delay) == ("orders", "broker", None, None)
    assert source.copies_to == "orders"
    assert dict(source.parameters) == {}
