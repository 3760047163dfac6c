"""Loads the app that an import string such as `billing:app` names."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import pkgutil
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pystream.app import PyStream
from pystream.errors import ConfigurationError, PyStreamError

_TARGET: Final = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_FOREIGN: Final = (*{sysconfig.get_path(name) for name in ("stdlib", "platlib", "purelib")}, str(Path(__file__).parent))


class TargetError(ConfigurationError):
    """An import string that names no app; what was raised, if anything, is its cause."""


def load(target: str) -> PyStream:
    """The app that `module:app` names, or that the factory it names returns.

    Args:
        target: A module's dotted name, a colon, and the name of a `PyStream` or of a
            callable that takes no arguments and returns one. Dots in the second name
            reach into objects.

    Raises:
        TargetError: Nothing is found there, it is no app, or loading it failed.
    """
    match = _TARGET.fullmatch(target)
    if match is None:
        raise TargetError(f"{target!r} is no app: give module:app, {_example(target)}")

    found: Any = _import(match[1])
    owner = f"module {match[1]!r}"
    reached = f"{match[1]}:"
    for name in match[2].split("."):
        found = _attribute(found, name, owner)
        reached += name
        owner = repr(reached)
        reached += "."

    return found if isinstance(found, PyStream) else _made(found, target)


def use_current_directory() -> None:
    """Put the current directory first on `sys.path`."""
    sys.path.insert(0, str(Path.cwd()))


def _example(target: str) -> str:
    name = target.partition(":")[0].removesuffix(".py").replace("/", ".").strip(".")
    return f"for example {name}:app" if _TARGET.fullmatch(f"{name}:app") else "for example billing:app"


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise TargetError(f"module {name!r} failed on import: {_told(error)}") from error

        nearest = _nearest(name, [module.name for module in pkgutil.iter_modules([os.getcwd()])])
        raise TargetError(f"there is no module {name!r}, looked for from {os.getcwd()}{nearest}") from error
    except BaseException as error:  # importing runs foreign code, which may raise whatever it likes
        raise TargetError(f"module {name!r} failed on import: {_told(error)}") from error


def _attribute(owner: Any, name: str, owner_name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        names = [known for known in dir(owner) if not known.startswith("__")]
        apps = [known for known in names if isinstance(inspect.getattr_static(owner, known), PyStream)]
        raise TargetError(f"{owner_name} has no attribute {name!r}{_nearest(name, names, apps)}") from None


def _nearest(name: str, names: Iterable[str], apps: Iterable[str] = ()) -> str:
    near = dict.fromkeys((*difflib.get_close_matches(name, names), *apps))
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def _made(factory: Any, target: str) -> PyStream:
    if not callable(factory):
        raise TargetError(
            f"{target!r} is of type {type(factory).__name__}, neither a PyStream nor a function making one"
        )

    _check_factory(factory, target)
    try:
        made = factory()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a factory is foreign code, which may raise whatever it likes
        raise TargetError(f"the factory {target!r} failed: {_told(error)}") from error

    if not isinstance(made, PyStream):
        raise TargetError(f"the factory {target!r} returned a value of type {type(made).__name__}, not a PyStream")

    return made


def _check_factory(factory: Any, target: str) -> None:
    if inspect.iscoroutinefunction(factory):
        raise TargetError(f"the factory {target!r} is an async def: make it a def, and open what awaits in state=")

    try:
        signature = inspect.signature(factory)
    except ValueError:  # written in C; calling it will tell
        return

    try:
        signature.bind()
    except TypeError:
        bare = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
        shown = signature.replace(parameters=bare, return_annotation=signature.empty)
        raise TargetError(f"the factory {target!r} needs arguments, {shown}; a factory takes none") from None


def _told(error: BaseException) -> str:
    """What was raised, its innermost cause if that is another, and where that came from."""
    # An error of ours tells its cause itself, and the line of the service it is about is its own.
    innermost = error if isinstance(error, PyStreamError) else _innermost(error)
    cause = "" if innermost is error else f", caused by {_sentence(innermost)}"
    return f"{_sentence(error)}{cause} ({_where(innermost)})"


def _innermost(error: BaseException) -> BaseException:
    seen = {id(error)}
    while True:
        below = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if below is None or id(below) in seen:
            return error

        seen.add(id(below))
        error = below


def _where(error: BaseException) -> str:
    """File and line: of the text that does not parse, or of the service's own last step."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_relative(error.filename)}:{error.lineno}"

    steps = [step for step in traceback.extract_tb(error.__traceback__) if not step.filename.startswith("<frozen ")]
    own = [step for step in steps if not step.filename.startswith(_FOREIGN)]
    last = (own or steps)[-1]
    return f"{_relative(last.filename)}:{last.lineno}"


def _relative(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename


def _sentence(error: BaseException) -> str:
    if isinstance(error, PyStreamError):
        return str(error)

    text = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
