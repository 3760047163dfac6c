"""Brokers that change what a message holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pystream.errors import PublishError, SettlementUnsupported
from pystream.protocols import Key, Outgoing

from pystream_testing.conformance.brokers._catalogue import Fault
from pystream_testing.conformance.brokers._odd import OddBroker, OddConnection, OddDelivery, OddPublisher
from pystream_testing.conformance.subject import Capabilities

__all__ = ["SHAPE_FAULTS"]


def _as_text(value: bytes) -> bytes:
    return value.decode(errors="replace").encode()


class _RewritingPublisher(OddPublisher):
    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        await super().publish(replace(outgoing, payload=_as_text(outgoing.payload)), options)


class _RewritesPayloads(OddBroker):
    publisher_type = _RewritingPublisher


class _DroppingPublisher(OddPublisher):
    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        await super().publish(replace(outgoing, headers={}), options)


class _DropsHeaders(OddBroker):
    publisher_type = _DroppingPublisher


class _TextPublisher(OddPublisher):
    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        headers = {name: _as_text(value) for name, value in outgoing.headers.items()}
        await super().publish(replace(outgoing, headers=headers), options)


class _TextHeaders(OddBroker):
    publisher_type = _TextPublisher


class _FirstOnlyPublisher(OddPublisher):
    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        headers = dict(list(outgoing.headers.items())[:16])
        await super().publish(replace(outgoing, headers=headers), options)


class _TruncatesHeaders(OddBroker):
    publisher_type = _FirstOnlyPublisher


class _NoEmptyPublisher(OddPublisher):
    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        headers = {name: value for name, value in outgoing.headers.items() if value}
        await super().publish(replace(outgoing, headers=headers), options)


class _DropsEmptyHeaders(OddBroker):
    publisher_type = _NoEmptyPublisher


class _OwnHeadersPublisher(OddPublisher):
    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        headers = {name: value for name, value in outgoing.headers.items() if not name.startswith("x-pystream-")}
        await super().publish(replace(outgoing, headers=headers), options)


class _EatsFrameworkHeaders(OddBroker):
    publisher_type = _OwnHeadersPublisher


class _StickyConnection(OddConnection):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.headers: dict[str, bytes] = {}


class _StickyPublisher(OddPublisher):
    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        kept = self.connection.headers if isinstance(self.connection, _StickyConnection) else {}
        kept.update(outgoing.headers)
        await super().publish(replace(outgoing, headers=dict(kept)), options)


class _StickyHeaders(OddBroker):
    connection_type = _StickyConnection
    publisher_type = _StickyPublisher


class _RefusingLatePublisher(OddPublisher):
    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        await super().publish(outgoing, options)
        for name, value in outgoing.headers.items():
            if _as_text(value) != value:
                raise PublishError(f"header {name!r} is no text")


class _DeliversRefused(OddBroker):
    publisher_type = _RefusingLatePublisher


class _KeylessDelivery(OddDelivery):
    @property
    def key(self) -> Key | None:
        return None


class _DropsKeys(OddBroker):
    delivery_type = _KeylessDelivery


class _FromZeroDelivery(OddDelivery):
    @property
    def delivery_count(self) -> int | None:
        return self.inner.delivery_count - 1


class _CountsFromZero(OddBroker):
    delivery_type = _FromZeroDelivery


class _NotAgainDelivery(OddDelivery):
    async def requeue(self) -> None:
        raise SettlementUnsupported("this broker hands nothing out again")


class _CountsWithoutRequeue(OddBroker):
    delivery_type = _NotAgainDelivery


class _NamelessDelivery(OddDelivery):
    @property
    def id(self) -> str:
        return "message"


class _SameIds(OddBroker):
    delivery_type = _NamelessDelivery


SHAPE_FAULTS = (
    Fault(
        name="rewrites-payloads",
        rejected_by="shape.payloads",
        because="was changed on the way",
        broker=_RewritesPayloads,
    ),
    Fault(
        name="drops-headers",
        rejected_by="shape.headers",
        because="headers were lost or changed",
        broker=_DropsHeaders,
    ),
    Fault(
        name="sticky-headers",
        rejected_by="shape.headers",
        because="headers came that were not sent",
        broker=_StickyHeaders,
    ),
    Fault(
        name="makes-headers-text",
        rejected_by="shape.binary_header",
        because="headers were lost or changed",
        broker=_TextHeaders,
    ),
    Fault(
        name="truncates-headers",
        rejected_by="shape.many_headers",
        because="headers were lost or changed",
        broker=_TruncatesHeaders,
    ),
    Fault(
        name="drops-empty-headers",
        rejected_by="shape.empty_header",
        because="headers were lost or changed",
        broker=_DropsEmptyHeaders,
    ),
    Fault(
        name="eats-framework-headers",
        rejected_by="shape.framework_header",
        because="headers were lost or changed",
        broker=_EatsFrameworkHeaders,
    ),
    Fault(
        name="delivers-refused-messages",
        rejected_by="shape.binary_header",
        because="whose publish was refused arrived",
        broker=_DeliversRefused,
        capabilities=Capabilities(refused_headers=frozenset({"binary"})),
    ),
    Fault(
        name="claims-refusals",
        rejected_by="shape.binary_header",
        because="declared as refused, and the publish succeeded",
        broker=OddBroker,
        capabilities=Capabilities(refused_headers=frozenset({"binary"})),
    ),
    Fault(
        name="drops-keys", rejected_by="shape.key", because="the key 'customer-1' arrived as None", broker=_DropsKeys
    ),
    Fault(
        name="counts-from-zero",
        rejected_by="shape.count_starts_at_one",
        because="the first count of a message is 0",
        broker=_CountsFromZero,
    ),
    Fault(
        name="counts-what-it-cannot-requeue",
        rejected_by="shape.count_starts_at_one",
        because="the first count of a message is 1, not None",
        broker=_CountsWithoutRequeue,
        capabilities=Capabilities(requeue=False),
    ),
    Fault(name="same-ids", rejected_by="shape.attributes", because="two messages have the ids", broker=_SameIds),
)
