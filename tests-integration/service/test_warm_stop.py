"""A stop that waits for a handler settles what the handler did (case C01)."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from live.choice import LiveServer
from pystream import PyStream
from pystream_pulsar import PulsarBroker

pytestmark = [pytest.mark.anyio, pytest.mark.gate]

SERVICE = Path(__file__).with_name("slow_service.py")


@contextmanager
def service(server: LiveServer, topic: str) -> Iterator[subprocess.Popen[str]]:
    """The service as a process; killed if it does not end within a minute."""
    command = [sys.executable, str(SERVICE), server.url, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        deadline = threading.Timer(60, process.kill)
        deadline.start()
        try:
            yield process
        finally:
            deadline.cancel()
            process.kill()


def stopped_at(server: LiveServer, topic: str, line: str) -> tuple[list[str], int]:
    """Run the service, send SIGTERM when it prints `line`; all that it printed, and its exit code."""
    printed: list[str] = []
    with service(server, topic) as process:
        assert process.stdout is not None
        for text in process.stdout:
            printed.append(text.strip())
            if printed[-1] == line:
                process.send_signal(signal.SIGTERM)

        return printed, process.wait()


@pytest.mark.promise("PULSAR-111")
async def test_a_handler_that_ends_during_the_stop_is_acknowledged(
    pulsar_server: LiveServer, unique: Callable[[str], str]
) -> None:
    """A handler that a SIGTERM finds at work ends, its message is acknowledged on the server, and never comes again."""
    topic = unique("warm-stop")
    async with PyStream("sender").with_broker(PulsarBroker(pulsar_server.url)).start() as running:
        publisher = running.publisher()
        empty = ["begun first", "done first"]
        await publisher.publish(b"first", topic)  # the subscription begins with it
        assert stopped_at(pulsar_server, topic, "done first") == (empty, 0)

        await publisher.publish(b"slow", topic)
        assert stopped_at(pulsar_server, topic, "begun slow") == (["begun slow", "done slow"], 0)
        if pulsar_server.admin is not None:
            assert pulsar_server.admin.subscription(f"persistent://public/default/{topic}", "reader").backlog == 0

        await publisher.publish(b"last", topic)
        assert stopped_at(pulsar_server, topic, "done last") == (["begun last", "done last"], 0)
