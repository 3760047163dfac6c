"""Processes that use the client end with exit code 0, whatever they leave open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from live.choice import LiveServer
from pystream_testing.pulsar import EmbeddedPulsar

_PROGRAM = """
import os
import sys
import anyio
from pystream.protocols import Outgoing
from pystream_pulsar._client.connection import ClientSettings, ClientTransport
from pystream_pulsar.transport import ConsumerSpec, ProducerSpec

url, backend, count, leave_open, wait = sys.argv[1:]

async def once(topic):
    transport = ClientTransport(ClientSettings(url=url, operation_timeout=30, close_timeout=1))
    await transport.connect()
    consumer = await transport.subscribe(
        ConsumerSpec(
            topic=topic, subscription="s", type="Shared", initial_position="Earliest", receiver_queue_size=10
        ),
        lambda: None,
    )
    producer = await transport.produce(ProducerSpec(topic=topic, send_timeout=30, max_pending=10))
    if wait == "wait":
        print("open", flush=True)
        sys.stdin.readline()

    consumer.pull(5)
    producer.send(Outgoing(topic, b"x", {}), lambda error: None)
    consumer.pull(5)
    if leave_open == "close":
        await transport.close()

    return transport

async def main():
    # A topic each: pulsar-lite takes the first consumers of two clients on one subscription for one.
    return [await once(f"persistent://public/default/processes-{os.getpid()}-{n}") for n in range(int(count))]

kept = anyio.run(main, backend=backend)
print("end", flush=True)
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    """The program above, as a process."""
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and its output, errors last."""
    with process:
        try:
            out, errors = process.communicate("go\n", timeout=40)
        except subprocess.TimeoutExpired:
            process.kill()
            raise

    return process.returncode, out + errors


@pytest.mark.promise("PULSAR-58")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("leave_open", ["close", "leave"])
def test_twenty_clients_in_one_process(pulsar_server: LiveServer, backend: str, leave_open: str) -> None:
    """A process that opens 20 clients one after the other ends with 0, closed or left open."""
    code, output = finish(start(pulsar_server.url, backend, "20", leave_open, "go"))
    assert code == 0, output
    assert output.startswith("end\n")


@pytest.mark.promise("PULSAR-57")
@pytest.mark.parametrize("leave_open", ["close", "leave"])
@pytest.mark.parametrize("fault", [signal.SIGSTOP, signal.SIGKILL])
def test_a_server_that_freezes_or_dies(leave_open: str, fault: signal.Signals) -> None:
    """A process whose server freezes or dies while the client is open still ends with 0."""
    with EmbeddedPulsar() as server:
        process = start(server.url, "asyncio", "1", leave_open, "wait")
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        assert server.pid is not None
        os.kill(server.pid, fault)
        try:
            code, output = finish(process)
        finally:
            if fault == signal.SIGSTOP:
                os.kill(server.pid, signal.SIGCONT)

    assert code == 0, output
    assert "end\n" in output
