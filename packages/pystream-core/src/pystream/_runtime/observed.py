"""The pipeline with an instrument compiled in; only `pystream.harness` imports it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from anyio.abc import TaskGroup

from pystream._runtime.call import Call, compile_call, needs_context
from pystream._runtime.handling import Handle, compile_handle
from pystream._runtime.holding import GoOn, Held, Holding
from pystream._runtime.live import LiveMount
from pystream._runtime.pauses import Pauses
from pystream._runtime.replies import compile_reply
from pystream._runtime.retries import Plan, Step
from pystream._runtime.settling import Settling, Work
from pystream._runtime.starter import Start, in_fresh_context
from pystream._runtime.tracker import Call as TrackedCall
from pystream._runtime.tracker import Tracker
from pystream._runtime.verdicts import Verdicts, settle_in
from pystream.context import Context
from pystream.outcomes import Outcome, ack
from pystream.parameters import Undecodable
from pystream.parameters.payload import PayloadKind
from pystream.protocols import ConnectedBroker, Delivery, Gap, Mounting, Outgoing, Publisher, PublishPolicy, Subscriber


class Probe:
    """Is told of one subscription; every method does nothing until a subclass says otherwise.

    All calls come on the app's loop, synchronously, and must not raise.
    """

    def waiting(self, waits: bool) -> None:
        """The form began to wait for the stream, or the wait has ended."""

    def taken(self, delivery: Delivery) -> None:
        """A delivery was taken from the stream."""

    def began(self, delivery: Delivery) -> None:
        """The work on a delivery begins; `ended` follows, whatever happens."""

    def called(self, delivery: Delivery, value: Any) -> None:
        """The handler is called with this payload; once more for each run in place."""

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        """The run raised, or the delivery could not be read and the handler was not called."""

    def handled(self, delivery: Delivery, outcome: Outcome | None) -> None:
        """A run, its reply included, is over; no outcome means that the delivery is left unsettled."""

    def paused(self, pauses: bool) -> None:
        """A delivery that is retried in place waits for its next run, or the wait has ended."""

    def settling(self, delivery: Delivery, outcome: Outcome, again: float | None) -> None:
        """The settlement is about to be made.

        Args:
            delivery: Which one.
            outcome: What becomes of it.
            again: Seconds after which the broker hands it out again; none if it does not.
        """

    def settled(self, delivery: Delivery, outcome: Outcome, error: Exception | None) -> None:
        """The settlement was made, or failed with `error`; then another, or hooks and continuations, follow."""

    def ended(self, delivery: Delivery) -> None:
        """The work on a delivery is over; its continuation, if it is a task, is tracked by now."""

    def batch_began(self, deliveries: Sequence[Delivery]) -> None:
        """The work on a batch begins; `batch_ended` follows, whatever happens.

        In between come, for each delivery by itself: `refused`, `failed`, `handled`, `settling`,
        `settled`, `held`.
        """

    def refused(self, delivery: Delivery, error: Exception | None) -> None:
        """A delivery of a batch is kept from the handler, and settled alone.

        Args:
            delivery: Which one.
            error: Why it could not be read; none if it came with no attempt left.
        """

    def batch_called(self, deliveries: Sequence[Delivery], values: Sequence[Any]) -> None:
        """The handler is called with these payloads; once more for each run in place, of what is left."""

    def batch_ended(self, deliveries: Sequence[Delivery]) -> None:
        """The work on a batch is over; continuations, if they are tasks, are tracked by now."""

    def held(self, delivery: Delivery, outcome: Outcome) -> None:
        """The runtime holds a delivery for a delay; the work on it ends meanwhile."""

    def resumed(self, delivery: Delivery) -> None:
        """The delay of a held delivery is over; `left` follows, whatever happens."""

    def left(self, delivery: Delivery) -> None:
        """The work on a delivery that was held is over: it is settled, held again, or given back."""


class Instrument:
    """Is told of a run of a service; every method does nothing until a subclass says otherwise."""

    def subscription(self, name: str) -> Probe:
        """The probe of a subscription; asked for once, before it is opened."""
        return Probe()

    def publishing(self, broker: int, outgoing: Outgoing) -> None:
        """The service, or somebody outside it, publishes through the broker at this place among the app's."""

    def published(self, broker: int, outgoing: Outgoing, error: BaseException | None) -> None:
        """The publish has ended: it was confirmed, or raised `error`."""

    def tracked(self, name: str, runs: bool) -> None:
        """A task that follows a settlement was started, or has ended."""

    def stopping(self) -> None:
        """A stop was announced, by whomever."""


