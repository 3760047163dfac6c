"""What every test shares: the three event loops, and how hypothesis searches."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

# No deadlines: how long an example takes on a shared machine says nothing. In CI the examples are
# the same in every run, so that a red run is the change's doing; developers' runs do the exploring.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

_BACKENDS = [
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    pytest.param(("trio", {}), id="trio"),
]


@pytest.fixture(params=_BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Each of asyncio, uvloop and trio in turn."""
    return request.param
