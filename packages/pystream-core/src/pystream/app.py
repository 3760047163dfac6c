"""`PyStream`: a service, declared; and `RunningApp`, the same service while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import anyio

from pystream._hooks import HOOKS, validate_function
from pystream._loops import is_cancellation
from pystream._runtime import signals
from pystream._runtime.definition import Definition, MountedBroker
from pystream._runtime.hooks import check_publishers
from pystream._runtime.registration import Registered, Scope, register
from pystream._runtime.service import Service
from pystream.errors import ConfigurationError, RegistrationError, ServiceFailed
from pystream.failures import FailurePolicy
from pystream.health import Health
from pystream.layers import Layer, PublishLayer, check_layers, with_layers
from pystream.parameters import MISSING
from pystream.protocols import Broker, PublishPolicy
from pystream.publishing import Out
from pystream.router import Mountable, Router, as_mount
from pystream.subscriber import Mount

__all__ = ["PyStream", "RunningApp", "Stop"]

FunctionT = TypeVar("FunctionT", bound="Callable[..., Any]")


class Waitable(Protocol):
    """Anything with `wait()`, such as an `anyio.Event`."""

    async def wait(self) -> object:
        """Return when it is time."""


Stop = Callable[[], Awaitable[object]] | Waitable
"""What ends `run_until`: an async callable, or anything with `wait()`."""


class RunningApp:
    """A service that runs; given by `PyStream.start`.

    Attributes:
        health: Its condition; outlives the shutdown.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._told = False
        self.health: Health = service.board.view

    async def stopping(self) -> None:
        """Return when the service stops by itself or somebody has asked it to.

        A failure that stopped it is raised by the `shutdown` that follows. Cancel safety:
        cancelling it changes nothing.
        """
        await self._service.stopping()

    async def shutdown(self) -> None:
        """Stop gracefully, and return when the last step is over. Idempotent.

        Raises:
            ServiceFailed: A loop, the closing of a broker or a fail-fast has failed.

        Cancel safety: the stop goes on if this call is cancelled.
        """
        self._service.request_stop()
        await self._service.ended()
        self._told = True
        if self._service.failure is not None:
            raise self._service.failure

    def publisher(self, broker: type | str | None = None, *, policy: PublishPolicy | None = None) -> Out[Any]:
        """A publisher over one of the app's brokers.

        Args:
            broker: The broker's label or class; needed where there are several.
            policy: How it publishes, as the broker's own policy class says; none for the broker's default.

        Raises:
            ConfigurationError: No broker, or more than one, is meant.
        """
        connected = self._service.startup.brokers
        found = [
            live
            for mounted, live in connected
            if broker is None
            or broker == mounted.label
            or (isinstance(broker, type) and isinstance(mounted.broker, broker))
        ]
        if len(found) == 1:
            return Out(with_layers(found[0].publisher(policy), self._service.definition.publish_layers))

        names = ", ".join(mounted.name for mounted, _ in connected) or "none"
        wanted = "one broker" if broker is None else broker.__name__ if isinstance(broker, type) else repr(broker)
        raise ConfigurationError(
            f"publisher(): {wanted} was asked for, and {len(found)} of the app's brokers match ({names})"
        )


