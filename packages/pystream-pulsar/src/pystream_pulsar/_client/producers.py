"""Traps 10 and 11: a producer that is fast alone and in bulk, and never stops the loop.

Batching is on with a delay of 0: a message alone leaves at once, and those that overlap
share an entry. Nothing is ever flushed: a flush waits for the producer's lock while it
holds the interpreter's. A batch holds one key, so that KEY_SHARED consumers keep the
order. A full queue refuses at once; with blocking it would hold up the whole loop. (The
options stand in `binding.producer_configuration`.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import anyio
from pystream.protocols import Outgoing

from pystream_pulsar._client.binding import NativeError, new_message, result_name
from pystream_pulsar._client.callbacks import report
from pystream_pulsar._client.closing import Call, call_all
from pystream_pulsar._client.results import publish_error, reason
from pystream_pulsar._client.thread_states import keep_thread_state
from pystream_pulsar.errors import PulsarPublishError

__all__ = ["ClientProducer"]

Done: TypeAlias = "Callable[[Exception | None], None]"


class ClientProducer:
    """Implements `pystream_pulsar.transport.TransportProducer`.

    Args:
        native: The binding's producer.
        topic: The full topic name.
        close_timeout: Seconds that `close` may take.
        closed: Called once, when `close` begins.
    """

    def __init__(
        self, native: Any, topic: str, *, close_timeout: float, closed: Callable[[ClientProducer], None]
    ) -> None:
        self._native = native
        self._topic = topic
        self._close_timeout = close_timeout
        self._closed: Callable[[ClientProducer], None] | None = closed
        self._pending: set[_Send] = set()

    def send(self, outgoing: Outgoing, done: Done) -> None:
        """Send one message; `done` gets none or an error of ours, once, perhaps in line."""
        send = _Send(done, self._topic, self._pending)
        try:
            message = new_message(
                outgoing.payload,
                key=_key(outgoing.key, self._topic),
                properties=_properties(outgoing.headers, self._topic),
            )
            self._native.send_async(message, send)
        except Exception as error:
            send.finish(_refusal(error, self._topic))

    def begin_close(self) -> Call | None:
        """The call that closes it, once; none when closing has begun already."""
        closed, self._closed = self._closed, None
        if closed is None:
            return None

        closed(self)
        close: Call = self._native.close_async
        return close

    def give_up(self) -> None:
        """Fail what the client has not answered for after all; afterwards nobody waits."""
        for send in list(self._pending):
            send.finish(
                PulsarPublishError(
                    f"a message to {self._topic} was not confirmed before the producer closed; "
                    "it may have been stored all the same",
                    result="AlreadyClosed",
                )
            )

    async def close(self) -> None:
        """Close the producer within the bound; sends still unconfirmed then fail.

        Cancel safety: the cancellation waits for the close.
        """
        close = self.begin_close()
        if close is not None:
            await call_all([close], deadline=anyio.current_time() + self._close_timeout)
            self.give_up()


class _Send:
    """One message on its way, and the callback the client is given for it."""

    __slots__ = ("_done", "_pending", "_topic")

    def __init__(self, done: Done, topic: str, pending: set[_Send]) -> None:
        self._done = done
        self._topic = topic
        self._pending = pending
        pending.add(self)

    def __call__(self, result: Any, _position: Any) -> None:
        try:
            keep_thread_state()
            self.finish(publish_error(self._topic, result) if int(result) else None)
        except BaseException as error:
            report(self, error)

    def finish(self, error: Exception | None) -> None:
        """Tell the caller, unless that was done before."""
        try:
            self._pending.remove(self)
        except KeyError:
            return

        self._done(error)


def _key(key: str | bytes | None, topic: str) -> str | None:
    if not isinstance(key, bytes):
        return key

    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise PulsarPublishError(
            f"a message to {topic} has a key that is not UTF-8 text, and Pulsar's keys are; encode it as text first"
        ) from error


def _properties(headers: Mapping[str, bytes], topic: str) -> dict[str, str]:
    properties = {}
    for name, value in headers.items():
        try:
            properties[name] = value.decode()
        except UnicodeDecodeError as error:
            raise PulsarPublishError(
                f"header {name!r} of a message to {topic} is not UTF-8 text, and Pulsar's properties are; "
                "encode its value as text first"
            ) from error

    return properties


def _refusal(error: Exception, topic: str) -> Exception:
    if isinstance(error, PulsarPublishError):
        return error

    name = result_name(error)
    refusal = PulsarPublishError(
        f"a message to {topic} was refused by the client: {reason(name)}",
        result=name if isinstance(error, NativeError) else None,
    )
    refusal.__cause__ = error
    return refusal
