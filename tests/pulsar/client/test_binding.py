"""What we use of the client's private binding is there, in the shape we use it."""

from __future__ import annotations

import _pulsar
import pytest
from pystream_pulsar._client import binding
from pystream_pulsar.transport import ConsumerSpec, ProducerSpec

USED = {
    "Client": ["subscribe_async", "create_producer_async", "close_async"],
    "Consumer": [
        "receive",
        "receive_async",
        "acknowledge",
        "negative_acknowledge",
        "unsubscribe_async",
        "close_async",
    ],
    "Producer": ["send_async", "close_async"],
    "Message": [
        "data",
        "topic_name",
        "message_id",
        "partition_key",
        "ordering_key",
        "properties",
        "redelivery_count",
        "publish_timestamp",
        "event_timestamp",
        "producer_name",
    ],
    "MessageId": ["ledger_id", "entry_id", "batch_index", "serialize"],
}


@pytest.mark.promise("PULSAR-60")
@pytest.mark.parametrize(("kind", "names"), USED.items(), ids=USED)
def test_the_methods_are_there(kind: str, names: list[str]) -> None:
    """The installed binding has every method the transport calls; a client without one fails here first."""
    missing = [name for name in names if not callable(getattr(getattr(_pulsar, kind), name, None))]
    assert missing == []


@pytest.mark.promise("PULSAR-60")
def test_results_and_exceptions() -> None:
    """Success is the number 0, a result has a name, and exceptions are named after results."""
    assert int(_pulsar.Result.Ok) == 0
    assert binding.result_name(_pulsar.Result.AlreadyClosed) == "AlreadyClosed"
    assert binding.result_name(_pulsar.AlreadyClosed("text")) == "AlreadyClosed"
    assert issubclass(_pulsar.Timeout, binding.NativeError)


@pytest.mark.promise("PULSAR-60")
def test_the_options_are_taken() -> None:
    """The real binding takes every option we set and keeps it, a publish delay of 0 too."""
    consumer = binding.consumer_configuration(
        ConsumerSpec(
            topic="t",
            subscription="s",
            type="KeyShared",
            initial_position="Earliest",
            receiver_queue_size=7,
            ack_timeout=12.5,
            consumer_name="me",
            properties={"a": "b"},
        )
    )
    assert consumer.negative_ack_redelivery_delay_ms() == 100
    assert consumer.unacked_messages_timeout_ms() == 12500
    assert consumer.receiver_queue_size() == 7
    producer = binding.producer_configuration(ProducerSpec(topic="t", send_timeout=2.5, max_pending=77))
    assert producer.batching_max_publish_delay_ms() == 0
    assert producer.batching_type() == _pulsar.BatchingType.KeyBased
    assert producer.block_if_queue_full() is False
    assert producer.max_pending_messages() == 77
    assert producer.send_timeout_millis() == 2500


@pytest.mark.promise("PULSAR-60")
def test_a_message_is_built() -> None:
    """The real binding builds a message of bytes, key and properties as they were given."""
    message = binding.new_message(b"\xff\x00", key="k", properties={"a": "\u00e4"})
    assert (message.data(), message.partition_key(), message.properties()) == (b"\xff\x00", "k", {"a": "\u00e4"})
    assert binding.new_message(b"", key="", properties={}).partition_key() == ""


@pytest.mark.promise("PULSAR-60")
def test_a_client_takes_token_and_trust() -> None:
    """The real binding takes a token as text or as something it can call, and the options of TLS."""
    for token in ("text", lambda: "text"):
        client = binding.new_client(
            "pulsar+ssl://127.0.0.1:1",
            operation_timeout=1,
            connection_timeout=1,
            io_threads=1,
            log_file=("Error", "/dev/null"),
            token=token,
            trust_file="/nowhere",
            verify_hostname=False,
        )
        client.close()