class PyStream:
    """A service: brokers, the handlers mounted on them, a state, hooks.

    Construction does no I/O and connects nothing.

    Args:
        title: The service's name, not empty.
        version: The service's own version.
        state: What `State[T]` parameters receive: a value, a callable that makes it, an async
            context manager, or a generator function with one `yield`; opened first, closed last.
        on_failure: The failure policy of handlers and routers that state none.
        plugins: Exactly these plugins; by default those installed.
        on_subscription_end: What the end of a stream means: `fail` stops the service, `log` writes an ERROR.
        max_tracked: How many deliveries may have tasks running after their settlement, 1 or more.
        hook_timeout: Seconds for all hooks of one stop step, above 0.
        shutdown_timeout: Seconds that a stop waits for deliveries in hand and tracked tasks, 0 or
            more; none waits for all. At least a tenth of it is kept for the tasks.
        layers: Consume layers around every delivery, the first one outermost.
        publish_layers: Layers around everything that the app sends, the first one outermost.

    Attributes:
        title: As given.
        version: As given.
        shutdown_timeout: As given.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    def __init__(
        self,
        title: str,
        *,
        version: str = "0.0.0",
        state: Any = MISSING,
        on_failure: FailurePolicy | None = None,
        plugins: Sequence[object] | None = None,
        on_subscription_end: Literal["fail", "log"] = "fail",
        max_tracked: int = 1000,
        hook_timeout: float = 10.0,
        shutdown_timeout: float | None = None,
        layers: Sequence[Layer] | None = None,
        publish_layers: Sequence[PublishLayer] | None = None,
    ) -> None:
        _check(isinstance(title, str) and bool(title), "title", title, "a text that is not empty")
        _check(isinstance(version, str), "version", version, "a text")
        _check(on_failure is None or isinstance(on_failure, FailurePolicy), "on_failure", on_failure, "a FailurePolicy")
        _check(plugins is None or isinstance(plugins, list | tuple), "plugins", plugins, "a list of plugins")
        _check(on_subscription_end in ("fail", "log"), "on_subscription_end", on_subscription_end, "'fail' or 'log'")
        right = isinstance(max_tracked, int) and max_tracked >= 1
        _check(right, "max_tracked", max_tracked, "a whole number, 1 or more")
        right = isinstance(hook_timeout, int | float) and hook_timeout > 0
        _check(right, "hook_timeout", hook_timeout, "seconds above 0")
        _check_shutdown_timeout(shutdown_timeout)
        self.title = title
        self.version = version
        self._state = state
        self._scope = Scope(
            policy=on_failure or FailurePolicy(),
            layers=check_layers("PyStream", "layers", layers),
            publish_layers=check_layers("PyStream", "publish_layers", publish_layers),
        )
        self._plugins = None if plugins is None else tuple(plugins)
        self._end: Literal["fail", "log"] = on_subscription_end
        self._max_tracked = max_tracked
        self._hook_timeout = hook_timeout
        self.shutdown_timeout = shutdown_timeout
        self._brokers: list[MountedBroker] = []
        self._hooks: dict[str, list[Callable[..., Any]]] = {name: [] for name in HOOKS}

    def with_broker(self, broker: Broker, *handlers: Mountable | Router, label: str | None = None) -> PyStream:
        """Add a broker and mount handlers on it; return the app.

        Args:
            broker: Its configuration; connected when the service starts.
            *handlers: Declared handlers, `mount(...)` values and routers; none for a broker
                that is only published to.
            label: What tells it from other brokers of its type.

        Raises:
            RegistrationError: Some handlers cannot be mounted; every refusal is named.
        """
        if isinstance(broker, type) or not hasattr(broker, "source_types"):
            raise RegistrationError(
                f"with_broker was given {broker!r}, which is no broker; give the broker first, then the handlers"
            )

        self._check_label(broker, label)
        mounts = [pair for handler in handlers for pair in self._mounts(handler)]
        registered = register(broker, label, mounts, has_state=self._state is not MISSING)
        self._check_names(registered)
        self._brokers.append(MountedBroker(broker, label, registered))
        return self

    def on_startup(self, fn: FunctionT) -> FunctionT:
        """Call `fn` when the state is open and before the brokers connect; for use as a decorator."""
        return self._hook("on_startup", fn)

    def after_startup(self, fn: FunctionT) -> FunctionT:
        """Call `fn` when every subscription is open; for use as a decorator."""
        return self._hook("after_startup", fn)

    def on_shutdown(self, fn: FunctionT) -> FunctionT:
        """Call `fn` when a stop begins, the brokers still connected; for use as a decorator."""
        return self._hook("on_shutdown", fn)

    def after_shutdown(self, fn: FunctionT) -> FunctionT:
        """Call `fn` when the brokers are closed; for use as a decorator."""
        return self._hook("after_shutdown", fn)

    def post_settle(self, fn: FunctionT) -> FunctionT:
        """Call `fn` after each settlement attempt; for use as a decorator."""
        return self._hook("post_settle", fn)

    def run(self, *, backend: str = "asyncio", shutdown_timeout: float | None = None) -> None:
        """Run the service until a signal or a failure stops it; owns the process.

        SIGINT and SIGTERM begin the graceful stop; another one, 0.5 s later or more, aborts it.

        Args:
            backend: `asyncio`, `uvloop` or `trio`.
            shutdown_timeout: In place of the app's own, if given.

        Raises:
            ServiceFailed: The start, a loop, the closing of a broker or a fail-fast failed;
                `ServiceAborted` after a second signal.
            ConfigurationError: The backend is none, or not installed.
        """
        name, options = _backend(backend)
        anyio.run(partial(self.serve, shutdown_timeout=shutdown_timeout), backend=name, backend_options=options)

    async def serve(self, *, shutdown_timeout: float | None = None) -> None:
        """`run()` inside a loop that somebody else owns; signals too, in the main thread.

        Args:
            shutdown_timeout: In place of the app's own, if given.

        Raises:
            ServiceFailed: As `run`.

        Cancel safety: a cancellation aborts the service; what is in hand is given back.
        """
        await self._serve(shutdown_timeout, signals.watch)

    async def _serve(self, shutdown_timeout: float | None, watch: Callable[..., Coroutine[Any, Any, None]]) -> None:
        """`serve()`, told to stop by whatever `watch` watches."""
        service = Service(self._definition(shutdown_timeout))
        async with anyio.create_task_group() as tasks:
            await tasks.start(watch, service.request_stop, service.abort)
            with suppress(ServiceFailed):  # a failed start; raised below, out of the group
                async with service.running():
                    await service.stopping()

            tasks.cancel_scope.cancel()

        if service.failure is not None:
            raise service.failure

    async def run_until(self, stop: Stop, *, shutdown_timeout: float | None = None) -> None:
        """Run the service until `stop` returns, without signal handling.

        Args:
            stop: An async callable, or anything with `wait()`; begun only once the service
                runs. A failure of the service ends it first.
            shutdown_timeout: In place of the app's own, if given.

        Raises:
            ServiceFailed: As `run`. What `stop` raises comes out as it is.
            ConfigurationError: `stop` is neither.

        Cancel safety: as `serve`.
        """
        wait = stop if callable(stop) else getattr(stop, "wait", None)
        if not callable(wait):
            raise ConfigurationError(f"run_until({stop!r}): give an async callable, or something with wait()")

        async with self.start(shutdown_timeout=shutdown_timeout) as running:
            await _first_of(wait, running.stopping)

    def start(self, *, shutdown_timeout: float | None = None) -> AbstractAsyncContextManager[RunningApp]:
        """Run the service beside the body of an `async with`; no signal handling.

        Args:
            shutdown_timeout: In place of the app's own, if given.

        Raises:
            ServiceFailed: On entry, the start failed; on exit, the service had failed and no
                `shutdown()` has said so yet. What the body raises comes out as it is.

        Cancel safety: a cancellation of the body aborts the service.
        """
        return self._start(Service(self._definition(shutdown_timeout)))

    @asynccontextmanager
    async def _start(self, service: Service) -> AsyncIterator[RunningApp]:
        running = RunningApp(service)
        async with service.running():
            yield running

        if service.failure is not None and not running._told:
            raise service.failure

    def _definition(self, shutdown_timeout: float | None) -> Definition:
        _check_shutdown_timeout(shutdown_timeout)
        check_publishers(self._hooks, self._brokers)
        return Definition(
            title=self.title,
            version=self.version,
            brokers=tuple(self._brokers),
            state=self._state,
            has_state=self._state is not MISSING,
            hook_functions={name: tuple(functions) for name, functions in self._hooks.items()},
            plugins=self._plugins,
            publish_layers=self._scope.publish_layers,
            on_subscription_end=self._end,
            max_tracked=self._max_tracked,
            hook_timeout=self._hook_timeout,
            shutdown_timeout=self.shutdown_timeout if shutdown_timeout is None else shutdown_timeout,
        )

    def _mounts(self, handler: Mountable | Router) -> list[tuple[Mount, Scope]]:
        if isinstance(handler, Router):
            scope = self._scope.within(handler.on_failure, handler.layers, handler.publish_layers)
            return [(mount, scope) for mount in handler.mounts]

        return [(as_mount(handler), self._scope)]

    def _check_label(self, broker: Broker, label: str | None) -> None:
        for other in self._brokers:
            if type(other.broker) is type(broker) and other.label == label:
                kind = type(broker).__name__
                said = f"both have the label {label!r}" if label else "neither has a label"
                raise RegistrationError(
                    f"two brokers of type {kind}, and {said}; give each its own: with_broker(..., label=...)"
                )

    def _check_names(self, registered: Sequence[Registered]) -> None:
        taken = {item.name: other.name for other in self._brokers for item in other.registered}
        refusals = [
            f"{item.signature.name}: the subscription {item.name!r} is there already, on {taken[item.name]}; "
            "give the handler a name=, or one of the two brokers a label="
            for item in registered
            if item.name in taken
        ]
        if refusals:
            raise RegistrationError(*refusals)

    def _hook(self, name: str, fn: FunctionT) -> FunctionT:
        validate_function(name, fn, has_state=self._state is not MISSING)
        self._hooks[name].append(fn)
        return fn


async def _first_of(wait: Callable[[], Awaitable[object]], other: Callable[[], Awaitable[None]]) -> None:
    """Return when either returns; what `wait` raises comes out as it is."""
    raised: BaseException | None = None

    async def end_with_other() -> None:
        await other()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end_with_other)
        try:
            await wait()
        except BaseException as error:
            if is_cancellation(error):
                raise

            raised = error  # raised below: the task group would wrap it

        tasks.cancel_scope.cancel()

    if raised is not None:
        raise raised


def _backend(name: str) -> tuple[str, dict[str, Any]]:
    if name not in ("asyncio", "uvloop", "trio"):
        raise ConfigurationError(f"backend={name!r} is none; give asyncio, uvloop or trio")

    if name == "asyncio":
        return name, {}

    try:
        __import__(name)
    except ImportError as error:
        raise ConfigurationError(f'the backend {name} is not installed; pip install "pystream[{name}]"') from error

    return ("asyncio", {"use_uvloop": True}) if name == "uvloop" else (name, {})


def _check(right: bool, name: str, value: Any, wanted: str) -> None:
    if not right:
        raise ConfigurationError(f"PyStream({name}={value!r}): give {wanted}")


def _check_shutdown_timeout(value: float | None) -> None:
    right = value is None or (isinstance(value, int | float) and value >= 0)
    _check(right, "shutdown_timeout", value, "seconds, 0 or more, or None for no limit")
