"""What the tests of the demo share."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the demo leaves its logs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path
