"""What a handler may ask for, one small module per kind of parameter.

`KINDS` is the table: the first kind whose `match` accepts a parameter compiles it into a
getter, once, when the handler is registered or its service starts. Nothing is looked up
per message.
"""

from __future__ import annotations

from pystream.parameters._kind import MISSING, Getter, Parameter, ParameterKind, Surroundings, Undecodable
from pystream.parameters.context import BatchContextKind, ContextKind
from pystream.parameters.header import Header, HeaderKind
from pystream.parameters.main_runtime import MainRuntimeKind
from pystream.parameters.out import OutKind
from pystream.parameters.payload import PayloadKind
from pystream.parameters.source import SourceKind
from pystream.parameters.state import StateKind

__all__ = [
    "KINDS",
    "MISSING",
    "Getter",
    "Header",
    "Parameter",
    "ParameterKind",
    "Surroundings",
    "Undecodable",
]

KINDS: tuple[ParameterKind, ...] = (
    ContextKind(),
    BatchContextKind(),
    StateKind(),
    MainRuntimeKind(),
    HeaderKind(),
    OutKind(),
    SourceKind(),
    PayloadKind(),
)
"""In order; the payload is what no other kind has claimed."""
