"""What someone has who installs the wheels into an environment of their own.

Needs the package index: what is not ours is installed from there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.test_distributions import _MEMBERS, _ROOT, _VERSION, _build, _metadata, _unpack

pytestmark = [
    pytest.mark.promise("HOUSE-31"),
    pytest.mark.timeout(180),  # with nothing in uv's cache the first installations download all they need
]

_SCRIPTS = "Scripts" if os.name == "nt" else "bin"
_CORE = {"pystream", "pystream-core"}
_OPTIONAL = {"pulsar-client", "pulsar-lite", "pytest", "rich", "trio", "typer", "uvloop"}
_NO_INSTALLATION = "{0} cannot be installed (the package index must be reachable, for what is not ours):\n{1}"


@dataclass(frozen=True)
class _Environment:
    folder: Path

    def run(self, program: str, *args: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.folder / _SCRIPTS / program), *args]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(
            command, cwd=self.folder, env=clean, capture_output=True, text=True, timeout=30, check=False
        )

    def evaluate(self, code: str) -> str:
        """What a program prints that sees nothing but this environment."""
        done = self.run("python", "-I", "-c", code)

        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


_Install = Callable[[str], _Environment]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each member, built from its source distribution."""
    built = {}
    for member in _MEMBERS:
        into = tmp_path_factory.mktemp(member)
        sdist = _build(_ROOT / "packages" / member, "sdist", into / "sdist")
        built[member] = _build(_unpack(sdist, into / "unpacked"), "wheel", into / "wheel")

    return built


def _uv(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "uv", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=150, check=False)


def _installed(requirement: str, ours: Path, folder: Path) -> _Environment:
    environment = str(folder / "env")
    created = _uv("venv", "--python", sys.executable, environment, cwd=folder)
    if created.returncode:
        pytest.fail(created.stderr)

    added = _uv("pip", "install", "--python", environment, "--constraint", str(ours), requirement, cwd=folder)
    if added.returncode:
        pytest.fail(_NO_INSTALLATION.format(requirement, added.stderr))

    return _Environment(folder / "env")


@pytest.fixture(scope="session")
def install(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> _Install:
    """Gives an empty environment into which one requirement was installed; one per requirement."""
    # Constraints, not a folder to look in: an index may carry our names, and must not be asked for them.
    ours = tmp_path_factory.mktemp("constraints") / "ours.txt"
    ours.write_text("".join(f"{member} @ {wheel.as_uri()}\n" for member, wheel in wheels.items()), "utf-8")
    environments: dict[str, _Environment] = {}

    def installed(requirement: str) -> _Environment:
        if requirement not in environments:
            environments[requirement] = _installed(requirement, ours, tmp_path_factory.mktemp("installed"))

        return environments[requirement]

    return installed


@pytest.mark.parametrize(
    ("member", "required"),
    [
        (
            "pystream",
            {
                f"pystream-core=={_VERSION}",
                "pystream-core[cli]; extra == 'cli'",
                "pystream-core[trio]; extra == 'trio'",
                "pystream-core[uvloop]; extra == 'uvloop'",
                "pystream-pulsar<0.3,>=0.2; extra == 'pulsar'",
                "pystream-testing<0.3,>=0.2; extra == 'testing'",
            },
        ),
        ("pystream-core", set()),
        ("pystream-pulsar", {"pystream-core<0.3,>=0.2"}),
        ("pystream-testing", {"pystream-core<0.3,>=0.2", "pystream-pulsar<0.3,>=0.2; extra == 'pulsar'"}),
    ],
)
def test_need_of_each_other(member: str, required: set[str], wheels: dict[str, Path]) -> None:
    """`pystream` needs the core of its own version; every other need of a member admits all of 0.2 and no 0.3."""
    needed = _metadata(wheels[member]).get_all("Requires-Dist") or []

    assert {line for line in needed if line.startswith("pystream")} == required


@pytest.mark.parametrize("member", _MEMBERS)
def test_wheel_describes_itself(member: str, wheels: dict[str, Path]) -> None:
    """A wheel carries its README, its licence and the Pythons it runs on, as metadata 2.4."""
    metadata = _metadata(wheels[member])

    assert metadata["Metadata-Version"] == "2.4"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (_ROOT / "packages" / member / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("pystream", _CORE),
        ("pystream-core", {"pystream-core"}),
        ("pystream[cli]", _CORE | {"rich", "typer"}),
        ("pystream[pulsar]", _CORE | {"pystream-pulsar", "pulsar-client"}),
        ("pystream[testing]", _CORE | {"pystream-testing"}),
        ("pystream[trio,uvloop]", _CORE | {"trio", "uvloop"}),
        ("pystream-pulsar", {"pystream-core", "pystream-pulsar", "pulsar-client"}),
        ("pystream-testing", {"pystream-core", "pystream-testing"}),
    ],
)
def test_installation_brings_what_it_names(requirement: str, expected: set[str], install: _Install) -> None:
    """An installation holds its own members, of this version, and what its extras name, and no more of them."""
    listing = "import json, importlib.metadata as m; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    versions: dict[str, str] = json.loads(install(requirement).evaluate(listing))

    assert versions.keys() & {*_MEMBERS, *_OPTIONAL} == expected
    assert {versions[member] for member in versions.keys() & {*_MEMBERS}} == {_VERSION}


def test_bare_installation_has_the_memory_broker(install: _Install) -> None:
    """Without an extra there is the memory broker, and a URL of Pulsar says what to install."""
    bare = install("pystream")

    assert bare.evaluate("import pystream; print(type(pystream.broker('memory://')).__name__)") == "MemoryBroker"

    refused = bare.run("python", "-I", "-c", "import pystream; pystream.broker('pulsar://localhost')")

    assert refused.returncode == 1
    assert 'pip install "pystream[pulsar]"' in refused.stderr


@pytest.mark.parametrize("command", [("python", "-I", "-m", "pystream"), ("pystream",)], ids=["module", "script"])
def test_bare_installation_says_how_to_get_the_command_line(command: tuple[str, ...], install: _Install) -> None:
    """Without the extra `cli` the command says in a line how to install it, with exit code 2."""
    done = install("pystream").run(*command, "--version")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == ['Error: the command line needs typer: pip install "pystream[cli]"']


@pytest.mark.parametrize("command", [("python", "-I", "-m", "pystream"), ("pystream",)], ids=["module", "script"])
def test_command_line_is_installed(command: tuple[str, ...], install: _Install) -> None:
    """With the extra `cli` the command runs and tells its version."""
    done = install("pystream[cli]").run(*command, "--version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"pystream {_VERSION}\n", "")


@pytest.mark.parametrize("requirement", ["pystream[pulsar]", "pystream-pulsar"])
@pytest.mark.parametrize("scheme", ["pulsar", "pulsar+ssl"])
def test_pulsar_is_installed(requirement: str, scheme: str, install: _Install) -> None:
    """With Pulsar installed its URLs give its broker, and nothing has to be imported for it."""
    code = f"import pystream; print(type(pystream.broker('{scheme}://localhost')).__qualname__)"

    assert install(requirement).evaluate(code) == "PulsarBroker"


@pytest.mark.parametrize("requirement", ["pystream[testing]", "pystream-testing"])
def test_tools_for_tests_are_installed(requirement: str, install: _Install) -> None:
    """With the tools for tests installed `TestApp` can be imported, without pytest."""
    code = "from pystream_testing import TestApp; print(TestApp.__name__)"

    assert install(requirement).evaluate(code) == "TestApp"
