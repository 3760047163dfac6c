"""Saying how a value differs from the one that was expected, in lines that can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

__all__ = ["differences", "shown"]

_LONGEST = 300


def shown(value: Any) -> str:
    """A value's own text, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"


def differences(expected: Any, actual: Any) -> list[str]:
    """One line per place in which two values differ; none if they are equal."""
    if expected == actual and type(expected) is type(actual):
        return []

    if type(expected) is not type(actual):
        if expected == actual:
            return []

        return [
            f"expected a {type(expected).__name__}, {shown(expected)}; it is a {type(actual).__name__}, {shown(actual)}"
        ]

    return _inside("", expected, actual) or [f"expected {shown(expected)}; it is {shown(actual)}"]


def _inside(place: str, expected: Any, actual: Any) -> list[str]:
    mine, theirs = _parts(expected), _parts(actual)
    if mine is None or theirs is None or type(expected) is not type(actual):
        return [f"{place}: expected {shown(expected)}; it is {shown(actual)}"] if place else []

    lines: list[str] = []
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        inner = f"{place}.{name}" if place else f"{name}"
        if name not in theirs:
            lines.append(f"{inner}: expected {shown(mine[name])}; it is missing")
        elif name not in mine:
            lines.append(f"{inner}: expected nothing; it is {shown(theirs[name])}")
        elif mine[name] != theirs[name]:
            lines += _inside(inner, mine[name], theirs[name])

    return lines


def _parts(value: Any) -> Mapping[Any, Any] | None:
    """What a value is made of, by name or index; none for what has no parts."""
    if isinstance(value, Mapping):
        return value

    if isinstance(value, list | tuple):
        return dict(enumerate(value))

    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in fields(value)}

    names = getattr(type(value), "model_fields", None)
    return {name: getattr(value, name) for name in names} if isinstance(names, Mapping) else None
