"""The rules of structure that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_SOURCES = [
    _ROOT / "packages/pystream-core/src/pystream",
    _ROOT / "packages/pystream-pulsar/src/pystream_pulsar",
    _ROOT / "packages/pystream-testing/src/pystream_testing",
]
_FOLDERS = ["packages", "tests", "tests-integration", "examples", "benchmarks"]
_MODULES = {
    ".".join(path.relative_to(source.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for source in _SOURCES
    for path in sorted(source.rglob("*.py"))
}


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


_PUBLIC = sorted(name for name in _MODULES if not _is_private(name) and not name.endswith("__main__"))


def _body(module: str) -> list[ast.stmt]:
    """The statements of a module, those for type checkers only included."""
    statements: list[ast.stmt] = []
    for statement in ast.parse(_MODULES[module].read_text("utf-8")).body:
        match statement:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body):
                statements += body
            case _:
                statements.append(statement)

    return statements


def _assigned(statement: ast.stmt) -> str | None:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name

    return None


def _listed(module: str) -> list[str] | None:
    """What `__all__` says, or None where there is none."""
    for statement in _body(module):
        if _assigned(statement) == "__all__" and isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value:
            names: list[str] = ast.literal_eval(statement.value)
            return names

    return None


def _reexported(module: str) -> Iterator[str]:
    """Names imported in the form `X as X`."""
    for statement in _body(module):
        if isinstance(statement, ast.ImportFrom):
            yield from (alias.name for alias in statement.names if alias.name == alias.asname)


def _is_documented(module: str, name: str) -> bool:
    """Whether a docstring stands at the definition of a name, wherever it is imported from."""
    body = _body(module)
    for statement, following in zip(body, [*body[1:], None], strict=True):
        match statement:
            case ast.ClassDef(name=found) | ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found):
                if found == name and ast.get_docstring(statement):
                    return True
            case ast.ImportFrom(module=origin, names=aliases) if origin in _MODULES:
                for alias in aliases:
                    if (alias.asname or alias.name) == name:
                        return _is_documented(origin, alias.name)
            case _ if _assigned(statement) == name:
                return isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)

    return f"{module}.{name}" in _MODULES


@pytest.mark.promise("HOUSE-2")
@pytest.mark.parametrize("module", _PUBLIC)
def test_public_module_lists_its_names(module: str) -> None:
    """A public module has `__all__`, sorted out of what it defines or re-exports, and a docstring."""
    listed = _listed(module)

    assert listed is not None, f"{module} has no __all__"
    assert len(listed) == len(set(listed)), f"{module}.__all__ lists a name twice"
    assert not [name for name in listed if name.startswith("_")], f"{module}.__all__ lists a private name"
    assert set(_reexported(module)) <= set(listed), f"{module} re-exports names that __all__ lacks"
    assert ast.get_docstring(ast.parse(_MODULES[module].read_text("utf-8"))), f"{module} has no docstring"


@pytest.mark.promise("HOUSE-2")
@pytest.mark.parametrize("module", _PUBLIC)
def test_public_names_are_documented(module: str) -> None:
    """Every name a public module lists has a docstring where it is defined."""
    missing = [name for name in _listed(module) or [] if not _is_documented(module, name)]

    assert not missing, f"{module}: no docstring for {', '.join(missing)}"


@pytest.mark.promise("HOUSE-4")
@pytest.mark.parametrize("source", _SOURCES, ids=lambda path: path.name)
def test_package_is_marked_as_typed(source: Path) -> None:
    """Each import package carries `py.typed`."""
    assert (source / "py.typed").is_file()


def _limit(path: Path, source: str) -> int:
    if path.name == "protocols.py":
        return 400

    # A defence says in its docstring which trap it holds.
    docstring = ast.get_docstring(ast.parse(source)) or ""
    if path.parent.name == "_driver" and re.search(r"\btrap \d", docstring, re.IGNORECASE):
        return 149

    return 600


@pytest.mark.promise("HOUSE-5")
def test_files_are_short() -> None:
    """No file is longer than a reader takes in: 600 lines, the SDK 400, a defence below 150."""
    files = {path: path.read_text("utf-8") for folder in _FOLDERS for path in (_ROOT / folder).rglob("*.py")}
    long = [
        f"{path.relative_to(_ROOT)}: {lines} lines, at most {limit}"
        for path, source in files.items()
        if (lines := len(source.splitlines())) > (limit := _limit(path, source))
    ]

    assert files
    assert not long, long


def _imports(path: Path) -> Iterator[str]:
    """Full names of what a file imports, names taken from modules included."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=str(origin), names=aliases):
                yield from (f"{origin}.{alias.name}" for alias in aliases)


@pytest.mark.promise("HOUSE-6")
def test_examples_use_public_names_only() -> None:
    """An example is written as a user would write it: without a private name of ours."""
    private = [
        f"{path.relative_to(_ROOT)} imports {name}"
        for path in (_ROOT / "examples").rglob("*.py")
        for name in _imports(path)
        if name.partition(".")[0] in {source.name for source in _SOURCES} and _is_private(name)
    ]

    assert not private, private


@pytest.mark.promise("HOUSE-6")
def test_no_private_name_crosses_distributions() -> None:
    """A distribution imports from another only modules and names without a leading underscore."""
    private = [
        f"{path.relative_to(_ROOT)} imports {name}"
        for source in _SOURCES
        for path in source.rglob("*.py")
        for name in _imports(path)
        if name.startswith("pystream") and name.partition(".")[0] != source.name and _is_private(name)
    ]

    assert not private, private


_IMPORT_QUIETLY = """
import sys, threading

sockets = []
sys.addaudithook(lambda event, args: sockets.append(event) if event.startswith("socket.") else None)
before = set(sys.modules)

import pystream

unwanted = {"asyncio", "trio", "uvloop", "pulsar", "_pulsar", "typer", "click", "rich", "pytest",
            "pystream_pulsar", "pystream_testing"}
print(sorted(unwanted & (set(sys.modules) - before)), threading.active_count(), sockets)
"""


@pytest.mark.promise("HOUSE-3")
def test_importing_pystream_does_nothing() -> None:
    """`import pystream` starts no thread, opens no socket, and loads no loop, client or command line."""
    answer = subprocess.run(
        [sys.executable, "-I", "-c", _IMPORT_QUIETLY], capture_output=True, text=True, timeout=30, check=True
    )

    assert answer.stdout.strip() == "[] 1 []", answer.stdout


@pytest.mark.promise("HOUSE-8")
def test_every_test_states_its_promise() -> None:
    """Every test has a docstring, and it ends its first line as a sentence does."""
    silent = [
        f"{path.relative_to(_ROOT)}: {node.name}"
        for folder in ("tests", "tests-integration", "examples")
        for path in (_ROOT / folder).rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if not (ast.get_docstring(node) or "").partition("\n")[0].endswith((".", ":"))
    ]

    assert not silent, silent
