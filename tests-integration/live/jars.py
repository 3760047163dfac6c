"""The jars of the real server: fetched once by Maven, kept in the user's cache for every later run."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

__all__ = ["VERSION", "JarsMissing", "cache_directory", "fetch_jars", "obstacle"]

_POM = Path(__file__).with_name("pom.xml")
_FETCH_TIMEOUT = 900.0
_JAVA = 17

VERSION = ET.parse(_POM).findtext(".//{*}dependency/{*}version") or ""  # noqa: S314  # our own file
"""The server's version."""


class JarsMissing(Exception):
    """Maven could not fetch the server."""


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Where the jars of this version are kept."""
    root = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root, "pystream", f"pulsar-{VERSION}")


def obstacle(environment: Mapping[str, str]) -> str | None:
    """Why the real server cannot run here, or none."""
    found = _java_version()
    if found is None:
        return f"there is no Java {_JAVA} on PATH"

    if found < _JAVA:
        return f"it needs Java {_JAVA}, and the one on PATH is {found}"

    if not cache_directory(environment).is_dir() and shutil.which("mvn") is None:
        return "there is no Maven on PATH to fetch it"

    return None


def fetch_jars(environment: Mapping[str, str]) -> Path:
    """The directory of the jars; filled by Maven at the first call, which takes some minutes.

    Raises:
        JarsMissing: Maven failed; the message has what it said.
    """
    target = cache_directory(environment)
    if target.is_dir():
        return target

    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=target.parent) as directory:
        filled = Path(directory, "lib")
        _copy_dependencies(filled)
        # Another run may have been faster; its jars are the same.
        with contextlib.suppress(OSError):
            filled.rename(target)

    if not target.is_dir():
        raise JarsMissing(f"the jars of Pulsar {VERSION} could not be moved to {target}")

    return target


def _copy_dependencies(directory: Path) -> None:
    command = [
        *("mvn", "--batch-mode", "--quiet", "--file", str(_POM), "dependency:copy-dependencies"),
        *("-DincludeScope=runtime", f"-DoutputDirectory={directory}"),
    ]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise JarsMissing(f"Maven did not fetch Pulsar {VERSION} within {_FETCH_TIMEOUT:g} s") from error

    if ended.returncode:
        raise JarsMissing(f"Maven could not fetch Pulsar {VERSION}: {(ended.stdout + ended.stderr)[-2000:].strip()}")


def _java_version() -> int | None:
    java = shutil.which("java")
    if java is None:
        return None

    try:
        ended = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None

    found = re.search(r'version "(\d+)', ended.stderr)
    return int(found[1]) if found else None
