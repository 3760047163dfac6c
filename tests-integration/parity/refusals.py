"""Scenarios about what is refused, and in which words."""

from __future__ import annotations

from functools import partial
from itertools import product

from parity.scenario import scenario
from parity.world import World
from pystream_pulsar.transport import ProducerSpec, SubscriptionTypeName

_TYPES: tuple[SubscriptionTypeName, ...] = ("Exclusive", "Failover", "Shared", "KeyShared")
_LIMIT = 5 * 1024 * 1024


@scenario
async def types_do_not_mix(world: World) -> None:
    """While a consumer is attached, none of another type may join, and EXCLUSIVE admits none at all."""
    connection = await world.transport()
    for first, second in product(_TYPES, _TYPES):
        reader = await world.reader(first, transport=connection)
        await world.refused(f"{second} beside {first}", partial(world.reader, second, transport=connection))
        await reader.consumer.close()
        if first == second:  # it may have joined
            await connection.close()
            connection = await world.transport()


@scenario
async def the_type_may_change_later(world: World) -> None:
    """When no consumer is attached any more, a subscription can be opened with another type."""
    producer = await world.producer()
    for kind in _TYPES:
        reader = await world.reader(kind, label=kind)
        await world.publish(producer, kind.encode())
        await reader.receive(1)
        await reader.close()

    reader = await world.reader("Shared", label="last")
    await reader.rest()


@scenario
async def closed_consumers(world: World) -> None:
    """A closed consumer refuses acknowledgements, takes negative ones without effect, and brings nothing."""
    reader, producer = await world.reader(), await world.producer()
    await world.publish(producer, b"1")
    (message,) = await reader.receive(1)
    await reader.close()
    await reader.close()
    await world.refused("ack", partial(reader.consumer.ack, message))
    await world.refused("nack", partial(reader.consumer.nack, message))
    world.note(reader.pull(), *world.told(reader.consumer.failure))


@scenario
async def closed_consumers_of_a_non_persistent_topic(world: World) -> None:
    """There an acknowledgement after the close is taken without effect."""
    world.topic = world.topic.replace("persistent://", "non-persistent://")
    reader, producer = await world.reader(), await world.producer()
    await world.publish(producer, b"1")
    (message,) = await reader.receive(1)
    await reader.close()
    await world.refused("ack", partial(reader.consumer.ack, message))
    await world.refused("nack", partial(reader.consumer.nack, message))


@scenario
async def closed_connections(world: World) -> None:
    """Nothing can be opened before the connection is made and after it was closed; its handles are closed with it."""
    transport = world.new_transport()
    spec = ProducerSpec(topic=world.topic, send_timeout=30, max_pending=10)
    await world.refused("early consumer", partial(world.reader, transport=transport))
    await world.refused("early producer", partial(transport.produce, spec))
    await transport.connect()
    reader, producer = await world.reader(transport=transport), await transport.produce(spec)
    await transport.close()
    await transport.close()
    await world.refused("late consumer", partial(world.reader, transport=transport))
    await world.refused("late producer", partial(transport.produce, spec))
    world.note(reader.pull(), *world.told(reader.consumer.failure))
    world.note(*[world.told(answer) for answer in await world.publish(producer, b"1")])


@scenario
async def sends_that_a_close_overtakes(world: World) -> None:
    """What a close overtakes fails; a single message was stored all the same.

    Of a batch it is not said: the client may have sent it before the close takes it back, and
    which of the two threads is first is chance. In process it is never stored, which a test pins.
    """
    reader = await world.reader()
    for batching in (True, False):
        producer = await world.producer(batching=batching)
        await world.publish(producer, b"first")
        await reader.receive(1)
        answers: list[Exception | None] = []
        world.send(producer, b"open", answers)
        await producer.close()
        world.send(producer, b"late", answers)
        await world.settle()
        world.note(batching, *[world.told(answer) for answer in answers])
        arrived = [message.payload for message in await world.collect(reader, 10, 0.5)]
        if not batching:
            world.note(arrived)


@scenario
async def too_many_pending(world: World) -> None:
    """More unconfirmed sends than allowed are refused, and never arrive."""
    reader, producer = await world.reader(), await world.producer(pending=2)
    answers = await world.publish(producer, b"1", b"2", b"3", b"4")
    world.note(*[world.told(answer) for answer in answers])
    await reader.rest()
    world.note(await world.publish(producer, b"5"))
    await reader.rest()


@scenario
async def what_is_no_text(world: World) -> None:
    """A key or a header that is not UTF-8 is refused, and the message never arrives."""
    reader, producer = await world.reader(), await world.producer()
    answers = await world.publish(producer, b"1", key=b"\xff")
    answers += await world.publish(producer, b"2", headers={"good": b"1", "bad": b"\xff"})
    world.note(*[world.told(answer) for answer in answers])
    await reader.rest()


@scenario
async def the_largest_batched_message(world: World) -> None:
    """In a batch, key, properties and metadata count: one byte more than the limit is refused, and never arrives."""
    reader, producer = await world.reader(queue=1), await world.producer(batching=True)
    fits = _LIMIT - 23 - 107
    for size in (fits, fits + 1):
        (answer,) = await world.publish(producer, b"x" * size, key="k" * 10, headers={"a": b"b" * 100})
        world.note(size, world.told(answer))

    messages = await world.collect(reader, 2, 2.0)
    world.note([len(message.payload) for message in messages])


@scenario
async def the_largest_single_message(world: World) -> None:
    """Outside a batch the producer's name counts as well."""
    reader, producer = await world.reader(queue=1), await world.producer()
    await world.publish(producer, b"name")
    (message,) = await reader.receive(1)
    reader.consumer.ack(message)
    fits = _LIMIT - 23 - len(message.producer_name) - 107
    for size in (fits, fits + 1):
        (answer,) = await world.publish(producer, b"x" * size, key="k" * 10, headers={"a": b"b" * 100})
        world.note(size - fits, world.told(answer))

    messages = await world.collect(reader, 2, 2.0)
    world.note([len(message.payload) - fits for message in messages])


@scenario
async def namespaces_and_names(world: World) -> None:
    """A namespace that does not exist, and a subscription without a name, are refused."""
    connection = await world.transport()
    for topic in ("persistent://nobody/default/orders", "persistent://public/nothing/orders"):
        await world.refused(topic, partial(world.reader, topic=topic, transport=connection))
        spec = ProducerSpec(topic=topic, send_timeout=30, max_pending=10)
        await world.refused(topic, partial(connection.produce, spec))

    await world.refused("no name", partial(world.reader, "Shared", "", transport=connection))
