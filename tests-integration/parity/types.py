"""Scenarios about which consumer gets what."""

from __future__ import annotations

from collections import defaultdict

from parity.scenario import scenario
from parity.world import Reader, World
from pystream_pulsar.transport import RawMessage


async def _all(world: World, *readers: Reader) -> list[list[RawMessage]]:
    """Everything that comes to each of these readers."""
    await world.settle()
    return [await world.collect(reader, 1000, 0.3) for reader in readers]


def _texts(messages: list[RawMessage]) -> list[str]:
    return [message.payload.decode() for message in messages]


def _by_key(messages: list[RawMessage]) -> dict[str, list[str]]:
    keys = defaultdict(list)
    for message in messages:
        keys[message.key or ""].append(message.payload.decode())

    return dict(keys)


@scenario
async def exclusive_in_order(world: World) -> None:
    """EXCLUSIVE gives everything in order through a queue of one."""
    reader, producer = await world.reader("Exclusive", queue=1), await world.producer()
    await world.publish(producer, *[b"%d" % number for number in range(20)])
    for message in await reader.receive(20):
        reader.consumer.ack(message)

    await reader.rest()


@scenario
async def a_full_queue_leaves_the_rest(world: World) -> None:
    """A SHARED consumer that takes nothing holds what its queue has room for, and no more."""
    idle = await world.reader(queue=4, label="idle")
    producer = await world.producer()
    await world.publish(producer, *[b"%d" % number for number in range(10)])
    await world.settle()
    busy = await world.reader(queue=100, label="busy")
    (messages,) = await _all(world, busy)
    world.note(_texts(messages))
    for message in messages:
        busy.consumer.ack(message)

    await idle.close()
    await busy.rest()


@scenario
async def shared_delivers_once(world: World) -> None:
    """Two SHARED consumers get every message once between them."""
    first, second = await world.reader(), await world.reader(label="second")
    producer = await world.producer()
    for number in range(30):
        await world.publish(producer, b"%02d" % number)

    mine, theirs = await _all(world, first, second)
    world.note(sorted(_texts(mine + theirs)), bool(mine), bool(theirs))
    world.note(_texts(mine) == sorted(_texts(mine)), _texts(theirs) == sorted(_texts(theirs)))


@scenario
async def a_nacked_message_may_go_to_a_sibling(world: World) -> None:
    """After a negative acknowledgement, it comes to one of the two, its count raised."""
    first, producer = await world.reader(), await world.producer()
    await world.publish(producer, b"1", b"2", b"3", b"4")
    messages = await first.receive(4)
    second = await world.reader(label="second")
    for message in messages:
        first.consumer.nack(message)

    mine, theirs = await _all(world, first, second)
    world.note(sorted((message.payload, message.redelivery_count) for message in mine + theirs))


@scenario
async def failover_has_one_active(world: World) -> None:
    """Of two FAILOVER consumers one gets everything; when it closes, the other gets what it had not settled."""
    readers = [await world.reader("Failover", label=""), await world.reader("Failover", label="")]
    producer = await world.producer()
    await world.settle()
    await world.publish(producer, *[b"%d" % number for number in range(6)])
    both = await _all(world, *readers)
    active = 0 if both[0] else 1
    world.note(_texts(both[active]), _texts(both[1 - active]))
    for message in both[active][:2]:
        readers[active].consumer.ack(message)

    await readers[active].close()
    await world.publish(producer, b"6")
    (rest,) = await _all(world, readers[1 - active])
    world.note(list(dict.fromkeys(_texts(rest))), {message.redelivery_count for message in rest})


@scenario
async def key_shared_keeps_keys_together(world: World) -> None:
    """Each key goes to one of the consumers, in order; all keys arrive."""
    readers = [await world.reader("KeyShared", label="") for _ in range(3)]
    producer = await world.producer()
    await world.settle()
    for number in range(60):
        await world.publish(producer, b"%02d" % number, key=f"k{number % 12}")

    shares = [_by_key(messages) for messages in await _all(world, *readers)]
    world.note(sorted((key, texts) for share in shares for key, texts in share.items()))
    world.note(sum(bool(share) for share in shares) > 1)


@scenario
async def key_shared_batches(world: World) -> None:
    """A batch of one key goes to the consumer of that key."""
    readers = [await world.reader("KeyShared", label="") for _ in range(2)]
    await world.settle()
    for key in ("a", "b", "c", "d"):
        for turn in range(2):
            await world.publish_batch([f"{key}{turn}{number}".encode() for number in range(3)], key=key)

    shares = [_by_key(messages) for messages in await _all(world, *readers)]
    world.note(sorted((key, tuple(texts)) for share in shares for key, texts in share.items()))


