"""What the tests of dedicated threads share: gates that open from another thread, and stillness."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
from pystream import Context
from pystream._runtime.dedicated import ThreadSide
from pystream._runtime.forms import Form
from pystream._runtime.forms.threads import Threads
from pystream._runtime.holding import Delays
from pystream._runtime.intake import Intake
from pystream._runtime.pauses import Pauses
from pystream._runtime.reporting import Reporter
from pystream._runtime.starter import Start
from pystream.protocols import Delivery
from pystream.signal import Signal

from tests.core.lifecycle.support import until
from tests.core.rig import Rig, idle
from tests.core.scripted import Item, Journal, ScriptedDelivery, ScriptedSubscriber
from tests.manual_clock import ManualClock

__all__ = ["Gates", "Key", "Lone", "deliveries", "form_of", "lone", "opened", "still", "taken", "until"]

SECONDS = 10.0


class Key(str):
    """A key whose lane is known: that of its number."""

    __slots__ = ()

    def __hash__(self) -> int:
        return int(self)


def deliveries(
    count: int, key: Callable[[int], Any] = lambda number: None, *, first: int = 1
) -> list[ScriptedDelivery]:
    return [ScriptedDelivery(str(number), key=key(number)) for number in range(first, first + count)]


class Gates:
    """A handler whose deliveries wait, each on its thread, until the test lets them go.

    Attributes:
        begun: The ids in the order in which they began.
        running: Those that wait.
        threads: The name of the thread that runs each.
    """

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.running: list[str] = []
        self.threads: dict[str, str] = {}
        self._gates: dict[str, Signal] = {}

    async def handle(self, body: bytes, context: Context) -> None:
        gate = self._gates[context.id] = Signal()
        self.threads[context.id] = threading.current_thread().name
        self.begun.append(context.id)
        self.running.append(context.id)
        try:
            await gate.wait()
        finally:
            self.running.remove(context.id)

    async def let_go(self, *ids: str) -> None:
        """Let these go; each must run or begin soon."""
        for id_ in ids:
            await until(partial(self._gates.__contains__, id_))
            self._gates[id_].wake_from_thread()

    async def gone(self, id_: str) -> None:
        """Return once it does not run."""
        await until(lambda: id_ not in self.running)

    async def alone(self, id_: str) -> None:
        """Return once it is the only one that runs."""
        await until(lambda: self.running == [id_])

    async def let_all_go(self, running: Rig, count: int) -> None:
        with anyio.fail_after(SECONDS):
            while running.stream.ends < count:
                for id_ in list(self.running):
                    self._gates[id_].wake_from_thread()

                await anyio.lowlevel.checkpoint()


async def still(form: Form, rounds: int = 5) -> None:
    """What could happen without time passing has happened, on the app's loop and on every thread.

    Every round goes once through each thread's loop and the app's.
    """
    assert isinstance(form, Threads)
    for _ in range(rounds):
        for thread in form._threads:
            there = Signal()
            if thread.ended.is_set():
                continue

            thread.post(partial(_ring, there))
            with anyio.move_on_after(SECONDS):
                await there.wait()

        await idle()


async def taken(running: Rig, count: int) -> None:
    """Return once so many deliveries were taken."""
    await until(lambda: len(running.stream.taken) == count)


async def opened(gate: threading.Event) -> None:
    """Return once the test has opened the gate: for code on a thread's loop, which it does not block."""
    while not gate.is_set():  # noqa: ASYNC110  # another thread opens it
        await anyio.sleep(0.001)


def form_of(running: Rig) -> Threads:
    form = running.subscription._form
    assert isinstance(form, Threads)
    return form


def _ring(signal: Signal, side: ThreadSide) -> None:
    signal.wake_from_thread()


class Lone:
    """A form without a pipeline: what `start` does is the test's.

    Attributes:
        died: Of each worker that died: its name and what it has raised.
    """

    def __init__(self) -> None:
        self.journal = Journal()
        self.stream = ScriptedSubscriber("orders", self.journal)
        clock = ManualClock()
        self.report = Reporter("orders", lambda: 0.0)
        self.intake = Intake(
            self.stream,
            pauses=Pauses(clock),
            delays=Delays(1000, lambda: 0, clock),
            report=self.report,
            degraded=lambda reason: None,
            ended=lambda end: None,
        )
        self.died: list[tuple[str, BaseException]] = []
        self.form: Form
        self.over = anyio.Event()

    def has_died(self, name: str, error: BaseException) -> None:
        self.died.append((name, error))
        self.stop()

    def stop(self) -> None:
        self.intake.stop()
        self.form.stopped()


@asynccontextmanager
async def lone(make: Callable[[Lone], Form], start: Start[Delivery], *items: Item) -> AsyncIterator[Lone]:
    """Run a form over the items, until the end of the body."""
    made = Lone()
    made.stream.feed(*items)
    made.form = make(made)
    try:
        await made.form.open()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_run, made, start)
            yield made
            made.stop()
            with anyio.fail_after(SECONDS):
                await made.over.wait()
    finally:
        await made.form.close()


async def _run(made: Lone, start: Start[Delivery]) -> None:
    await made.form.run(made.intake, start)
    made.over.set()
