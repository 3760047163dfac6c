"""What is remembered of the last pulls costs the same, whatever the payloads are."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pystream_pulsar.transport import Identity

from tests.pulsar.scripted import Raw, open_stream

pytestmark = pytest.mark.anyio

_MESSAGES = 4_000
_BATCH = 100


@dataclass(eq=False)
class CountedRaw(Raw):
    """Counts how often its identity is asked: several calls into the client each time."""

    asked: int = 0

    @property
    def identity(self) -> Identity:
        self.asked += 1
        return super().identity


@pytest.mark.promise("PULSAR-61")
async def test_equal_payloads_do_not_search_the_last_pulls() -> None:
    """Thousands of batched messages with one and the same payload cost a few identities each, not hundreds."""
    stream = await open_stream()
    raws = [
        CountedRaw(b"beat", entry=number // _BATCH, index=number % _BATCH, batch_size=_BATCH)
        for number in range(_MESSAGES)
    ]
    stream.consumer.feed(*raws)
    for _ in range(_MESSAGES):
        message = stream.driver.take()
        assert message is not None
        await message.ack()

    assert len(stream.consumer.acked) == _MESSAGES
    assert sum(raw.asked for raw in raws) <= 4 * _MESSAGES