def compile_observed(live: LiveMount, probe: Probe) -> Start[Delivery]:
    """What `compile_pipeline` makes, with a probe in it."""
    live = replace(live, pauses=cast("Pauses", ObservedPauses(live.pauses, probe)))
    verdicts = Verdicts(live)
    handle = compile_handle(live, _observed_call(live, probe), verdicts, compile_reply(live, verdicts))
    settling = ObservedSettling(live, verdicts, _observed_handle(handle, probe), probe)
    settle, now, hooked, acknowledged = settling.settle, live.clock.now, bool(live.hooks), ack()
    name, contextual = live.registered.name, needs_context(live.registered)

    async def process(delivery: Delivery) -> None:
        started = now()
        probe.began(delivery)
        try:
            context = Context(delivery, name) if contextual else None
            try:
                outcome = await handle(delivery, context, 0)
            except BaseException:
                probe.handled(delivery, None)
                raise

            probe.handled(delivery, outcome)
            if outcome is acknowledged and not hooked and (context is None or context._afters is None):
                await settling.acknowledge(delivery, acknowledged)
            elif outcome is not None:
                await settle(delivery, outcome, context, started)
        finally:
            probe.ended(delivery)

    return in_fresh_context(process, live.base)


def _observed_call(live: LiveMount, probe: Probe) -> Call:
    present: Any = None  # the delivery of the call that is being made
    handler, payload_of = live.registered.handler, _payload_of(live)

    def observed_handler(*args: Any, **keywords: Any) -> Any:
        # Called within `call`, before anything can suspend.
        probe.called(present, payload_of(args, keywords))
        return handler(*args, **keywords)

    call = compile_call(replace(live, registered=replace(live.registered, handler=observed_handler)))

    async def observed(delivery: Delivery, context: Context | None) -> Any:
        nonlocal present
        present = delivery
        try:
            return await call(delivery, context)
        except Undecodable as error:
            probe.failed(delivery, error.error)
            raise
        except BaseException as error:
            if settle_in(error) is None:
                probe.failed(delivery, error)

            raise

    return observed


def _payload_of(live: LiveMount) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """Finds the payload among the arguments of the handler."""
    registered = live.registered
    pairs = zip(registered.signature.parameters, registered.kinds, strict=True)
    place, payload = next(
        (place, parameter) for place, (parameter, kind) in enumerate(pairs) if isinstance(kind, PayloadKind)
    )
    name = payload.name
    if payload.keyword:
        return lambda args, keywords: keywords[name]

    return lambda args, keywords: args[place]


def _observed_handle(handle: Handle, probe: Probe) -> Handle:
    async def observed(delivery: Delivery, context: Context | None, reruns: int) -> Outcome | None:
        try:
            outcome = await handle(delivery, context, reruns)
        except BaseException:
            probe.handled(delivery, None)
            raise

        probe.handled(delivery, outcome)
        return outcome

    return observed


class ObservedSettling(Settling):
    """Tells a probe of every settlement."""

    __slots__ = ("_probe",)

    def __init__(self, live: LiveMount, verdicts: Verdicts, handle: Handle, probe: Probe) -> None:
        super().__init__(live, verdicts, handle, _ObservedHolding(live, probe))
        self._probe = probe

    async def acknowledge(self, delivery: Delivery, outcome: Outcome) -> None:
        """What the pipeline does for the common case: acknowledge, with nothing to follow."""
        probe = self._probe
        probe.settling(delivery, outcome, None)
        error: Exception | None = None
        try:
            await delivery.ack()
        except Exception as raised:
            error = raised
            self.failed(delivery, outcome, raised)

        probe.settled(delivery, outcome, error)

    async def _perform(self, delivery: Delivery, plan: Plan) -> Exception | None:
        returns = plan.step in (Step.REQUEUE, Step.DELAY)
        self._probe.settling(delivery, plan.outcome, plan.delay if returns else None)
        error = await super()._perform(delivery, plan)
        self._probe.settled(delivery, plan.outcome, error)
        return error

    def _hold(self, work: Work, plan: Plan) -> None:
        self._probe.held(work.delivery, plan.outcome)
        super()._hold(work, plan)


