"""The command line without a running service: help, version, and every usage error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pystream.cli import cli
from typer.testing import CliRunner

from tests.core.command import SECONDS, environment, pystream
from tests.core.distributions import Distributions
from tests.core.services import write_services
from tests.core.several import write_several


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with services that cannot be run, each in its own way."""
    folder = tmp_path_factory.mktemp("services")
    write_services(folder)
    return folder


@pytest.mark.promise("CLI-1", "CLI-2")
@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("billing", "'billing' is no app: give module:app, for example billing:app"),
        ("zzz:app", "there is no module 'zzz', looked for from {folder}"),
        ("billing:ap", "module 'billing' has no attribute 'ap'; did you mean 'app'?"),
        ("billing:fails", "the factory 'billing:fails' failed: ValueError: no luck (billing.py:11)"),
        (
            "needy:app",
            "module 'needy' failed on import: ModuleNotFoundError: No module named 'absent_module' (needy.py:1)",
        ),
    ],
)
def test_usage_error_is_one_sentence_and_exit_code_2(services: Path, target: str, sentence: str) -> None:
    """An import string without an app behind it, or a module that fails on import, is one sentence and exit code 2."""
    result = pystream(services, "run", target)

    assert (result.code, result.out) == (2, "")
    assert result.err == f"Error: {sentence.format(folder=services)}\n"


@pytest.mark.promise("CLI-17")
@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("billing", "'billing' is no app: give module:app, for example billing:app"),
        ("zzz:app", "there is no module 'zzz', looked for from {folder}"),
        ("billing:fails", "the factory 'billing:fails' failed: ValueError: no luck (billing.py:11)"),
    ],
)
def test_usage_error_is_told_once_for_all_processes(services: Path, target: str, sentence: str) -> None:
    """With several processes an import string without an app behind it is the same sentence, once, and code 2."""
    result = pystream(services, "run", target, "--processes", "3", "--log-level", "error")

    assert (result.code, result.out) == (2, "")
    assert result.err == f"Error: {sentence.format(folder=services)}\n"


@pytest.mark.promise("CLI-17")
def test_a_module_that_fails_is_imported_by_one_process(tmp_path: Path) -> None:
    """The others are not started before the first one has loaded the service."""
    write_several(tmp_path)
    result = pystream(tmp_path, "run", "counted:app", "--processes", "3", "--log-level", "debug")

    assert result.code == 2
    assert (tmp_path / "imports").read_text() == "x"
    assert result.err.count("LookupError: no ledger\n") == 1
    assert result.err.endswith("Error: module 'counted' failed on import: LookupError: no ledger (counted.py:5)\n")


@pytest.mark.promise("CLI-2")
def test_interrupted_import_is_exit_code_130(services: Path) -> None:
    """Ctrl-C while the service is imported ends the command without a traceback."""
    result = pystream(services, "run", "stopped:app")

    assert (result.code, result.out, result.err) == (130, "", "")


@pytest.mark.promise("CLI-2")
def test_traceback_only_when_debugging(services: Path) -> None:
    """With --log-level debug the whole traceback comes before the sentence."""
    result = pystream(services, "run", "chained:app", "--log-level", "debug")

    assert result.code == 2
    assert result.err.startswith("Traceback (most recent call last):\n")
    assert "KeyError: 'BILLING_URL'\n" in result.err
    assert result.err.endswith("caused by KeyError: 'BILLING_URL' (chained.py:5)\n")


@pytest.mark.promise("CLI-3")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["run"], "Missing argument 'MODULE:APP'"),
        (["run", "billing:app", "--shutdown-timeout", "-1"], "-1 is not 0 or more seconds"),
        (["run", "billing:app", "--shutdown-timeout", "nan"], "nan is not 0 or more seconds"),
        (["run", "billing:app", "--shutdown-timeout", "soon"], "--shutdown-timeout"),
        (["run", "billing:app", "--backend", "curio"], "'asyncio', 'uvloop', 'trio'"),
        (["run", "billing:app", "--log-level", "loud"], "'debug', 'info', 'warning'"),
        (["run", "billing:app", "--processes", "0"], "0 is not 1 or more"),
        (["run", "billing:app", "--processes", "two"], "--processes"),
        (["walk", "billing:app"], "walk"),
    ],
)
def test_options_that_cannot_work(arguments: list[str], error: str) -> None:
    """A wrong option or a missing argument is a plain message and exit code 2, before anything is imported."""
    result = CliRunner().invoke(cli, arguments)

    assert result.exit_code == 2
    assert error in result.output
    assert "billing" not in sys.modules


