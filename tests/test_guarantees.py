"""The page of refusals and the tables of the tests are one."""

from __future__ import annotations

import pytest

from tests.guarantees import PAGE, render


@pytest.mark.promise("HOUSE-30")
def test_page_says_what_the_tests_hold() -> None:
    """The page of refusals is what its renderer makes of the tests' tables, to the letter."""
    written = PAGE.read_text("utf-8")

    assert written == render(), "write the page anew: hatch run python -m tests.guarantees"
