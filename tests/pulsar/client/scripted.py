"""A small scripted `_pulsar`: the binding's shape, with answers that the test gives."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pystream_pulsar._client.binding import NativeError

Callback = Callable[..., None]


# Exceptions of the binding, as it names them; made this way since its types are not known.
Timeout: type[Exception] = type("Timeout", (NativeError,), {})
AlreadyClosed: type[Exception] = type("AlreadyClosed", (NativeError,), {})


@dataclass(frozen=True)
class Result:
    name: str
    code: int

    def __int__(self) -> int:
        return self.code


OK = Result("Ok", 0)
CLOSED = Result("AlreadyClosed", 15)
TIMEOUT = Result("Timeout", 3)
BUSY = Result("ConsumerBusy", 13)


class Configuration:
    """Remembers every option that was set: `options["name"]` is the arguments of the last call."""

    def __init__(self) -> None:
        self.options: dict[str, tuple[Any, ...]] = {}

    def __getattr__(self, name: str) -> Callable[..., Configuration]:
        def option(*values: Any) -> Configuration:
            self.options[name] = values
            return self

        return option


@dataclass
class Message:
    """A message as the binding gives it; `asked` lists the calls made on it."""

    body: bytes = b""
    position: bytes = b"\x08\x07\x10\x02"
    text: str = "(7,2,-1,-1)"
    key: str | Exception = ""
    properties_: dict[str, str] | Exception = field(default_factory=dict)
    event_time: int = 0
    asked: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Callable[[], Any]:
        answers: dict[str, Any] = {
            "data": self.body,
            "topic_name": "persistent://public/default/orders",
            "partition_key": self.key,
            "ordering_key": "",
            "properties": self.properties_,
            "redelivery_count": 2,
            "publish_timestamp": 1500,
            "event_timestamp": self.event_time,
            "producer_name": "p",
            "message_id": MessageId(self.position, self.text),
        }
        if name not in answers:
            raise AttributeError(name)

        def call() -> Any:
            self.asked.append(name)
            answer = answers[name]
            if isinstance(answer, Exception):
                raise answer

            return answer

        return call


@dataclass
class MessageId:
    position: bytes
    text: str

    def ledger_id(self) -> int:
        return 7

    def entry_id(self) -> int:
        return 2

    def batch_index(self) -> int:
        return -1

    def serialize(self) -> bytes:
        return self.position

    def __str__(self) -> str:
        return self.text


class Handle:
    """What consumers, producers and clients share: an asynchronous close the test may hold back.

    A `frozen` one is not answered; one that `keeps` holds on to the callback it has called.
    """

    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name
        self.frozen = False
        self.keeps = False
        self.closed = False
        self.unanswered: list[Callback] = []

    def close_async(self, callback: Callback) -> None:
        self.log.append(f"close {self.name}")
        self.closed = True
        if self.frozen or self.keeps:
            self.unanswered.append(callback)

        if not self.frozen:
            callback(OK)


class Consumer(Handle):
    """A consumer whose messages the test brings with `arrive`; in line if `receive_async` asked before."""

    def __init__(self, log: list[str], name: str = "consumer") -> None:
        super().__init__(log, name)
        self.waiting: deque[Any] = deque()
        self.requests: deque[Callback] = deque()
        self.polls = 0
        self.asked = 0
        self.acknowledged: list[Any] = []
        self.refused: Exception | None = None

    def receive(self, _milliseconds: int) -> Any:
        assert not self.requests, "a poll beside an armed request"
        self.polls += 1
        if self.closed:
            raise AlreadyClosed

        if not self.waiting:
            raise Timeout

        return self.waiting.popleft()

    def receive_async(self, callback: Callback) -> None:
        self.asked += 1
        if self.closed:
            callback(CLOSED, None)
        elif self.waiting:
            callback(OK, self.waiting.popleft())
        else:
            self.requests.append(callback)

    def arrive(self, message: Any) -> None:
        if self.requests:
            self.requests.popleft()(OK, message)
        else:
            self.waiting.append(message)

    def end(self) -> None:
        self.closed = True
        while self.requests:
            self.requests.popleft()(CLOSED, None)

    def acknowledge(self, message: Any) -> None:
        if self.refused is not None:
            raise self.refused

        self.acknowledged.append(message)

    negative_acknowledge = acknowledge

    def unsubscribe_async(self, callback: Callback) -> None:
        self.log.append(f"unsubscribe {self.name}")
        callback(OK)


class Producer(Handle):
    """A producer that keeps every send, with its callback, for the test to confirm."""

    def __init__(self, log: list[str], name: str = "producer") -> None:
        super().__init__(log, name)
        self.sent: list[tuple[Configuration, Callback]] = []
        self.in_line: Result | None = None

    def send_async(self, message: Configuration, callback: Callback) -> None:
        if self.in_line is not None:
            callback(self.in_line, None)
        else:
            self.sent.append((message, callback))

    def flush_async(self, callback: Callback) -> None:
        raise AssertionError("a producer was flushed")


class Client(Handle):
    """A client that opens at once, or, while `held`, when the test calls what it keeps in `opening`."""

    def __init__(self, url: str, configuration: Configuration) -> None:
        super().__init__([], "client")
        self.url = url
        self.configuration = configuration
        self.opened: list[Any] = []
        self.configurations: list[Configuration] = []
        self.opening: list[Callback] = []
        self.held = False
        self.answer = OK
        self._numbers = itertools.count(1)

    def subscribe_async(self, _topic: str, _name: str, configuration: Configuration, callback: Callback) -> None:
        self._open(Consumer(self.log, f"consumer {next(self._numbers)}"), configuration, callback)

    def create_producer_async(self, _topic: str, configuration: Configuration, callback: Callback) -> None:
        self._open(Producer(self.log, f"producer {next(self._numbers)}"), configuration, callback)

    def _open(self, handle: Handle, configuration: Configuration, callback: Callback) -> None:
        self.configurations.append(configuration)
        self.opened.append(handle)
        answer = self.answer

        def opened() -> None:
            callback(answer, handle)

        if self.held:
            self.opening.append(opened)
        else:
            opened()


class Binding:
    """Stands where `_pulsar` is imported; `clients` are those made through it."""

    PulsarException = NativeError
    Timeout = Timeout
    ClientConfiguration = Configuration
    ConsumerConfiguration = Configuration
    ProducerConfiguration = Configuration
    LoggerLevel = SimpleNamespace(Info="Info", Warn="Warn", Error="Error")
    ConsumerType = SimpleNamespace(Exclusive="Exclusive", Failover="Failover", Shared="Shared", KeyShared="KeyShared")
    InitialPosition = SimpleNamespace(Latest="Latest", Earliest="Earliest")
    AuthenticationToken = SimpleNamespace(create=lambda token: token)
    BatchingType = SimpleNamespace(Default="Default", KeyBased="KeyBased")
    PartitionsRoutingMode = SimpleNamespace(RoundRobinDistribution="RoundRobinDistribution")

    def __init__(self) -> None:
        self.clients: list[Client] = []

    class MessageBuilder(Configuration):
        def build(self) -> Configuration:
            return self

    def Client(self, url: str, configuration: Configuration) -> Client:
        client = Client(url, configuration)
        self.clients.append(client)
        return client
