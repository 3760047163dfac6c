"""`@subscriber` declares a handler, `mount` fills in what the declaration left open.

Neither connects to anything, and the decorated function stays what it was: plain,
directly callable, typed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict, TypeVar, Unpack

from pystream.errors import RegistrationError
from pystream.failures import FailurePolicy
from pystream.protocols import SubscriptionSource

__all__ = ["ByKey", "Mount", "Settings", "SettingsKeywords", "by_key", "handler_name", "mount", "subscriber"]

HandlerT = TypeVar("HandlerT", bound="Callable[..., Any]")

_ATTRIBUTE = "__pystream_subscriber__"


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
        threads: Not there yet; refused at registration.
        batch: Not there yet; refused at registration.
        batch_wait: Not there yet; refused at registration.
        max_attempts: Not there yet; refused at registration.
        dead_letter: Not there yet; refused at registration.
        layers: Not there yet; refused at registration.
    """

    name: str | None
    workers: int | ByKey | None
    reply_to: str | None
    on_failure: FailurePolicy | None
    threads: Any
    batch: int | None
    batch_wait: float | None
    max_attempts: int | None
    dead_letter: str | None
    layers: Sequence[Any] | None


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
    threads: Any = None
    batch: int | None = None
    batch_wait: float | None = None
    max_attempts: int | None = None
    dead_letter: str | None = None
    layers: Sequence[Any] | None = None

    def filled_by(self, other: Settings, handler: str) -> Settings:
        """These settings, what is open filled in from `other`; the other's failure policy wins.

        Raises:
            RegistrationError: Both say something, and not the same.
        """
        merged: dict[str, Any] = {}
        for item in fields(self):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            if item.name != "on_failure" and mine is not None and theirs is not None and mine != theirs:
                raise RegistrationError(
                    f"{handler}: @subscriber says {item.name}={mine!r} and mount says {item.name}={theirs!r}; "
                    "say it in one place"
                )

            merged[item.name] = mine if theirs is None else theirs

        return Settings(**merged)


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
    by `mount`; a setting given at both places must be the same, but for `on_failure`.

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
