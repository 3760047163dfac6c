"""The services of the tests with several processes, and what those tests read from them."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

MODULES = {
    "shop": """
        import atexit
        import logging
        import multiprocessing
        import os
        import sys
        import time
        from pathlib import Path

        import anyio
        import sniffio
        from pystream import FAIL_FAST, FailurePolicy, PyStream, State, subscriber
        from pystream.memory import MemoryBroker
        from pystream.protocols import Outgoing



        def say(*words: object) -> None:
            os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # whole, among the lines of other processes


        NAME, PID = multiprocessing.current_process().name, os.getpid()


        @subscriber("orders")
        async def handle(order: bytes, stopping: State[anyio.Event]) -> None:
            say("begun", NAME, PID)
            if order == b"lost":
                raise LookupError("no such order")

            await stopping.wait()
            say("stopping", NAME, PID)
            while order == b"until told" and not Path("go").exists():
                await anyio.sleep(0.01)

            if order == b"stuck":
                await anyio.sleep_forever()

            say("done", NAME, PID)


        def make(order=None):
            stopping = anyio.Event()
            app = PyStream("shop", state=stopping, on_failure=FailurePolicy(error=FAIL_FAST))
            broker = MemoryBroker()
            app.with_broker(broker, handle)

            @app.after_startup
            async def ready() -> None:
                say("ready", NAME, PID)
                if order is not None:
                    await broker.publisher().publish(Outgoing("orders", order, {}))

            @app.on_shutdown
            def stop() -> None:
                stopping.set()

            @app.post_settle
            def settled(event) -> None:
                say("settled", event.outcome.kind, NAME, PID)

            @app.after_shutdown
            def stopped() -> None:
                say("stopped", NAME, PID)

            return app


        app = make()
        busy = make(b"until told")
        stuck = make(b"stuck")
        lost = make(b"lost" if NAME == "process-2" else None)
        told = make()
        failing = make()
        hanging = PyStream("shop", hook_timeout=0.1)
        leaving = make()
        lingering = make()


        @told.after_startup
        def tell() -> None:
            say("told", sniffio.current_async_library(), "uvloop" in sys.modules)
            say("told", sys.argv[1:], repr(sys.stdin.read()), sys.flags.optimize)
            say("told", "error::EncodingWarning" in sys.warnoptions, sys._xoptions.get("of"))
            say("told", "supplies" in sys.path)
            logging.getLogger("shop").info("books are open")


        @failing.on_startup
        def fail() -> None:
            raise LookupError("no ledger")


        @hanging.after_startup
        def hang() -> None:
            say("ready", NAME, PID)
            if NAME == "process-2":
                time.sleep(60)


        @lingering.after_startup
        def register() -> None:
            atexit.register(linger)


        def linger() -> None:
            say("lingering", NAME, PID)
            while not Path("go").exists():
                time.sleep(0.01)


        @leaving.after_startup
        def leave() -> None:
            if NAME == "process-2":
                os._exit(7)
    """,
    "importing": """
        import os
        import time

        print("importing", os.getpid(), flush=True)
        time.sleep(60)
    """,
    "deaf": """
        import signal
        import time

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("deaf", flush=True)
        time.sleep(60)
    """,
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "logged": """
        import logging

        logging.basicConfig(level="INFO", format="mine %(processName)s %(message)s")
        from shop import told as told
    """,
    "counted": """
        with open("imports", "a") as file:
            file.write("x")

        raise LookupError("no ledger")
    """,
}


def write_several(folder: Path) -> None:
    """Write each module into the folder."""
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(dedent(text))


def culprit(err: str, target: str, processes: int) -> tuple[int, int, str]:
    """What the one sentence on standard error says of the process that ended: its number, its pid, and how."""
    sentence = rf"Error: {target} failed \(process\): process (\d) of {processes} \(pid (\d+)\) (.*)\n"
    match = re.fullmatch(sentence, err)
    assert match is not None, err
    return int(match[1]), int(match[2]), match[3]
