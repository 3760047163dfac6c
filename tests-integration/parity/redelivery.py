"""Scenarios about what comes again, to whom, and with which count."""

from __future__ import annotations

from parity.scenario import scenario
from parity.world import World


@scenario
async def nack_counts(world: World) -> None:
    """A negative acknowledgement brings one message back, and only that; each raises its count by one."""
    reader, producer = await world.reader(), await world.producer()
    await world.publish(producer, b"1", b"2", b"3")
    messages = await reader.receive(3)
    for _ in range(3):
        reader.consumer.nack(messages[1] if len(messages) == 3 else messages[0])
        messages = await reader.rest()


@scenario
async def nack_brings_the_whole_entry(world: World) -> None:
    """A negative acknowledgement of one message of a batch brings all of them, acknowledged ones too."""
    reader = await world.reader()
    await world.publish_batch([b"0", b"1", b"2", b"3"])
    messages = await reader.receive(4)
    for number in (0, 1, 3):
        reader.consumer.ack(messages[number])

    reader.consumer.nack(messages[2])
    for message in await reader.rest():
        reader.consumer.ack(message)

    await reader.rest()
    await reader.close()
    reader = await world.reader()
    await reader.rest()


@scenario
async def a_copy_is_acknowledged_whole_or_not(world: World) -> None:
    """Messages acknowledged on one copy of an entry do not count for the next one."""
    reader = await world.reader()
    await world.publish_batch([b"0", b"1"])
    messages = await reader.receive(2)
    reader.consumer.ack(messages[0])
    reader.consumer.nack(messages[1])
    again = await reader.rest()
    reader.consumer.ack(again[1])
    await reader.close()
    reader = await world.reader()
    await reader.rest()


@scenario
async def an_old_copy_still_counts(world: World) -> None:
    """Acknowledging all of an older copy consumes the entry."""
    reader = await world.reader()
    await world.publish_batch([b"0", b"1"])
    messages = await reader.receive(2)
    reader.consumer.nack(messages[0])
    await reader.rest()
    for message in messages:
        reader.consumer.ack(message)

    await reader.close()
    reader = await world.reader()
    await reader.rest()


@scenario
async def one_request_for_one_burst(world: World) -> None:
    """Negative acknowledgements of one entry that come together are one request."""
    reader = await world.reader()
    await world.publish_batch([b"0", b"1", b"2"])
    for message in await reader.receive(3):
        reader.consumer.nack(message)

    await reader.rest()


@scenario
async def one_request_for_each_burst(world: World) -> None:
    """A further negative acknowledgement of an older copy asks for the entry once more."""
    reader = await world.reader()
    await world.publish_batch([b"0", b"1"])
    messages = await reader.receive(2)
    reader.consumer.nack(messages[0])
    await reader.rest()
    reader.consumer.nack(messages[1])
    await reader.rest()


@scenario
async def many_nacks_together(world: World) -> None:
    """Several messages asked for together come again in the order of the topic."""
    reader, producer = await world.reader(), await world.producer()
    await world.publish(producer, *[b"%d" % number for number in range(6)])
    messages = await reader.receive(6)
    for number in (5, 1, 3):
        reader.consumer.nack(messages[number])

    await reader.rest()


@scenario
async def unsettled_goes_to_the_sibling(world: World) -> None:
    """What a consumer that closes has not settled goes to its sibling, the counts as they were."""
    reader, producer = await world.reader(), await world.producer()
    await world.publish(producer, b"1", b"2", b"3")
    messages = await reader.receive(3)
    reader.consumer.nack(messages[0])
    await reader.rest()
    reader.consumer.ack(messages[2])
    sibling = await world.reader(label="sibling")
    await reader.close()
    await sibling.rest()


@scenario
async def counts_end_with_the_last_consumer(world: World) -> None:
    """When the last consumer has left, everything unsettled comes again with a count of zero."""
    reader, producer = await world.reader(), await world.producer()
    await world.publish(producer, b"1", b"2")
    messages = await reader.receive(2)
    reader.consumer.nack(messages[0])
    await reader.rest()
    await reader.close()
    reader = await world.reader()
    await reader.rest()


@scenario
async def a_nack_that_was_not_sent(world: World) -> None:
    """A close that comes before the request gives the message back, its count unchanged."""
    reader, producer = await world.reader(), await world.producer()
    await world.publish(producer, b"1")
    messages = await reader.receive(1)
    sibling = await world.reader(label="sibling")
    reader.consumer.nack(messages[0])
    await reader.consumer.close()
    await sibling.rest()


