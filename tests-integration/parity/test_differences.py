"""Where the in-process Pulsar differs from a real one, on purpose; each names the assertion that would be unsound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from live.choice import LiveServer
from parity.world import InProcessWorld, LiveWorld, World
from pystream_pulsar import PulsarSubscribeError
from pystream_testing.pulsar.in_process import InProcessCluster

pytestmark = [pytest.mark.anyio, pytest.mark.gate, pytest.mark.promise("TESTING-79")]


@pytest.fixture
def anyio_backend() -> Any:
    """One loop is enough: nothing here depends on which it is."""
    return ("asyncio", {"use_uvloop": False})


@pytest.fixture
def live(real_server: LiveServer, unique: Callable[[str], str]) -> LiveWorld:
    """A real server."""
    return LiveWorld(real_server.url, f"persistent://public/default/{unique('difference')}")


async def kept_for_nobody(world: World) -> list[str]:
    """What a subscription from EARLIEST finds of messages that nobody was subscribed to."""
    producer = await world.producer()
    await world.publish(producer, b"1", b"2")
    reader = await world.reader(position="Earliest")
    found = await reader.rest()
    await world.close()
    return [message.payload.decode() for message in found]


async def kept_after_all(world: World) -> list[str]:
    """What a subscription from EARLIEST finds of messages that all others have acknowledged."""
    first, producer = await world.reader(subscription="first"), await world.producer()
    await world.publish(producer, b"1", b"2")
    for message in await first.receive(2):
        first.consumer.ack(message)

    await world.settle()
    second = await world.reader(subscription="second", position="Earliest")
    found = await second.rest()
    await world.close()
    return [message.payload.decode() for message in found]


async def test_a_server_keeps_longer(live: LiveWorld) -> None:
    """Unsound: "a late subscription from EARLIEST finds it". A server has it by chance, until it closes the ledger."""
    assert await kept_for_nobody(live) == ["1", "2"]
    assert await kept_for_nobody(InProcessWorld()) == []


async def test_a_server_keeps_what_is_acknowledged(live: LiveWorld) -> None:
    """Unsound: "a new subscription can read again what others have acknowledged". A server has it by chance."""
    assert await kept_after_all(live) == ["1", "2"]
    assert await kept_after_all(InProcessWorld()) == []


async def test_namespaces_come_by_themselves(live: LiveWorld) -> None:
    """Unsound: "the app's namespaces exist". In process all do, unless the cluster is told which."""
    topic = "persistent://nobody/nothing/orders"
    with pytest.raises(PulsarSubscribeError, match="TopicNotFound"):
        await live.reader(topic=topic)

    await live.close()
    world = InProcessWorld()
    world.cluster = InProcessCluster()
    await world.reader(topic=topic)
    await world.close()
