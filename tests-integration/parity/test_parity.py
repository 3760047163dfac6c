"""The in-process Pulsar against a real one: the same scenario, the same history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import parity.cursors
import parity.redelivery
import parity.refusals
import parity.types
import pytest
from live.choice import LiveServer
from parity.scenario import SCENARIOS
from parity.world import InProcessWorld, LiveWorld, World

pytestmark = pytest.mark.anyio

_MODULES = (parity.cursors, parity.redelivery, parity.refusals, parity.types)


@pytest.fixture
def anyio_backend() -> Any:
    """One loop is enough: nothing here depends on which it is."""
    return ("asyncio", {"use_uvloop": False})


async def history(name: str, world: World) -> list[tuple[Any, ...]]:
    """What a scenario leaves."""
    with anyio.fail_after(50):
        try:
            await SCENARIOS[name](world)
        finally:
            await world.close()

    return world.history


@pytest.mark.gate
@pytest.mark.promise("TESTING-70")
@pytest.mark.parametrize("name", sorted(SCENARIOS))
async def test_same_history(name: str, real_server: LiveServer, unique: Callable[[str], str]) -> None:
    """A scenario over the in-process transport leaves the history that it leaves over a real server."""
    expected = await history(name, LiveWorld(real_server.url, f"persistent://public/default/{unique('parity')}"))
    assert expected, "the scenario records nothing"
    assert await history(name, InProcessWorld()) == expected


@pytest.mark.promise("TESTING-70")
def test_every_scenario_is_there() -> None:
    """The modules of scenarios are all registered, and their number does not shrink unnoticed."""
    assert len(SCENARIOS) >= 54
    assert {play.__module__ for play in SCENARIOS.values()} == {module.__name__ for module in _MODULES}
