"""`RedisStream`: a plain value, checked when it is made."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from pystream.errors import ConfigurationError

from pystream_redis import RedisStream


@pytest.mark.promise("SDK-147")
@pytest.mark.parametrize(
    "options",
    [
        {"stream": ""},
        {"stream": b"orders"},
        {"group": ""},
        {"start": "latest"},
        {"read_ahead": 0},
        {"read_ahead": True},
        {"claim_after": 0.5},
        {"claim_after": 86_401},
        {"claim_after": float("nan")},
        {"claim_every": 0},
        {"claim_every": 11.0},
        {"claim_after": 1.0, "claim_every": 0.4},
    ],
)
def test_value_out_of_range_is_refused(options: dict[str, Any]) -> None:
    """A value out of its range is refused, with its name and the way out."""
    with pytest.raises(ConfigurationError, match=f"{list(options)[-1]}=.*; give|{list(options)[-1]}=.*: give"):
        RedisStream(**{"stream": "orders", "group": "billing", **options})


@pytest.mark.promise("SDK-147")
def test_descriptor_is_a_plain_value() -> None:
    """Equal options make equal, hashable descriptors that cannot be changed."""
    source = RedisStream("orders", "billing", start="oldest")

    assert source == RedisStream("orders", "billing", start="oldest") != RedisStream("orders", "billing")
    assert len({source, RedisStream("orders", "billing", start="oldest")}) == 1
    assert (source.name, source.retry, source.max_delay, source.batch_wait) == ("orders", "broker", None, None)
    assert source.copies_to == "orders"
    with pytest.raises(FrozenInstanceError):
        source.group = "other"  # type: ignore[misc]  # what is refused
