"""Which server the live tests take, and when they refuse to choose. No server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from live.choice import choose, required
from live.jars import VERSION, cache_directory

URL = "pulsar://127.0.0.1:6650"


@pytest.mark.promise("HOUSE-20")
@pytest.mark.parametrize(
    ("environment", "obstacle", "kind", "reason"),
    [
        ({}, None, "real", f"Apache Pulsar {VERSION}, started here"),
        ({}, "there is no Java", "embedded", "the embedded server (the real one cannot run: there is no Java)"),
        ({"PYSTREAM_PULSAR_URL": URL}, None, "running", f"{URL} (PYSTREAM_PULSAR_URL)"),
        ({"PYSTREAM_PULSAR_URL": URL}, "there is no Java", "running", f"{URL} (PYSTREAM_PULSAR_URL)"),
        (
            {"PYSTREAM_PULSAR_SERVER": "embedded"},
            None,
            "embedded",
            "the embedded server (asked for by PYSTREAM_PULSAR_SERVER)",
        ),
        ({"PYSTREAM_PULSAR_SERVER": "real"}, None, "real", f"Apache Pulsar {VERSION}, started here"),
        ({"PYSTREAM_REQUIRE_LIVE": "1"}, None, "real", f"Apache Pulsar {VERSION}, started here"),
    ],
)
def test_the_order(environment: dict[str, str], obstacle: str | None, kind: str, reason: str) -> None:
    """A running server goes before the real one, and that before the embedded one; the reason is told."""
    chosen = choose(environment, obstacle)
    assert (chosen.kind, chosen.reason) == (kind, reason)


@pytest.mark.promise("HOUSE-20")
@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"PYSTREAM_PULSAR_SERVER": "mine"}, "write embedded or real"),
        ({"PYSTREAM_PULSAR_SERVER": "real"}, "PYSTREAM_PULSAR_SERVER=real: there is no Java"),
        ({"PYSTREAM_PULSAR_SERVER": "embedded", "PYSTREAM_PULSAR_URL": URL}, "set one of them"),
        ({"PYSTREAM_REQUIRE_LIVE": "1"}, "there is only the embedded one"),
        ({"PYSTREAM_REQUIRE_LIVE": "1", "PYSTREAM_PULSAR_SERVER": "embedded"}, "there is only the embedded one"),
    ],
)
def test_contradictions(environment: dict[str, str], message: str) -> None:
    """Variables that contradict each other, or what is there, end the run with a sentence."""
    with pytest.raises(ValueError, match=message):
        choose(environment, "there is no Java")


@pytest.mark.promise("HOUSE-21")
def test_what_requires_a_live_server() -> None:
    """`PYSTREAM_REQUIRE_LIVE` counts when it is set to anything but 0."""
    values: tuple[dict[str, str], ...] = (
        {},
        {"PYSTREAM_REQUIRE_LIVE": ""},
        {"PYSTREAM_REQUIRE_LIVE": "0"},
        {"PYSTREAM_REQUIRE_LIVE": "1"},
    )
    assert [required(value) for value in values] == [False, False, False, True]


@pytest.mark.promise("HOUSE-20")
def test_where_the_jars_are(tmp_path: Path) -> None:
    """The real server is kept in the user's cache, in a directory of its version."""
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "pystream" / f"pulsar-{VERSION}"
    assert cache_directory({}).parts[-3:] == (".cache", "pystream", f"pulsar-{VERSION}")


@pytest.mark.promise("HOUSE-21")
@pytest.mark.parametrize(("value", "code"), [("0", 0), ("1", 1)])
def test_a_skip_where_live_tests_are_required(tmp_path: Path, value: str, code: int) -> None:
    """With `PYSTREAM_REQUIRE_LIVE=1` a test that is skipped fails, saying why; without it it is skipped."""
    (tmp_path / "conftest.py").write_text("from live.requiring import skips_fail as pytest_runtest_makereport\n")
    (tmp_path / "test_it.py").write_text("import pytest\ndef test_one(): pytest.skip('no server')\n")
    environment = {**os.environ, "PYSTREAM_REQUIRE_LIVE": value, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-m", "pytest", "--rootdir", str(tmp_path), "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50, check=False)
    assert ended.returncode == code, ended.stdout
    assert ("PYSTREAM_REQUIRE_LIVE forbids skips: Skipped: no server" in ended.stdout) == (value == "1")
