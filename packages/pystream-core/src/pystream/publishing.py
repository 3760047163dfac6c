"""What a service sends: values encoded by their type, through a broker's publisher."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
from pydantic_core import PydanticSerializationError, to_json

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

    The function raises `PublishError` for a value that cannot be encoded.
    """
    try:
        dump = to_json if annotation is Any else TypeAdapter(annotation).serializer.to_json
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise ConfigurationError(f"{annotation!r} cannot be published: pydantic knows no JSON form of it") from error

    def encode(value: Any) -> bytes:
        if type(value) is bytes:
            return value

        try:
            return dump(value)
        except PydanticSerializationError as error:
            raise PublishError(f"a value of type {type(value).__name__} cannot be encoded as JSON") from error

    return encode


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
