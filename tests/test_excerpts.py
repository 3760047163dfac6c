"""The excerpts of files that pages show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_EXCERPT = re.compile(r'^```\w+ title="(?P<file>[^"]+)"\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE)
_EXCERPTS = [
    pytest.param(match["file"], match["text"], id=f"{page.stem}-{number}")
    for page in sorted((_ROOT / "docs").rglob("*.md"))
    for number, match in enumerate(_EXCERPT.finditer(page.read_text("utf-8")), start=1)
]


@pytest.mark.promise("SDK-159")
@pytest.mark.parametrize(("file", "text"), _EXCERPTS)
def test_excerpt_is_the_files_own_text(file: str, text: str) -> None:
    """An excerpt under a file's name on a page stands in that file, word for word."""
    assert text.strip()
    assert f"\n{text}" in f"\n{(_ROOT / file).read_text('utf-8')}"


@pytest.mark.promise("SDK-159")
def test_page_about_brokers_has_excerpts() -> None:
    """The page about writing a broker shows the files it speaks of."""
    assert len(_EXCERPT.findall((_ROOT / "docs/write-a-broker.md").read_text("utf-8"))) >= 10
