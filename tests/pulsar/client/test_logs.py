"""Trap 9: the client's log reaches `logging` without a Python logger inside the client."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator

import pytest
from pystream_pulsar._client import binding, logs

from tests.pulsar.client.scripted import Binding

TIME = "2026-11-30 21:34:12.392"

needs_named_pipes = pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="pipes have no names here")


class Collector(logging.Handler):
    """Keeps records and says when one has come."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.came = threading.Event()
        self.error: Exception | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            raise error

        self.records.append(record)
        self.came.set()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A handler on the logger of the client's lines."""
    handler = Collector()
    logger = logging.getLogger(logs.LOGGER_NAME)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.mark.promise("PULSAR-44")
@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        (f"{TIME} ERROR [140146123021184] TopicName:200 | bad - x", logging.ERROR, "TopicName:200 | bad - x"),
        (f"{TIME} WARN  [14014] ConsumerImpl:191 | [x] lost", logging.WARNING, "ConsumerImpl:191 | [x] lost"),
        (f"{TIME} INFO  [14014] HandlerBase:112 | pool", logging.DEBUG, "HandlerBase:112 | pool"),
        ("a second line %s of something", logging.WARNING, "a second line %s of something"),
    ],
)
def test_a_line_keeps_its_level(collector: Collector, line: str, level: int, text: str) -> None:
    """A line of the client is logged under its own level without its time and thread; its INFO is DEBUG."""
    logging.getLogger(logs.LOGGER_NAME).setLevel(logging.DEBUG)
    try:
        logs.handle_line(line)
    finally:
        logging.getLogger(logs.LOGGER_NAME).setLevel(logging.NOTSET)

    assert [(record.levelno, record.getMessage()) for record in collector.records] == [(level, text)]


@needs_named_pipes
@pytest.mark.promise("PULSAR-44")
def test_what_the_client_writes_is_logged(collector: Collector) -> None:
    """What is written to the client's log file arrives at the logger, also after a handler that failed."""
    _, path = logs.log_file()
    collector.error = RuntimeError("disk full")
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{TIME} WARN  [1] A:1 | first\n")
        file.write(f"{TIME} WARN  [1] A:1 | second\n")

    assert collector.came.wait(5)
    assert collector.records[0].getMessage() == "A:1 | second"
    assert logs.log_file() == logs.log_file()


@pytest.mark.promise("PULSAR-44")
def test_without_named_pipes_the_log_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a pipe has no name the client's log goes nowhere; it never goes to the program's output."""
    monkeypatch.setattr(os.path, "isdir", lambda _path: False)
    assert logs.log_file.__wrapped__() == ("Error", os.devnull)


@pytest.mark.promise("PULSAR-44")
@pytest.mark.parametrize(("level", "expected"), [(logging.DEBUG, "Info"), (logging.INFO, "Warn")])
def test_detail_only_on_request(level: int, expected: str) -> None:
    """The client writes more than warnings only if its logger is enabled for DEBUG."""
    logger = logging.getLogger(logs.LOGGER_NAME)
    logger.setLevel(level)
    try:
        assert logs.least_level() == expected
    finally:
        logger.setLevel(logging.NOTSET)


@pytest.mark.promise("PULSAR-44")
def test_the_client_gets_no_python_logger(scripted: Binding) -> None:
    """A client is given a file to log to, and never a Python function."""
    binding.new_client(
        "pulsar://h:1", operation_timeout=30, connection_timeout=1.5, io_threads=2, log_file=("Warn", "/dev/null")
    )
    options = scripted.clients[0].configuration.options
    assert options == {
        "operation_timeout_seconds": (30,),
        "connection_timeout": (1500,),
        "io_threads": (2,),
        "set_file_logger": ("Warn", "/dev/null"),
    }
