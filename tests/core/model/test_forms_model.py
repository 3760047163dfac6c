"""Each dispatch form against the model, under random schedules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.model.cases import CASES
from tests.core.model.searching import ASYNCIO, explore, quiet_log


@pytest.mark.promise("DISPATCH-1", "DISPATCH-2", "DISPATCH-3", "DISPATCH-5", "DISPATCH-6", "DISPATCH-40", "SETTLE-1")
@pytest.mark.parametrize("name", CASES)
def test_a_form_goes_as_the_model_says(anyio_backend: Any, name: str) -> None:
    """Bounds, order, liveness, single settlement and the drain law hold for any arrivals, ends and stops."""
    with quiet_log():
        run = explore(CASES[name], anyio_backend, examples=200 if anyio_backend == ASYNCIO else 25)

    assert run.most == run.bound
