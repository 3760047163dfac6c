"""Runs the command line as a user does: in a process of its own, in a folder with the service."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SECONDS = 30
"""How long a process may take before its test fails."""


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


def environment(**changes: str) -> dict[str, str]:
    """The environment of the tests, with Python's output not held back; a path given comes before theirs."""
    path = os.pathsep.join(filter(None, (changes.pop("PYTHONPATH", ""), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path, **changes}


def pystream(folder: Path, *arguments: str, **changes: str) -> Result:
    """Run `python -m pystream` in the folder to its end.

    Args:
        folder: The working directory.
        *arguments: What follows `pystream`.
        **changes: Environment variables to set.
    """
    ended = subprocess.run(
        [sys.executable, "-m", "pystream", *arguments],
        cwd=folder,
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Result(ended.returncode, ended.stdout, ended.stderr)
