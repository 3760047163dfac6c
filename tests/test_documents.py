"""The Python in README and documentation, run as it is written."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import SkipTest

import pytest
from sybil import Document
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

_ROOT = Path(__file__).parent.parent
_PAGES = sorted([*_ROOT.glob("*.md"), *(_ROOT / "docs").rglob("*.md"), *_ROOT.glob("packages/*/README.md")])
_BARE_SKIP = re.compile(r"<!--+\s*skip:\s*\w+\s*-->")


@pytest.mark.promise("HOUSE-7")
@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_examples_run(page: Path) -> None:
    """Every Python example of a page runs, in the page's order; one that cannot says why."""
    document = Document.parse(str(page), PythonCodeBlockParser(), SkipParser())

    assert not _BARE_SKIP.search(document.text), 'give a reason: <!-- skip: next "why" -->'

    for example in document.examples():
        try:
            example.evaluate()
        except SkipTest:
            continue


@pytest.mark.promise("HOUSE-9")
def test_every_promise_has_a_test_and_every_test_a_promise() -> None:
    """The ids in the list of promises are those that the tests' markers name, each listed once."""
    listed = re.findall(r"^- ([A-Z]+-\d+): ", (_ROOT / "docs" / "promises.md").read_text(), re.MULTILINE)
    marked: set[str] = set()
    for folder in ("tests", "tests-integration", "examples"):
        for file in (_ROOT / folder).rglob("test_*.py"):
            for arguments in re.findall(r"mark\.promise\(([^)]*)\)", file.read_text()):
                marked.update(re.findall(r'"([A-Z]+-\d+)"', arguments))

    assert sorted(listed) == sorted(marked)
