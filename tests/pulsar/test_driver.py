"""The driver: taking, waiting, settling from anywhere, closing."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import cast

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pystream.errors import BrokerClosed, SettlementError, SettlementRejected, SubscribeError, SubscriptionEnded
from pystream.protocols import Mounting, Subscriber
from pystream_pulsar import ConnectedPulsarBroker, PulsarMessage, PulsarSubscribeError, PulsarSubscription
from pystream_pulsar._driver.driver import CLOSE_BOUND

from tests.pulsar.scripted import MOUNTING, ManualClock, Raw, ScriptedTransport, batch, open_stream

pytestmark = pytest.mark.anyio


def numbered(*entries: int) -> list[Raw]:
    """Single messages, each with its entry's number as the payload."""
    return [Raw(b"%d" % entry, entry=entry) for entry in entries]


async def elsewhere(settlement: Callable[[], Awaitable[object]]) -> None:
    """Await on a loop of another thread, which ends right after."""
    failures: list[BaseException] = []

    def run() -> None:
        async def main() -> None:
            await settlement()

        try:
            anyio.run(main)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    await anyio.to_thread.run_sync(thread.join)
    if failures:
        raise failures[0]


@pytest.mark.promise("PULSAR-11")
async def test_takes_in_order() -> None:
    """Messages come in the order of the stream, and none when a wait is due."""
    stream = await open_stream()
    subscriber: Subscriber = stream.driver
    assert subscriber.take() is None
    stream.consumer.feed(*numbered(*range(40)))
    assert [message.payload for message in stream.take_all()] == [b"%d" % entry for entry in range(40)]


@pytest.mark.promise("PULSAR-11")
async def test_reads_sixteen_ahead() -> None:
    """One pull takes at most 16 messages, and the next one is made only when these are taken."""
    stream = await open_stream()
    stream.consumer.feed(*numbered(*range(40)))
    for _ in range(16):
        stream.take()

    assert stream.consumer.pulls == [16]
    stream.take()
    assert stream.consumer.pulls == [16, 16]


@pytest.mark.promise("PULSAR-11")
@pytest.mark.parametrize(("queue", "ahead"), [(1, 16), (256, 16), (400, 25), (1024, 64), (20_000, 64)])
async def test_reads_further_ahead_beside_a_large_queue(queue: int, ahead: int) -> None:
    """One pull takes a sixteenth of what the client reads ahead, where that is more than 16, and never more than 64."""
    stream = await open_stream(receiver_queue_size=queue)
    stream.consumer.feed(*numbered(*range(100)))
    stream.take()
    assert stream.consumer.pulls == [ahead]


@pytest.mark.promise("PULSAR-12")
async def test_a_full_pull_of_copies_is_repeated() -> None:
    """A full pull of which nothing is deliverable is repeated at once, or the stream would stall."""
    stream = await open_stream()
    held = numbered(*range(16))
    stream.consumer.feed(*held)
    assert len(stream.take_all()) == 16
    stream.consumer.feed(*numbered(*range(16)), *numbered(99))
    stream.consumer.pulls.clear()
    assert stream.take().payload == b"99"
    assert stream.consumer.pulls == [16, 1]


@pytest.mark.promise("PULSAR-13")
async def test_wait_ends_when_a_message_comes() -> None:
    """A wait sleeps until the consumer has a message, which the next take brings."""
    stream = await open_stream()
    assert stream.driver.take() is None
    async with anyio.create_task_group() as group:
        group.start_soon(stream.driver.wait)
        await anyio.wait_all_tasks_blocked()
        stream.consumer.feed(*numbered(1))

    assert stream.take().payload == b"1"


@pytest.mark.promise("PULSAR-13")
async def test_wait_ends_by_a_wake_up_of_another_thread() -> None:
    """The client may wake the stream from any of its threads."""
    stream = await open_stream()
    assert stream.driver.take() is None
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(stream.driver.wait)
            await anyio.wait_all_tasks_blocked()
            await anyio.to_thread.run_sync(lambda: stream.consumer.feed(*numbered(1)))

    assert stream.take().payload == b"1"


