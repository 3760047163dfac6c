"""The payload: any type pydantic can validate, or `bytes` as it came."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from pystream.context import Context
from pystream.errors import ConfigurationError, RegistrationError
from pystream.parameters._kind import Getter, Parameter, Surroundings, Undecodable
from pystream.parameters._validation import declared_names, unreadable, validating
from pystream.protocols import Delivery

__all__ = ["PayloadKind"]


class PayloadKind:
    """What no other kind has claimed is the payload."""

    needs_context = False

    def match(self, parameter: Parameter, surroundings: Surroundings) -> bool:
        """Always: this kind stands last."""
        return True

    def compile(self, parameter: Parameter, surroundings: Surroundings) -> Getter:
        """A getter from the raw bytes to the validated value, in one step."""
        if parameter.annotation is bytes and not parameter.metadata:
            return _raw

        try:
            adapter = validating(parameter.full_annotation)
        except ConfigurationError as error:
            raise RegistrationError(
                f"{surroundings.handler}: the parameter {parameter.name!r} is neither a payload ({error}) "
                "nor anything that pystream or the source offers"
            ) from error

        return _validated(adapter)


def _raw(delivery: Delivery, context: Context | None) -> bytes:
    return delivery.payload


def _validated(adapter: TypeAdapter[Any]) -> Getter:
    # The adapter's own validator: its Python wrapper would cost a tenth of the whole floor.
    validate_json = adapter.validator.validate_json
    names = declared_names(adapter.core_schema)

    def get(delivery: Delivery, context: Context | None) -> Any:
        try:
            return validate_json(delivery.payload)
        except ValidationError as error:
            raise Undecodable(unreadable("the payload", error, names)) from None

    return get
