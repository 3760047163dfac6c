"""What happened in a test, and the assertions about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from pystream import Headers, Outcome
from pystream.errors import ConfigurationError, DecodeError
from pystream.protocols import Key, Outgoing

from pystream_testing._calls import ANY, BatchCall, Call, CallOutcome, DecodeFailed, Mixed, Raised, Unsettled, told
from pystream_testing._differences import differences, shown

__all__ = [
    "ANY",
    "BatchCall",
    "Call",
    "CallOutcome",
    "DecodeFailed",
    "Mixed",
    "Published",
    "Raised",
    "Record",
    "Records",
    "SubscriberRecords",
    "Unsettled",
]

_SHOWN = 10

for _public in (BatchCall, Call, DecodeFailed, Mixed, Raised, Unsettled):
    _public.__module__ = __name__


class Record(Protocol):
    """What a call and a published message have in common."""

    @property
    def value(self) -> Any:
        """The decoded payload."""

    @property
    def payload(self) -> bytes:
        """The body as it is on the wire."""

    @property
    def headers(self) -> Mapping[str, bytes]:
        """The headers, found whatever their case."""

    @property
    def key(self) -> Key | None:
        """The message key, or none."""


class Published:
    """One message that was published.

    Attributes:
        destination: As the publisher gave it.
        payload: The body as it is sent.
        key: The message key, or none.
        by_test: Whether the test published it, and not the app.
        broker: The place of the broker among the app's, from 0.
    """

    __slots__ = ("_decode", "_headers", "broker", "by_test", "destination", "key", "payload")

    def __init__(self, outgoing: Outgoing, *, broker: int, by_test: bool) -> None:
        self.destination: str = outgoing.destination
        self.payload: bytes = outgoing.payload
        self._headers = outgoing.headers
        self.key: Key | None = outgoing.key
        self.broker: int = broker
        self.by_test: bool = by_test
        self._decode: Callable[[bytes], Any] = bytes

    def __repr__(self) -> str:
        return f"{shown(self.payload)} to {self.destination!r}"

    @property
    def headers(self) -> Headers:
        """The headers, found whatever their case."""
        return Headers(self._headers)

    @property
    def value(self) -> Any:
        """The payload, decoded as the type that was asked for.

        Raises:
            DecodeError: It is none of that type.
        """
        return self._decode(self.payload)

    def decoded_by(self, decode: Callable[[bytes], Any]) -> Published:
        """The same message, whose value is what `decode` makes of the payload."""
        same = copy(self)
        same._decode = decode
        return same


RecordT = TypeVar("RecordT", bound=Record)


class Records(Generic[RecordT]):
    """What was recorded in one place, oldest first, with assertions.

    Args:
        read: Gives the records; asked each time, so that later ones are seen.
        subject: What they are of, for the texts.
        verb: What was done to it: `called`, or `published to`.
    """

    def __init__(self, read: Callable[[], Sequence[RecordT]], subject: str, verb: str) -> None:
        self._read = read
        self._subject = subject
        self._verb = verb

    def __repr__(self) -> str:
        return f"<{self._subject}: {self._verb} {_times(len(self._items))}>"

    def __len__(self) -> int:
        return len(self._items)

    @property
    def _items(self) -> Sequence[RecordT]:
        return self._read()

    @property
    def _parts(self) -> Sequence[Record]:
        """One record for each message: a call of a handler of batches is several."""
        return self._items

    @property
    def values(self) -> list[Any]:
        """The decoded payloads; of a batch, its list."""
        return [item.value for item in self._items]

    @property
    def payloads(self) -> list[bytes]:
        """The bodies as they are on the wire."""
        return [item.payload for item in self._parts]

    @property
    def headers(self) -> list[Mapping[str, bytes]]:
        """The headers of each."""
        return [item.headers for item in self._parts]

    @property
    def keys(self) -> list[Key | None]:
        """The key of each."""
        return [item.key for item in self._parts]

    def assert_called_once(
        self, with_: Any = ANY, *, headers: Mapping[str, bytes | str] | None = None, key: Key | None = ANY
    ) -> None:
        """There is one record, and it is as expected.

        Args:
            with_: The expected value; by default any. Bytes are compared with the payload.
            headers: Headers it must have; it may have others.
            key: The expected key, or none for no key; by default any.

        Raises:
            AssertionError: There is none or more than one, or it differs; the text says where.
        """
        self.assert_called(times=1, with_=with_, headers=headers, key=key)

    def assert_called(
        self,
        *,
        times: int | None = None,
        with_: Any = ANY,
        headers: Mapping[str, bytes | str] | None = None,
        key: Key | None = ANY,
    ) -> None:
        """There are so many records, and every one - or, without a number, some one - is as expected.

        Args:
            times: How many there must be, 0 or more; by default 1 or more.
            with_: The expected value; by default any.
            headers: Headers it must have; it may have others.
            key: The expected key, or none for no key; by default any.

        Raises:
            AssertionError: The number or a record differs; the text says where.
        """
        found = len(self._items)
        if found == 0 if times is None else found != times:
            wanted = "" if times is None else f" {_times(times)}"
            raise AssertionError(f"expected {self._subject} to be {self._verb}{wanted}; {self._listed()}")

        faults = [(item, _faults(item, with_, headers, key)) for item in self._items]
        wrong = [(item, lines) for item, lines in faults if lines]
        if not wrong or (times is None and len(wrong) < found):
            return

        parts = [f"{self._subject} was not {self._verb} as expected:"]
        for number, (_, lines) in enumerate(faults[:_SHOWN], 1):
            parts += [f"  {number}: {line}" for line in lines]

        raise AssertionError("\n".join(parts))

    def assert_not_called(self) -> None:
        """There is no record.

        Raises:
            AssertionError: There is one; the text shows them.
        """
        if self._items:
            raise AssertionError(f"expected {self._subject} not to be {self._verb}; {self._listed()}")

    def _listed(self) -> str:
        if not self._items:
            return f"it was not {self._verb}"

        lines = [f"  {number}: {item!r}" for number, item in enumerate(self._items[:_SHOWN], 1)]
        more = [f"  and {len(self._items) - _SHOWN} more"] if len(self._items) > _SHOWN else []
        return "\n".join([f"it was {self._verb} {_times(len(self._items))}:", *lines, *more])


class SubscriberRecords(Records[Call]):
    """The calls of one subscription, oldest first."""

    def __init__(self, read: Callable[[], Sequence[Call]], name: str) -> None:
        super().__init__(read, name, "called")

    @property
    def calls(self) -> Sequence[Call]:
        """The calls; one that could not be decoded counts, and so does every run in place."""
        return list(self._items)

    @property
    def _parts(self) -> Sequence[Call]:
        return [part for call in self._items for part in call.deliveries]

    @property
    def batches(self) -> list[list[Any]]:
        """The payloads of each call of a handler of batches."""
        return [call.value for call in self._items if isinstance(call, BatchCall)]

    @property
    def sizes(self) -> list[int]:
        """How many deliveries each of these calls got."""
        return [call.size for call in self._items if isinstance(call, BatchCall)]

    @property
    def settlements(self) -> list[Outcome | None]:
        """What became of each delivery, in the order of the calls; none if it was left unsettled."""
        return [part.settled for part in self._parts]

    @property
    def outcomes(self) -> list[CallOutcome]:
        """What came of each call."""
        return [call.outcome for call in self._items]

    @property
    def exceptions(self) -> list[BaseException]:
        """What the handler raised, and why deliveries could not be read."""
        return [call.error for call in self._items if call.error is not None]

    def assert_settled(self, expected: Outcome | Sequence[Outcome] | type[BaseException]) -> None:
        """The latest delivery, or every delivery of the latest batch, was settled as expected.

        Args:
            expected: An outcome, which is compared with what was done; for a batch also a list
                with one for each delivery; or the class of what the handler raised,
                `DecodeError` for a delivery that could not be read.

        Raises:
            AssertionError: There is no call, or the latest ended otherwise.
            ConfigurationError: `expected` is none of these.
        """
        wanted = _wanted(expected)
        if not self._items:
            raise AssertionError(f"expected {self._subject} to be settled with {_all_told(wanted)}; it was not called")

        call = self._items[-1]
        if call.settlement_error is None and _is_settled(call, wanted):
            return

        failed = "" if call.settlement_error is None else f"; the settlement failed: {call.settlement_error!r}"
        raise AssertionError(
            f"expected {self._subject} to be settled with {_all_told(wanted)}; it was {told(call.outcome)}{failed}\n"
            + self._listed()
        )


def _wanted(expected: Any) -> Any:
    """The same without continuations.

    Raises:
        ConfigurationError: It is no outcome, no list of them, and no class of errors.
    """
    if isinstance(expected, type) and issubclass(expected, BaseException):
        return expected

    if isinstance(expected, Outcome):
        return replace(expected, continuation=None)

    if isinstance(expected, list | tuple) and all(isinstance(item, Outcome) for item in expected):
        return [replace(item, continuation=None) for item in expected]

    raise ConfigurationError(
        f"assert_settled({expected!r}): give an outcome, as retry_after(5), a list of them, or an error class"
    )


def _is_settled(call: Call, wanted: Any) -> bool:
    if isinstance(wanted, type):
        return isinstance(call.error, wanted)

    if isinstance(wanted, list):
        return [part.settled for part in call.deliveries] == wanted

    return bool(call.settled == wanted)


def _all_told(wanted: Any) -> str:
    return f"[{', '.join(map(told, wanted))}]" if isinstance(wanted, list) else told(wanted)


def _faults(item: Record, with_: Any, headers: Mapping[str, bytes | str] | None, key: Key | None) -> list[str]:
    lines: list[str] = []
    if with_ is not ANY:
        try:
            actual = item.value
        except DecodeError as error:
            return [str(error)]

        if actual is ANY:
            return [f"could not be read: {item!r}"]

        lines += differences(with_, actual)

    if key is not ANY and key != item.key:
        lines.append(f"key: expected {key!r}; it is {item.key!r}")

    for name, value in Headers(headers or {}).items():
        found = item.headers.get(name)
        if found != value:
            lines.append(
                f"header {name!r}: expected {value!r}; " + ("it is missing" if found is None else f"it is {found!r}")
            )

    return lines


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
