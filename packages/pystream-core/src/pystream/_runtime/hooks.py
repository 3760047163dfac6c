"""Calls the frozen start and stop hooks, in order, each step within its bound."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio

from pystream._hook_parameters import HookParameter
from pystream._hooks import Hook, HookTable, validate_function
from pystream._loops import is_cancellation
from pystream._runtime.definition import Definition, MountedBroker
from pystream.errors import RegistrationError
from pystream.hookspecs import ServiceEvent
from pystream.parameters import Getter, Surroundings
from pystream.protocols import ConnectedBroker

logger = logging.getLogger("pystream.hooks")


class HookCalls:
    """Calls the hooks of one run of a service, with what they ask for.

    Args:
        definition: The service's.
        state: The open state.
        brokers: The connected brokers; the list is filled while the service starts.
    """

    def __init__(
        self, definition: Definition, state: Any, brokers: Sequence[tuple[MountedBroker, ConnectedBroker]]
    ) -> None:
        self._definition = definition
        self._state = state
        self._brokers = brokers

    def check(self, table: HookTable) -> None:
        """Refuse, before anything connects, what cannot be given.

        Raises:
            RegistrationError: The open state is not of the class that a hook asks for.
        """
        for hook in (*table.on_startup, *table.after_startup, *table.on_shutdown, *table.after_shutdown):
            for asked in hook.parameters:
                self._getter(hook, asked, None)

    async def call(self, hook: Hook, event: ServiceEvent) -> None:
        """Call one hook; raises what it raises."""
        result: Any = self._begin(hook, event)
        if inspect.isawaitable(result):  # also of a plain function that wraps a coroutine function
            await result

    async def call_all(self, hooks: tuple[Hook, ...], event: ServiceEvent, bound: float) -> None:
        """Call the hooks of one stop step; what fails is logged and stops nothing.

        Args:
            hooks: In the order of their calls.
            event: What they are told.
            bound: Seconds for all of them together; then the running one is cancelled and the rest skipped.
        """
        running = ""
        with anyio.move_on_after(bound) as scope:
            for hook in hooks:
                running = hook.name
                try:
                    await self.call(hook, event)
                except BaseException as error:  # also an exit: it must not skip the rest of the stop
                    if is_cancellation(error):
                        raise

                    logger.error("the hook %s failed: %s", hook.name, type(error).__name__, exc_info=error)

        if scope.cancelled_caught:
            logger.error("the hook %s was cancelled after %g s; later ones of its step were skipped", running, bound)

    def _begin(self, hook: Hook, event: Any) -> Any:
        if not hook.parameters:
            return hook.fn(event) if hook.takes_event else hook.fn()

        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for asked in hook.parameters:
            value = self._getter(hook, asked, self._broker_of(hook, asked))(event, None)
            if asked.parameter.keyword:
                keywords[asked.parameter.name] = value
            else:
                positional.append(value)

        return hook.fn(*positional, **keywords)

    def _getter(self, hook: Hook, asked: HookParameter, broker: ConnectedBroker | None) -> Getter:
        surroundings = Surroundings(
            handler=hook.name,
            source_parameters={},
            has_state=self._definition.has_state,
            state=self._state,
            broker=broker,
            publish_layers=self._definition.publish_layers,
        )
        return asked.kind.compile(asked.parameter, surroundings)

    def _broker_of(self, hook: Hook, asked: HookParameter) -> ConnectedBroker | None:
        if not asked.publishes:
            return None

        meant = _meant(hook, asked, self._definition.brokers)
        return next(connected for mounted, connected in self._brokers if mounted is meant)


def check_publishers(functions: Mapping[str, Sequence[Callable[..., Any]]], brokers: Sequence[MountedBroker]) -> None:
    """Refuse hooks that ask for a publisher of no broker, or of one of several.

    Args:
        functions: A hook's name to the functions given to the app.
        brokers: All brokers of the app.

    Raises:
        RegistrationError: With every refusal, not only the first.
    """
    refusals: list[str] = []
    for hook_name, given in functions.items():
        for hook in (validate_function(hook_name, fn) for fn in given):
            for asked in hook.parameters:
                try:
                    if asked.publishes:
                        _meant(hook, asked, brokers)
                except RegistrationError as error:
                    refusals.extend(error.refusals)

    if refusals:
        raise RegistrationError(*refusals)


def _meant(hook: Hook, asked: HookParameter, brokers: Sequence[MountedBroker]) -> MountedBroker:
    """The broker whose publisher the parameter is."""
    wanted = asked.broker
    found = [mounted for mounted in brokers if wanted is None or _is(mounted, wanted)]
    if len(found) == 1:
        return found[0]

    asks = f"{hook.name}: the parameter {asked.parameter.name!r} asks for a publisher"
    if not brokers:
        raise RegistrationError(f"{asks}, and the app has no broker; add one by with_broker")

    names = ", ".join(mounted.name for mounted in brokers)
    of = "" if wanted is None else f" of {wanted.__name__ if isinstance(wanted, type) else repr(wanted)}"
    raise RegistrationError(
        f"{asks}{of}, and {len(found)} of the app's brokers match ({names}); "
        "name one by its label or class: Annotated[Out[T], label]"
    )


def _is(mounted: MountedBroker, wanted: str | type) -> bool:
    return isinstance(mounted.broker, wanted) if isinstance(wanted, type) else mounted.label == wanted
