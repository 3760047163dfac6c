"""`Annotated[str, Header("x-id")]`: one header, as text, bytes or any type pydantic reads from text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from pystream.context import Context
from pystream.errors import ConfigurationError, DecodeError
from pystream.headers import find_header
from pystream.parameters._kind import MISSING, Getter, Parameter, Surroundings, Undecodable
from pystream.parameters._validation import declared_names, unreadable, validating
from pystream.protocols import Delivery

__all__ = ["Header", "HeaderKind"]


@dataclass(frozen=True, slots=True)
class Header:
    """Names the header that a parameter receives: `Annotated[str, Header("x-request-id")]`.

    The type may be `bytes` (as it came), `str` (decoded as UTF-8) or any type pydantic reads
    from text. A missing header gives the parameter's default, else none where the type
    allows it, else the delivery goes by the decode policy.

    Attributes:
        name: The header's name; matched without case.

    Raises:
        ConfigurationError: The name is empty.
    """

    name: str

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise ConfigurationError(f"Header({self.name!r}): give the header's name, a text that is not empty")


class HeaderKind:
    """A parameter with a `Header` in its `Annotated`."""

    needs_context = False

    def match(self, parameter: Parameter, surroundings: Surroundings) -> bool:
        """Whether a `Header` stands behind the type."""
        return any(isinstance(item, Header) for item in parameter.metadata)

    def compile(self, parameter: Parameter, surroundings: Surroundings) -> Getter:
        """A getter that finds and decodes this one header.

        Raises:
            ConfigurationError: pydantic cannot read the type from text.
        """
        name = next(item.name for item in parameter.metadata if isinstance(item, Header))
        decode = _decoder(name, parameter)
        optional = type(None) in get_args(parameter.annotation)
        default = None if parameter.default is MISSING and optional else parameter.default

        def get(delivery: Delivery, context: Context | None) -> Any:
            try:
                value = find_header(_headers(delivery, context), name)
            except DecodeError as error:
                raise Undecodable(error) from None

            if value is not None:
                return decode(value)

            if default is MISSING:
                raise Undecodable(DecodeError(f"the header {name!r} is missing"))

            return default

        return get


def _headers(delivery: Delivery, context: Context | None) -> Mapping[str, bytes]:
    """The working copy, if a layer has made one; it may have changed it."""
    changed = context._headers if context is not None else None
    return delivery.headers if changed is None else changed


def _decoder(name: str, parameter: Parameter) -> Any:
    constraints = tuple(item for item in parameter.metadata if not isinstance(item, Header))
    annotation = replace(parameter, metadata=constraints).full_annotation
    if annotation in (bytes, bytes | None):
        return bytes

    adapter: TypeAdapter[Any] = validating(annotation)
    names = declared_names(adapter.core_schema)
    plain = annotation in (str, str | None)

    def decode(value: bytes) -> Any:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise Undecodable(DecodeError(f"the header {name!r} is not UTF-8")) from None

        if plain:
            return text

        try:
            return adapter.validate_strings(text)
        except ValidationError as error:
            raise Undecodable(unreadable(f"the header {name!r}", error, names)) from None

    return decode
