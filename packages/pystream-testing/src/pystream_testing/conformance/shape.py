"""Message shape: payload, headers, key and the other attributes of a delivery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pystream.errors import PublishError
from pystream.protocols import Key

from pystream_testing.conformance._check import CheckGroup, check
from pystream_testing.conformance._failure import expect
from pystream_testing.conformance._rig import Rig, Stream, connected
from pystream_testing.conformance.subject import HeaderKind, Subject

__all__ = ["ShapeChecks"]

_UNUSUAL: Mapping[HeaderKind, Mapping[str, bytes]] = {
    "many": {f"x-number-{number}": b"%d" % number for number in range(24)},
    "empty": {"x-empty": b""},
    "binary": {"x-binary": bytes(range(256))},
    "framework": {"x-pystream-retry-count": b"2"},
}


class ShapeChecks(CheckGroup):
    """What a delivery shows of the message that was published."""

    group: ClassVar[str] = "shape"

    @check()
    async def test_shape_payloads(self, subject: Subject) -> None:
        """Payloads arrive byte for byte: of one byte, of every byte value, and of 64 KiB."""
        sent = [b"\x00", bytes(range(256)), b"0123456789abcdef" * 4096]
        async with connected(subject) as rig:
            topic = subject.destination("payloads")
            stream = await rig.subscribe(topic)
            for payload in sent:
                await rig.publish(topic, payload)
                delivery = await stream.next()
                await stream.ack(delivery)
                expect(delivery.payload == payload, f"a payload of {len(payload)} bytes was changed on the way")

    @check()
    async def test_shape_headers(self, subject: Subject) -> None:
        """Headers arrive under the names they were sent by, byte for byte."""
        sent = {"Trace-Id": b"t-1", "x-tenant": "zürich".encode()}
        async with connected(subject) as rig:
            topic = subject.destination("headers")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"with headers", headers=sent)
            await _expect_headers(stream, sent)
            await rig.publish(topic, b"without headers")
            await _expect_headers(stream, {})

    @check()
    async def test_shape_many_headers(self, subject: Subject) -> None:
        """24 headers arrive, or the publish is refused as declared, and then never arrives."""
        await _unusual_headers(subject, "many")

    @check()
    async def test_shape_empty_header(self, subject: Subject) -> None:
        """A header with an empty value arrives, or is refused as declared and never arrives."""
        await _unusual_headers(subject, "empty")

    @check()
    async def test_shape_binary_header(self, subject: Subject) -> None:
        """A header that is no text arrives byte for byte, or is refused as declared and never arrives."""
        await _unusual_headers(subject, "binary")

    @check()
    async def test_shape_framework_header(self, subject: Subject) -> None:
        """A header of the framework's own arrives, or is refused as declared and never arrives."""
        await _unusual_headers(subject, "framework")

    @check("keys")
    async def test_shape_key(self, subject: Subject) -> None:
        """A key arrives; none and the empty key are none."""
        async with connected(subject) as rig:
            topic = subject.destination("key")
            stream = await rig.subscribe(topic)
            for sent in ("customer-1", None, ""):
                await rig.publish(topic, b"with %r" % sent, key=sent)
                delivery = await stream.next()
                await stream.ack(delivery)
                wanted = sent.encode() if sent else None
                expect(_as_bytes(delivery.key) == wanted, f"the key {sent!r} arrived as {delivery.key!r}")

    @check()
    async def test_shape_attributes(self, subject: Subject) -> None:
        """Deliveries have an id of their own, the destination's full name, and no decode error."""
        async with connected(subject) as rig:
            topic = subject.destination("attributes")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"1", b"2")
            first, second = await stream.several(2)
            await stream.ack(first, second)
            expect(bool(first.id) and first.id != second.id, f"two messages have the ids {first.id!r}, {second.id!r}")
            expect(topic in first.destination, f"{first.destination!r} does not name the destination {topic!r}")
            expect(first.destination == second.destination, "two messages of one destination name different ones")
            expect(
                first.decode_error is None, f"a message that was published here is not readable: {first.decode_error}"
            )

    @check()
    async def test_shape_count_starts_at_one(self, subject: Subject) -> None:
        """A message that is handed out for the first time has the count 1, or none where none is declared.

        Without a requeue it must be none: a retried message is a copy then, and counted by its header.
        """
        wanted = 1 if subject.capabilities.counts and subject.capabilities.requeue else None
        async with connected(subject) as rig:
            topic = subject.destination("count")
            stream = await rig.subscribe(topic)
            await rig.publish(topic, b"first time")
            delivery = await stream.next()
            count = delivery.delivery_count
            await stream.ack(delivery)
            expect(count == wanted, f"the first count of a message is {count!r}, not {wanted!r}")


async def _expect_headers(stream: Stream, wanted: Mapping[str, bytes]) -> None:
    delivery = await stream.next()
    headers = dict(delivery.headers)
    await stream.ack(delivery)
    # A broker may add headers of its own; none of those sent may be missing or changed.
    lost = sorted(name for name in wanted if headers.get(name) != wanted[name])
    expect(not lost, f"headers were lost or changed on the way: {lost}")
    kept = sorted(name for name in headers if name.startswith("x-") and name not in wanted)
    expect(not kept, f"headers came that were not sent with this message: {kept}")


async def _unusual_headers(subject: Subject, kind: HeaderKind) -> None:
    async with connected(subject) as rig:
        topic = subject.destination(f"headers-{kind}")
        stream = await rig.subscribe(topic)
        if kind in subject.capabilities.refused_headers:
            await _expect_refusal(rig, stream, topic, kind)
        else:
            await rig.publish(topic, b"unusual", headers=_UNUSUAL[kind])
            await _expect_headers(stream, _UNUSUAL[kind])


async def _expect_refusal(rig: Rig, stream: Stream, topic: str, kind: HeaderKind) -> None:
    refused = False
    try:
        await rig.publish(topic, b"refused", headers=_UNUSUAL[kind])
    except PublishError:
        refused = True

    expect(refused, f"{kind} headers are declared as refused, and the publish succeeded")
    await stream.nothing("a message whose publish was refused arrived")


def _as_bytes(key: Key | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key
