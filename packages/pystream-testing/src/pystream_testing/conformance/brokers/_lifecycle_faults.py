"""Brokers that begin, wait or end wrongly."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import anyio
from anyio.lowlevel import current_token
from pystream.clock import LoopClock
from pystream.errors import BrokerClosed
from pystream.protocols import Clock, Outgoing

from pystream_testing.conformance.brokers._catalogue import Fault
from pystream_testing.conformance.brokers._odd import (
    OddBroker,
    OddConnection,
    OddPublisher,
    OddSubscriber,
    PlainDelivery,
    at_once,
)

__all__ = ["LIFECYCLE_FAULTS"]


class _SlowConstructor(OddBroker):
    def __init__(self) -> None:
        super().__init__()
        time.sleep(1.2)


class _WaitsForLoop(OddBroker):
    """Waits, when it is made outside a loop, for one that never comes."""

    def __init__(self) -> None:
        super().__init__()
        try:
            current_token()
        except Exception:
            threading.Event().wait(30)


class _SpawnsThread(OddBroker):
    def __init__(self) -> None:
        super().__init__()
        threading.Thread(target=time.sleep, args=(0.2,), name="poller", daemon=True).start()


class _OpensSocket(OddBroker):
    def __init__(self) -> None:
        super().__init__()
        socket.socket().close()


class _HangingConnect(OddBroker):
    async def connect(self, clock: Clock) -> OddConnection:
        await anyio.sleep_forever()
        return await super().connect(clock)


class _FirstLoopOnly(OddBroker):
    def __init__(self) -> None:
        super().__init__()
        self._loop: object = None

    async def connect(self, clock: Clock) -> OddConnection:
        self._loop = self._loop or current_token()
        if self._loop != current_token():
            raise RuntimeError("the broker is bound to a different event loop")

        return await super().connect(clock)


class _OneLoopPublisher(OddPublisher):
    """Hands publishes to the loop of its first caller, which may be gone."""

    _loop: object = None

    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        self._loop = self._loop or current_token()
        if self._loop != current_token():
            await anyio.sleep_forever()

        await super().publish(outgoing, options)


class _PublishesOnFirstLoop(OddBroker):
    publisher_type = _OneLoopPublisher


class _SwallowingSubscriber(OddSubscriber):
    """As a client whose receive, once cancelled, still takes the next message."""

    _swallow = 0

    async def wait(self) -> None:
        try:
            await super().wait()
        except anyio.get_cancelled_exc_class():
            self._swallow += 1
            raise

    def take(self) -> PlainDelivery | None:
        delivery = super().take()
        if delivery is not None and self._swallow:
            self._swallow -= 1
            at_once(delivery.inner.ack())
            return super().take()

        return delivery


class _SwallowsOnCancel(OddBroker):
    subscriber_type = _SwallowingSubscriber


class _DeafSubscriber(OddSubscriber):
    def interrupt(self) -> None:
        """Do nothing."""


class _IgnoresInterrupt(OddBroker):
    subscriber_type = _DeafSubscriber


class _RaisingSubscriber(OddSubscriber):
    def take(self) -> PlainDelivery | None:
        delivery = super().take()
        if delivery is None:
            raise IndexError("nothing to take")

        return delivery


class _TakeRaises(OddBroker):
    subscriber_type = _RaisingSubscriber


class _LateSubscriber(OddSubscriber):
    """Keeps one message in a buffer of its own, over its end."""

    _kept: PlainDelivery | None = None

    def take(self) -> PlainDelivery | None:
        kept, self._kept = self._kept, None
        return kept or (None if self.closed else super().take())

    async def close(self) -> None:
        if not self.closed:
            self._kept = super().take()
            if self._kept is not None:
                self._kept.release()

        await super().close()


class _DeliversAfterClose(OddBroker):
    subscriber_type = _LateSubscriber


class _EndlessSubscriber(OddSubscriber):
    async def wait(self) -> None:
        if self.closed:
            await anyio.sleep_forever()

        await super().wait()


class _NeverEnds(OddBroker):
    subscriber_type = _EndlessSubscriber


class _OnceSubscriber(OddSubscriber):
    async def close(self) -> None:
        if self.closed:
            raise BrokerClosed("the subscriber is closed already")

        await super().close()


class _RaisesOnSecondClose(OddBroker):
    subscriber_type = _OnceSubscriber


class _HangingConnection(OddConnection):
    async def close(self) -> None:
        await super().close()
        await anyio.sleep_forever()


class _CloseHangs(OddBroker):
    connection_type = _HangingConnection


class _SilentPublisher(OddPublisher):
    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        if not self.connection.closed:
            await super().publish(outgoing, options)


class _SucceedsAfterClose(OddBroker):
    publisher_type = _SilentPublisher


class _ReconnectingPublisher(OddPublisher):
    _used = False

    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        if self.connection.closed and self._used:
            connection = await self.connection.broker.inner.connect(LoopClock())
            await connection.publisher().publish(outgoing, options)
            await connection.close()
            return

        self._used = True
        await super().publish(outgoing, options)


class _HandleReconnects(OddBroker):
    publisher_type = _ReconnectingPublisher


_CONSTRUCT = "lifecycle.construct"
_AFTER_CLOSE = "lifecycle.handles_after_close"

LIFECYCLE_FAULTS = (
    Fault(
        name="constructor-waits",
        rejected_by=_CONSTRUCT,
        because="making a broker took longer",
        broker=_SlowConstructor,
    ),
    Fault(
        name="constructor-never-returns",
        rejected_by=_CONSTRUCT,
        because="making a broker took longer",
        broker=_WaitsForLoop,
    ),
    Fault(
        name="constructor-spawns",
        rejected_by=_CONSTRUCT,
        because="making a broker started a thread",
        broker=_SpawnsThread,
    ),
    Fault(
        name="constructor-opens-socket",
        rejected_by=_CONSTRUCT,
        because="making a broker started a socket",
        broker=_OpensSocket,
    ),
    Fault(
        name="connect-hangs",
        rejected_by="lifecycle.connect",
        because="connect() took longer",
        broker=_HangingConnect,
    ),
    Fault(
        name="bound-to-first-loop",
        rejected_by="lifecycle.connect_on_another_loop",
        because="bound to a different event loop",
        broker=_FirstLoopOnly,
    ),
    Fault(
        name="publishes-on-first-loop",
        rejected_by="lifecycle.publish_from_another_loop",
        because="publish() took longer",
        broker=_PublishesOnFirstLoop,
    ),
    Fault(
        name="swallows-on-cancelled-wait",
        rejected_by="lifecycle.wait_cancelled",
        because="the arrival of a message published after a cancelled wait took longer",
        broker=_SwallowsOnCancel,
    ),
    Fault(
        name="ignores-interrupt",
        rejected_by="lifecycle.interrupt",
        because="a wait that was interrupted before it began took longer",
        broker=_IgnoresInterrupt,
    ),
    Fault(
        name="take-raises",
        rejected_by="lifecycle.take_on_empty",
        because="take() raised IndexError",
        broker=_TakeRaises,
    ),
    Fault(
        name="delivers-after-close",
        rejected_by="lifecycle.closed_subscriber",
        because="delivered after its close",
        broker=_DeliversAfterClose,
    ),
    Fault(
        name="never-ends",
        rejected_by="lifecycle.closed_subscriber",
        because="wait() on a closed subscriber took longer",
        broker=_NeverEnds,
    ),
    Fault(
        name="second-close-raises",
        rejected_by="lifecycle.closed_twice",
        because="closed already",
        broker=_RaisesOnSecondClose,
    ),
    Fault(
        name="shutdown-hangs",
        rejected_by="lifecycle.closed_twice",
        because="closing the connection took longer",
        broker=_CloseHangs,
    ),
    Fault(
        name="succeeds-after-shutdown",
        rejected_by=_AFTER_CLOSE,
        because="an unused publisher of a closed connection did not raise BrokerClosed",
        broker=_SucceedsAfterClose,
    ),
    Fault(
        name="handle-reconnects",
        rejected_by=_AFTER_CLOSE,
        because="a used publisher of a closed connection did not raise BrokerClosed",
        broker=_HandleReconnects,
    ),
)
