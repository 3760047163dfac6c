"""A Pulsar in the process of the test: no server, no thread, no time but the clock's.

`InProcessCluster` keeps what a server keeps, `InProcessTransport` is a connection to it, and
`connect` puts a production `PulsarBroker` over one. Everything above the transport (retries,
batch neighbours, counts, settlement) is the plugin's own code, the same as in production.
"""

from __future__ import annotations

from collections.abc import Callable

from anyio.lowlevel import RunVar, checkpoint
from pystream.clock import LoopClock
from pystream.errors import BrokerClosed, NotConnected
from pystream.protocols import Clock, Mounting
from pystream_pulsar import ConnectedPulsarBroker, PulsarBroker, PulsarSubscription, PulsarTopic
from pystream_pulsar.transport import ConsumerSpec, ProducerSpec, ServerInfo

from pystream_testing.pulsar._in_process import refusals
from pystream_testing.pulsar._in_process.cluster import InProcessCluster, SubscriptionCounts
from pystream_testing.pulsar._in_process.consumer import InProcessConsumer
from pystream_testing.pulsar._in_process.producer import InProcessProducer

__all__ = [
    "InProcessCluster",
    "InProcessConnection",
    "InProcessTransport",
    "SubscriptionCounts",
    "connect",
    "group",
    "resolve",
]

# By the clock's identity, and with the clock, so that the number is not used again; gone with the loop.
_clusters: RunVar[dict[int, tuple[Clock, dict[str, InProcessCluster]]]] = RunVar("pystream_testing.pulsar.clusters")


class InProcessTransport:
    """One connection to an `InProcessCluster`; implements `pystream_pulsar.transport.Transport`.

    Belongs to the loop on which it is connected, as all connections of its cluster do.

    Args:
        cluster: What it connects to.
        clock: Keeps the delay of redeliveries and the times of publishing.
    """

    def __init__(self, cluster: InProcessCluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._loop: Clock | None = None
        self._wall = clock.now
        self._closed = False
        self._consumers: dict[InProcessConsumer, None] = {}
        self._producers: dict[InProcessProducer, None] = {}

    async def connect(self) -> ServerInfo:
        """Return what the cluster says of itself.

        Raises:
            BrokerClosed: The transport was closed.

        Cancel safety: nothing stays open.
        """
        await checkpoint()
        if self._closed:
            raise BrokerClosed("the connection was closed while it was made")

        self._wall = self._cluster._wall(self._clock)
        self._loop = LoopClock()
        return ServerInfo("Pulsar in process", self._cluster.max_message_size)

    async def subscribe(self, spec: ConsumerSpec, wake: Callable[[], None]) -> InProcessConsumer:
        """Open a consumer, and the subscription if it is new.

        Raises:
            PulsarSubscribeError: Other consumers stand in the way, or the namespace does not exist.
            NotConnected: `connect` was not awaited.
            BrokerClosed: The transport was closed.

        Cancel safety: a cancelled call opens nothing.
        """
        self._open()
        if not spec.subscription:
            raise refusals.no_subscription(spec, "InvalidConfiguration")

        await checkpoint()
        self._open()
        if not self._cluster._has(spec.topic):
            raise refusals.no_subscription(spec, "TopicNotFound")

        subscription = self._cluster._topic(spec.topic).subscription(spec)
        subscription.check(spec)
        consumer = InProcessConsumer(
            spec, subscription, self._clock, wake, number=self._cluster._number(), closed=self._consumers.pop
        )
        self._consumers[consumer] = None
        subscription.attach(consumer)
        return consumer

    async def produce(self, spec: ProducerSpec) -> InProcessProducer:
        """Open a producer, and the topic if it is new. The first publish to a topic calls it from its own loop.

        Raises:
            PulsarPublishError: The namespace does not exist.
            NotConnected: `connect` was not awaited.
            BrokerClosed: The transport was closed.

        Cancel safety: a cancelled call opens nothing.
        """
        self._open()
        await checkpoint()
        loop = self._open()
        if not self._cluster._has(spec.topic):
            raise refusals.no_producer(spec.topic, "TopicNotFound")

        producer = InProcessProducer(
            spec,
            self._cluster._topic(spec.topic),
            name=f"in-process-0-{self._cluster._number()}",
            max_message_size=self._cluster.max_message_size,
            loop=loop,
            wall=self._wall,
            closed=self._producers.pop,
        )
        self._producers[producer] = None
        return producer

    async def close(self) -> None:
        """Close consumers, then producers. Idempotent.

        Cancel safety: it never suspends, so it cannot be cancelled half-way.
        """
        self._closed = True
        for consumer in list(self._consumers):
            consumer.begin_close()

        for producer in list(self._producers):
            producer.begin_close()

    def waiting(self) -> int:
        """How many messages its consumers could pull at this moment."""
        return sum(consumer.waiting for consumer in self._consumers)

    def _open(self) -> Clock:
        if self._closed:
            raise BrokerClosed("the connection is closed")

        if self._loop is None:
            raise NotConnected("the connection is not made yet")

        return self._loop


class InProcessConnection(ConnectedPulsarBroker):
    """What `connect` answers: a connected broker that can also tell what is still to be fetched.

    Args:
        transport: Connected already; closed with this object.
        clock: Keeps every time.
        info: What the cluster has said.
        url: What the cluster is called in messages.
    """

    def __init__(self, transport: InProcessTransport, *, clock: Clock, info: ServerInfo, url: str) -> None:
        super().__init__(transport, clock=clock, info=info, url=url)
        self._waiting = transport.waiting

    def owed(self) -> int:
        """How many deliveries its subscribers have not fetched and could fetch without any time passing."""
        return self._waiting()


async def connect(
    broker: PulsarBroker, clock: Clock, *, cluster: InProcessCluster | None = None
) -> InProcessConnection:
    """Connect a production broker in process; an entry of `pystream.testing_transports`.

    Args:
        broker: Gives its configuration; publishers it has handed out belong to this connection.
        clock: Keeps every time, and tells tests apart: brokers of one URL that are connected with
            one clock share a cluster, which lasts as long as the event loop.
        cluster: The cluster to take instead.

    Cancel safety: a cancelled connect leaves nothing open.
    """
    url = broker.describe()
    if cluster is None:
        cluster = _shared_cluster(clock, url)

    transport = InProcessTransport(cluster, clock)
    info = await transport.connect()
    connection = InProcessConnection(transport, clock=clock, info=info, url=url)
    broker.adopt(connection)
    return connection


def resolve(destination: str) -> str:
    """The full name of the topic that a destination stands for.

    Raises:
        ConfigurationError: It is no topic.
    """
    return PulsarTopic(destination).full_name


def group(source: PulsarSubscription, mounting: Mounting) -> tuple[str, str]:
    """Which subscription a mounted handler has a consumer on: those of one share its messages."""
    return (source.topic.full_name, source.subscription_name)


def _shared_cluster(clock: Clock, url: str) -> InProcessCluster:
    by_clock = _clusters.get({})
    _clusters.set(by_clock)
    _, by_url = by_clock.setdefault(id(clock), (clock, {}))
    return by_url.setdefault(url, InProcessCluster())


connect.resolve = resolve  # type: ignore[attr-defined]  # what `pystream.testing_transports` asks for
connect.group = group  # type: ignore[attr-defined]  # as above