@pytest.mark.promise("PULSAR-13")
async def test_no_wake_up_is_lost() -> None:
    """A wait before any take, after a wake-up, or while something is queued returns at once."""
    stream = await open_stream()
    with anyio.fail_after(10):
        await stream.driver.wait()
        assert stream.driver.take() is None
        stream.consumer.feed(*numbered(1, 2))
        await stream.driver.wait()
        await stream.driver.wait()
        stream.take()
        await stream.driver.wait()


@pytest.mark.promise("PULSAR-13")
async def test_a_cancelled_wait_loses_nothing() -> None:
    """A message that comes while a wait is being cancelled is taken afterwards."""
    stream = await open_stream()
    assert stream.driver.take() is None
    async with anyio.create_task_group() as group:
        group.start_soon(stream.driver.wait)
        await anyio.wait_all_tasks_blocked()
        stream.consumer.feed(*numbered(1))
        group.cancel_scope.cancel()

    assert stream.take().payload == b"1"


@pytest.mark.promise("PULSAR-13")
async def test_interrupt() -> None:
    """An interrupt ends the present wait, or the next one."""
    stream = await open_stream()
    assert stream.driver.take() is None
    with anyio.fail_after(10):
        stream.driver.interrupt()
        await stream.driver.wait()
        assert stream.driver.take() is None
        async with anyio.create_task_group() as group:
            group.start_soon(stream.driver.wait)
            await anyio.wait_all_tasks_blocked()
            stream.driver.interrupt()


@pytest.mark.promise("PULSAR-13")
async def test_a_failure_is_told_by_wait() -> None:
    """A consumer that failed is told by wait, also by one that sleeps, and never by take."""
    stream = await open_stream()
    assert stream.driver.take() is None

    async def fail() -> None:
        await anyio.wait_all_tasks_blocked()
        stream.consumer.failure = SubscriptionEnded("gone")
        stream.consumer.wake()

    async with anyio.create_task_group() as group:
        group.start_soon(fail)
        with pytest.raises(SubscriptionEnded, match="gone"):
            await stream.driver.wait()

    assert stream.driver.take() is None
    with pytest.raises(SubscriptionEnded, match="gone"):
        await stream.driver.wait()


@pytest.mark.promise("PULSAR-14")
async def test_an_acknowledgement_is_one_call() -> None:
    """While nothing is asked back, neither arrival nor acknowledgement asks the client anything else."""

    class Silent:
        def __init__(self, payload: bytes) -> None:
            self.payload = payload

    stream = await open_stream()
    raw = Silent(b"x")
    stream.consumer.feed(raw)  # type: ignore[arg-type]  # that it has nothing but a payload is the point
    await stream.take().ack()
    assert [*stream.consumer.acked] == [cast("Raw", raw)]


@pytest.mark.promise("PULSAR-14")
async def test_settlements_never_suspend_at_home() -> None:
    """On the owner's loop a settlement is made when the call returns, without a suspension."""
    stream = await open_stream()
    stream.consumer.feed(*numbered(1, 2, 3, 4))
    messages = [stream.take() for _ in range(4)]
    names = ["ack", "reject", "requeue", "retry_after"]
    for message, name in zip(messages, names, strict=True):
        settlement = message.retry_after(1) if name == "retry_after" else getattr(message, name)()
        with pytest.raises(StopIteration):
            settlement.send(None)

    assert len(stream.consumer.acked) == 2


@pytest.mark.promise("PULSAR-14")
async def test_a_refused_acknowledgement_raises() -> None:
    """An acknowledgement that the client refuses raises where it was made."""
    stream = await open_stream()
    stream.consumer.feed(*numbered(1))
    message = stream.take()
    stream.consumer.refuses = SettlementError("closed")
    with pytest.raises(SettlementError, match="closed"):
        await message.ack()


@pytest.mark.promise("PULSAR-15")
async def test_settlements_of_other_threads() -> None:
    """A settlement made on another thread's loop is served on the owner's, also when that loop ends at once."""
    stream = await open_stream()
    stream.consumer.feed(*numbered(1, 2, 3))
    first, second, third = [stream.take() for _ in range(3)]
    await elsewhere(first.ack)
    await elsewhere(second.requeue)
    await elsewhere(lambda: third.retry_after(5))
    with anyio.fail_after(10):
        while not stream.consumer.acked or not stream.driver.delayed:
            await checkpoint()

    stream.clock.advance(1)
    assert [raw.entry for raw in stream.consumer.nacked] == [2]
    for message in (first, second, third):
        with pytest.raises(SettlementError, match="was settled before"):
            await message.ack()


