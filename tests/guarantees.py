"""The page of refusals, `docs/guarantees.md`, made of the tables that the tests hold.

`python -m tests.guarantees` writes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import pystream
import pystream_pulsar
from pystream import PyStream
from pystream.errors import ConfigurationError
from pystream_pulsar import TLS, PulsarBroker, PulsarPublishPolicy, PulsarSubscription, PulsarTopic, Token

from tests.core import test_batches_registration, test_hook_parameters, test_registration
from tests.core.lifecycle import test_refusals
from tests.pulsar import test_auth, test_broker, test_publisher, test_subscription, test_tls, test_topic

PAGE = Path(__file__).parent.parent / "docs" / "guarantees.md"

_PACKAGES = tuple(os.path.join(package.__path__[0], "") for package in (pystream, pystream_pulsar))

_HEAD = """\
# Refusals

What cannot work is refused before any connection is made, and these are the exact words, which name the culprit
and the way out.

Tests compare every message of this page as a whole; the page is made of their tables by
`hatch run python -m tests.guarantees`, and a test fails when the two differ. `0x…` stands for an address in memory,
and `[pydantic's reason]` for a sentence that differs from one version of pydantic to another.
"""


@dataclass(frozen=True)
class Refusal:
    """A mistake: in words or as code, how to come by it, and the whole text that answers it."""

    mistake: str
    provoke: Callable[[], object]
    message: str


@dataclass(frozen=True)
class Area:
    """What is refused in one place of the API; `code` says that the mistakes are code."""

    title: str
    refusals: list[Refusal]
    code: bool = True


def _call(make: Callable[..., object], message: str, *given: Any, **options: Any) -> Refusal:
    arguments = [*map(repr, given), *(f"{name}={value!r}" for name, value in options.items())]
    return Refusal(f"{make.__name__}({', '.join(arguments)})", lambda: make(*given, **options), message)


def _without_reasons(message: str) -> str:
    for reason in test_registration.OF_PYDANTIC:
        message = message.replace(reason, "[pydantic's reason]")

    return message


def _registration() -> Iterator[Refusal]:
    for mistake, (provoke, message) in test_registration.REFUSALS.items():
        yield Refusal(mistake, provoke, _without_reasons(message))


def _batches() -> Iterator[Refusal]:
    for mistake, (provoke, message) in test_batches_registration.REFUSALS.items():
        yield Refusal(mistake, provoke, message)


def _hooks() -> Iterator[Refusal]:
    for mistake, (provoke, message) in test_hook_parameters.REFUSALS.items():
        yield Refusal(mistake, provoke, message)


def _constructor() -> Iterator[Refusal]:
    for values, message in test_refusals.CONSTRUCTOR:
        title = values.get("title", "shop")
        others = {name: value for name, value in values.items() if name != "title"}
        yield _call(PyStream, message, title, **others)


def _subscriptions() -> Iterator[Refusal]:
    for options, message in test_subscription.REFUSALS:
        name = options.get("name", "billing")
        others = {option: value for option, value in options.items() if option != "name"}
        subscription = "subscription 'billing' to persistent://public/default/orders"
        yield _call(PulsarSubscription, message.format(subscription), "orders", name, **others)


def _topics() -> Iterator[Refusal]:
    for name, why in test_topic.REFUSALS:
        yield _call(PulsarTopic, f"{name!r} is no name of a Pulsar topic: {why}", name)


def _brokers() -> Iterator[Refusal]:
    for url, message in test_broker.ADDRESSES:
        yield _call(PulsarBroker, message, url)

    for options, message in test_broker.OPTIONS:
        yield _call(PulsarBroker, message, "pulsar://localhost", **options)


def _security() -> Iterator[Refusal]:
    for url, options, message in test_broker.SECURITY:
        yield _call(PulsarBroker, message, url, **options)

    for source, message in test_auth.NO_TOKENS:
        yield _call(Token, message, source)

    for options, message in test_tls.REFUSALS:
        yield _call(TLS, message, **options)


def _policies() -> Iterator[Refusal]:
    for options, message in test_publisher.POLICIES:
        yield _call(PulsarPublishPolicy, message, **options)


def areas() -> list[Area]:
    """Every table, in the order of the page."""
    return [
        Area("Handlers, mounts and brokers of an app", list(_registration()), code=False),
        Area("Batches", list(_batches()), code=False),
        Area("Functions for start and stop", list(_hooks()), code=False),
        Area("The app", list(_constructor())),
        Area("Pulsar: topics", list(_topics())),
        Area("Pulsar: subscriptions", list(_subscriptions())),
        Area("Pulsar: URL and options of the broker", list(_brokers())),
        Area("Pulsar: tokens and TLS", list(_security())),
        Area("Pulsar: publishing", list(_policies())),
    ]


def _frames(error: BaseException) -> Iterator[CodeType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code
        trace = trace.tb_next


def refused_by(refusal: Refusal) -> str:
    """The call of the public API that raises, found by making the mistake.

    Raises:
        AssertionError: Nothing refused it.
    """
    try:
        refusal.provoke()
    except ConfigurationError as error:
        ours = (code.co_qualname for code in _frames(error) if code.co_filename.startswith(_PACKAGES))
        name = next(ours).partition(".<locals>")[0]
        return re.sub(r"\.__(init|post_init)__$", "", name)

    raise AssertionError(f"not refused: {refusal.mistake}")


def _code(text: str) -> str:
    text = re.sub(r"\b0x[0-9a-f]+", "0x…", text).replace("|", r"\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _row(area: Area, refusal: Refusal) -> str:
    mistake = _code(refusal.mistake) if area.code else refusal.mistake
    return f"| {mistake} | at {_code(refused_by(refusal) + '(...)')} | {_code(refusal.message)} |"


def _table(area: Area) -> str:
    head = ["| what one does | when it is refused | the message |", "|---|---|---|"]
    return "\n".join([f"## {area.title}", "", *head, *(_row(area, refusal) for refusal in area.refusals)])


def render() -> str:
    """The whole page."""
    return "\n".join([_HEAD, "\n\n".join(_table(area) for area in areas()), ""])


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
