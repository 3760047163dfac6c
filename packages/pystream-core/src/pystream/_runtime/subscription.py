"""One subscription of a running service: opened, run, stopped, closed."""

from __future__ import annotations

import contextvars
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import anyio

from pystream._hooks import Hook
from pystream._loops import current_loop
from pystream._runtime.batch_intake import BatchIntake
from pystream._runtime.dedicated import ThreadSide
from pystream._runtime.forms import Compile, Died, Form, make_form, make_threads
from pystream._runtime.hogs import Hogs
from pystream._runtime.holding import Delays
from pystream._runtime.intake import Intake
from pystream._runtime.live import LiveMount, Streak
from pystream._runtime.pauses import Pauses
from pystream._runtime.pipeline import compile_pipeline
from pystream._runtime.plain import PlainPool, awaitable
from pystream._runtime.registration import Registered
from pystream._runtime.reporting import Reporter
from pystream._runtime.starter import Start
from pystream._runtime.tracker import Tracker
from pystream.errors import SubscriptionEnded, WorkerDied
from pystream.health import HealthBoard
from pystream.layers import with_layers
from pystream.parameters import Surroundings
from pystream.protocols import Clock, ConnectedBroker, Delivery, Subscriber
from pystream.subscriber import ByKey

logger = logging.getLogger("pystream.service")


