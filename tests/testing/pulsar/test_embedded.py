"""`EmbeddedPulsar` where it cannot run: one sentence, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pystream_testing.pulsar import EmbeddedPulsar, EmbeddedServerError, EmbeddedServerMissing


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `pulsar_lite` of the test's own, without an executable; temporary files beside it."""
    folder = tmp_path / "path" / "pulsar_lite"
    (folder / "bin").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('imported')\n")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.syspath_prepend(tmp_path / "path")
    monkeypatch.delitem(sys.modules, "pulsar_lite", raising=False)
    return folder


def install(package: Path, script: str) -> None:
    """Make a shell script the server."""
    path = package / "bin" / "pulsar-lite"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.promise("TESTING-2")
def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the server's package the error says what to install."""
    monkeypatch.setitem(sys.modules, "pulsar_lite", None)
    with pytest.raises(EmbeddedServerMissing, match=r'pip install "pystream-testing\[pulsar\]"'):
        EmbeddedPulsar().__enter__()


@pytest.mark.promise("TESTING-2")
@pytest.mark.usefixtures("package")
def test_without_an_executable() -> None:
    """A package without an executable for this platform is called that."""
    with pytest.raises(EmbeddedServerMissing, match="no executable for this platform"):
        EmbeddedPulsar().__enter__()


@pytest.mark.promise("TESTING-3")
def test_a_server_that_dies(package: Path, tmp_path: Path) -> None:
    """A server that dies while it starts is reported with its code and what it wrote, and leaves nothing."""
    install(package, "echo 'no disk'; exit 3")
    with pytest.raises(EmbeddedServerError, match=r"code 3 .*no disk"):
        EmbeddedPulsar().__enter__()

    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.promise("TESTING-3")
def test_a_port_that_is_taken(package: Path, tmp_path: Path) -> None:
    """A server that finds its port taken is started again on another, three times in all."""
    install(package, f"echo x >> {tmp_path}/starts; echo 'Address already in use'; exit 1")
    with pytest.raises(EmbeddedServerError, match="Address already in use"):
        EmbeddedPulsar().__enter__()

    assert (tmp_path / "starts").read_text() == "x\n" * 3


@pytest.mark.promise("TESTING-3")
def test_a_server_that_does_not_answer(package: Path, tmp_path: Path) -> None:
    """A server that does not answer in time is reported and ended."""
    install(package, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    with pytest.raises(EmbeddedServerError, match=r"did not answer within 0\.5 s"):
        EmbeddedPulsar(start_timeout=0.5).__enter__()

    pid = (tmp_path / "pid").read_text().strip()
    assert subprocess.run(["ps", "-p", pid], stdout=subprocess.DEVNULL, check=False).returncode == 1  # noqa: S607


@pytest.mark.promise("TESTING-2")
def test_a_server_that_does_not_run() -> None:
    """A server outside its `with` block has no URL, and says how to get one."""
    server = EmbeddedPulsar()
    assert (server.pid, server.output) == (None, "")
    with pytest.raises(EmbeddedServerError, match="enter its `with` block"):
        _ = server.url


@pytest.mark.promise("TESTING-4")
def test_importing_costs_nothing() -> None:
    """Importing the distribution, or the server, imports no client, no pytest and no server package."""
    program = (
        "import sys, pystream_testing; heavy = {'pulsar', '_pulsar', 'pytest', 'pulsar_lite', 'pydantic'}; "
        "assert not heavy & set(sys.modules); import pystream_testing.pulsar; "
        "assert not {'pulsar', '_pulsar', 'pytest', 'pulsar_lite'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


@pytest.mark.promise("TESTING-4")
def test_the_fixture_is_exported() -> None:
    """`pystream_testing.pulsar` gives the fixture, and refuses names it has not."""
    from pystream_testing import pulsar

    assert pulsar.pulsar_server is not None
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = pulsar.nothing_such
