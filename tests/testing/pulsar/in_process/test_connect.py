"""How a production broker gets onto the in-process transport, and what can be asked there."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import anyio
import pytest
from pystream.clock import LoopClock
from pystream.errors import BrokerClosed, ConfigurationError
from pystream.protocols import Outgoing
from pystream_pulsar import PulsarBroker, PulsarSubscribeError, PulsarSubscription, SubscriptionType
from pystream_testing.pulsar.in_process import (
    InProcessCluster,
    InProcessTransport,
    SubscriptionCounts,
    connect,
    group,
    resolve,
)

from tests.manual_clock import ManualClock
from tests.testing.pulsar.in_process.rig import MOUNTING, TOPIC, Rig, take_all

pytestmark = pytest.mark.anyio

SOURCE = PulsarSubscription("orders", "billing")


def broker(url: str = "pulsar://localhost:6650") -> PulsarBroker:
    return PulsarBroker(url)


@pytest.mark.promise("TESTING-71")
async def test_one_url_and_one_clock_are_one_cluster() -> None:
    """Brokers of one URL connected with one clock see each other's messages; another URL or clock is another world."""
    clock, url = ManualClock(), "pulsar://localhost:6650"
    publisher = (await connect(broker(url), clock)).publisher()
    strangers = [await connect(broker("pulsar://elsewhere:6650"), clock), await connect(broker(url), ManualClock())]
    same = await (await connect(broker(url), clock)).subscribe(SOURCE, MOUNTING)
    others = [await stranger.subscribe(SOURCE, MOUNTING) for stranger in strangers]

    await publisher.publish(Outgoing("orders", b"1", {}))

    assert [message.payload for message in take_all(same)] == [b"1"]
    assert [take_all(other) for other in others] == [[], []]


@pytest.mark.promise("TESTING-71")
async def test_a_cluster_outlasts_its_connections() -> None:
    """What a subscription has waiting is there for the next connection with the same clock."""
    clock = ManualClock()
    first = await connect(broker(), clock)
    await (await first.subscribe(SOURCE, MOUNTING)).close()
    await first.publisher().publish(Outgoing("orders", b"1", {}))
    await first.close()

    second = await connect(broker(), clock)

    assert [message.payload for message in take_all(await second.subscribe(SOURCE, MOUNTING))] == [b"1"]


@pytest.mark.promise("TESTING-71")
async def test_publishers_made_before_belong_to_the_connection() -> None:
    """A publisher that the broker handed out before it was connected publishes in process, until that is closed."""
    pulsar, cluster = broker(), InProcessCluster()
    publisher = pulsar.publisher()
    connection = await connect(pulsar, ManualClock(), cluster=cluster)
    driver = await connection.subscribe(SOURCE, MOUNTING)

    await publisher.publish(Outgoing("orders", b"1", {}))

    assert [message.payload for message in take_all(driver)] == [b"1"]
    await connection.close()
    with pytest.raises(BrokerClosed):
        await publisher.publish(Outgoing("orders", b"2", {}))


@pytest.mark.promise("TESTING-71")
async def test_the_real_clock_will_do() -> None:
    """The clock may be the loop's own: a retry then comes back by itself."""
    connection = await connect(broker(), LoopClock())
    driver = await connection.subscribe(SOURCE, MOUNTING)
    await connection.publisher().publish(Outgoing("orders", b"1", {}))
    (message,) = take_all(driver)
    await message.requeue()

    with anyio.fail_after(5):
        while (again := driver.take()) is None:
            await driver.wait()

    assert again.delivery_count == 2


@pytest.mark.promise("TESTING-72")
async def test_what_is_owed_is_what_could_be_fetched() -> None:
    """A connection owes what its consumers could pull now: not what is beyond their room, nor what is held back."""
    rig = Rig()
    connection = await rig.connect()
    driver = await connection.subscribe(SOURCE.replace(receiver_queue_size=2), MOUNTING)
    assert connection.owed() == 0

    await rig.publish(b"1", b"2", b"3", batching=False)
    assert connection.owed() == 2
    (first, *_) = take_all(driver)
    assert connection.owed() == 0

    await first.requeue()
    assert connection.owed() == 0
    rig.clock.advance(0.2)
    assert connection.owed() == 1


