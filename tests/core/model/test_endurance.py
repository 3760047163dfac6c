"""The check that memory stays flat: on a short run, and on a service that leaks."""

from __future__ import annotations

import anyio
import pytest
from pystream import Outcome

from tests.core.model.endurance import Endurance, Handler, endure

_DELIVERIES = 30_000
_WARMING_UP = 50  # blocks for each thousand deliveries: on a short run what is made once weighs something


class _Leaky(Handler):
    """Keeps one small object of each delivery."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[object] = []

    async def handle(self, body: bytes) -> Outcome | None:
        self.kept.append(object())
        return await super().handle(body)


def _run(workers: int, handler: Handler) -> Endurance:
    result: Endurance = anyio.run(endure, workers, _DELIVERIES, handler)
    return result


@pytest.mark.promise("DISPATCH-44")
@pytest.mark.parametrize("workers", [1, 16])
def test_memory_stays_flat(workers: int) -> None:
    """Handled deliveries leave nothing behind; a million of them are tried by `hatch run test:long`."""
    result = _run(workers, Handler())

    assert result.figures[-1].deliveries == _DELIVERIES
    assert result.blocks_per_thousand < _WARMING_UP


@pytest.mark.promise("DISPATCH-44")
def test_a_leak_is_seen() -> None:
    """One object kept of each delivery is far above what the check admits."""
    result = _run(1, _Leaky())

    assert result.blocks_per_thousand > 10 * _WARMING_UP
    assert not result.is_flat