class Subscription:
    """A mounted handler, its open stream and its form.

    Made by `open`. The loop ends when the stream does, when `stop` was called and
    everything taken is handled, or when it is cancelled.
    """

    def __init__(
        self,
        name: str,
        subscriber: Subscriber,
        intake: Intake,
        form: Form,
        start: Start[Delivery],
        board: HealthBoard,
        stop_taking: Callable[[], None],
        batches: BatchIntake | None,
        delays: Delays,
        pool: PlainPool | None,
    ) -> None:
        self.name = name
        self._subscriber = subscriber
        self._intake = intake
        self._form = form
        self._start = start
        self._board = board
        self._stop_taking = stop_taking
        self._batches = batches
        self._delays = delays
        self._pool = pool
        self._scope = anyio.CancelScope()
        self._finished = anyio.Event()

    @classmethod
    async def open(
        cls,
        registered: Registered,
        broker: ConnectedBroker,
        surroundings: Surroundings,
        *,
        clock: Clock,
        tracker: Tracker,
        hooks: tuple[Hook, ...],
        board: HealthBoard,
        fail: Callable[[str, str, BaseException], None],
        fatal_end: bool,
        compiled: Callable[[LiveMount], Start[Delivery]] = compile_pipeline,
    ) -> Subscription:
        """Subscribe, and compile the handler for this start of the service.

        Raises:
            SubscribeError: The broker refused, or a thread could not be started.
            RegistrationError: The open state does not fit the handler.
        """
        name = registered.name
        # Trio's clocks differ from loop to loop.
        report = Reporter(name, clock.now if registered.threads is None else time.monotonic)
        home = current_loop()
        subscriber = await broker.subscribe(registered.source, registered.mounting)
        pauses = Pauses(clock)
        delays = Delays(registered.max_delayed, lambda: subscriber.delayed, clock)
        intake = Intake(
            subscriber,
            pauses=pauses,
            delays=delays,
            report=report,
            degraded=partial(board.trouble, name),
            ended=partial(_ended, name, board, fail if fatal_end else None),
        )

        rules = registered.batch
        batches = None if rules is None else BatchIntake(intake, size=rules.size, wait=rules.wait, clock=clock)

        def stop_taking() -> None:
            intake.stop()
            form.stopped()

        def compiled_on(side: ThreadSide) -> Start[Delivery]:
            return compiled(live.on(side))

        form = _form(registered, compiled_on, tracker.limit, partial(_died, name, stop_taking, fail))
        pool = _pool(registered)
        live = LiveMount(
            registered=registered if pool is None else replace(registered, handler=awaitable(registered.handler, pool)),
            surroundings=replace(
                surroundings,
                handler=registered.signature.name,
                broker=broker,
                publish_layers=registered.publish_layers,
            ),
            base=contextvars.copy_context(),
            publisher=with_layers(broker.publisher(), registered.publish_layers),
            hooks=hooks,
            tracker=tracker,
            clock=clock,
            loop=home,
            pauses=pauses,
            report=report,
            streak=Streak(),
            delays=delays,
            stop_taking=stop_taking,
            cancelled=lambda: intake.cancelled,
            gave_up=form.gave_up,
            fail=lambda step, error: fail(step, name, error),
            hogs=Hogs(name),
        )
        try:
            start = compiled(live)
            await form.open()
        except BaseException:
            await form.close()
            await subscriber.close()
            raise

        board.opened(name, lambda: report.settlement_failures)
        return cls(name, subscriber, intake, form, start, board, stop_taking, batches, delays, pool)

    async def run(self) -> None:
        """The loop; raises what is no failure of a handler."""
        try:
            with self._scope:
                # To a form a batch is one delivery.
                intake = self._intake if self._batches is None else cast("Intake", self._batches)
                await self._form.run(intake, self._start)
        finally:
            self._stop_taking()
            if self._batches is not None:
                self._batches.give_back()

            if self._pool is not None:
                self._pool.close()

            self._board.ended(self.name)
            self._finished.set()

    def stop(self) -> None:
        """Take no new deliveries; what is in hand is handled. Synchronous, idempotent."""
        self._stop_taking()

    def cancel(self) -> None:
        """Cancel what is in hand; it is left unsettled, and has a second to end. Synchronous, idempotent."""
        self._intake.cancelled = True
        self._scope.cancel()

    async def finished(self) -> None:
        """Return when the loop has ended. Cancel safety: cancelling it changes nothing."""
        await self._finished.wait()

    @property
    def has_batches(self) -> bool:
        """Whether its handler gets batches."""
        return self._batches is not None

    @property
    def filling(self) -> int:
        """How many deliveries wait for their batch to be closed."""
        return 0 if self._batches is None else self._batches.filling

    def close_batch(self) -> None:
        """Have the batch that is being filled, if there is one, handled as it is. Synchronous."""
        if self._batches is not None:
            self._batches.close()

    @property
    def running(self) -> bool:
        """Whether the loop has not ended."""
        return not self._finished.is_set()

    @property
    def tracked(self) -> Sequence[str]:
        """The names of the calls that follow settlements on threads of the subscription's own."""
        return self._form.running

    async def drained(self) -> None:
        """Return when there are none; after the loop has ended. Cancel safety: cancelling it changes nothing."""
        await self._form.drained()

    async def end(self) -> None:
        """Cancel those calls, and end the threads. Cancel safety: it has a bound of its own."""
        await self._form.close()

    def give_back_held(self) -> int:
        """Give back what timers of the runtime hold for a delay, which would keep `close` waiting.

        Synchronous. Answers how many deliveries there were.
        """
        return self._delays.give_back()

    async def close(self) -> None:
        """Close the stream, within the broker's bound."""
        await self._subscriber.close()


def _form(registered: Registered, compiled_on: Compile, max_tracked: int, died: Died) -> Form:
    if registered.threads is None:
        return make_form(registered.workers, registered.name, died)

    return make_threads(registered.threads, registered.name, compiled_on, max_tracked, died)


def _pool(registered: Registered) -> PlainPool | None:
    """Where a `def` handler runs that has no threads of its own."""
    if registered.signature.is_async or registered.threads is not None:
        return None

    workers = registered.workers
    return PlainPool(workers.lanes if isinstance(workers, ByKey) else workers, registered.name)


def _died(
    name: str,
    stop_taking: Callable[[], None],
    fail: Callable[[str, str, BaseException], None],
    worker: str,
    error: BaseException,
) -> None:
    stop_taking()
    reason = WorkerDied(f"{worker} has ended by {type(error).__name__}: {error}")
    reason.__cause__ = error
    fail("loop", name, reason)


def _ended(
    name: str, board: HealthBoard, fail: Callable[[str, str, BaseException], None] | None, end: SubscriptionEnded
) -> None:
    if board.stopping:
        return

    if fail is None:
        logger.error("%s: the subscription has ended: %s", name, end)
    else:
        fail("subscription", name, end)
