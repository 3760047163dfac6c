"""One subscription of a running service: opened, run, stopped, closed."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import anyio

from pystream._hooks import Hook
from pystream._loops import current_loop
from pystream._runtime.forms import Form, make_form
from pystream._runtime.intake import Intake
from pystream._runtime.live import LiveMount, Streak
from pystream._runtime.pauses import Pauses
from pystream._runtime.pipeline import compile_pipeline
from pystream._runtime.registration import Registered
from pystream._runtime.reporting import Reporter
from pystream._runtime.starter import Start
from pystream._runtime.tracker import Tracker
from pystream.errors import SubscriptionEnded
from pystream.health import HealthBoard
from pystream.layers import with_layers
from pystream.parameters import Surroundings
from pystream.protocols import Clock, ConnectedBroker, Delivery, Subscriber

logger = logging.getLogger("pystream.service")


class Subscription:
    """A mounted handler, its open stream and its form.

    Made by `open`. The loop ends when the stream does, when `stop` was called and
    everything taken is handled, or when it is cancelled.
    """

    def __init__(
        self, name: str, subscriber: Subscriber, intake: Intake, form: Form, start: Start[Delivery], board: HealthBoard
    ) -> None:
        self.name = name
        self._subscriber = subscriber
        self._intake = intake
        self._form = form
        self._start = start
        self._board = board
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
            SubscribeError: The broker refused.
            RegistrationError: The open state does not fit the handler.
        """
        name = registered.name
        report = Reporter(name, clock.now)
        form = make_form(registered.workers, name)
        subscriber = await broker.subscribe(registered.source, registered.mounting)
        pauses = Pauses(clock)
        intake = Intake(
            subscriber,
            pauses=pauses,
            report=report,
            degraded=partial(board.trouble, name),
            ended=partial(_ended, name, board, fail if fatal_end else None),
        )
        live = LiveMount(
            registered=registered,
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
            loop=current_loop(),
            pauses=pauses,
            report=report,
            streak=Streak(),
            stop_taking=intake.stop,
            gave_up=form.gave_up,
            fail=lambda step, error: fail(step, name, error),
        )
        try:
            start = compiled(live)
        except BaseException:
            await subscriber.close()
            raise

        board.opened(name, lambda: report.settlement_failures)
        return cls(name, subscriber, intake, form, start, board)

    async def run(self) -> None:
        """The loop; raises what is no failure of a handler."""
        try:
            with self._scope:
                await self._form.run(self._intake, self._start)
        finally:
            self._intake.stop()
            self._board.ended(self.name)
            self._finished.set()

    def stop(self) -> None:
        """Take no new deliveries; what is in hand is handled. Synchronous, idempotent."""
        self._intake.stop()

    def cancel(self) -> None:
        """Cancel what is in hand; it is left unsettled. Synchronous, idempotent."""
        self._scope.cancel()

    async def finished(self) -> None:
        """Return when the loop has ended. Cancel safety: cancelling it changes nothing."""
        await self._finished.wait()

    @property
    def running(self) -> bool:
        """Whether the loop has not ended."""
        return not self._finished.is_set()

    async def close(self) -> None:
        """Close the stream, within the broker's bound."""
        await self._subscriber.close()


def _ended(
    name: str, board: HealthBoard, fail: Callable[[str, str, BaseException], None] | None, end: SubscriptionEnded
) -> None:
    if board.stopping:
        return

    if fail is None:
        logger.error("%s: the subscription has ended: %s", name, end)
    else:
        fail("subscription", name, end)
