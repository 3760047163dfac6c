"""What becomes of deliveries, settlements and publishes when the server fails or refuses."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import anyio
import pytest
import redis
from pystream.errors import DecodeError, PublishError, PyStreamError, SubscriptionEnded
from server import Server, running
from support import arrival, connected, new_stream, opened, publish, until

from pystream_redis import RedisSubscriber

pytestmark = pytest.mark.anyio


async def failure_of(subscriber: RedisSubscriber) -> PyStreamError:
    """What the next waits raise."""
    with anyio.fail_after(10):
        while True:
            try:
                assert subscriber.take() is None
                await subscriber.wait()
            except PyStreamError as error:
                return error


@pytest.mark.promise("SDK-154")
async def test_settlements_outlast_a_restart_of_the_server(tmp_path: Path) -> None:
    """What is settled while the server is away is settled once it is back; what was published arrives, once."""
    source = new_stream(claim_after=60.0, start="oldest")
    with running(tmp_path) as server:
        async with connected(server) as connection:
            await publish(connection, source, b"acknowledged", b"requeued", b"unseen")
            reader = await opened(connection, source)
            acknowledged, requeued = await arrival(reader), await arrival(reader)
            server.stop()
            await acknowledged.ack()
            await requeued.requeue()
            with pytest.raises(PublishError, match=f"'{source.stream}' was not confirmed and may have been stored"):
                await publish(connection, source, b"lost")

            unseen = await arrival(reader)  # it was buffered
            assert unseen.payload == b"unseen"
            await unseen.ack()
            error = await failure_of(reader)
            assert f"subscription 'reader' to '{source.stream}': " in str(error)
            assert not isinstance(error, SubscriptionEnded)
            await anyio.to_thread.run_sync(server.start)
            back = await _after_failures(reader)
            assert (back.payload, back.delivery_count) == (b"requeued", 2)
            await back.ack()
            await publish(connection, source, b"later")
            later = await _after_failures(reader)
            assert later.payload == b"later"
            await later.ack()
            assert reader.late_failures == 0


async def _after_failures(subscriber: RedisSubscriber) -> Any:
    with anyio.fail_after(10):
        while True:
            try:
                return await arrival(subscriber)
            except SubscriptionEnded:
                raise
            except PyStreamError:
                await anyio.sleep(0.05)


@pytest.mark.promise("SDK-154")
async def test_close_is_bounded_while_the_server_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the server gone a close ends in time, warns, and counts the settlement that was not made."""
    source = new_stream()
    with running(tmp_path) as server:
        async with connected(server) as connection:
            reader = await opened(connection, source)
            await publish(connection, source, b"x")
            delivery = await arrival(reader)
            server.stop()
            await delivery.ack()
            with anyio.fail_after(9):
                await reader.close()

        await until(lambda: reader.late_failures == 1)
        await anyio.to_thread.run_sync(server.start)
        async with connected(server) as connection:
            again = await arrival(await opened(connection, source))
            assert (again.payload, again.delivery_count) == (b"x", 2)
            await again.ack()

    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [text for text in warnings if "not everything was given back" in text or "took too long" in text]
    assert [text for text in warnings if f"{delivery.id} was not settled" in text]


@pytest.mark.promise("SDK-154")
async def test_close_sends_what_was_settled_while_the_server_was_away(tmp_path: Path) -> None:
    """A close that begins while the server is away sends the settlements if it comes back within the bound."""
    source = new_stream(claim_after=60.0)
    with running(tmp_path) as server:
        async with connected(server) as connection:
            reader = await opened(connection, source)
            await publish(connection, source, b"acknowledged")
            delivery = await arrival(reader)
            server.stop()
            await delivery.ack()
            async with anyio.create_task_group() as closing:
                closing.start_soon(reader.close)
                await anyio.wait_all_tasks_blocked()
                await anyio.to_thread.run_sync(server.start)

        with redis.Redis(port=server.port, protocol=2) as client:
            assert client.xpending(source.stream, source.group)["pending"] == 0

    assert reader.late_failures == 0


@pytest.mark.promise("SDK-155")
async def test_refused_settlement_is_counted(redis_server: Server, client: Any) -> None:
    """A settlement that the server refuses after it was accepted is one WARNING and is counted."""
    source = new_stream()
    async with connected(redis_server) as connection:
        reader = await opened(connection, source)
        await publish(connection, source, b"x")
        delivery = await arrival(reader)
        client.delete(source.stream)
        client.set(source.stream, "no stream")
        await delivery.ack()
        await until(lambda: reader.late_failures == 1)


@pytest.mark.promise("SDK-156")
async def test_removed_group_ends_the_stream(redis_server: Server, client: Any) -> None:
    """When the stream is removed the subscription ends with a reason, for good, and closes at once."""
    source = new_stream()
    async with connected(redis_server) as connection:
        reader = await opened(connection, source)
        client.delete(source.stream)
        for _ in range(2):
            error = await failure_of(reader)
            assert isinstance(error, SubscriptionEnded)
            assert "the stream or its group was removed" in str(error)

        with anyio.fail_after(2):
            await reader.close()


@pytest.mark.promise("SDK-156")
async def test_trimmed_entry_cannot_be_tried_again(redis_server: Server, client: Any) -> None:
    """An entry that was trimmed away while it was in hand is not handed out again, and a WARNING says so."""
    source = new_stream()
    async with connected(redis_server) as connection:
        reader = await opened(connection, source)
        await publish(connection, source, b"x")
        delivery = await arrival(reader)
        client.xtrim(source.stream, maxlen=0, approximate=False)
        await delivery.requeue()
        await publish(connection, source, b"next")
        following = await arrival(reader)
        assert following.payload == b"next"
        await following.ack()


@pytest.mark.promise("SDK-157")
async def test_entries_of_other_programs_are_told_apart(redis_server: Server, client: Any) -> None:
    """An entry without a field `payload`, or with a header name that is no text, is a decode error where it is read."""
    source = new_stream()
    async with connected(redis_server) as connection:
        reader = await opened(connection, source)
        client.xadd(source.stream, {"temperature": "20"})
        client.xadd(source.stream, {b"header:\xff": "x", b"payload": "y", b"key": ""})
        foreign, strange = await arrival(reader), await arrival(reader)
        assert isinstance(foreign.decode_error, DecodeError)
        assert "has no field 'payload'" in str(foreign.decode_error)
        assert foreign.payload == b""
        assert strange.decode_error is None
        assert (strange.payload, strange.key) == (b"y", None)
        with pytest.raises(DecodeError, match="no UTF-8"):
            _ = strange.headers

        await foreign.reject()
        await strange.ack()
