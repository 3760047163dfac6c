"""`module:app` import strings: what they may name, and the sentence for each that names nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pystream import PyStream
from pystream._target import TargetError, load

from tests.core.services import SERVICES, write_services


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with services that can be run and others that cannot."""
    write_services(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in SERVICES:
        sys.modules.pop(name, None)


@pytest.mark.promise("CLI-1")
@pytest.mark.parametrize(
    ("target", "title"), [("billing:app", "billing"), ("billing:site.main", "billing"), ("told:make", "made")]
)
@pytest.mark.usefixtures("services")
def test_target_names_an_app_or_its_factory(target: str, title: str) -> None:
    """An app, an app inside an object, and a callable that makes one are found."""
    app = load(target)

    assert isinstance(app, PyStream)
    assert app.title == title


@pytest.mark.promise("CLI-1")
@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("billing", "'billing' is no app: give module:app, for example billing:app"),
        ("./billing.py:", "'./billing.py:' is no app: give module:app, for example billing:app"),
        (":app", "':app' is no app: give module:app, for example billing:app"),
        ("bil ling:app", "'bil ling:app' is no app: give module:app, for example billing:app"),
        ("biling:app", "there is no module 'biling', looked for from {folder}; did you mean 'billing'?"),
        ("billing.x:app", "there is no module 'billing.x', looked for from {folder}; did you mean 'billing'?"),
        ("zzz:app", "there is no module 'zzz', looked for from {folder}"),
        ("billing:ap", "module 'billing' has no attribute 'ap'; did you mean 'app'?"),
        ("billing:server", "module 'billing' has no attribute 'server'; did you mean 'app'?"),
        ("billing:site.man", "'billing:site' has no attribute 'man'; did you mean 'main'?"),
        ("billing:number", "'billing:number' is of type int, neither a PyStream nor a function making one"),
        (
            "billing:needs",
            "the factory 'billing:needs' needs arguments, (settings, *, strict=False); a factory takes none",
        ),
        ("billing:fails", "the factory 'billing:fails' failed: ValueError: no luck (billing.py:11)"),
        ("billing:exits", "the factory 'billing:exits' failed: SystemExit (billing.py:13)"),
        ("billing:wrong", "the factory 'billing:wrong' returned a value of type int, not a PyStream"),
        (
            "billing:later",
            "the factory 'billing:later' is an async def: make it a def, and open what awaits in state=",
        ),
    ],
)
def test_target_that_names_no_app(services: Path, target: str, sentence: str) -> None:
    """An import string without an app behind it is refused in one sentence."""
    with pytest.raises(TargetError) as refusal:
        load(target)

    assert str(refusal.value) == sentence.format(folder=services)


@pytest.mark.promise("CLI-2")
@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("needy", "ModuleNotFoundError: No module named 'absent_module' (needy.py:1)"),
        (
            "chained",
            "RuntimeError: BILLING_URL is not set, caused by KeyError: 'BILLING_URL' (chained.py:5)",
        ),
        (
            "standard",
            "JSONDecodeError: Expecting value: line 1 column 1 (char 0) (standard.py:2)",
        ),
        ("syntax", "SyntaxError: invalid syntax (syntax.py:2)"),
        ("through", "SyntaxError: invalid syntax (syntax.py:2)"),
        ("leaves", "SystemExit: 3 (leaves.py:1)"),
        ("refused", "handler 'pay': workers=0 is not 1 or more (refused.py:7)"),
    ],
)
@pytest.mark.usefixtures("services")
def test_module_that_fails_on_import(module: str, sentence: str) -> None:
    """A failing import is one sentence: what was raised, its innermost cause, and the service's own line."""
    with pytest.raises(TargetError) as refusal:
        load(f"{module}:app")

    assert str(refusal.value) == f"module '{module}' failed on import: {sentence}"
