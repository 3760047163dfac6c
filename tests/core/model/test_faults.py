"""The model against broken forms: a model that accepts one of them proves nothing."""

from __future__ import annotations

import pytest

from tests.core.model.faults import FAULTS
from tests.core.model.searching import quiet_log, reject


@pytest.mark.promise("DISPATCH-41")
@pytest.mark.parametrize("name", FAULTS)
def test_the_model_rejects(name: str) -> None:
    """A form with this fault is found out by the check that is meant for it."""
    with quiet_log():
        verdict = reject(FAULTS[name], examples=5000, number=1)

    assert verdict.first is not None, verdict
