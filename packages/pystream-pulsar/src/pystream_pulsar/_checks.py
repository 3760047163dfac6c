"""Checks that configuration classes share. They take anything, whatever the annotations say."""

from __future__ import annotations

__all__ = ["is_name", "is_seconds", "is_whole"]


def is_name(value: object) -> bool:
    """Whether it is text with something in it."""
    return isinstance(value, str) and bool(value.strip())


def is_seconds(value: object, *, least: float = 0.0) -> bool:
    """Whether it is a finite number of seconds of `least` or more."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value < float("inf")


def is_whole(value: object, *, least: int = 1) -> bool:
    """Whether it is a whole number of `least` or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
