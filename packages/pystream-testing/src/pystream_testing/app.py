"""`TestApp`: the app that ships, run by a test."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pystream import PyStream, RunningApp, ServiceFailed, ServiceState, harness
from pystream.clock import LoopClock
from pystream.errors import ConfigurationError, DecodeError
from pystream.harness import Harnessed
from pystream.protocols import Clock

from pystream_testing._ledger import Ledger
from pystream_testing._reactions import InProcess, Live, Reactions
from pystream_testing._recorder import Recorder
from pystream_testing._transports import Routing, connect_in_process, routing_of
from pystream_testing.brokers import ConnectedBrokers, TestBroker, place_of
from pystream_testing.clock import VirtualClock
from pystream_testing.errors import UnknownDestinationWarning
from pystream_testing.records import Published, Records, SubscriberRecords

__all__ = ["TestApp"]

CallbackT = TypeVar("CallbackT", bound="Callable[..., object]")

_UNSET: Any = object()
_AT_THE_END = (
    1.0  # seconds for what the end of a block finds in hand: nothing, as a rule, or what the test has left asleep
)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class TestApp:
    """An app that runs in a test; made by `start` and `start_live`.

    Attributes:
        app: What `PyStream.start` gives.
        clock: Virtual in process, the loop's own in a live run.
    """

    __test__ = False  # nothing for pytest to collect

    def __init__(
        self, harnessed: Harnessed, recorder: Recorder, reactions: Reactions, clock: Clock, routing: list[Routing]
    ) -> None:
        self.app: RunningApp = harnessed.running
        self.clock: Clock = clock
        self._harnessed = harnessed
        self._recorder = recorder
        self._reactions = reactions
        self._routing = routing
        self._brokers = list(harnessed.brokers)
        self._handlers = [handler for broker in self._brokers for handler in broker.handlers]
        self._test_brokers: dict[int, TestBroker] = {}
        self._known: set[tuple[int, str]] = {
            (handler.broker, routing[handler.broker].resolve(handler.source.name)) for handler in self._handlers
        }
        self._told = False

    @classmethod
    def start(
        cls,
        app: PyStream,
        *,
        state: Any = _UNSET,
        clock: VirtualClock | None = None,
        timeout: float = 10.0,
    ) -> AbstractAsyncContextManager[TestApp]:
        """Run the app in process beside the body of an `async with`: no server, and time that stands still.

        Everything but the transports and the clock is that of production: hooks, state, codecs,
        dispatch, settlement, and the order of start and stop.

        Args:
            app: As it ships. It is not changed.
            state: In place of the app's own, in any of the forms that the app takes; or a function
                of one argument, a `ConnectedBrokers`, which makes it once the brokers are connected.
            clock: To be used in place of a new one.
            timeout: Seconds of real time without any event after which a wait gives up, above 0.

        Raises:
            ServiceFailed: On entry, the start failed; on exit, the service had failed and the
                test has not looked at `run_result`. What the body raises comes out as it is.
            ConfigurationError: `timeout` is not above 0.

        Cancel safety: a cancellation of the body aborts the service.
        """
        return _in_process(cls, app, _state_keywords(state), clock or VirtualClock(), _checked(timeout))

    @classmethod
    def start_live(
        cls,
        app: PyStream,
        *,
        state: Any = _UNSET,
        clock: Clock | None = None,
        timeout: float = 10.0,
    ) -> AbstractAsyncContextManager[TestApp]:
        """Run the app on its servers beside the same body; time is real, and so is `advance`.

        Args:
            app: As it ships. It is not changed.
            state: In place of the app's own, in any of the forms that the app takes; or a function
                of one argument, a `ConnectedBrokers`, which makes it once the brokers are connected.
            clock: To be used in place of the loop's own; a virtual one is refused.
            timeout: Seconds that a wait for the end of a reaction may take, above 0.

        Raises:
            ServiceFailed: As `start`.
            ConfigurationError: The clock is virtual, or `timeout` is not above 0.

        Cancel safety: a cancellation of the body aborts the service.
        """
        if isinstance(clock, VirtualClock):
            raise ConfigurationError(
                "TestApp.start_live was given a VirtualClock, and a server keeps its own time; "
                "leave the clock out, or use TestApp.start"
            )

        return _live(cls, app, _state_keywords(state), clock, _checked(timeout))

    def broker(self, broker: type | str | None = None) -> TestBroker:
        """One of the app's brokers.

        Args:
            broker: Its label or its class; needed where there are several.

        Raises:
            ConfigurationError: None, or more than one, is meant; the text names them.
        """
        place = self._place(broker)
        found = self._test_brokers.get(place)
        if found is None:
            found = self._test_brokers[place] = TestBroker(
                self._brokers[place].connection.publisher(), self.settle, partial(self._warn_if_unread, place)
            )

        return found

    async def settle(self) -> None:
        """Return when nothing runs and all that is left waits for time, for a message, or for the test.

        Also when the service has stopped by itself; `run_result` then says why.

        Raises:
            NotQuiescentError: It did not come to that.
            BaseException: What a function given to `on_call` or `on_publish` has raised.

        Cancel safety: cancelling it changes nothing.
        """
        await self._reactions.settle()
        self._raise_flaws()

    async def drain(self) -> None:
        """`settle`, and wait for the continuations and hooks that run as tasks.

        Raises:
            NotQuiescentError: Some did not end.

        Cancel safety: cancelling it changes nothing.
        """
        await self._reactions.drain()
        self._raise_flaws()

    async def advance(self, seconds: float) -> None:
        """Let time pass: what is due happens at its time, in order, and each reaction comes to its end.

        In a live run it really sleeps.

        Args:
            seconds: How long, 0 or more.

        Raises:
            NotQuiescentError: A reaction did not come to an end.
            ConfigurationError: The number is negative.

        Cancel safety: cancelling it leaves the clock somewhere on the way.
        """
        if not seconds >= 0:
            raise ConfigurationError(f"advance({seconds!r}): give seconds of 0 or more")

        await self._reactions.advance(seconds)
        self._raise_flaws()

    def subscriber(self, handler: Callable[..., Any] | str) -> SubscriberRecords:
        """What one subscription has received so far; later calls are seen, too.

        Args:
            handler: The function that is mounted, or the subscription's name.

        Raises:
            ConfigurationError: None, or more than one, is meant; the text lists the known names.
        """
        found = [
            item.name
            for item in self._handlers
            if item.handler == handler or handler in (item.name, item.mounting.name)
        ]
        names = ", ".join(sorted(item.name for item in self._handlers)) or "none"
        if len(found) != 1:
            called = handler if isinstance(handler, str) else getattr(handler, "__qualname__", repr(handler))
            problem = (
                "is no subscription" if not found else f"is mounted more than once ({', '.join(found)}); give a name"
            )
            raise ConfigurationError(f"subscriber({called!r}): it {problem}; known are: {names}")

        calls = self._recorder.recordings[found[0]].calls
        return SubscriberRecords(lambda: calls, found[0])

    def published(self, kind: Any, destination: str, *, broker: type | str | None = None) -> Records[Published]:
        """What the app has published to a destination so far; later messages are seen, too.

        What the test has published itself is not among it.

        Args:
            kind: The type that the payloads are decoded as; `bytes` for raw ones.
            destination: The topic, queue or subject, as the broker spells it.
            broker: The broker's label or class; needed where there are several.

        Raises:
            ConfigurationError: The broker is not told, or pydantic cannot read the type.

        Warns:
            UnknownDestinationWarning: Nothing in the app names the destination; the text has the nearest.
        """
        place = self._place(broker)
        name = self._routing[place].resolve(destination)
        self._warn_if_unknown(place, destination, name)
        decode = _decoder(kind)

        def read() -> list[Published]:
            return [
                message.decoded_by(decode)
                for message in self._recorder.published_messages
                if message.broker == place and not message.by_test
                if self._routing[place].resolve(message.destination) == name
            ]

        return Records(read, f"destination {destination!r}", "published to")

    def on_call(self, fn: CallbackT) -> CallbackT:
        """Call `fn` with each `Call` after its settlement; what it raises fails the publish that drove it.

        Args:
            fn: A plain function; also usable as a decorator.
        """
        self._recorder.on_call.append(_plain("on_call", fn))
        return fn

    def on_publish(self, fn: CallbackT) -> CallbackT:
        """Call `fn` with each `Published` once it is confirmed; what it raises fails the publish that drove it.

        Args:
            fn: A plain function; also usable as a decorator.
        """
        self._recorder.on_publish.append(_plain("on_publish", fn))
        return fn

    async def shutdown(self) -> None:
        """Stop the service in order, as leaving the block does. Idempotent.

        What it failed with is in `run_result`.

        Cancel safety: the stop goes on if this call is cancelled.
        """
        with suppress(ServiceFailed):  # the end of the block raises it, unless the test looks at it
            await self.app.shutdown()

    @property
    def run_result(self) -> ServiceFailed | None:
        """Why the service failed, or none; a test that looks has been told, and the block ends quietly."""
        self._told = True
        return self._harnessed.failure

    @property
    def running(self) -> bool:
        """Whether the service runs and no stop was announced."""
        return self.app.health.state in (ServiceState.RUNNING, ServiceState.DEGRADED)

    @property
    def shut_down(self) -> bool:
        """Whether the last step of the stop is over."""
        return self.app.health.state in (ServiceState.STOPPED, ServiceState.FAILED)

    def _finish(self) -> None:
        """The block has ended well: raise what nobody has seen."""
        self._raise_flaws()
        if self._harnessed.failure is not None and not self._told:
            raise self._harnessed.failure

    def _raise_flaws(self) -> None:
        flaws = self._recorder.flaws
        if flaws:
            first, *_ = flaws
            flaws.clear()
            raise first

    def _place(self, broker: type | str | None) -> int:
        if broker is None and len(self._brokers) == 1:  # with each publish of most tests
            return 0

        return place_of(self._brokers, broker)

    def _warn_if_unread(self, place: int, destination: str) -> None:
        routing = self._routing[place]
        if routing.known and (place, routing.resolve(destination)) not in self._known:
            read = {item.source.name for item in self._handlers if item.broker == place}
            self._warn(f"the test publishes to {destination!r}, which no subscription reads", destination, read)

    def _warn_if_unknown(self, place: int, destination: str, name: str) -> None:
        resolve = self._routing[place].resolve
        handlers = [item for item in self._handlers if item.broker == place]
        named = {name for item in handlers for name in (item.reply_to, item.mounting.dead_letter) if name}
        named |= {item.source.name for item in handlers}
        named |= {item.destination for item in self._recorder.published_messages if item.broker == place}
        if name not in {resolve(item) for item in named}:
            self._warn(f"nothing in the app has named the destination {destination!r}", destination, named)

    def _warn(self, text: str, destination: str, known: set[str]) -> None:
        near = get_close_matches(destination, known, n=1, cutoff=0.0)
        hint = f"; the nearest is {near[0]!r}" if near else ""
        warnings.warn(f"{text}{hint}", UnknownDestinationWarning, stacklevel=4)


@asynccontextmanager
async def _in_process(
    cls: type[TestApp], app: PyStream, state: dict[str, Any], clock: VirtualClock, timeout: float
) -> AsyncIterator[TestApp]:
    brokers = harness.brokers(app)
    routing = [routing_of(item.broker) for item in brokers]
    groups = {
        handler.name: (handler.broker, routing[handler.broker].group(handler.source, handler.mounting))
        for item in brokers
        for handler in item.handlers
    }
    recorder = Recorder(clock.now, groups=groups)
    async with harness.start(
        app,
        clock=lambda: clock,
        connect=connect_in_process,
        instrument=recorder,
        shutdown_timeout=_AT_THE_END if app.shutdown_timeout is None else None,
        **state,
    ) as harnessed:
        reactions = InProcess(harnessed, recorder, clock, timeout)
        test = cls(harnessed, recorder, reactions, clock, routing)
        try:
            yield test
        finally:
            reactions.close()

    test._finish()


@asynccontextmanager
async def _live(
    cls: type[TestApp], app: PyStream, state: dict[str, Any], clock: Clock | None, timeout: float
) -> AsyncIterator[TestApp]:
    brokers = harness.brokers(app)
    routing = [routing_of(item.broker) for item in brokers]
    ledger = Ledger(brokers, routing)
    recorder = Recorder(ledger=ledger)
    used: Clock = clock or LoopClock()
    async with harness.start(
        app,
        clock=lambda: used,
        instrument=recorder,
        shutdown_timeout=timeout if app.shutdown_timeout is None else None,
        **state,
    ) as harnessed:
        test = cls(harnessed, recorder, Live(harnessed, recorder, ledger, timeout), used, routing)
        yield test

    test._finish()


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    if kind is bytes:
        return bytes

    validate = TypeAdapter(kind).validate_json
    name = getattr(kind, "__name__", repr(kind))

    def decode(payload: bytes) -> Any:
        try:
            return validate(payload)
        except ValidationError as error:
            raise DecodeError(f"the message is no {name}: {error}") from None

    return decode


def _plain(name: str, fn: Callable[..., object]) -> Callable[..., object]:
    if not callable(fn) or inspect.iscoroutinefunction(fn):
        raise ConfigurationError(
            f"{name}({fn!r}): give a plain function; it is called in the midst of the service's work"
        )

    return fn


def _checked(timeout: float) -> float:
    if not timeout > 0:
        raise ConfigurationError(f"TestApp: timeout={timeout!r}; give seconds above 0")

    return timeout


def _state_keywords(state: Any) -> dict[str, Any]:
    if state is _UNSET:
        return {}

    if not _takes_brokers(state):
        return {"state": state}

    return {"build_state": lambda brokers: partial(state, ConnectedBrokers(brokers))}


def _takes_brokers(state: Any) -> bool:
    """Whether `state` is a function of one argument; the app itself takes only those without."""
    if not callable(state):
        return False

    try:
        parameters = inspect.signature(state).parameters.values()
    except ValueError:  # some callables written in C do not tell
        return False

    return [item.default for item in parameters if item.kind in _POSITIONAL] == [inspect.Parameter.empty]
