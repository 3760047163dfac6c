"""Scenarios about what a subscription keeps."""

from __future__ import annotations

from parity.scenario import scenario
from parity.world import World


@scenario
async def latest_begins_with_the_next_message(world: World) -> None:
    """A new subscription from LATEST does not see what another one has waiting."""
    first, producer = await world.reader(subscription="first"), await world.producer()
    await world.publish(producer, b"before")
    second = await world.reader(subscription="second", label="second")
    await world.publish(producer, b"after")
    await first.receive(2)
    await second.rest()


@scenario
async def earliest_begins_with_what_is_kept(world: World) -> None:
    """A new subscription from EARLIEST sees what another one has not acknowledged."""
    await world.reader(subscription="first")
    producer = await world.producer()
    await world.publish(producer, b"1", b"2")
    second = await world.reader(subscription="second", position="Earliest", label="second")
    await second.rest()


@scenario
async def position_counts_at_first_creation_only(world: World) -> None:
    """A subscription that exists goes on where it is, whatever position is asked for."""
    reader, producer = await world.reader(), await world.producer()
    await world.publish(producer, b"1", b"2")
    for message in await reader.receive(2):
        reader.consumer.ack(message)

    await reader.close()
    await world.publish(producer, b"3")
    again = await world.reader(position="Earliest")
    await again.rest()
    await again.close()
    latest = await world.reader(position="Latest")
    await latest.rest()


@scenario
async def backlog_without_a_consumer(world: World) -> None:
    """What is published while no consumer is attached waits for one."""
    reader, producer = await world.reader(), await world.producer()
    await reader.close()
    await world.publish(producer, b"1", b"2", b"3")
    reader = await world.reader()
    await reader.receive(3)


@scenario
async def acknowledgements_out_of_order(world: World) -> None:
    """Acknowledging one message does not acknowledge earlier ones, and lasts over a restart."""
    reader, producer = await world.reader(), await world.producer()
    await world.publish(producer, *[b"%d" % number for number in range(6)])
    messages = await reader.receive(6)
    for number in (4, 2, 0):
        reader.consumer.ack(messages[number])

    await reader.close()
    reader = await world.reader()
    await reader.rest()


@scenario
async def every_subscription_gets_everything(world: World) -> None:
    """Two subscriptions of a topic do not share anything."""
    first = await world.reader(subscription="first", label="first")
    second = await world.reader("Exclusive", "second", label="second")
    producer = await world.producer()
    await world.publish(producer, b"1", b"2")
    for message in await first.receive(2):
        first.consumer.ack(message)

    await second.receive(2)
    await second.close()
    second = await world.reader("Exclusive", "second", label="second")
    await second.rest()
    await first.rest()


@scenario
async def unsubscribing_deletes(world: World) -> None:
    """A subscription that was deleted keeps nothing; under its name a new one begins."""
    await world.reader(subscription="other")
    reader, producer = await world.reader(), await world.producer()
    await world.publish(producer, b"1")
    await reader.receive(1)
    await reader.close(unsubscribe=True)
    await world.publish(producer, b"2")
    reader = await world.reader(position="Latest")
    await world.publish(producer, b"3")
    await reader.rest()


@scenario
async def unsubscribing_with_a_sibling(world: World) -> None:
    """A subscription that another consumer uses is not deleted."""
    reader, sibling, producer = await world.reader(), await world.reader(label="sibling"), await world.producer()
    await reader.close(unsubscribe=True)
    await world.publish(producer, b"1")
    await sibling.receive(1)
    await sibling.close()
    sibling = await world.reader(label="sibling")
    await sibling.rest()


@scenario
async def keys_and_properties(world: World) -> None:
    """Key and properties arrive as they were sent; an empty key is none; bytes are text."""
    reader, producer = await world.reader(), await world.producer()
    await world.publish(producer, b"1", key="k", headers={"a": b"1", "empty": b"", "\u00fc": "\u00e4".encode()})
    await world.publish(producer, b"2", key="")
    await world.publish(producer, b"3", key=b"bytes")
    await world.publish(producer, b"")
    await reader.receive(4)


@scenario
async def a_batch_of_one(world: World) -> None:
    """A producer that batches makes a batch of a message that is alone."""
    reader, producer = await world.reader(), await world.producer(batching=True)
    await world.publish(producer, b"1")
    await world.publish(producer, b"2")
    messages = await reader.receive(2)
    world.note([message.position[-4:] for message in messages])


@scenario
async def a_batch_in_order(world: World) -> None:
    """The messages of a batch share an entry and have their places in it."""
    reader = await world.reader(queue=2)
    await world.publish_batch([b"%d" % number for number in range(5)], key="k")
    messages = await reader.receive(5)
    reader.consumer.ack(messages[4])
    await reader.close()
    reader = await world.reader(queue=2)
    for message in await reader.receive(5):
        reader.consumer.ack(message)

    await reader.close()
    reader = await world.reader()
    await reader.rest()


@scenario
async def non_persistent(world: World) -> None:
    """A non-persistent topic keeps nothing and brings nothing back."""
    world.topic = world.topic.replace("persistent://", "non-persistent://")
    reader, producer = await world.reader(), await world.producer()
    await world.publish(producer, b"1", b"2")
    messages = await reader.receive(2)
    world.note([message.identity[1:] for message in messages], [message.position for message in messages])
    reader.consumer.nack(messages[0])
    await reader.rest()
    reader.consumer.ack(messages[1])
    await reader.close()
    await world.publish(producer, b"3")
    reader = await world.reader(position="Earliest")
    await world.publish(producer, b"4")
    await reader.rest()
    await world.publish_batch([b"5", b"6"])
    await reader.rest()