@pytest.mark.promise("TESTING-72")
async def test_routes_and_counts() -> None:
    """The cluster says which subscriptions a message is owed to, and where a subscription's messages are."""
    rig = Rig()
    assert rig.cluster.owed("orders") == 0
    await rig.subscribe(SOURCE)
    driver = await rig.subscribe(PulsarSubscription("orders", "audit", receiver_queue_size=3))
    assert rig.cluster.routes("public/default/orders") == ("billing", "audit")
    assert rig.cluster.owed(TOPIC) == 2

    await rig.publish(*[b"%d" % number for number in range(5)], batching=False)
    assert rig.cluster.counts("orders", "audit") == SubscriptionCounts(ready=2, in_flight=3, held=0)
    messages = take_all(driver)
    assert rig.cluster.counts("orders", "audit") == SubscriptionCounts(ready=0, in_flight=5, held=0)

    await messages[0].ack()
    await messages[1].requeue()
    rig.clock.advance(0.05)
    assert rig.cluster.counts("orders", "audit") == SubscriptionCounts(ready=0, in_flight=3, held=1)
    assert rig.cluster.counts("orders", "billing") == SubscriptionCounts(ready=0, in_flight=5, held=0)
    assert rig.cluster.counts("orders", "nobody") == SubscriptionCounts(0, 0, 0)
    assert rig.cluster.counts("nothing", "nobody") == SubscriptionCounts(0, 0, 0)


@pytest.mark.promise("TESTING-72")
async def test_a_non_persistent_topic_owes_nothing_without_a_consumer() -> None:
    """A subscription of a non-persistent topic is owed messages only while a consumer is attached."""
    rig = Rig()
    driver = await rig.subscribe(PulsarSubscription("non-persistent://public/default/orders", "billing"))
    assert rig.cluster.owed("non-persistent://public/default/orders") == 1
    await driver.close()
    assert rig.cluster.owed("non-persistent://public/default/orders") == 0


@pytest.mark.promise("TESTING-72")
async def test_names_go_through_the_same_check() -> None:
    """What is no topic's name is refused as everywhere."""
    for ask in (InProcessCluster().owed, resolve):
        with pytest.raises(ConfigurationError, match="is no name of a Pulsar topic"):
            ask("a b")


@pytest.mark.promise("TESTING-71")
async def test_names_and_groups() -> None:
    """Destinations are compared by their full names; handlers on one subscription are one group."""
    assert resolve("orders") == SOURCE.name == TOPIC
    assert group(SOURCE, MOUNTING) == group(
        PulsarSubscription(TOPIC, "billing", type=SubscriptionType.FAILOVER), MOUNTING
    )
    assert group(SOURCE, MOUNTING) != group(PulsarSubscription("orders", "audit"), MOUNTING)


@pytest.mark.promise("TESTING-71")
async def test_the_entry_point_names_it() -> None:
    """The distribution declares the transport under the broker's class."""
    entry = EntryPoint(
        "pystream_pulsar:PulsarBroker", "pystream_testing.pulsar.in_process:connect", "pystream.testing_transports"
    )
    assert entry.load() is connect
    assert (connect.resolve, connect.group) == (resolve, group)


@pytest.mark.promise("TESTING-71")
async def test_a_cancelled_open_leaves_nothing() -> None:
    """A cancelled subscribe opens no consumer and makes no subscription."""
    cluster = InProcessCluster()
    connection = await connect(broker(), ManualClock(), cluster=cluster)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await connection.subscribe(SOURCE, MOUNTING)

    assert scope.cancelled_caught
    assert cluster.routes("orders") == ()


@pytest.mark.promise("TESTING-71")
async def test_a_transport_closed_early() -> None:
    """A transport that was closed connects no more."""
    transport = InProcessTransport(InProcessCluster(), ManualClock())
    await transport.close()
    with pytest.raises(BrokerClosed):
        await transport.connect()


@pytest.mark.promise("TESTING-73")
async def test_a_limited_cluster_refuses_other_namespaces() -> None:
    """With `namespaces`, a topic of any other one cannot be opened; without, every namespace exists."""
    source = PulsarSubscription("acme/sales/orders", "billing")
    narrow = await connect(broker(), ManualClock(), cluster=InProcessCluster(namespaces=["public/default"]))
    with pytest.raises(PulsarSubscribeError, match="TopicNotFound"):
        await narrow.subscribe(source, MOUNTING)

    wide = await connect(broker(), ManualClock())
    assert take_all(await wide.subscribe(source, MOUNTING)) == []
