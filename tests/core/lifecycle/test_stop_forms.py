"""The stop on every form, whatever has asked for it, and what a spent budget does there."""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import pytest
from pystream import (
    FAIL_FAST,
    FailurePolicy,
    MainRuntime,
    Outcome,
    PyStream,
    RunningApp,
    ack,
    by_key,
    mount,
    subscriber,
)
from pystream.errors import SubscriptionEnded
from pystream.subscriber import SettingsKeywords

from tests.core.lifecycle.support import (
    SECONDS,
    Journal,
    TellingBroker,
    failed_run,
    leftover,
    outgoing,
    until,
)

pytestmark = pytest.mark.anyio

_SENT = 60

FORMS: dict[str, tuple[SettingsKeywords, int]] = {
    "default": ({}, 1),
    "workers": ({"workers": 4}, 4),
    "by_key": ({"workers": by_key(2)}, 5),
    "threads": ({"threads": 2}, 16),
    "one thread": ({"threads": 1}, 8),
    "threads by key": ({"threads": by_key(2)}, 19),
    "batches": ({"batch": 3}, 3),
    "batches, workers": ({"batch": 3, "workers": 2}, 6),
    "batches, threads": ({"batch": 3, "threads": 1}, 24),
}
"""Each form by the settings of its mount, and how many deliveries without a key it has in hand, at least."""


class Shop:
    """A service on one form, with as much in hand as the form holds when the stop comes.

    Its handlers wait for a gate, which the first `on_shutdown` hook opens, unless they are stuck.

    Args:
        form: One of `FORMS`, or `def`.
        stuck: Whether the gate is never opened.
    """

    def __init__(self, form: str, *, stuck: bool = False) -> None:
        self.journal = journal = Journal()
        self.broker = TellingBroker(journal, "a")
        self.ready = anyio.Event()
        self.begun = 0
        self.handled: list[bytes] = []
        self._gate = anyio.Event()
        self._plain_gate = threading.Event()
        self._lock = threading.Lock()
        settings, in_hand = FORMS.get(form, ({}, 1))
        handlers: dict[str, Callable[..., Any]] = {"def": self._plain, "batches": self._batch}
        handler = handlers.get(form.partition(",")[0], self._one)

        @subscriber("poison")
        async def poison(payload: bytes) -> None:
            raise LookupError("poisoned")

        async def state() -> AsyncIterator[None]:
            yield
            journal("state closed")

        strict = mount(poison, on_failure=FailurePolicy(error=FAIL_FAST))
        self.app = PyStream("shop", state=state)
        self.app.with_broker(self.broker, mount(handler, "orders", **settings), strict)

        @self.app.after_startup
        async def fill() -> None:
            for number in range(_SENT):
                await self.publish(b"%d" % number)

            await until(lambda: self.broker.subscribers["orders"].taken >= in_hand)
            await until(lambda: self.begun)
            self.ready.set()

        @self.app.on_shutdown
        async def look() -> None:
            journal("on_shutdown")
            if not stuck:
                self._gate.set()
                self._plain_gate.set()

        self.app.after_shutdown(journal.noting("after_shutdown"))

    async def publish(self, payload: bytes, to: str = "orders") -> None:
        await self.broker.connections[-1].publisher().publish(outgoing(payload, to))

    def release(self) -> None:
        """Let a `def` handler end."""
        self._plain_gate.set()

    async def _one(self, payload: bytes, main: MainRuntime) -> Outcome:
        await self._wait(main)
        self._done(payload)
        return ack().and_after(self._continued)

    async def _batch(self, payloads: list[bytes], main: MainRuntime) -> Outcome:
        await self._wait(main)
        self._done(*payloads)
        return ack().and_after(self._continued)

    def _plain(self, payload: bytes) -> Outcome:
        with self._lock:
            self.begun += 1

        self._plain_gate.wait(SECONDS)
        self._done(payload)
        return ack().and_after(self._continued)

    async def _wait(self, main: MainRuntime) -> None:
        with self._lock:
            self.begun += 1

        await main.run(self._gate.wait)

    def _done(self, *payloads: bytes) -> None:
        with self._lock:
            self.handled += payloads
            self.journal("handled")

    async def _continued(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.journal("continued")


async def by_shutdown(shop: Shop) -> None:
    async with shop.app.start() as running:
        await running.shutdown()


async def by_run_until(shop: Shop) -> None:
    await shop.app.run_until(shop.ready)


async def by_fail_fast(shop: Shop) -> None:
    async def body(running: RunningApp) -> None:
        await shop.publish(b"x", "poison")

    failure, _ = await failed_run(shop.app.start(), body)
    assert (failure.step, failure.subscription) == ("handler", "poison")


async def by_ended_subscription(shop: Shop) -> None:
    async def body(running: RunningApp) -> None:
        shop.broker.break_stream("poison", SubscriptionEnded("no more"))

    failure, _ = await failed_run(shop.app.start(), body)
    assert (failure.step, failure.subscription) == ("subscription", "poison")


async def by_signal(shop: Shop) -> None:
    async def send() -> None:
        await shop.ready.wait()
        signal.raise_signal(signal.SIGTERM)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await shop.app.serve()


Trigger = Callable[[Shop], Awaitable[None]]


@pytest.mark.promise("STOP-30")
@pytest.mark.parametrize("form", [*FORMS, "def"])
@pytest.mark.parametrize("trigger", [by_shutdown, by_run_until, by_fail_fast, by_ended_subscription, by_signal])
async def test_steps_of_a_stop_on_every_form(trigger: Trigger, form: str) -> None:
    """Whatever asks for the stop: hooks, then what is in hand and what follows it, closes, hooks, the state."""
    shop = Shop(form)
    with anyio.fail_after(4 * SECONDS):
        await trigger(shop)

    lines = shop.journal.lines[shop.journal.lines.index("on_shutdown") :]
    calls = len(lines) - lines[::-1].index("continued")
    assert set(lines[1:calls]) == {"handled", "continued"}
    assert lines[1:calls].count("handled") == lines[1:calls].count("continued") >= 1
    assert sorted(lines[calls : calls + 2]) == ["a: close orders", "a: close poison"]
    assert lines[calls + 2 :] == ["a: close", "after_shutdown", "state closed"]
    back = await leftover(shop.broker.memory)
    assert sorted([*shop.handled, *back]) == sorted(b"%d" % number for number in range(_SENT))


@pytest.mark.promise("STOP-31")
@pytest.mark.parametrize("form", list(FORMS))
async def test_spent_budget_on_every_form(form: str) -> None:
    """With the budget spent what is in hand is cancelled and given back; nothing is settled, and nothing lost."""
    shop = Shop(form, stuck=True)
    with anyio.fail_after(4 * SECONDS):
        async with shop.app.start(shutdown_timeout=0.05) as running:
            await running.shutdown()

    assert shop.handled == []
    assert running.health.reason is None
    assert sorted(await leftover(shop.broker.memory)) == sorted(b"%d" % number for number in range(_SENT))
