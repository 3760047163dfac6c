"""One mounted handler running over a scripted stream, on a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import anyio
from pystream._hooks import Hook, validate_function
from pystream._runtime import subscription as subscription_module
from pystream._runtime.forms import Form, make_form
from pystream._runtime.registration import Scope, register
from pystream._runtime.subscription import Subscription
from pystream._runtime.tracker import Tracker
from pystream.failures import FailurePolicy
from pystream.health import HealthBoard
from pystream.parameters import MISSING, Surroundings
from pystream.subscriber import mount

from tests.core.scripted import Item, Journal, ScriptedBroker, ScriptedSource, ScriptedSubscriber
from tests.manual_clock import ManualClock

__all__ = ["Rig", "rig"]

_PATIENCE = 10.0


class Rig:
    """What a test sees of the running handler.

    Attributes:
        failures: Each fail-fast: step, subscription, error.
        board: The health.
        loop_errors: What the loop itself raised.
    """

    def __init__(self, broker: ScriptedBroker, stream: ScriptedSubscriber, clock: ManualClock) -> None:
        self.broker = broker
        self.stream = stream
        self.clock = clock
        self.journal: Journal = broker.journal
        self.failures: list[tuple[str, str, BaseException]] = []
        self.board = HealthBoard()
        self.loop_errors: list[BaseException] = []
        self.subscription: Subscription
        self.tracker: Tracker

    @property
    def lines(self) -> list[str]:
        return self.journal.lines

    def feed(self, *items: Item) -> None:
        self.stream.feed(*items)

    async def ends(self, count: int) -> None:
        """Return once so many settlements and releases were attempted."""
        await self.journal.until(lambda: self.stream.ends >= count)

    async def timer(self) -> None:
        """Return once somebody waits for the clock."""
        await eventually(lambda: self.clock.timers > 0)

    async def stop(self) -> None:
        """Stop, and return when everything in hand is handled; what timers hold is given back."""
        self.subscription.stop()
        await self.finished()

    async def finished(self) -> None:
        with anyio.fail_after(_PATIENCE):
            await self.subscription.finished()
            self.subscription.give_back_held()
            await self.subscription.drained()
            await self.tracker.drained()

    async def _loop(self) -> None:
        try:
            await self.subscription.run()
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # the test looks at it
            self.loop_errors.append(error)


async def eventually(condition: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds."""
    with anyio.fail_after(_PATIENCE):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def idle(rounds: int = 20) -> None:
    """Let other tasks run for some rounds: what could happen without time passing has happened."""
    for _ in range(rounds):
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def rig(
    handler: Callable[..., Any],
    *items: Item,
    source: ScriptedSource | None = None,
    policy: FailurePolicy | None = None,
    hooks: tuple[Callable[..., Any], ...] = (),
    max_tracked: int = 1000,
    state: Any = MISSING,
    form: Callable[[], Form] | None = None,
    fatal_end: bool = True,
    **settings: Any,
) -> AsyncIterator[Rig]:
    """Run the handler over the items, until the end of the body.

    Args:
        handler: Mounted with `settings` on `source`.
        *items: Fed before the loop begins.
        source: By default one that retries through the broker.
        policy: The app's failure policy.
        hooks: `post_settle` functions.
        max_tracked: The tracker's limit.
        state: The app's state.
        form: Makes another form than the one `workers=` asks for.
        fatal_end: Whether the end of the stream is a failure.
        **settings: Of the mount.
    """
    source = source or ScriptedSource()
    broker = ScriptedBroker()
    has_state = state is not MISSING
    mounts = [(mount(handler, source, **settings), Scope(policy=policy or FailurePolicy()))]
    (registered,) = register(broker, None, mounts, has_state=has_state)
    made = Rig(broker, broker.stream(source.name), ManualClock())
    made.feed(*items)
    surroundings = Surroundings(
        handler="", source_parameters=source.parameters, has_state=has_state, state=state, broker=broker
    )
    hook_rows: tuple[Hook, ...] = tuple(validate_function("post_settle", hook) for hook in hooks)
    raised: Exception | None = None
    async with anyio.create_task_group() as tracked, anyio.create_task_group() as loops:
        made.tracker = Tracker(tracked, max_tracked)
        with mock.patch.object(subscription_module, "make_form", lambda *a: form() if form else make_form(*a)):
            made.subscription = await Subscription.open(
                registered,
                broker,
                surroundings,
                clock=made.clock,
                tracker=made.tracker,
                hooks=hook_rows,
                board=made.board,
                fail=lambda step, name, error: made.failures.append((step, name, error)),
                fatal_end=fatal_end,
            )

        loops.start_soon(made._loop)
        try:
            yield made
            await made.stop()
        except Exception as error:
            raised = error

        await made.subscription.end()
        loops.cancel_scope.cancel()
        tracked.cancel_scope.cancel()

    if raised is not None:
        raise raised

    assert not made.loop_errors, made.loop_errors