@scenario
async def key_shared_spreads_what_has_no_key(world: World) -> None:
    """Messages without a key go to several consumers."""
    readers = [await world.reader("KeyShared", label="") for _ in range(2)]
    producer = await world.producer()
    await world.settle()
    for number in range(40):
        await world.publish(producer, b"%02d" % number)

    shares = await _all(world, *readers)
    world.note(sorted(text for share in shares for text in _texts(share)), [bool(share) for share in shares])


@scenario
async def key_shared_joining_waits(world: World) -> None:
    """A consumer that joins gets nothing of a key that is in flight elsewhere, and its share once that is settled."""
    first, producer = await world.reader("KeyShared"), await world.producer()
    keys = [f"k{number}" for number in range(20)]
    for key in keys:
        await world.publish(producer, f"{key}-1".encode(), key=key)

    held = await first.receive(20)
    second = await world.reader("KeyShared", label="second")
    for key in keys:
        await world.publish(producer, f"{key}-2".encode(), key=key)

    more, early = await _all(world, first, second)
    world.note("early", _texts(early), 0 < len(more) < 20)
    for message in held:
        first.consumer.ack(message)

    for message in more:
        first.consumer.ack(message)

    late, moved = await _all(world, first, second)
    world.note("late", _texts(late), sorted(_texts(more + moved)), bool(moved))


@scenario
async def key_shared_keys_of_a_closed_consumer(world: World) -> None:
    """What a KEY_SHARED consumer leaves goes to the others, each key in order."""
    first, producer = await world.reader("KeyShared"), await world.producer()
    for number in range(12):
        await world.publish(producer, b"%02d" % number, key=f"k{number % 3}")

    await first.receive(12)
    second = await world.reader("KeyShared", label="second")
    await first.close()
    for number in range(12, 18):
        await world.publish(producer, b"%02d" % number, key=f"k{number % 3}")

    (messages,) = await _all(world, second)
    world.note(sorted(_by_key(messages).items()), {message.redelivery_count for message in messages})


@scenario
async def key_shared_without_room(world: World) -> None:
    """A KEY_SHARED consumer that takes nothing holds up its own keys only, and gets them in order later."""
    idle, busy = await world.reader("KeyShared", queue=1), await world.reader("KeyShared", label="busy")
    producer = await world.producer()
    await world.settle()
    keys = [f"k{number}" for number in range(16)]
    for turn in range(3):
        for key in keys:
            await world.publish(producer, f"{key}-{turn}".encode(), key=key)

    (taken,) = await _all(world, busy)
    world.note(0 < len(_by_key(taken)) < len(keys), {tuple(texts)[-1][-1] for texts in _by_key(taken).values()})
    for message in taken:
        busy.consumer.ack(message)

    held = []
    while got := await world.collect(idle, 1, 0.5):
        held += got
        idle.consumer.ack(got[0])

    world.note(sorted(_by_key(taken + held).items()), set(_by_key(taken)) & set(_by_key(held)))


@scenario
async def key_shared_nack_with_a_sibling(world: World) -> None:
    """A key that was asked back comes to the consumer it belongs to, counted, and its later messages too."""
    first, producer = await world.reader("KeyShared"), await world.producer()
    keys = [f"k{number}" for number in range(10)]
    for key in keys:
        await world.publish(producer, f"{key}-1".encode(), key=key)

    messages = await first.receive(10)
    second = await world.reader("KeyShared", label="second")
    for message in messages:
        first.consumer.nack(message)

    await world.settle()
    mine, theirs = await _all(world, first, second)
    world.note(sorted((message.payload, message.redelivery_count) for message in mine + theirs))
    world.note(bool(mine), bool(theirs))


@scenario
async def a_batch_goes_out_whole(world: World) -> None:
    """A batch larger than the room is delivered whole; the next entry waits for room, or for a sibling."""
    idle = await world.reader(queue=4)
    await world.publish_batch([b"%d" % number for number in range(10)])
    await world.publish_batch([b"a", b"b"])
    await world.settle()
    sibling = await world.reader(label="sibling")
    (theirs,) = await _all(world, sibling)
    world.note(_texts(theirs))
    await idle.rest()
