"""What the tests of copies and of dead letters share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from pystream import Context, Outcome

from tests.core.scripted import ScriptedSource

__all__ = ["COUNT", "IN_PLACE", "levels", "returning"]

COUNT = "x-pystream-retry-count"
IN_PLACE = ScriptedSource(retry="in_place")


def returning(outcome: Outcome, seen: list[Any] | None = None) -> Callable[..., Any]:
    """A handler that returns the outcome, and notes each message and attempt."""

    async def handler(body: bytes, context: Context) -> Outcome:
        if seen is not None:
            seen.append((context.id, context.attempt))

        return outcome

    return handler


def levels(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[tuple[str, str]]:
    """The lines of the log from that level on."""
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.levelno >= level]
