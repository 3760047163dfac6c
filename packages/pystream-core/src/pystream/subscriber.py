"""`@subscriber` declares a handler, `mount` fills in what the declaration left open.

Neither connects to anything, and the decorated function stays what it was: plain,
directly callable, typed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict, TypeVar, Unpack

from pystream.errors import ConfigurationError, RegistrationError
from pystream.failures import FailurePolicy
from pystream.layers import Layer, PublishLayer, check_layers
from pystream.protocols import SubscriptionSource

__all__ = ["ByKey", "Mount", "Settings", "SettingsKeywords", "by_key", "handler_name", "mount", "subscriber"]

HandlerT = TypeVar("HandlerT", bound="Callable[..., Any]")

_ATTRIBUTE = "__pystream_subscriber__"
_NESTED = ("layers", "publish_layers")


@dataclass(frozen=True, slots=True)
class ByKey:
    """`workers=by_key(n)`: n lanes; the deliveries of one key run one after the other.

    Attributes:
        lanes: How many, 1 or more.
    """

    lanes: int

    def __repr__(self) -> str:
        return f"by_key({self.lanes})"


def by_key(lanes: int) -> ByKey:
    """Run deliveries of different keys at the same time, and those of one key in order.

    A key always goes to the same lane of the process. Where the broker itself redelivers a
    retried message, it comes after later ones of its key.

    Args:
        lanes: How many deliveries run at once, 1 or more; checked at registration.
    """
    return ByKey(lanes)


class SettingsKeywords(TypedDict, total=False):
    """The keywords that `subscriber` and `mount` share.

    Attributes:
        name: How the subscription is called in logs, health and tests; by default as its
            source. Needed where one handler is mounted twice on one source.
        workers: How many deliveries run at once, 1 or more, or `by_key(n)`; by default 1.
        reply_to: Where the return value is published; the delivery is acknowledged after the receipt.
        on_failure: What becomes of failed deliveries; the innermost policy counts, whole.
        threads: How many threads with loops of their own handle the deliveries, 1 or more, or
            `by_key(n)`; not together with `workers`.
        batch: The most deliveries in one call of the handler, 1 or more; its payload is then a `list[T]`.
        batch_wait: Seconds from the first delivery of a batch until it is handled, full or
            not, above 0; by default what the source says, else 0.01.
        max_attempts: How often the handler may see one delivery, 1 or more; by default without a cap.
        dead_letter: Where deliveries are published that are spent, unreadable, or whose
            handler says `dead_letter(reason)`.
        retry_to: Where a copy for another attempt is published, where the broker needs one; by
            default where the delivery came from.
        max_delayed: How many deliveries may be held for a delay, 1 or more; then nothing is
            taken until one is due. By default 1,000.
        layers: Consume layers, the first one outermost; those of the mount stand within those
            of the declaration.
        publish_layers: Layers around everything that is sent for this handler; nested likewise.
    """

    name: str | None
    workers: int | ByKey | None
    reply_to: str | None
    on_failure: FailurePolicy | None
    threads: int | ByKey | None
    batch: int | None
    batch_wait: float | None
    max_attempts: int | None
    dead_letter: str | None
    retry_to: str | None
    max_delayed: int | None
    layers: Sequence[Layer] | None
    publish_layers: Sequence[PublishLayer] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a declaration or a mount says; none where it says nothing. See `SettingsKeywords`.

    Attributes:
        source: A descriptor of the broker, or a bare name for the broker's default source.
    """

    source: SubscriptionSource | str | None = None
    name: str | None = None
    workers: int | ByKey | None = None
    reply_to: str | None = None
    on_failure: FailurePolicy | None = None
    threads: int | ByKey | None = None
    batch: int | None = None
    batch_wait: float | None = None
    max_attempts: int | None = None
    dead_letter: str | None = None
    retry_to: str | None = None
    max_delayed: int | None = None
    layers: Sequence[Layer] | None = None
    publish_layers: Sequence[PublishLayer] | None = None

    def filled_by(self, other: Settings, handler: str) -> Settings:
        """These settings, what is open filled in from `other`, whose failure policy wins and whose layers stand within.

        Raises:
            RegistrationError: Both say something, and not the same.
        """
        merged: dict[str, Any] = {}
        for item in fields(self):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            if item.name in _NESTED:
                merged[item.name] = _within(f"{handler}: @subscriber", mine, f"{handler}: mount", theirs, item.name)
                continue

            if item.name != "on_failure" and mine is not None and theirs is not None and mine != theirs:
                raise RegistrationError(
                    f"{handler}: @subscriber says {item.name}={mine!r} and mount says {item.name}={theirs!r}; "
                    "say it in one place"
                )

            merged[item.name] = mine if theirs is None else theirs

        return Settings(**merged)


