"""Publishing: stored when it returns, refused before anything is stored."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from pystream.errors import BrokerClosed, ConfigurationError, NotConnected, PublishError
from pystream.headers import Headers
from pystream.memory import MemoryBroker, MemoryPublishPolicy
from pystream.protocols import Outgoing

from tests.core.memory.support import all_taken, at_once, connected, outgoing, payloads, subscribed, taken

pytestmark = pytest.mark.anyio


@pytest.mark.promise("MEMORY-9")
async def test_a_publish_has_stored_the_message_when_it_returns() -> None:
    """Publishing never suspends on the owner's loop, and the message can be taken at once."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    at_once(connection.publisher().publish(outgoing(b"1")))
    assert payloads(all_taken(subscriber)) == [b"1"]


@pytest.mark.promise("MEMORY-2")
async def test_a_name_without_a_subscription_keeps_nothing() -> None:
    """What is published to a name nobody subscribed to is gone, also for a later subscription."""
    broker, connection = await connected()
    await connection.publisher().publish(outgoing(b"lost"))
    assert broker.stored("orders") == 0
    subscriber = await subscribed(connection)
    assert subscriber.take() is None
    await connection.publisher().publish(outgoing(b"elsewhere", to="payments"))
    assert subscriber.take() is None


@pytest.mark.promise("MEMORY-16")
@pytest.mark.parametrize("make", [dict, Headers, MappingProxyType])
async def test_headers_are_copied_as_they_were_given(make: Any) -> None:
    """Names keep their spelling, values their bytes, and later changes of either side reach nobody."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    given = {"X-Trace": b"\x00\xff", "empty": b""}
    await connection.publisher().publish(outgoing(headers=make(given)))
    given["X-Trace"] = b"changed"
    headers: Any = taken(subscriber).headers
    assert dict(headers) == {"X-Trace": b"\x00\xff", "empty": b""}
    with pytest.raises(TypeError):
        headers["new"] = b""


@pytest.mark.promise("MEMORY-16")
@pytest.mark.parametrize(("given", "kept"), [(None, None), ("", None), (b"", None), ("k", "k"), (b"\x00", b"\x00")])
async def test_a_key_is_kept_and_an_empty_one_is_none(given: Any, kept: Any) -> None:
    """A key arrives as it was given, for lanes too; the empty key is no key."""
    _, connection = await connected()
    subscriber = await subscribed(connection)
    await connection.publisher().publish(outgoing(key=given))
    delivery = taken(subscriber)
    assert (delivery.key, delivery.lane_key) == (kept, kept)


@pytest.mark.promise("MEMORY-12")
@pytest.mark.parametrize("subscribes", [True, False])
@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Outgoing("", b"", {}), "at least one character"),
        (Outgoing("a\tb", b"", {}), "no control characters"),
        (Outgoing(["orders"], b"", {}), "not list"),  # type: ignore[arg-type]  # the point
        (Outgoing("orders", "text", {}), "payload of str"),  # type: ignore[arg-type]  # the point
        (Outgoing("orders", bytearray(b"x"), {}), "payload of bytearray"),  # type: ignore[arg-type]  # the point
        (Outgoing("orders", b"", {"name": "text"}), "str in header 'name'"),  # type: ignore[dict-item]  # the point
        (Outgoing("orders", b"", {b"name": b""}), "header name of bytes"),  # type: ignore[dict-item]  # the point
        (Outgoing("orders", b"", {}, 7), "key of int"),  # type: ignore[arg-type]  # the point
    ],
)
async def test_a_message_that_cannot_be_stored_is_refused(message: Outgoing, reason: str, subscribes: bool) -> None:
    """A wrong name, payload, header or key is a publish error, and nothing of it is stored."""
    broker, connection = await connected()
    if subscribes:
        await subscribed(connection)

    with pytest.raises(PublishError, match=reason):
        await connection.publisher().publish(message)

    assert broker.stored("orders") == 0


@pytest.mark.promise("MEMORY-12")
async def test_options_are_refused() -> None:
    """The broker has no publish options, and says so instead of dropping one."""
    broker, connection = await connected()
    await subscribed(connection)
    assert connection.default_policy() == MemoryPublishPolicy()
    assert MemoryPublishPolicy().options is None
    with pytest.raises(PublishError, match="no publish options, and dict was given"):
        await connection.publisher(MemoryPublishPolicy()).publish(outgoing(), {"delay": 3})

    assert broker.stored("orders") == 0


@pytest.mark.promise("MEMORY-12")
async def test_a_policy_of_another_broker_is_refused() -> None:
    """A policy that is none of this broker's is a configuration error, on broker and connection."""
    broker, connection = await connected()
    for owner in (broker, connection):
        with pytest.raises(ConfigurationError, match="takes a MemoryPublishPolicy, and str was given"):
            owner.publisher("policy")


@pytest.mark.promise("MEMORY-11")
async def test_a_handle_made_before_the_connect_works_once_connected() -> None:
    """Before the connect it raises NotConnected, then it publishes, after the close it raises BrokerClosed."""
    broker = MemoryBroker()
    early = broker.publisher()
    with pytest.raises(NotConnected, match="memory:// is not connected yet"):
        await early.publish(outgoing())

    _, connection = await connected(broker)
    subscriber = await subscribed(connection)
    await early.publish(outgoing(b"1"))
    await broker.publisher().publish(outgoing(b"2"))
    assert payloads(all_taken(subscriber)) == [b"1", b"2"]
    await connection.close()
    with pytest.raises(BrokerClosed):
        await early.publish(outgoing())


@pytest.mark.promise("MEMORY-11")
async def test_a_closed_handle_stays_closed_when_the_broker_is_connected_again() -> None:
    """A handle belongs to one connection: the next connection does not revive it."""
    broker, connection = await connected()
    handles = [broker.publisher(), connection.publisher()]
    await subscribed(connection)
    await connection.close()
    handles.append(connection.publisher())
    between = broker.publisher()
    with pytest.raises(NotConnected):
        await between.publish(outgoing())

    await connected(broker)
    for handle in handles:
        with pytest.raises(BrokerClosed, match="memory://test was closed"):
            await handle.publish(outgoing(b"never"))

    assert broker.stored("orders") == 0
    await between.publish(outgoing(b"kept"))
    assert broker.stored("orders") == 1
