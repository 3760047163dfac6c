"""Received messages: nothing is computed before it is asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pystream.errors import DecodeError
from pystream_pulsar._client.ids import batch_size
from pystream_pulsar._client.messages import ClientMessage, received
from pystream_pulsar._client.wire import fields, number_field, text_field
from pystream_pulsar.transport import Identity

from tests.pulsar.client.scripted import Message

NOT_UTF8 = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


def received_one(native: Message) -> ClientMessage:
    """This message of the binding as ours."""
    (message,) = received([native])
    return message


@pytest.mark.promise("PULSAR-49")
def test_only_the_payload_is_read() -> None:
    """Making a message asks the client for its payload and nothing else."""
    native = Message(b"body")
    assert received_one(native).payload == b"body"
    assert native.asked == ["data"]


@pytest.mark.promise("PULSAR-49")
def test_the_attributes() -> None:
    """Everything else is answered from the client, times in seconds, empty keys as none."""
    message = received_one(Message(b"body", event_time=2500, key="k"))
    assert message.identity == Identity("persistent://public/default/orders", 7, 2, -1)
    assert (message.key, message.ordering_key, message.properties) == ("k", None, {})
    assert (message.redelivery_count, message.producer_name) == (2, "p")
    assert (message.publish_time, message.event_time) == (1.5, 2.5)
    assert received_one(Message()).event_time is None
    assert received_one(Message()).key is None


@pytest.mark.promise("PULSAR-49")
def test_the_identity_is_kept() -> None:
    """The identity, which takes several calls, is computed once."""
    native = Message()
    message = received_one(native)
    assert message.identity is message.identity
    assert native.asked.count("message_id") == 1


@pytest.mark.promise("PULSAR-50")
def test_properties_that_are_not_text() -> None:
    """Properties that are not UTF-8 raise `DecodeError` when they are read, and only then."""
    message = received_one(Message(b"body", properties_=NOT_UTF8))
    assert message.payload == b"body"
    with pytest.raises(DecodeError, match=r"persistent://public/default/orders .*not UTF-8"):
        _ = message.properties


@pytest.mark.promise("PULSAR-50")
def test_a_key_that_is_not_text() -> None:
    """A key that is not UTF-8 reads as none and raises nothing."""
    assert received_one(Message(key=NOT_UTF8)).key is None


@pytest.mark.promise("PULSAR-49")
@pytest.mark.parametrize(("text", "chunked"), [("(7,2,-1,-1)", False), ("(7,1,-1,-1);(7,2,-1,-1)", True)])
def test_chunks_show_in_the_id(text: str, chunked: bool) -> None:
    """A message of several chunks is known by its id of two parts."""
    assert received_one(Message(text=text)).chunked is chunked


@pytest.mark.promise("PULSAR-49")
@pytest.mark.parametrize(
    ("position", "size"),
    [
        (b"\x08\x00\x10\x00 \x000\x01", 1),
        (number_field(1, 5) + number_field(2, 6) + number_field(4, 3) + number_field(6, 300), 300),
        (b"\x18" + b"\xff" * 9 + b"\x01" + number_field(6, 20), 20),  # partition -1: ten bytes
        (number_field(1, 5) + text_field(5, b"\x01\x02") + number_field(6, 4), 4),  # a set of acknowledged
        (number_field(1, 5) + number_field(2, 6), 1),  # outside a batch
        (number_field(6, 0), 1),
        (b"", 1),
        (b"\x08", 1),
        (b"\x0f", 1),
    ],
)
def test_the_batch_size_is_in_the_id(position: bytes, size: int) -> None:
    """The size of the batch is read from the serialised id; an id that does not say it counts as 1."""
    assert batch_size(position) == size


@pytest.mark.promise("PULSAR-49")
@given(st.binary(max_size=40))
def test_no_id_breaks_the_reader(position: bytes) -> None:
    """Whatever bytes stand for an id, a size of 1 or more comes out."""
    assert batch_size(position) >= 1


@pytest.mark.promise("PULSAR-49")
@given(st.lists(st.tuples(st.integers(1, 2000), st.one_of(st.integers(0, 2**63 - 1), st.binary(max_size=300)))))
def test_fields_come_back(content: list[tuple[int, int | bytes]]) -> None:
    """What is encoded is read back, field by field."""
    encoded = b"".join(
        number_field(number, value) if isinstance(value, int) else text_field(number, value)
        for number, value in content
    )
    assert list(fields(encoded)) == content