@pytest.mark.promise("PULSAR-15")
async def test_settlements_are_served_before_a_pull() -> None:
    """What other threads have settled is served before the next pull, even if the loop was never free."""
    stream = await open_stream()
    stream.consumer.feed(*numbered(1))
    message = stream.take()
    thread = threading.Thread(target=lambda: anyio.run(message.ack))
    thread.start()
    thread.join(10)
    assert stream.consumer.acked == []
    assert stream.driver.take() is None
    assert len(stream.consumer.acked) == 1


@pytest.mark.promise("PULSAR-15")
async def test_a_late_failure_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """A settlement that was accepted from another thread and then fails is logged and counted."""
    stream = await open_stream()
    stream.consumer.feed(*numbered(1))
    message = stream.take()
    stream.consumer.refuses = SettlementError("closed")
    await elsewhere(message.ack)
    with anyio.fail_after(10):
        while not stream.driver.late_failures:
            await checkpoint()

    assert "message 7:1:-1" in caplog.text


@pytest.mark.promise("PULSAR-15")
def test_the_loop_is_gone() -> None:
    """A settlement after the owner's loop has ended raises instead of being lost without a word."""

    async def leave() -> PulsarMessage:
        stream = await open_stream()
        stream.consumer.feed(*numbered(1))
        return stream.take()

    message = anyio.run(leave)
    raised: list[BaseException] = []

    def settle() -> None:
        try:
            anyio.run(message.ack)
        except BrokerClosed as error:
            raised.append(error)

    thread = threading.Thread(target=settle)
    thread.start()
    thread.join(10)
    assert "event loop of this Pulsar connection is closed" in str(raised[0])


@pytest.mark.promise("PULSAR-16")
async def test_close_waits_for_what_was_taken() -> None:
    """A close returns when everything taken is settled, held or released; until then settlements work."""
    stream = await open_stream()
    stream.consumer.feed(*numbered(1, 2, 3, 4, 5))
    first, second, third, fourth = [stream.take() for _ in range(4)]
    await first.retry_after(100)
    async with anyio.create_task_group() as group:
        group.start_soon(stream.driver.close)
        await anyio.wait_all_tasks_blocked()
        await second.ack()
        third.release()
        await anyio.wait_all_tasks_blocked()
        assert not stream.consumer.closed
        await elsewhere(fourth.ack)
        with anyio.fail_after(10):
            while not stream.consumer.closed:
                await checkpoint()

    assert [raw.entry for raw in stream.consumer.acked] == [2, 4]
    assert stream.consumer.nacked == []
    assert stream.clock.armed == 0


@pytest.mark.promise("PULSAR-16")
async def test_close_gives_back_what_was_not_taken() -> None:
    """What is queued or held is neither acknowledged nor asked back at a close: the server has it again."""
    stream = await open_stream()
    stream.consumer.feed(*numbered(1, 2, 3))
    await stream.take().requeue()
    with anyio.fail_after(10):
        await stream.driver.close()
        await stream.driver.close()

    assert (stream.consumer.acked, stream.consumer.nacked, stream.consumer.closed) == ([], [], 1)
    assert stream.driver.take() is None
    with pytest.raises(SubscriptionEnded):
        await stream.driver.wait()


@pytest.mark.promise("PULSAR-16")
async def test_close_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """A message that is neither settled nor released holds a close for its bound, and no longer."""
    stream = await open_stream()
    stream.consumer.feed(*numbered(1))
    message = stream.take()
    async with anyio.create_task_group() as group:
        group.start_soon(stream.driver.close)
        await anyio.wait_all_tasks_blocked()
        assert not stream.consumer.closed
        stream.clock.advance(CLOSE_BOUND)

    assert stream.consumer.closed
    assert "closed with 1 messages" in caplog.text
    with pytest.raises(BrokerClosed, match="its subscription is closed"):
        await message.ack()


@pytest.mark.promise("PULSAR-16")
async def test_close_ends_a_wait() -> None:
    """A wait that sleeps when the subscription is closed raises that it has ended."""
    stream = await open_stream()
    assert stream.driver.take() is None
    async with anyio.create_task_group() as group:

        async def wait() -> None:
            with pytest.raises(SubscriptionEnded):
                await stream.driver.wait()

        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await stream.driver.close()