def _within(outer: str, mine: Any, inner: str, theirs: Any, setting: str) -> tuple[Any, ...] | None:
    try:
        return (*check_layers(outer, setting, mine), *check_layers(inner, setting, theirs)) or None
    except ConfigurationError as error:
        raise RegistrationError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Mount:
    """A handler and the settings it is mounted with; made by `mount`.

    Attributes:
        handler: The function, method, partial or callable object.
        settings: What the mount says.
    """

    handler: Callable[..., Any]
    settings: Settings

    def settled(self) -> Settings:
        """The declaration's settings and the mount's, as one."""
        declared = declaration(self.handler) or Settings()
        return declared.filled_by(self.settings, handler_name(self.handler))


def subscriber(
    source: SubscriptionSource | str | None = None, **settings: Unpack[SettingsKeywords]
) -> Callable[[HandlerT], HandlerT]:
    """Declare an `async def` function as the handler of a subscription.

    Nothing connects; the function itself is returned. What is left open here may be given
    by `mount`; a setting given at both places must be the same, but for `on_failure` and the layers.

    Args:
        source: A descriptor such as `PulsarSubscription(...)`, or a name for the broker's default source.
        **settings: See `SettingsKeywords`.

    Raises:
        RegistrationError: The decorator was used without parentheses, or twice on one function.
    """
    given: Any = source
    if callable(given) and not hasattr(given, "parameters"):
        raise RegistrationError(
            f"{handler_name(given)}: @subscriber needs parentheses; write @subscriber(source), or @subscriber()"
        )

    declared = Settings(source=source, **settings)

    def declare(handler: HandlerT) -> HandlerT:
        before: Settings | None = getattr(handler, _ATTRIBUTE, None)
        if before is not None:
            raise RegistrationError(
                f"{handler_name(handler)} is declared already, for {before.source!r}; "
                "to mount one handler on two sources, use mount(handler, source)"
            )

        setattr(handler, _ATTRIBUTE, declared)
        return handler

    return declare


def mount(
    handler: Callable[..., Any],
    source: SubscriptionSource | str | None = None,
    **settings: Unpack[SettingsKeywords],
) -> Mount:
    """A handler with settings of this one place; goes to `with_broker` or `Router.include`.

    The handler need not be declared: a method, a `functools.partial` or a callable object
    may be mounted directly.

    Args:
        handler: What runs for each delivery.
        source: Where the deliveries come from, if the declaration left it open.
        **settings: See `SettingsKeywords`; what `subscriber` left open.

    Raises:
        RegistrationError: `handler` cannot be called.
    """
    if not callable(handler):
        raise RegistrationError(
            f"mount({handler!r}) is given no function; "
            "give an `async def` function, a method, a partial or a callable object"
        )

    return Mount(handler, Settings(source=source, **settings))


def declaration(handler: Any) -> Settings | None:
    """What `@subscriber` said of this handler, or none if it was not declared."""
    settings = getattr(handler, _ATTRIBUTE, None)
    if settings is None and hasattr(handler, "func"):
        settings = getattr(handler.func, _ATTRIBUTE, None)  # a functools.partial of a declared handler

    return settings


def handler_name(handler: Any) -> str:
    """How a handler is called in messages: its qualified name, or its class's."""
    target = getattr(handler, "func", handler)
    return getattr(target, "__qualname__", None) or type(target).__qualname__
