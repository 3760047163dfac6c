"""The payload: any type pydantic can validate, or `bytes` as it came."""

from __future__ import annotations

from typing import Any

from pydantic import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError

from pystream.context import Context
from pystream.errors import DecodeError, RegistrationError
from pystream.parameters._kind import Getter, Parameter, Surroundings, Undecodable
from pystream.protocols import Delivery

__all__ = ["PayloadKind", "unreadable"]


def unreadable(what: str, error: ValidationError) -> DecodeError:
    """A validation error as one of ours: places and reasons, and nothing of the input."""
    reasons = (
        f"{'.'.join(map(str, item['loc'])) or 'the whole'}: {item['type']}"
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    )
    return DecodeError(f"{what} is not valid: {'; '.join(reasons)}")


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
            adapter: TypeAdapter[Any] = TypeAdapter(parameter.full_annotation)
        except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError) as error:
            reason = str(error).splitlines()[0]
            raise RegistrationError(
                f"{surroundings.handler}: the parameter {parameter.name!r} is annotated "
                f"{parameter.annotation!r}, which is neither a payload type that pydantic can validate ({reason}) "
                "nor anything pystream or the source offers"
            ) from error

        return _validated(adapter)


def _raw(delivery: Delivery, context: Context | None) -> bytes:
    return delivery.payload


def _validated(adapter: TypeAdapter[Any]) -> Getter:
    # The adapter's own validator: its Python wrapper would cost a tenth of the whole floor.
    validate_json = adapter.validator.validate_json

    def get(delivery: Delivery, context: Context | None) -> Any:
        try:
            return validate_json(delivery.payload)
        except ValidationError as error:
            raise Undecodable(unreadable("the payload", error)) from None

    return get
