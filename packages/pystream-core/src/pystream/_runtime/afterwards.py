"""What comes after a settlement: continuations, and the hooks of the settlement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pystream._hooks import is_async
from pystream._runtime.live import LiveMount
from pystream._runtime.tracker import Call
from pystream.context import AfterSettle
from pystream.hookspecs import Settled
from pystream.outcomes import Continuation, Outcome


class Afterwards:
    """Starts what comes after the settlements of one mount: plain functions in line, the others as tracked tasks.

    Args:
        live: The mount.
    """

    __slots__ = ("_has_async_hooks", "_live")

    def __init__(self, live: LiveMount) -> None:
        self._live = live
        self._has_async_hooks = any(hook.is_async for hook in live.hooks)

    def of(self, outcome: Outcome, context: AfterSettle | None) -> list[Continuation]:
        """The outcome's continuation, then what was left in the context for an outcome of its kind."""
        continuations = [] if outcome.continuation is None else [outcome.continuation]
        if context is not None:
            continuations += matching(context, outcome)

        return continuations

    def are_tasks(self, continuations: list[Continuation]) -> bool:
        """Whether any of it, or a hook, runs as a task."""
        return self._has_async_hooks or any(is_async(fn) for fn, _ in continuations)

    def start(
        self,
        continuations: list[Continuation],
        outcome: Outcome,
        *,
        attempt: Callable[[], int],
        started: float,
        error: Exception | None,
    ) -> None:
        """Call what is plain and start the rest, for which the caller has reserved a place.

        Args:
            continuations: As `of` answers.
            outcome: What became of the delivery.
            attempt: Tells which attempt it was.
            started: When the handling began, on the mount's clock.
            error: Why the settlement was not made, or none.
        """
        calls: list[Call] = []
        for fn, args in continuations:
            self._start(calls, getattr(fn, "__qualname__", repr(fn)), fn, args, is_async=is_async(fn))

        if self._live.hooks:
            self._start_hooks(
                calls,
                Settled(
                    subscription=self._live.registered.name,
                    outcome=outcome,
                    attempt=attempt(),
                    duration=self._live.clock.now() - started,
                    error=error,
                ),
            )

        if calls:
            self._live.tracker.start(calls, self._live.report.callback_failed)

    def _start_hooks(self, calls: list[Call], event: Settled) -> None:
        for hook in self._live.hooks:
            self._start(calls, hook.name, hook.fn, (event,) if hook.takes_event else (), is_async=hook.is_async)

    def _start(
        self, calls: list[Call], name: str, fn: Callable[..., Any], args: tuple[Any, ...], *, is_async: bool
    ) -> None:
        if is_async:
            calls.append((name, fn, args))
            return

        try:
            fn(*args)
        except BaseException as error:  # also an exit: the delivery is settled, and its loop goes on
            self._live.report.callback_failed(name, error)


def matching(context: AfterSettle, outcome: Outcome) -> list[Continuation]:
    """What was left in the context for an outcome of this kind."""
    return [(fn, args) for kind, fn, args in context._afters or () if kind in (None, outcome.kind)]
