"""From what a service declares to what can run: everything refused here, nothing later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from pystream._runtime.batch_rules import BatchRules, batch_rules
from pystream._runtime.retries import check_retries
from pystream._runtime.signature import HandlerSignature, read_signature
from pystream.errors import ConfigurationError, RegistrationError
from pystream.failures import FailurePolicy
from pystream.layers import Layer, PublishLayer
from pystream.parameters import KINDS, Parameter, ParameterKind, Surroundings
from pystream.parameters.payload import PayloadKind
from pystream.protocols import Broker, Mounting, SubscriptionSource
from pystream.publishing import encoder
from pystream.subscriber import ByKey, Mount, Settings, handler_name

Handlers: TypeAlias = "Mapping[str, Callable[..., Any]]"
"""The names that are taken, and by which handler."""

DEFAULT_MAX_DELAYED = 1000
ON_A_THREAD = 9
"""How many deliveries a dedicated thread has at most: one in hand, eight in its ring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a handler has around it: of its app, or of its app and router.

    Attributes:
        policy: The failure policy that counts if the handler states none.
        layers: Consume layers, the first one outermost.
        publish_layers: Publish layers, the first one outermost.
    """

    policy: FailurePolicy = field(default_factory=FailurePolicy)
    layers: tuple[Layer, ...] = ()
    publish_layers: tuple[PublishLayer, ...] = ()

    def within(
        self, policy: FailurePolicy | None, layers: Sequence[Layer], publish_layers: Sequence[PublishLayer]
    ) -> Scope:
        """This scope with another one in it."""
        return Scope(
            policy=policy or self.policy,
            layers=(*self.layers, *layers),
            publish_layers=(*self.publish_layers, *publish_layers),
        )


@dataclass(frozen=True, slots=True)
class Registered:
    """One mounted handler, checked.

    Attributes:
        handler: What runs for each delivery.
        signature: What it says of itself.
        kinds: The kind of each parameter, in order.
        source: Where the deliveries come from.
        mounting: What the broker is told.
        batch: How deliveries are taken together, or none for single ones.
        workers: How many deliveries or batches run at once, or `by_key(n)` with n above 1.
        threads: How many threads handle them, or `by_key(n)` with n above 1; none without threads.
        reply_to: Where replies are published, or none.
        encode_reply: From a reply to its bytes.
        policy: What becomes of failed deliveries.
        retry_to: Where copies for another attempt are published, or none for where the delivery came from.
        max_delayed: How many deliveries may be held for a delay.
        layers: Consume layers, the first one outermost.
        publish_layers: Layers around everything that is sent for it, the first one outermost.
    """

    handler: Callable[..., Any]
    signature: HandlerSignature
    kinds: tuple[ParameterKind, ...]
    source: SubscriptionSource
    mounting: Mounting
    batch: BatchRules | None
    workers: int | ByKey
    threads: int | ByKey | None
    reply_to: str | None
    encode_reply: Callable[[Any], bytes]
    policy: FailurePolicy
    retry_to: str | None
    max_delayed: int
    layers: tuple[Layer, ...]
    publish_layers: tuple[PublishLayer, ...]

    @property
    def name(self) -> str:
        """The subscription's name, its broker's label in front if there is one."""
        label = self.mounting.label
        return f"{label}:{self.mounting.name}" if label else self.mounting.name


def register(
    broker: Broker,
    label: str | None,
    mounts: Iterable[tuple[Mount, Scope]],
    *,
    has_state: bool,
) -> list[Registered]:
    """Check every handler of one broker.

    Args:
        broker: The broker they are mounted on.
        label: Its label, or none.
        mounts: Each mount with what stands around it.
        has_state: Whether the app has a state.

    Raises:
        RegistrationError: With every refusal, not only the first.
    """
    accepted: list[Registered] = []
    refusals: list[str] = []
    for mount, scope in mounts:
        try:
            taken = {item.mounting.name: item.handler for item in accepted}
            accepted.append(_register(broker, label, mount, scope, has_state=has_state, taken=taken))
        except RegistrationError as error:
            refusals.extend(error.refusals)

    if refusals:
        raise RegistrationError(*refusals)

    return accepted


def _register(
    broker: Broker, label: str | None, mount: Mount, scope: Scope, *, has_state: bool, taken: Handlers
) -> Registered:
    signature = read_signature(mount.handler)
    settings = mount.settled()
    source = _source(signature.name, broker, settings)
    surroundings = Surroundings(handler=signature.name, source_parameters=source.parameters, has_state=has_state)
    kinds = tuple(_kind(parameter, surroundings) for parameter in signature.parameters)
    payload = _payload(signature, kinds)
    workers, threads = _parallel(signature.name, settings)
    scope = scope.within(settings.on_failure, settings.layers or (), settings.publish_layers or ())
    batch = batch_rules(signature, kinds, payload, source, settings, scope.layers)
    if batch is not None:
        signature = replace(signature, reply=batch.reply)

    max_attempts = _count(signature.name, "max_attempts", settings.max_attempts)
    dead_letter = _destination(signature.name, "dead_letter", settings.dead_letter)
    retry_to = _destination(signature.name, "retry_to", settings.retry_to)
    check_retries(
        signature.name, source, scope.policy, max_attempts=max_attempts, dead_letter=dead_letter, retry_to=retry_to
    )
    return Registered(
        handler=mount.handler,
        signature=signature,
        kinds=kinds,
        source=source,
        mounting=Mounting(
            name=_name(mount.handler, source, settings, taken),
            label=label,
            concurrency=_concurrency(workers, threads) * (batch.size if batch else 1),
            batch_size=batch.size if batch else None,
            max_attempts=max_attempts,
            dead_letter=dead_letter,
            payload_type=payload.full_annotation,
        ),
        batch=batch,
        workers=workers,
        threads=threads,
        reply_to=settings.reply_to,
        encode_reply=_reply_encoder(signature, settings),
        policy=scope.policy,
        retry_to=retry_to,
        max_delayed=_count(signature.name, "max_delayed", settings.max_delayed) or DEFAULT_MAX_DELAYED,
        layers=scope.layers,
        publish_layers=scope.publish_layers,
    )


def _source(handler: str, broker: Broker, settings: Settings) -> SubscriptionSource:
    source = settings.source
    if source is None:
        raise RegistrationError(f"{handler} has no source: give one to @subscriber(...) or to mount(handler, source)")

    if isinstance(source, str):
        try:
            return broker.default_source(source)
        except ConfigurationError as error:
            raise RegistrationError(f"{handler}: {error}") from error

    if not isinstance(source, broker.source_types):
        wanted = " or ".join(item.__name__ for item in broker.source_types)
        raise RegistrationError(
            f"{handler} is mounted on {broker.describe()} and reads from {source!r}; "
            f"this broker takes {wanted}, or a bare name"
        )

    return source


def _kind(parameter: Parameter, surroundings: Surroundings) -> ParameterKind:
    kind = next(kind for kind in KINDS if kind.match(parameter, surroundings))
    try:
        kind.compile(parameter, surroundings)
    except RegistrationError:
        raise
    except ConfigurationError as error:
        raise RegistrationError(f"{surroundings.handler}: the parameter {parameter.name!r}: {error}") from error

    return kind


def _payload(signature: HandlerSignature, kinds: tuple[ParameterKind, ...]) -> Parameter:
    candidates = [
        parameter for parameter, kind in zip(signature.parameters, kinds, strict=True) if isinstance(kind, PayloadKind)
    ]
    if not candidates:
        names = ", ".join(parameter.name for parameter in signature.parameters) or "none"
        raise RegistrationError(
            f"{signature.name} has no parameter for the payload (its parameters: {names}); "
            "add one, annotated with a type that pydantic can validate, or with bytes"
        )

    if len(candidates) > 1:
        names = " and ".join(repr(parameter.name) for parameter in candidates)
        raise RegistrationError(
            f"{signature.name}: the parameters {names} could each be the payload, and a handler has one; "
            "annotate the others as a Context, State[T], Header, Out[T] or what the source offers"
        )

    return candidates[0]


def _parallel(handler: str, settings: Settings) -> tuple[int | ByKey, int | ByKey | None]:
    """How many workers, and how many threads; a single lane is a single worker or thread."""
    workers = _lanes(handler, "workers", settings.workers)
    threads = _lanes(handler, "threads", settings.threads)
    if workers is not None and threads is not None:
        raise RegistrationError(
            f"{handler}: workers={settings.workers!r} and threads={settings.threads!r} exclude each other; "
            "give workers= for tasks on the app's loop, or threads= for threads with loops of their own"
        )

    return workers or 1, threads


def _lanes(handler: str, setting: str, value: int | ByKey | None) -> int | ByKey | None:
    count: Any = value.lanes if isinstance(value, ByKey) else value
    if value is None:
        return None

    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise RegistrationError(f"{handler}: {setting}={value!r}; give a whole number of 1 or more, or by_key(n)")

    return 1 if count == 1 else value


def _concurrency(workers: int | ByKey, threads: int | ByKey | None) -> int:
    """The most deliveries in the runtime's hands: those that run, and those that wait for their turn."""
    if isinstance(threads, ByKey):
        return threads.lanes * ON_A_THREAD + 1

    if threads is not None:
        return threads * ON_A_THREAD

    return 2 * workers.lanes + 1 if isinstance(workers, ByKey) else workers