@pytest.mark.promise("CLI-3")
@pytest.mark.parametrize("name", ["uvloop", "trio"])
def test_backend_that_is_not_installed(services: Path, name: str) -> None:
    """A backend that is missing names the extra that brings it."""
    code = (
        "import importlib.util, sys; find = importlib.util.find_spec; "
        f"importlib.util.find_spec = lambda n, *a: None if n == {name!r} else find(n, *a); "
        f"sys.argv = ['pystream', 'run', 'billing:app', '--backend', {name!r}]; "
        "from pystream.__main__ import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=services, capture_output=True, text=True, timeout=SECONDS, check=False
    )

    assert ended.returncode == 2
    assert ended.stderr == f'Error: --backend {name} needs {name}: pip install "pystream[{name}]"\n'


@pytest.mark.promise("CLI-4")
def test_missing_extra_says_what_to_install(tmp_path: Path) -> None:
    """Without the extra `cli` the command says in one sentence how to install it, with exit code 2."""
    code = "import sys; sys.modules['typer'] = None; from pystream.__main__ import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
    )

    assert ended.returncode == 2
    assert ended.stderr == 'Error: the command line needs typer: pip install "pystream[cli]"\n'


@pytest.mark.promise("CLI-5")
@pytest.mark.parametrize(
    ("argument", "out"), [("--version", "pystream 0.2.0\n"), ("--help", "Usage: pystream [OPTIONS] COMMAND")]
)
def test_help_and_version_import_no_plugin_and_no_broker(tmp_path: Path, argument: str, out: str) -> None:
    """Help and version work with broken plugins and brokers installed, because they import none."""
    broken = "raise RuntimeError('imported')"
    distributions = Distributions(tmp_path)
    distributions.install("dist-plugin", broken, "pystream.plugins", {"audit": "{module}"})
    distributions.install("dist-broker", broken, "pystream.brokers", {"fake": "{module}:Fake"})
    checks = "import atexit, sys; atexit.register(lambda: print('pystream_pulsar' in sys.modules, file=sys.stderr))"
    (tmp_path / "sitecustomize.py").write_text(checks)

    result = pystream(tmp_path, argument, PYTHONPATH=str(tmp_path))

    assert result.code == 0
    assert result.out.startswith(out)
    assert result.err == "False\n"


@pytest.mark.promise("CLI-5")
def test_console_script_is_the_same_command(tmp_path: Path) -> None:
    """The installed script `pystream` and `python -m pystream` are one command."""
    script = Path(sys.executable).with_name("pystream")
    ended = subprocess.run(
        [script, "--version"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (0, pystream(tmp_path, "--version").out)


@pytest.mark.promise("CLI-3")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["told:app"], "billing asyncio 30.0"),
        (["told:app", "--shutdown-timeout", "0"], "billing asyncio 0.0"),
        (["told:app", "--shutdown-timeout", "inf", "--backend", "trio"], "billing trio inf"),
        (["told:patient"], "patient asyncio 7"),
        (["told:patient", "--shutdown-timeout", "5"], "patient asyncio 5.0"),
    ],
)
def test_options_reach_the_app(services: Path, arguments: list[str], told: str) -> None:
    """The shutdown timeout is the option's, else the app's own, else 30 seconds."""
    result = pystream(services, "run", *arguments)

    assert (result.code, result.out, result.err) == (0, f"{told}\n", "")


@pytest.mark.promise("CLI-1")
def test_current_directory_comes_first(services: Path, tmp_path: Path) -> None:
    """The service of the current directory is run, whatever else bears its name."""
    (tmp_path / "told.py").write_text("raise RuntimeError('the wrong one')")
    script = Path(sys.executable).with_name("pystream")

    ended = subprocess.run(
        [script, "run", "told:app"],
        cwd=services,
        env=environment(PYTHONPATH=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "billing asyncio 30.0\n", "")
