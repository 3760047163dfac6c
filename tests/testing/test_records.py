"""What `TestApp` records, and the assertions about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pystream import Outcome, PyStream, Settle, ack, drop, mount, retry, retry_after, subscriber
from pystream.errors import ConfigurationError, DecodeError
from pystream.memory import MemoryBroker
from pystream_testing import (
    DecodeFailed,
    Published,
    Raised,
    TestApp,
    UnknownDestinationWarning,
)
from pystream_testing._differences import differences

from tests.testing.shop import Confirmed, Order, confirm, receive, shop

pytestmark = pytest.mark.anyio


@pytest.mark.promise("TESTING-47")
async def test_each_kind_of_outcome_is_recorded() -> None:
    """A call ends acknowledged, retried, dropped or with an exception, or was none, since it could not be decoded."""
    async with TestApp.start(shop()) as t:
        for sku in ("a", "later", "unwanted", "broken"):
            await t.broker().publish("orders", Order(id=1, sku=sku))

        await t.broker().publish("orders", b"{")
        records = t.subscriber(confirm)
        done, later, unwanted, broken, unreadable = records.outcomes

        assert (done, later, unwanted) == (ack(), retry_after(5), drop())
        assert isinstance(broken, Raised)
        assert repr(broken.error) == "ValueError('no such article')"
        assert broken.outcome is not None
        assert broken.outcome.kind == "retry"
        assert isinstance(unreadable, DecodeFailed)
        assert unreadable.outcome == drop()
        assert records.payloads[-1] == b"{"
        assert [type(error) for error in records.exceptions] == [ValueError, DecodeError]


@pytest.mark.promise("TESTING-47")
async def test_settle_is_an_outcome_and_no_exception() -> None:
    """What is raised to settle counts as the outcome it carries, a continuation left out."""

    async def handle(number: int) -> None:
        raise Settle(retry_after(number).and_after(print))

    app = PyStream("settling").with_broker(MemoryBroker(), mount(handle, "numbers"))
    async with TestApp.start(app) as t:
        await t.broker().publish("numbers", 3)

        assert t.subscriber(handle).outcomes == [retry_after(3)]
        assert t.subscriber(handle).exceptions == []
        t.subscriber(handle).assert_settled(retry_after(3))


@pytest.mark.promise("TESTING-48")
async def test_assertions_about_calls() -> None:
    """Assertions hold for what happened, and fail otherwise with a text that shows what did."""
    async with TestApp.start(shop()) as t:
        records = t.subscriber(confirm)
        records.assert_not_called()
        with pytest.raises(AssertionError, match="orders to be called; it was not called"):
            records.assert_called()

        with pytest.raises(AssertionError, match="it was not called"):
            records.assert_settled(ack())

        await t.broker().publish("orders", Order(id=1, sku="a"), key="k")
        records.assert_called_once(with_=Order(id=1, sku="a"))
        records.assert_called(times=1)
        records.assert_settled(ack())
        with pytest.raises(AssertionError, match=r"orders not to be called; it was called once:\n  1: Order\(id=1"):
            records.assert_not_called()

        with pytest.raises(AssertionError, match=r"1: id: expected 2; it is 1\n  1: sku: expected 'b'; it is 'a'"):
            records.assert_called_once(Order(id=2, sku="b"))

        with pytest.raises(
            AssertionError, match=r"key: expected 'x'; it is 'k'\n.*header 'note': expected b'n'; it is m"
        ):
            records.assert_called_once(key="x", headers={"note": "n"})

        with pytest.raises(AssertionError, match=r"settled with drop\(\); it was ack\(\)"):
            records.assert_settled(drop())

        await t.broker().publish("orders", Order(id=2, sku="broken"))
        records.assert_called(with_=Order(id=1))
        records.assert_settled(ValueError)
        with pytest.raises(AssertionError, match="called once; it was called 2 times"):
            records.assert_called_once()

        with pytest.raises(
            AssertionError, match=r"with retry\(\); it was raised ValueError\('no such article'\), then"
        ):
            records.assert_settled(retry())

        with pytest.raises(ConfigurationError, match="give an outcome"):
            records.assert_settled("ack")  # type: ignore[arg-type]  # what it refuses


@pytest.mark.promise("TESTING-48")
async def test_every_one_of_a_number_must_be_as_expected() -> None:
    """With a number every call is compared, without one some call has to be right: no guess which was meant."""
    async with TestApp.start(shop()) as t:
        for number in (1, 2):
            await t.broker().publish("orders", Order(id=number))

        t.subscriber(confirm).assert_called(with_=Order(id=2))
        with pytest.raises(AssertionError, match="1: id: expected 2; it is 1"):
            t.subscriber(confirm).assert_called(times=2, with_=Order(id=2))

        with pytest.raises(AssertionError, match=r"1: id: expected 3; it is 1\n  2: id: expected 3; it is 2"):
            t.subscriber(confirm).assert_called(with_=Order(id=3))


@pytest.mark.promise("TESTING-49")
async def test_published_messages_are_decoded() -> None:
    """What the app has published is there with value, headers and key; what the test has published is not."""
    async with TestApp.start(shop()) as t:
        published = t.published(Confirmed, "orders.confirmed")
        await t.broker().publish("orders", Order(id=4))
        await t.broker().publish("orders.confirmed", Confirmed(order_id=5))

        published.assert_called_once(Confirmed(order_id=4), key=None)
        assert published.payloads == t.published(bytes, "orders.confirmed").values == [b'{"order_id":4}']
        t.published(Order, "orders").assert_not_called()
        with pytest.raises(AssertionError, match="the message is no Order"):
            t.published(Order, "orders.confirmed").assert_called_once(Order(id=4))

        with pytest.raises(AssertionError, match=r"published to 2 times; it was published to once"):
            published.assert_called(times=2)


@pytest.mark.promise("TESTING-49")
async def test_unknown_destination_warns_with_the_nearest() -> None:
    """A destination that nothing names is probably misspelt, and the warning has what was probably meant."""
    async with TestApp.start(shop()) as t:
        with pytest.warns(UnknownDestinationWarning, match=r"'orders\.confirmd'; the nearest is 'orders\.confirmed'"):
            t.published(Confirmed, "orders.confirmd")

        with pytest.warns(UnknownDestinationWarning, match="publishes to 'order'.*nearest is 'orders'"):
            await t.broker().publish("order", Order(id=1))


@pytest.mark.promise("TESTING-50")
async def test_unknown_subscription_is_refused() -> None:
    """A subscription is found by its handler or its name; another one is refused, listing the names."""

    async def stranger(order: Order) -> None:
        pass

    async with TestApp.start(shop()) as t:
        assert t.subscriber("orders").calls == t.subscriber(confirm).calls
        for unknown in (stranger, "order"):
            with pytest.raises(ConfigurationError, match=r"is no subscription; known are: orders, orders\.confirmed"):
                t.subscriber(unknown)


@pytest.mark.promise("TESTING-50")
async def test_handler_mounted_twice_is_told_apart_by_name() -> None:
    """A handler that is mounted twice is no answer to which subscription is meant."""
    app = PyStream("twice").with_broker(MemoryBroker(), mount(receive, name="one"), mount(receive, name="two"))
    async with TestApp.start(app) as t:
        with pytest.raises(ConfigurationError, match=r"mounted more than once \(one, two\)"):
            t.subscriber(receive)

        await t.broker().publish("orders.confirmed", Confirmed(order_id=1))
        t.subscriber("one").assert_called_once()
        t.subscriber("two").assert_called_once()


@pytest.mark.promise("TESTING-53")
async def test_functions_of_the_test_see_each_call_and_publish() -> None:
    """`on_call` and `on_publish` run once for each, after the settlement; what they raise fails the publish."""
    async with TestApp.start(shop()) as t:
        seen: list[Any] = []
        t.on_call(lambda call: seen.append((call.subscription, call.outcome)))

        @t.on_publish
        def look(message: Published) -> None:
            seen.append(message.destination)

        await t.broker().publish("orders", Order(id=1))
        assert seen == ["orders", "orders.confirmed", ("orders", ack()), ("orders.confirmed", ack())]

        @t.on_call
        def refuse(call: object) -> None:
            assert not seen, "not again"

        with pytest.raises(AssertionError, match="not again"):
            await t.broker().publish("orders", Order(id=2))

        t.subscriber(receive).assert_called(times=2)
        with pytest.raises(ConfigurationError, match="give a plain function"):
            t.on_call(receive)

        with pytest.raises(AssertionError, match="not again"):
            await t.broker().publish("orders", Order(id=3))


@dataclass
class _Pair:
    left: int
    right: list[int]


@pytest.mark.promise("TESTING-48")
@pytest.mark.parametrize(
    ("expected", "actual", "lines"),
    [
        (1, 1, []),
        (1, 2, ["expected 1; it is 2"]),
        ("1", 1, ["expected a str, '1'; it is a int, 1"]),
        ({"a": 1, "b": 2}, {"a": 1, "c": 3}, ["b: expected 2; it is missing", "c: expected nothing; it is 3"]),
        (_Pair(1, [1, 2]), _Pair(1, [1, 3]), ["right.1: expected 2; it is 3"]),
        ([1], [1, 2], ["1: expected nothing; it is 2"]),
        ({"o": Order(id=1)}, {"o": Order(id=2)}, ["o.id: expected 1; it is 2"]),
    ],
)
def test_differences_are_shown_where_they_are(expected: Any, actual: Any, lines: list[str]) -> None:
    """Two values are told apart place by place, each with what was expected and what is there."""
    assert differences(expected, actual) == lines


@pytest.mark.promise("TESTING-47")
async def test_in_place_runs_are_calls_of_their_own() -> None:
    """A delivery that is retried in place is one call for each run, and its wait does not block a publish."""
    from pystream_pulsar import PulsarBroker, PulsarSubscription, SubscriptionType

    runs = 0

    @subscriber(PulsarSubscription("numbers", "s", type=SubscriptionType.EXCLUSIVE))
    async def handle(number: int) -> Outcome:
        nonlocal runs
        runs += 1
        return retry_after(2) if runs < 3 else ack()

    app = PyStream("in place").with_broker(PulsarBroker("pulsar://localhost:6650"), handle)
    told: list[object] = []
    async with TestApp.start(app) as t:
        t.on_call(lambda call: told.append(call.outcome))
        await t.broker().publish("numbers", 1)
        assert runs == 1
        await t.broker().publish("numbers", 2)
        await t.advance(2)
        assert runs == 2
        await t.advance(2)

        assert t.subscriber(handle).values == [1, 1, 1, 2]
        assert told == t.subscriber(handle).outcomes == [retry_after(2), retry_after(2), ack(), ack()]
