"""A production broker over the in-process transport, and short words for what tests do with it."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
from pystream.protocols import Mounting, Outgoing
from pystream_pulsar import PulsarBroker, PulsarMessage, PulsarPublishPolicy, PulsarSubscription
from pystream_pulsar._driver.driver import Driver
from pystream_testing.pulsar.in_process import InProcessCluster, InProcessConnection, connect

from tests.manual_clock import ManualClock

__all__ = ["MOUNTING", "TOPIC", "Rig", "take_all"]

TOPIC = "persistent://public/default/orders"
MOUNTING = Mounting(name="orders")


@dataclass
class Rig:
    """One cluster, one clock, and connections to it."""

    clock: ManualClock = field(default_factory=ManualClock)
    cluster: InProcessCluster = field(default_factory=InProcessCluster)
    connections: list[InProcessConnection] = field(default_factory=list)

    async def connect(self) -> InProcessConnection:
        """One more connection."""
        broker = PulsarBroker("pulsar://localhost:6650")
        self.connections.append(await connect(broker, self.clock, cluster=self.cluster))
        return self.connections[-1]

    async def subscribe(self, source: PulsarSubscription | None = None, *, concurrency: int = 1) -> Driver:
        """A subscriber on a connection of its own."""
        connection = await self.connect()
        mounting = Mounting(name="orders", concurrency=concurrency)
        return await connection.subscribe(source or PulsarSubscription("orders", "billing"), mounting)

    async def publish(
        self, *payloads: bytes, key: str | None = None, keys: list[str | None] | None = None, batching: bool = True
    ) -> None:
        """Publish all of these: at the same time, in any order, or one after another without batching."""
        connection = self.connections[0] if self.connections else await self.connect()
        publisher = connection.publisher(PulsarPublishPolicy(batching=batching))
        outgoing = [
            Outgoing("orders", payload, {}, own)
            for payload, own in zip(payloads, keys or [key] * len(payloads), strict=True)
        ]
        if not batching:
            for message in outgoing:
                await publisher.publish(message)

            return

        async with anyio.create_task_group() as tasks:
            for message in outgoing:
                tasks.start_soon(publisher.publish, message)

    async def close(self) -> None:
        for connection in self.connections:
            await connection.close()


def take_all(driver: Driver) -> list[PulsarMessage]:
    """Every message that can be taken now."""
    return list(iter(driver.take, None))