@pytest.mark.promise("PULSAR-16")
async def test_close_with_all_released() -> None:
    """Released messages hold up no close; a release twice, or of a settled one, changes nothing."""
    stream = await open_stream()
    stream.consumer.feed(*batch(0, 1))
    first, second = [stream.take() for _ in range(2)]
    await first.ack()
    for message in (first, second, second):
        message.release()

    with anyio.fail_after(10):
        await stream.driver.close()

    assert len(stream.consumer.acked) == 1


@pytest.mark.promise("PULSAR-17")
async def test_a_delay_stays_below_the_acknowledgement_timeout() -> None:
    """A delay that reaches the acknowledgement timeout is refused, naming both, and settles nothing."""
    stream = await open_stream(PulsarSubscription("orders", "billing", ack_timeout=30))
    stream.consumer.feed(*numbered(1))
    message = stream.take()
    with pytest.raises(SettlementRejected) as caught:
        await message.retry_after(30)

    assert str(caught.value) == (
        "retry_after(30) on persistent://public/default/orders: the delay must stay below the subscription's "
        "ack_timeout of 30 s, or the client asks for the message first; shorten the delay or raise ack_timeout"
    )
    await message.retry_after(29.9)
    assert stream.driver.delayed == 1


@pytest.mark.promise("PULSAR-17")
@pytest.mark.parametrize("delay", [-1.0, float("inf"), float("nan")])
async def test_a_delay_that_is_none(delay: float) -> None:
    """A negative or endless delay is refused and settles nothing."""
    stream = await open_stream()
    stream.consumer.feed(*numbered(1))
    message = stream.take()
    with pytest.raises(SettlementRejected, match="give 0 or more seconds"):
        await message.retry_after(delay)

    await message.ack()


@pytest.mark.promise("PULSAR-18")
@pytest.mark.parametrize(
    ("concurrency", "asked", "size"),
    [(1, None, 100), (25, None, 100), (26, None, 104), (500, None, 2000), (500, 7, 7)],
)
async def test_read_ahead(concurrency: int, asked: int | None, size: int) -> None:
    """The client reads ahead the larger of 100 and four times what the handler's form holds, or what is asked."""
    transport = ScriptedTransport()
    connection = ConnectedPulsarBroker(transport, clock=ManualClock())
    source = PulsarSubscription("orders", "billing", receiver_queue_size=asked)
    await connection.subscribe(source, Mounting(name="orders", concurrency=concurrency))
    assert transport.consumers[0].spec.receiver_queue_size == size


@pytest.mark.promise("PULSAR-19")
async def test_a_refused_subscription() -> None:
    """A subscription that the transport refuses raises its error as it is."""
    transport = ScriptedTransport()
    transport.refuses = PulsarSubscribeError("busy", result="ConsumerBusy")
    connection = ConnectedPulsarBroker(transport, clock=ManualClock())
    with pytest.raises(SubscribeError) as caught:
        await connection.subscribe(PulsarSubscription("orders", "billing"), MOUNTING)

    assert caught.value is transport.refuses


@pytest.mark.promise("PULSAR-16")
async def test_a_cancelled_close() -> None:
    """A close that is cancelled while it waits leaves the subscriber closed, with no timer running."""
    stream = await open_stream()
    stream.consumer.feed(*numbered(1, 2))
    message, second = stream.take(), stream.take()
    await second.retry_after(5)
    async with anyio.create_task_group() as group:
        group.start_soon(stream.driver.close)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()

    assert stream.driver.take() is None
    assert stream.clock.armed == 0
    with pytest.raises(BrokerClosed):
        await message.ack()


@pytest.mark.promise("PULSAR-16")
async def test_a_release_of_another_thread_ends_the_wait_of_a_close() -> None:
    """A message released on another thread holds up a close no longer."""
    stream = await open_stream()
    stream.consumer.feed(*numbered(1))
    message = stream.take()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(stream.driver.close)
            await anyio.wait_all_tasks_blocked()
            await anyio.to_thread.run_sync(message.release)

    assert stream.consumer.closed
    assert stream.consumer.acked == []
