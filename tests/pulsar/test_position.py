"""`PulsarPosition`: to bytes and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pystream.errors import ConfigurationError
from pystream_pulsar import PulsarPosition, PulsarTopic


@pytest.mark.promise("PULSAR-2")
@given(topic=st.sampled_from(["orders", "t/n/größe-partition-2", "non-persistent://a/b/c"]), id_=st.binary(min_size=1))
def test_bytes(topic: str, id_: bytes) -> None:
    """A position written to bytes is read back equal, its topic included."""
    position = PulsarPosition(PulsarTopic(topic).full_name, id_)
    assert PulsarPosition.from_bytes(position.to_bytes()) == position


@pytest.mark.promise("PULSAR-2")
@given(st.binary())
def test_foreign_bytes(data: bytes) -> None:
    """Bytes that no position was written to are refused with an error of ours."""
    with pytest.raises(ConfigurationError, match="are no position"):
        PulsarPosition.from_bytes(data)


@pytest.mark.promise("PULSAR-2")
@given(st.integers(min_value=0))
def test_truncated(length: int) -> None:
    """A position that was cut short is refused, unless only the message id lost its end."""
    data = PulsarPosition(PulsarTopic("orders").full_name, b"x").to_bytes()
    with pytest.raises(ConfigurationError, match="are no position"):
        PulsarPosition.from_bytes(data[: length % len(data)])
