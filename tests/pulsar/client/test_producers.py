"""Traps 10 and 11: fast alone and in bulk, never blocking, never flushed, each send answered once."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pystream.errors import PublishError
from pystream.protocols import Outgoing
from pystream_pulsar._client import binding
from pystream_pulsar._client.producers import ClientProducer
from pystream_pulsar.transport import ProducerSpec

from tests.pulsar.client.scripted import OK, TIMEOUT, Binding, Producer

TOPIC = "persistent://public/default/orders"
MESSAGE = Outgoing(TOPIC, b"\xff", {"trace": b"t\xc3\xa4"}, "k")


@pytest.fixture
def native(scripted: Binding) -> Producer:
    """A producer of the scripted binding."""
    return Producer([])


@pytest.fixture
def producer(native: Producer) -> ClientProducer:
    """The producer under test."""
    return ClientProducer(native, TOPIC, close_timeout=0.05, closed=lambda _producer: None)


@pytest.mark.promise("PULSAR-45")
def test_the_options(scripted: Binding) -> None:
    """Producers batch by key without a delay, and refuse instead of blocking when too much is pending."""
    spec = ProducerSpec(topic=TOPIC, send_timeout=2.5, max_pending=77)
    assert binding.producer_configuration(spec).options == {
        "send_timeout_millis": (2500,),
        "max_pending_messages": (77,),
        "block_if_queue_full": (False,),
        "batching_enabled": (True,),
        "batching_max_publish_delay_ms": (0,),
        "batching_type": ("KeyBased",),
        "partitions_routing_mode": ("RoundRobinDistribution",),
    }


@pytest.mark.promise("PULSAR-46")
def test_a_message_as_it_is_sent(producer: ClientProducer, native: Producer) -> None:
    """The payload goes out as bytes, headers as text properties, the key as partition key."""
    producer.send(MESSAGE, lambda _error: None)
    assert native.sent[0][0].options == {
        "content": (b"\xff",),
        "partition_key": ("k",),
        "properties": ({"trace": "t\u00e4"},),
    }


@pytest.mark.promise("PULSAR-46")
@pytest.mark.parametrize("key", [None, "", b""])
def test_an_empty_key_is_no_key(producer: ClientProducer, native: Producer, key: str | bytes | None) -> None:
    """Neither none nor an empty key is sent, and no empty properties either."""
    producer.send(Outgoing(TOPIC, b"", {}, key), lambda _error: None)
    assert native.sent[0][0].options == {"content": (b"",)}


@pytest.mark.promise("PULSAR-47")
def test_confirmed_and_refused(producer: ClientProducer, native: Producer) -> None:
    """Each send is answered by its own confirmation, whatever the order; a refusal says why."""
    answers: list[tuple[str, Exception | None]] = []
    producer.send(MESSAGE, lambda error: answers.append(("a", error)))
    producer.send(MESSAGE, lambda error: answers.append(("b", error)))
    native.sent[1][1](OK, "id")
    native.sent[0][1](TIMEOUT, None)
    assert answers[0] == ("b", None)
    assert answers[1][0] == "a"
    error = answers[1][1]
    assert isinstance(error, PublishError)
    assert getattr(error, "result", None) == "Timeout"
    assert TOPIC in str(error)
    assert "may have been stored" in str(error)


@pytest.mark.promise("PULSAR-47")
def test_refused_in_line(producer: ClientProducer, native: Producer) -> None:
    """A send the client refuses at once is answered in line, once."""
    native.in_line = TIMEOUT
    answers: list[Exception | None] = []
    producer.send(MESSAGE, answers.append)
    assert [type(error).__name__ for error in answers] == ["PulsarPublishError"]


@pytest.mark.promise("PULSAR-47")
def test_an_answer_is_passed_on_once(producer: ClientProducer, native: Producer) -> None:
    """A second answer for one send, which the client should not give, reaches nobody."""
    answers: list[Exception | None] = []
    producer.send(MESSAGE, answers.append)
    callback = native.sent[0][1]
    callback(OK, "id")
    callback(TIMEOUT, None)
    assert answers == [None]


@pytest.mark.promise("PULSAR-42")
def test_a_failing_answer_stays_inside(
    producer: ClientProducer, native: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    """What the publisher's own callback raises does not leave the client's."""

    def fail(_error: Exception | None) -> None:
        raise RuntimeError("the loop is gone")

    producer.send(MESSAGE, fail)
    native.sent[0][1](OK, "id")
    assert "the loop is gone" in caplog.text


@pytest.mark.promise("PULSAR-46")
@pytest.mark.parametrize(
    ("outgoing", "culprit"),
    [
        (Outgoing(TOPIC, b"secret", {"trace": b"\xff\xfe"}), "header 'trace'"),
        (Outgoing(TOPIC, b"secret", {}, b"\xff\xfe"), "a key that is not UTF-8"),
    ],
)
def test_what_is_not_text_is_refused(
    producer: ClientProducer, native: Producer, outgoing: Outgoing, culprit: str
) -> None:
    """A header or key that is not UTF-8 is refused before it is sent, by name, without the payload."""
    answers: list[Exception | None] = []
    producer.send(outgoing, answers.append)
    assert native.sent == []
    assert isinstance(answers[0], PublishError)
    assert culprit in str(answers[0])
    assert "secret" not in str(answers[0])


@pytest.mark.promise("PULSAR-47")
def test_a_message_the_binding_does_not_take(
    producer: ClientProducer, native: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception of the binding's own becomes an error of ours, with the cause, and is never raised."""

    def fail(*_values: Any) -> None:
        raise TypeError("no")

    monkeypatch.setattr(native, "send_async", fail)
    answers: list[Exception | None] = []
    producer.send(MESSAGE, answers.append)
    assert isinstance(answers[0], PublishError)
    assert isinstance(answers[0].__cause__, TypeError)


@pytest.mark.anyio
@pytest.mark.promise("PULSAR-47")
async def test_close_answers_what_is_open(producer: ClientProducer, native: Producer) -> None:
    """A producer closed on a server that does not answer fails its open sends within the bound, once."""
    native.frozen = True
    answers: list[Exception | None] = []
    producer.send(MESSAGE, answers.append)
    with anyio.fail_after(5):
        await producer.close()
        await producer.close()

    native.sent[0][1](OK, "id")
    assert [getattr(error, "result", None) for error in answers] == ["AlreadyClosed"]
    assert native.log == ["close producer"]
