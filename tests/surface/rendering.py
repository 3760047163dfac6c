"""The public surface of a module as text, and the types its signatures name.

`python -m tests.surface.rendering` writes the snapshots anew, after a change that is meant.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODULES = ("pystream.protocols", "pystream.hookspecs", "pystream_testing.conformance")

_HERE = Path(__file__).parent
_VERSION = _HERE.parents[1] / "VERSION"


def snapshot(module: str) -> Path:
    """Where the surface of a module is kept."""
    return _HERE / f"{module}.txt"


def rendered(name: str) -> str:
    """Every public name of a module, with signatures, a line each, under the version it belongs to."""
    module = importlib.import_module(name)
    major, minor, *_ = _VERSION.read_text("utf-8").strip().split(".")
    lines = [f"{name} {major}.{minor}"]
    for public in sorted(module.__all__):
        lines += _lines(public, getattr(module, public))

    return "\n".join(lines) + "\n"


def _lines(name: str, value: object) -> Iterator[str]:
    if inspect.isclass(value):
        bases = ", ".join(base.__qualname__ for base in value.__bases__ if base is not object)
        yield f"class {name}({bases})"
        for member, found in sorted(_members(value).items()):
            yield f"    {_described(member, found)}"
    elif inspect.isroutine(value):
        yield _described(name, value)
    else:
        yield f"{name}: {value if isinstance(value, str) or typing.get_args(value) else type(value).__name__}"


@dataclass(frozen=True)
class _Field:
    annotation: str


def _members(owner: type) -> dict[str, object]:
    """What a class itself declares in public: fields, properties, methods, and how it is made."""
    members: dict[str, object] = {
        name: _Field(_text(annotation)) for name, annotation in inspect.get_annotations(owner).items()
    }
    members.update(
        (name, value) for name, value in vars(owner).items() if callable(value) or isinstance(value, property)
    )
    made = "__init__" in members and not getattr(owner, "_is_protocol", False)
    return {name: value for name, value in members.items() if not name.startswith("_") or (made and name == "__init__")}


def _text(annotation: object) -> str:
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__

    return annotation if isinstance(annotation, str) else repr(annotation)


def _described(name: str, value: object) -> str:
    match value:
        case _Field(annotation):
            return f"{name}: {annotation}"
        case property(fget=getter) if getter is not None:
            return f"property {name}: {inspect.signature(getter).return_annotation}"

    kind = "async def" if inspect.iscoroutinefunction(value) else "def"
    return f"{kind} {name}{inspect.signature(value)}"  # type: ignore[arg-type]  # what is left can be called


def foreign_types(name: str) -> list[str]:
    """What the signatures of a module name that is neither ours nor the standard library's."""
    module = importlib.import_module(name)
    return [
        f"{where}: {foreign}"
        for public in sorted(module.__all__)
        for where, annotations, names in _annotated(public, getattr(module, public))
        for annotation in annotations
        for foreign in sorted(set(_foreign(annotation, names)))
    ]


def _annotated(name: str, value: object) -> Iterator[tuple[str, list[str], dict[str, Any]]]:
    """Everything with annotations: where it is, their texts, and the names they are written with."""
    if inspect.isfunction(value):
        function = inspect.unwrap(value)
        yield (
            name,
            [_text(annotation) for annotation in inspect.get_annotations(function).values()],
            function.__globals__,
        )
    elif inspect.isclass(value):
        # Not by its `__module__`: some classes name the path that is promised, not the one they are written in.
        functions = [member for member in vars(value).values() if inspect.isfunction(member)]
        names = functions[0].__globals__ if functions else vars(sys.modules[value.__module__])
        for member, found in _members(value).items():
            if isinstance(found, _Field):
                yield f"{name}.{member}", [found.annotation], names
            else:
                yield from _annotated(f"{name}.{member}", found.fget if isinstance(found, property) else found)


def _foreign(annotation: str, names: dict[str, Any]) -> Iterator[str]:
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        match node:
            case ast.Name(id=found):
                yield from _foreign_value(names.get(found), names)
            case ast.Attribute():
                yield from _foreign_value(eval(ast.unparse(node), names), names)  # noqa: S307  # our own source


def _foreign_value(value: object, names: dict[str, Any]) -> Iterator[str]:
    if isinstance(value, str):  # an alias, written as text
        yield from _foreign(value, names)
    elif inspect.isclass(value) and not typing.get_args(value):
        top = value.__module__.partition(".")[0]
        if not top.startswith("pystream") and top not in sys.stdlib_module_names:
            yield f"{value.__module__}.{value.__qualname__}"

    for argument in typing.get_args(value):
        if not isinstance(argument, str):
            yield from _foreign_value(argument, names)


if __name__ == "__main__":
    for each in MODULES:
        snapshot(each).write_text(rendered(each), "utf-8")