class _ObservedHolding(Holding):
    """Tells a probe when a delay is over, before anything else can happen."""

    def __init__(self, live: LiveMount, probe: Probe) -> None:
        super().__init__(live.clock, live.tracker, live.delays, live.report)
        self._probe = probe

    def _come_due(self, held: Held) -> None:
        self._probe.resumed(held.delivery)
        super()._come_due(held)

    async def _wait(self, held: Held, go_on: GoOn) -> None:
        try:
            await super()._wait(held, go_on)
        finally:
            if held.is_due:
                self._probe.left(held.delivery)


class ObservedTracker(Tracker):
    """Tells an instrument of every task."""

    def __init__(self, tasks: TaskGroup, limit: int, instrument: Instrument) -> None:
        super().__init__(tasks, limit)
        self._instrument = instrument

    def start(self, calls: list[TrackedCall], failed: Callable[[str, BaseException], None]) -> None:
        """See `Tracker.start`."""
        for call in calls:
            self._instrument.tracked(call[0], True)

        super().start([(name, partial(self._observed, name, fn), args) for name, fn, args in calls], failed)

    async def _observed(self, name: str, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        try:
            await fn(*args)
        finally:
            self._instrument.tracked(name, False)


class ObservedPauses:
    """What the pipeline uses of `Pauses`."""

    __slots__ = ("_pauses", "_probe")

    def __init__(self, pauses: Pauses, probe: Probe) -> None:
        self._pauses = pauses
        self._probe = probe

    async def pause(self, delay: float) -> bool:
        self._probe.paused(True)
        try:
            return await self._pauses.pause(delay)
        finally:
            self._probe.paused(False)


class ObservedSubscriber:
    """A subscriber that tells a probe what is taken from it."""

    __slots__ = ("_inner", "_probe", "close", "interrupt")

    def __init__(self, inner: Subscriber, probe: Probe) -> None:
        self._inner = inner
        self._probe = probe
        self.interrupt = inner.interrupt
        self.close = inner.close

    def take(self) -> Delivery | Gap | None:
        """See `Subscriber.take`."""
        delivery = self._inner.take()
        if delivery is not None and not isinstance(delivery, Gap):
            self._probe.taken(delivery)

        return delivery

    async def wait(self) -> None:
        """See `Subscriber.wait`."""
        self._probe.waiting(True)
        try:
            await self._inner.wait()
        finally:
            self._probe.waiting(False)

    @property
    def delayed(self) -> int:
        """See `Subscriber.delayed`."""
        return self._inner.delayed


class ObservedBroker:
    """A connected broker that tells an instrument what goes through it; all else is the broker's own."""

    def __init__(
        self, connected: ConnectedBroker, place: int, instrument: Instrument, probe_of: Callable[[str], Probe]
    ) -> None:
        self._connected = connected
        self._place = place
        self._instrument = instrument
        self._probe_of = probe_of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connected, name)

    async def subscribe(self, source: Any, mounting: Mounting) -> ObservedSubscriber:
        """See `ConnectedBroker.subscribe`."""
        name = f"{mounting.label}:{mounting.name}" if mounting.label else mounting.name
        return ObservedSubscriber(await self._connected.subscribe(source, mounting), self._probe_of(name))

    def publisher(self, policy: Any = None) -> Publisher:
        """See `ConnectedBroker.publisher`."""
        return ObservedPublisher(self._connected.publisher(policy), self._place, self._instrument)

    def default_policy(self) -> PublishPolicy:
        """See `ConnectedBroker.default_policy`."""
        return self._connected.default_policy()

    async def close(self) -> None:
        """See `ConnectedBroker.close`."""
        await self._connected.close()


class ObservedPublisher:
    """A publisher that tells an instrument what is sent."""

    __slots__ = ("_inner", "_instrument", "_place")

    def __init__(self, inner: Publisher, place: int, instrument: Instrument) -> None:
        self._inner = inner
        self._place = place
        self._instrument = instrument

    async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
        """See `Publisher.publish`."""
        self._instrument.publishing(self._place, outgoing)
        try:
            await self._inner.publish(outgoing, options)
        except BaseException as error:
            self._instrument.published(self._place, outgoing, error)
            raise

        self._instrument.published(self._place, outgoing, None)
