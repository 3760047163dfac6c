"""The drain law: a service that stops has handled and settled what it took, or given it back."""

from __future__ import annotations

import random
import sys
import threading
from typing import Any, ClassVar

import anyio
from anyio.lowlevel import checkpoint
from pystream import PyStream, by_key, mount
from pystream.signal import Signal

from pystream_testing.conformance._check import CheckGroup, check
from pystream_testing.conformance._failure import ConformanceFailure, expect, within
from pystream_testing.conformance._rig import READER, Rig, connected
from pystream_testing.conformance.subject import Subject

__all__ = ["FORMS", "DrainChecks"]

_MESSAGES = 96
_KEYS = 6
_CUT = 0.2
FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "workers": {"workers": 4},
    "by_key": {"workers": by_key(4)},
    "threads": {"threads": 2},
    "threads_by_key": {"threads": by_key(2)},
    "batches": {"batch": 4},
    "batches_workers": {"batch": 4, "workers": 4},
    "batches_threads": {"batch": 4, "threads": 2},
}
"""Every dispatch form, by the settings of its mount."""


class DrainChecks(CheckGroup):
    """The drain law on every dispatch form: stopped at a random moment, and cut short."""

    group: ClassVar[str] = "drain"

    @check("settlement", "backlog")
    async def test_drain_default(self, subject: Subject) -> None:
        """The default form, stopped at a random moment, has handled each message or given it back."""
        await _stopped(subject, "default")

    @check("settlement", "backlog")
    async def test_drain_workers(self, subject: Subject) -> None:
        """Four workers, stopped at a random moment, have handled each message or given it back."""
        await _stopped(subject, "workers")

    @check("settlement", "backlog", "keys")
    async def test_drain_by_key(self, subject: Subject) -> None:
        """Four lanes by key, stopped at a random moment, have handled each message or given it back."""
        await _stopped(subject, "by_key")

    @check("settlement", "backlog")
    async def test_drain_threads(self, subject: Subject) -> None:
        """Two threads, stopped at a random moment, have handled each message or given it back."""
        await _stopped(subject, "threads")

    @check("settlement", "backlog", "keys")
    async def test_drain_threads_by_key(self, subject: Subject) -> None:
        """Two threads by key, stopped at a random moment, have handled each message or given it back."""
        await _stopped(subject, "threads_by_key")

    @check("settlement", "backlog")
    async def test_drain_batches(self, subject: Subject) -> None:
        """The default form with batches, stopped at a random moment, has handled each message or given it back."""
        await _stopped(subject, "batches")

    @check("settlement", "backlog")
    async def test_drain_batches_workers(self, subject: Subject) -> None:
        """Four workers with batches, stopped at a random moment, have handled each message or given it back."""
        await _stopped(subject, "batches_workers")

    @check("settlement", "backlog")
    async def test_drain_batches_threads(self, subject: Subject) -> None:
        """Two threads with batches, stopped at a random moment, have handled each message or given it back."""
        await _stopped(subject, "batches_threads")

    @check("settlement", "backlog")
    async def test_drain_cut_short_default(self, subject: Subject) -> None:
        """The default form, its handler stuck at the stop, gives back what it has not handled."""
        await _stopped(subject, "default", stuck=True)

    @check("settlement", "backlog")
    async def test_drain_cut_short_workers(self, subject: Subject) -> None:
        """Four workers, some of them stuck at the stop, give back what they have not handled."""
        await _stopped(subject, "workers", stuck=True)

    @check("settlement", "backlog", "keys")
    async def test_drain_cut_short_by_key(self, subject: Subject) -> None:
        """Four lanes by key, some of them stuck at the stop, give back what they have not handled."""
        await _stopped(subject, "by_key", stuck=True)

    @check("settlement", "backlog")
    async def test_drain_cut_short_threads(self, subject: Subject) -> None:
        """Two threads, some of them stuck at the stop, give back what they have not handled."""
        await _stopped(subject, "threads", stuck=True)

    @check("settlement", "backlog", "keys")
    async def test_drain_cut_short_threads_by_key(self, subject: Subject) -> None:
        """Two threads by key, some of them stuck at the stop, give back what they have not handled."""
        await _stopped(subject, "threads_by_key", stuck=True)

    @check("settlement", "backlog")
    async def test_drain_cut_short_batches(self, subject: Subject) -> None:
        """The default form with batches, its handler stuck at the stop, gives back what it has not handled."""
        await _stopped(subject, "batches", stuck=True)

    @check("settlement", "backlog")
    async def test_drain_cut_short_batches_workers(self, subject: Subject) -> None:
        """Four workers with batches, some of them stuck at the stop, give back what they have not handled."""
        await _stopped(subject, "batches_workers", stuck=True)

    @check("settlement", "backlog")
    async def test_drain_cut_short_batches_threads(self, subject: Subject) -> None:
        """Two threads with batches, some of them stuck at the stop, give back what they have not handled."""
        await _stopped(subject, "batches_threads", stuck=True)