def _count(handler: str, setting: str, value: Any) -> int | None:
    if value is None:
        return None

    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RegistrationError(f"{handler}: {setting}={value!r}; give a whole number of 1 or more")

    return value


def _destination(handler: str, setting: str, value: Any) -> str | None:
    if value is not None and (not value or not isinstance(value, str)):
        raise RegistrationError(f"{handler}: {setting}={value!r}; give the name of a destination")

    return value


def _name(target: Callable[..., Any], source: SubscriptionSource, settings: Settings, taken: Handlers) -> str:
    handler = handler_name(target)
    if settings.name is not None:
        if not settings.name or not isinstance(settings.name, str):
            raise RegistrationError(f"{handler}: name={settings.name!r}; give a text that is not empty")

        if settings.name in taken:
            raise RegistrationError(
                f"{handler}: the name {settings.name!r} is taken on this broker; give another name="
            )

        return settings.name

    for name in (source.name, f"{source.name}/{handler}"):
        if name not in taken:
            return name

        if taken[name] == target:
            break

    raise RegistrationError(f"{handler} is mounted twice on {source.name!r}; tell the two apart with name=")


def _reply_encoder(signature: HandlerSignature, settings: Settings) -> Callable[[Any], bytes]:
    if settings.reply_to is None:
        if signature.reply not in (None, Any):
            raise RegistrationError(
                f"{signature.name} returns {_type_name(signature.reply)}, and nothing says where to publish it; "
                "give reply_to=, or annotate the return as None or Outcome"
            )

        return encoder()

    _destination(signature.name, "reply_to", settings.reply_to)
    if signature.reply is None:
        raise RegistrationError(
            f"{signature.name} has reply_to={settings.reply_to!r}, and its return annotation leaves nothing "
            "to publish; annotate the type of the reply"
        )

    try:
        return encoder(signature.reply)
    except ConfigurationError as error:
        raise RegistrationError(f"{signature.name}: the reply {error}") from error


def _type_name(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or repr(annotation)
