"""The register of scenarios: each is a coroutine that plays in a world and leaves a history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from parity.world import World

__all__ = ["SCENARIOS", "Scenario", "scenario"]

Scenario: TypeAlias = "Callable[[World], Awaitable[None]]"

SCENARIOS: dict[str, Scenario] = {}
"""By name."""


def scenario(play: Scenario) -> Scenario:
    """Register a scenario under the name of its function."""
    SCENARIOS[play.__name__] = play
    return play