class _Service:
    """A service whose handler takes a random while, and says when it is time to stop.

    Args:
        chance: Decides how long a handler takes, and when the stop comes.
        stuck: Whether every seventh message is handled for ever.
    """

    def __init__(self, chance: random.Random, *, stuck: bool) -> None:
        self.handled: list[bytes] = []
        self._chance = chance
        self._stuck = stuck
        self._enough = chance.randint(_MESSAGES // 16, _MESSAGES * 3 // 8)  # enough is left over to be lost
        self._started = 0
        self._lock = threading.Lock()
        self._stop = Signal()

    async def handle(self, payload: bytes) -> None:
        """Handle one message, on whatever thread."""
        await self._work()
        self.handled.append(payload)

    async def handle_batch(self, payloads: list[bytes]) -> None:
        """Handle some messages at once, on whatever thread."""
        for _ in payloads:
            await self._work()

        self.handled += payloads

    async def _work(self) -> None:
        with self._lock:
            self._started += 1
            hangs = self._stuck and self._started % 7 == 0
            time_to_stop = hangs if self._stuck else self._started >= self._enough
            takes = self._chance.choice([0, 0, 0.001, 0.003])

        if time_to_stop:
            self._stop.wake_from_thread()

        await (anyio.sleep_forever() if hangs else anyio.sleep(takes))

    async def stop(self) -> None:
        """Return a moment after enough has begun."""
        await self._stop.wait()
        for _ in range(self._chance.randrange(6)):
            await checkpoint()


async def _stopped(subject: Subject, form: str, *, stuck: bool = False) -> None:
    seed = random.randrange(sys.maxsize)  # noqa: S311  # a moment to stop at, no secret
    async with connected(subject) as rig:
        topic = subject.destination(f"drain-{form}")
        sent = [b"%d" % number for number in range(_MESSAGES)]
        await _publish(subject, rig, topic, sent)
        await rig.close()
        service = _Service(random.Random(seed), stuck=stuck)  # noqa: S311  # as above
        await _run(subject, rig, topic, service, form, _CUT if stuck else None)
        await rig.connect()
        await _expect_the_rest(subject, rig, topic, sent, service.handled, f"form {form}, seed {seed}")


async def _publish(subject: Subject, rig: Rig, topic: str, sent: list[bytes]) -> None:
    await (await rig.subscribe(topic)).close()
    for number, payload in enumerate(sent):
        key = f"key {number % _KEYS}" if subject.capabilities.keys else None
        await rig.publish(topic, payload, key=key)


async def _run(subject: Subject, rig: Rig, topic: str, service: _Service, form: str, timeout: float | None) -> None:
    """Run the service until it wants to stop."""
    source = subject.source(rig.broker, topic, READER)
    handler = service.handle_batch if "batch" in FORMS[form] else service.handle
    app = PyStream("conformance", plugins=[]).with_broker(
        rig.broker, mount(handler, source, name=READER, **FORMS[form])
    )
    bounds = subject.bounds
    with within(bounds.connect + bounds.arrival + bounds.shutdown, "a service, from its start to its end"):
        await app.run_until(service.stop, shutdown_timeout=timeout)


async def _expect_the_rest(
    subject: Subject, rig: Rig, topic: str, sent: list[bytes], handled: list[bytes], what: str
) -> None:
    """See that what comes back is what was not handled, all of it and nothing else."""
    rig.done(topic).update(handled)
    owed = set(sent) - set(handled)
    stream = await rig.subscribe(topic)
    back: set[bytes] = set()
    with anyio.move_on_after(subject.bounds.arrival):
        while not owed <= back:
            delivery = await stream.next()
            await stream.ack(delivery)
            back.add(delivery.payload)

    expect(owed <= back, f"lost without being handled ({what}): {sorted(owed - back)}")
    twice = sorted(back & set(handled))
    expect(not twice, f"handled, settled, and back all the same ({what}): {twice}")
    if not subject.capabilities.repeats and len(handled) != len(set(handled)):
        raise ConformanceFailure(f"handled more than once ({what}): {sorted(handled)}")

    await stream.nothing(f"handled and settled, and back all the same ({what})")
