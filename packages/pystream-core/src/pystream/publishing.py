"""What a service sends: values encoded by their type, through a broker's publisher."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
from pydantic_core import to_json

from pystream.errors import ConfigurationError, NotConnected, PublishError
from pystream.headers import Headers
from pystream.protocols import Key, Outgoing, Publisher

__all__ = ["Out", "encoder"]

T = TypeVar("T")
_NO_HEADERS: Mapping[str, bytes] = {}


def encoder(annotation: Any = Any) -> Callable[[Any], bytes]:
    """A function from a value of the annotated type to the bytes that are sent.

    `bytes` are sent as they are; everything else as JSON by pydantic.

    Args:
        annotation: The declared type; without one each value's own type decides.

    Raises:
        ConfigurationError: pydantic cannot make JSON of the type.

    The function raises `PublishError` for a value that cannot be encoded, or is not of the type.
    """
    try:
        dump: Any = to_json if annotation is Any else TypeAdapter(annotation).serializer.to_json
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise ConfigurationError(f"{annotation!r} cannot be published: pydantic knows no JSON form of it") from error

    if annotation is Any:
        return partial(_encode, "", dump)

    # By default pydantic warns of a value of another type, shows it, and goes on; of a model
    # in another's place it says nothing. To ask for an error doubles the price, so a value
    # of the very class is not asked about.
    checked = partial(dump, warnings="error")
    declared = f" as the declared {_name_of(annotation)}"
    model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else object

    def encode(value: Any) -> bytes:
        if type(value) is annotation:
            return _encode("", dump, value)

        if not isinstance(value, model) and type(value) is not bytes:
            raise _unencodable(value, declared)

        return _encode(declared, checked, value)

    return encode


def _encode(declared: str, dump: Callable[[Any], bytes], value: Any) -> bytes:
    if type(value) is bytes:
        return value

    try:
        return dump(value)
    except Exception as error:  # also of a serializer that the type brings along
        # Not chained, since its text may show the value; only this one names types alone.
        text = str(error)
        detail = f" ({text})" if text.startswith("Unable to serialize unknown type") else ""
        raise _unencodable(value, declared + detail) from None


def _unencodable(value: Any, more: str) -> PublishError:
    return PublishError(f"a value of type {type(value).__name__} cannot be encoded as JSON{more}")


def _name_of(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else repr(annotation)


class Out(Generic[T]):
    """A publisher of values of type `T`: a handler's parameter, or `RunningApp.publisher()`.

    Args:
        publisher: The broker's publisher; none makes a handle that is not connected.
        annotation: The type of the values.
    """

    __slots__ = ("_encode", "_publisher")

    def __init__(self, publisher: Publisher | None, annotation: Any = Any) -> None:
        self._publisher = publisher
        self._encode = encoder(annotation)

    async def publish(
        self,
        value: T,
        destination: str,
        *,
        key: Key | None = None,
        headers: Mapping[str, bytes | str] | None = None,
        options: Any = None,
    ) -> None:
        """Encode and send one value; return when the broker has confirmed it.

        From any loop or thread of the app.

        Args:
            value: `bytes` are sent as they are, everything else as JSON.
            destination: The topic, queue or subject, as the broker spells it.
            key: What keeps messages in order with each other.
            headers: Sent as written; text is encoded as UTF-8.
            options: A value of the broker's own options type, for this message alone.

        Raises:
            PublishError: The value cannot be encoded, or the broker refused or did not confirm it.
            NotConnected: The broker is not connected yet.
            BrokerClosed: The broker was closed.

        Cancel safety: a cancelled publish may or may not have been sent.
        """
        if self._publisher is None:
            raise NotConnected("this publisher belongs to no connected broker; use it in a running service")

        sent = Headers(headers) if headers else _NO_HEADERS
        await self._publisher.publish(Outgoing(destination, self._encode(value), sent, key), options)
