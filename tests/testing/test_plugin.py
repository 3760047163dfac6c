"""The pytest plugin: free where it is not used, and at home with both async plugins. And importing is quiet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.core.command import environment

_SERVICE = """
    from pystream import PyStream, mount
    from pystream.memory import MemoryBroker

    async def handle(number: int) -> None: ...

    def app():
        return PyStream("shop").with_broker(MemoryBroker(), mount(handle, "numbers"))
"""

_ASYNC_TEST = """
    import pytest
    from service import app, handle

    pytestmark = pytest.mark.{marker}

    @pytest.fixture
    def anyio_backend():
        return "asyncio"

    async def test_in_process(test_app):
        async with test_app(app()) as t:
            await t.broker().publish("numbers", 1)
            t.subscriber(handle).assert_called_once(1)
            assert type(t.clock).__name__ == "VirtualClock"

    @pytest.mark.live
    async def test_live(test_app):
        async with test_app(app()) as t:
            await t.broker().publish("numbers", 1)
            t.subscriber(handle).assert_called_once(1)
            assert type(t.clock).__name__ == "LoopClock"

    def test_clock(virtual_clock):
        assert virtual_clock.move(virtual_clock.now() + 1) is False

    async def test_own_error(test_app):
        async with test_app(app()):
            raise KeyError("mine")
"""


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=str(folder)),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.mark.promise("TESTING-55")
def test_plugin_is_free_where_it_is_not_used(tmp_path: Path) -> None:
    """Where it is not used, nothing of ours, no pydantic and no client is imported, and no file written."""
    test = tmp_path / "test_other.py"
    test.write_text(
        dedent("""
            import sys

            def test_nothing_is_loaded(request):
                ours = [name for name in sys.modules if name.startswith(("pystream", "pydantic", "pulsar", "_pulsar"))]
                assert request.config.pluginmanager.hasplugin("pystream")
                assert ours == []
        """)
    )
    ended = _python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider")

    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout
    assert list(tmp_path.iterdir()) == [test]


@pytest.mark.promise("TESTING-56")
@pytest.mark.parametrize(("marker", "blocked"), [("anyio", "asyncio"), ("asyncio", "anyio")])
def test_fixtures_work_with_either_async_plugin(tmp_path: Path, marker: str, blocked: str) -> None:
    """Under anyio's plugin and under pytest-asyncio a test runs the app in process, or live if it is marked so."""
    pytest.importorskip("pytest_asyncio")
    (tmp_path / "service.py").write_text(dedent(_SERVICE))
    (tmp_path / "test_shop.py").write_text(dedent(_ASYNC_TEST.format(marker=marker)))
    ended = _python(
        tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", f"no:{blocked}", "--strict-markers"
    )  # fmt: skip

    assert "1 failed, 3 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "KeyError: 'mine'" in ended.stdout
    assert "ExceptionGroup" not in ended.stdout


_QUIET = """
    import json, logging, os, sys, threading

    class Lines(logging.Handler):
        def emit(self, record):
            print(json.dumps([record.name, record.levelname]))

    handler = Lines()
    logging.getLogger().addHandler(handler)
    before = list(logging.getLogger().handlers), logging.getLogger().level
    sockets, settings = [], []
    sys.addaudithook(lambda event, args: sockets.append(event) if event.startswith("socket.") else None)
    kind = type(os.environ)
    read = kind.__getitem__
    kind.__getitem__ = lambda self, name: (settings.append(name), read(self, name))[1]

    import pystream, pystream.cli, pystream.harness, pystream.memory, pystream.protocols
    import pystream_pulsar, pystream_testing, pystream_testing.app, pystream_testing.pulsar.in_process
    from service import app

    kind.__getitem__ = read
    import asyncio
    print("policy", asyncio.events._event_loop_policy, "threads", threading.active_count(), "sockets", sockets)
    print("settings", [name for name in settings if "PYSTREAM" in name or "PULSAR" in name])

    import anyio

    async def main():
        async with app().start() as running:
            await running.publisher().publish(b"{", "numbers")
            while running.health.settlement_failures or not seen:
                await anyio.sleep(0.01)

    seen = []
    made = app
    def app():
        service = made()
        service.post_settle(lambda event: seen.append(event))
        return service

    anyio.run(main)
    print("same", (list(logging.getLogger().handlers), logging.getLogger().level) == before)

    import signal
    from typer.testing import CliRunner
    import service
    service.app = lambda: stopping()

    def stopping():
        made_now = made()
        made_now.after_startup(lambda: signal.raise_signal(signal.SIGTERM))
        return made_now

    print("cli", CliRunner().invoke(pystream.cli.cli, ["run", "service:app"]).exit_code)
    print("same", (list(logging.getLogger().handlers), logging.getLogger().level) == before)
    print("own", [name for name, logger in logging.Logger.manager.loggerDict.items()
                  if name.startswith("pystream") and getattr(logger, "handlers", [])])
"""


@pytest.mark.promise("TESTING-58")
def test_logging_of_the_application_is_left_alone(tmp_path: Path) -> None:
    """Imports, `start()` and the command line leave the root's handlers as they are, and a line is written once.

    Importing everything starts no thread, opens no socket, sets no loop policy and reads no setting.
    """
    (tmp_path / "service.py").write_text(dedent(_SERVICE))
    (tmp_path / "main.py").write_text(dedent(_QUIET))
    ended = _python(tmp_path, "main.py")

    assert ended.stdout.splitlines() == [
        "policy None threads 1 sockets []",
        "settings []",
        '["pystream.subscription", "ERROR"]',
        "same True",
        "cli 0",
        "same True",
        "own []",
    ], ended.stdout + ended.stderr


@pytest.mark.promise("TESTING-4")
def test_importing_the_distribution_imports_nothing_more() -> None:
    """`import pystream_testing` loads neither the runtime nor pydantic, until a name is asked for."""
    program = (
        "import sys, pystream_testing as p; print('pydantic' in sys.modules, 'pystream' in sys.modules);"
        "print(all(getattr(p, name) for name in p.__all__), 'pystream.harness' in sys.modules, 'pytest' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=30, check=True
    )

    assert ended.stdout.split() == ["False", "False", "True", "True", "False"]