@scenario
async def acknowledged_while_the_sibling_has_it(world: World) -> None:
    """An acknowledgement counts whoever has the entry by then."""
    reader, producer = await world.reader(queue=1), await world.producer()
    await world.publish(producer, b"1", b"2", b"3")
    messages = await reader.receive(1)  # it has read ahead as far as it may, so the sibling gets the rest
    sibling = await world.reader(label="sibling")
    reader.consumer.nack(messages[0])
    await world.settle()
    await world.settle()
    received = sibling.pull()
    world.note(sorted(message.payload for message in received if message.payload == b"1"))
    reader.consumer.ack(messages[0])
    for message in received:
        if message.payload != b"1":
            sibling.consumer.ack(message)

    for message in reader.pull():
        reader.consumer.ack(message)

    await sibling.close()
    await reader.close()
    reader = await world.reader()
    await reader.rest()


@scenario
async def acknowledged_twice(world: World) -> None:
    """A second acknowledgement does nothing; so does a negative one of what was acknowledged."""
    reader, producer = await world.reader(), await world.producer()
    await world.publish(producer, b"1", b"2")
    messages = await reader.receive(2)
    reader.consumer.ack(messages[0])
    await world.settle()
    reader.consumer.ack(messages[0])
    reader.consumer.nack(messages[0])
    await reader.rest()
    await reader.close()
    reader = await world.reader()
    await reader.rest()


@scenario
async def nack_in_order(world: World) -> None:
    """On EXCLUSIVE and FAILOVER a negative acknowledgement brings everything unacknowledged, uncounted."""
    producer = await world.producer()
    for kind in ("Exclusive", "Failover"):
        reader = await world.reader(kind, kind)
        await world.publish(producer, *[b"%d" % number for number in range(5)])
        messages = await reader.receive(3)
        reader.consumer.ack(messages[1])
        await world.settle()
        reader.consumer.nack(messages[2])
        await reader.rest()
        await reader.close()
        again = await world.reader(kind, kind)
        await again.rest()
        await again.close()


@scenario
async def key_shared_nack(world: World) -> None:
    """On KEY_SHARED a negative acknowledgement is counted and brings the message back; later ones pass."""
    reader, producer = await world.reader("KeyShared"), await world.producer()
    await world.publish(producer, b"1", b"2", b"3", key="k")
    messages = await reader.receive(3)
    reader.consumer.nack(messages[0])
    again = await reader.rest()
    reader.consumer.nack(again[0])
    await reader.rest()


@scenario
async def unsettled_messages_of_a_closed_reader(world: World) -> None:
    """What was read ahead but never pulled comes again too, on every type."""
    producer = await world.producer()
    for kind in ("Exclusive", "Failover", "Shared", "KeyShared"):
        reader = await world.reader(kind, kind)
        await world.publish(producer, b"1", b"2", b"3", key="k")
        messages = await reader.receive(1)
        reader.consumer.ack(messages[0])
        await reader.close()
        again = await world.reader(kind, kind)
        for message in await again.rest():
            again.consumer.ack(message)

        await again.close()


@scenario
async def what_comes_again_comes_first(world: World) -> None:
    """Where there is room for one only, a message asked back comes before those not delivered yet."""
    reader, producer = await world.reader(queue=1), await world.producer()
    await world.publish(producer, b"1", b"2", b"3", b"4", b"5")
    (message,) = await reader.receive(1)
    reader.consumer.nack(message)
    await world.settle()
    order = []
    for _ in range(5):
        (message,) = await world.collect(reader, 1, 1.0)
        order.append((message.payload, message.redelivery_count))
        reader.consumer.ack(message)
        await world.settle(0.2)

    world.note(order)
    await reader.rest()


@scenario
async def nack_in_order_with_batches(world: World) -> None:
    """On EXCLUSIVE an entry that is acknowledged in part comes again whole, with everything after it."""
    reader, producer = await world.reader("Exclusive"), await world.producer()
    await world.publish_batch([b"0", b"1", b"2"])
    await world.publish(producer, b"3")
    messages = await reader.receive(4)
    reader.consumer.ack(messages[0])
    reader.consumer.nack(messages[1])
    for message in await reader.rest():
        reader.consumer.ack(message)

    await reader.close()
    reader = await world.reader("Exclusive")
    await reader.rest()


@scenario
async def two_consumers_ask_at_once(world: World) -> None:
    """Each consumer's requests count for what that consumer has."""
    first, second = await world.reader(queue=2), await world.reader(label="second", queue=2)
    producer = await world.producer()
    await world.publish(producer, b"1", b"2", b"3", b"4")
    await world.settle()
    for reader in (first, second):
        for message in reader.pull(2):
            reader.consumer.nack(message)

    await world.settle()
    messages = await world.collect(first, 10, 0.5) + await world.collect(second, 10, 0.5)
    world.note(sorted((message.payload, message.redelivery_count) for message in messages))
