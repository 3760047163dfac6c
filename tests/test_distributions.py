"""What the four distributions carry when they are built."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_MEMBERS = ["pystream", "pystream-core", "pystream-pulsar", "pystream-testing"]
_VERSION = (_ROOT / "VERSION").read_text("utf-8").strip()


def _build(folder: Path, target: str, into: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into)]
    subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=True)
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each member, built from the tree."""
    return {
        member: _build(_ROOT / "packages" / member, "wheel", tmp_path_factory.mktemp(member)) for member in _MEMBERS
    }


def _unpack(sdist: Path, into: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")

    (folder,) = into.iterdir()
    return folder


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


@pytest.mark.promise("HOUSE-1")
@pytest.mark.parametrize("member", _MEMBERS)
def test_wheel_from_sdist_is_the_same(member: str, wheels: dict[str, Path], tmp_path: Path) -> None:
    """A wheel built from the source distribution is, byte for byte, the one built from the tree."""
    sdist = _build(_ROOT / "packages" / member, "sdist", tmp_path / "sdist")
    wheel = _build(_unpack(sdist, tmp_path / "unpacked"), "wheel", tmp_path / "wheel")

    assert wheel.name == wheels[member].name
    assert wheel.read_bytes() == wheels[member].read_bytes()


@pytest.mark.promise("HOUSE-1")
@pytest.mark.parametrize("member", _MEMBERS)
def test_wheel_metadata(member: str, wheels: dict[str, Path]) -> None:
    """A wheel carries the one version, the licence with its text, and metadata that indexes accept."""
    metadata = _metadata(wheels[member])

    assert metadata["Version"] == _VERSION
    assert metadata["Metadata-Version"] == "2.4"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Requires-Python"] == ">=3.11"


@pytest.mark.promise("HOUSE-1")
def test_name_pins_its_core(wheels: dict[str, Path]) -> None:
    """The distribution `pystream` holds no code and needs the core of its own version, exactly."""
    required = _metadata(wheels["pystream"]).get_all("Requires-Dist") or []
    with zipfile.ZipFile(wheels["pystream"]) as archive:
        code = [name for name in archive.namelist() if ".dist-info/" not in name]

    assert f"pystream-core=={_VERSION}" in required
    assert not code


@pytest.mark.promise("HOUSE-4")
@pytest.mark.parametrize("member", _MEMBERS[1:])
def test_wheel_is_typed(member: str, wheels: dict[str, Path]) -> None:
    """A wheel with code carries `py.typed`, and nothing but its import package and its pytest plugin."""
    package = member.replace("-", "_").removesuffix("_core")
    expected = {package, "_pystream_pytest.py"} if member == "pystream-testing" else {package}
    with zipfile.ZipFile(wheels[member]) as archive:
        names = archive.namelist()

    assert f"{package}/py.typed" in names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == expected


@pytest.mark.promise("HOUSE-1")
@pytest.mark.parametrize("member", _MEMBERS)
def test_installed_version(member: str) -> None:
    """What is installed for the tests is of the version the tree says."""
    assert version(member) == _VERSION


@pytest.mark.promise("HOUSE-1")
@pytest.mark.parametrize("member", _MEMBERS)
def test_licence_text_is_the_same_everywhere(member: str) -> None:
    """Every distribution ships the licence of the repository, letter for letter."""
    assert (_ROOT / "packages" / member / "LICENSE").read_bytes() == (_ROOT / "LICENSE").read_bytes()
