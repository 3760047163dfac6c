"""Reading values by pydantic, and telling what is wrong with them without showing them."""

from __future__ import annotations

from typing import Any

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError

from pystream.errors import ConfigurationError, DecodeError

__all__ = ["declared_names", "unreadable", "validating"]

_KEY_OF_A_MAPPING = "[key]"  # pydantic's own mark behind a key that is not valid
_VALUES = frozenset({"default", "metadata"})


def validating(annotation: Any) -> TypeAdapter[Any]:
    """The adapter of a type, complete.

    Raises:
        ConfigurationError: pydantic cannot validate the type.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        _ = adapter.validator.validate_json  # fails for a type with names that are not defined yet
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(f"pydantic cannot validate {annotation!r}: {reason}") from error

    return adapter


def declared_names(schema: object) -> frozenset[str]:
    """What a type itself calls its parts: the names that may be shown of a message that is not valid."""
    if isinstance(schema, str):
        return frozenset({schema})

    if isinstance(schema, type):
        return frozenset({schema.__name__})

    parts: list[object] = []
    if isinstance(schema, dict):
        parts = [part for name, value in schema.items() if name not in _VALUES for part in (name, value)]
    elif isinstance(schema, list | tuple):
        parts = list(schema)

    return frozenset().union(*map(declared_names, parts))


def unreadable(what: str, error: ValidationError, names: frozenset[str]) -> DecodeError:
    """A validation error as one of ours: places and reasons, and nothing of the input.

    Args:
        what: What was read.
        error: What is wrong with it.
        names: The type's own; any other name in a place is a key of the message and not shown.
    """
    reasons = (
        f"{'.'.join(_shown(part, names) for part in item['loc']) or 'the whole'}: {item['type']}"
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    )
    return DecodeError(f"{what} is not valid: {'; '.join(reasons)}")


def _shown(part: str | int, names: frozenset[str]) -> str:
    return str(part) if isinstance(part, int) or part in names or part == _KEY_OF_A_MAPPING else "<key>"
