"""Each dispatch form over the memory broker: stopped at any moment, started again, and then left to itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pystream import Context, PyStream, by_key, mount
from pystream.memory import MemoryBroker
from pystream.signal import Signal

from tests.core.model.idling import play
from tests.core.model.schedules import Key

_FORMS: list[Any] = [
    pytest.param({}, id="default"),
    pytest.param({"workers": 3}, id="workers=3"),
    pytest.param({"workers": by_key(2)}, id="workers=by_key(2)"),
    pytest.param({"threads": 1}, id="threads=1"),
    pytest.param({"threads": 2}, id="threads=2"),
    pytest.param({"threads": by_key(2)}, id="threads=by_key(2)"),
    pytest.param({"batch": 3, "batch_wait": 0.001}, id="batch=3"),
    pytest.param({"batch": 3, "batch_wait": 0.001, "workers": 2}, id="batch=3, workers=2"),
    pytest.param({"batch": 3, "batch_wait": 0.001, "threads": 2}, id="batch=3, threads=2"),
]
_PATIENCE = 5.0
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # what does not come takes seconds to see


class _Message(NamedTuple):
    key: str | None
    suspensions: int


class _Service:
    """Handles numbered messages, and says which, in order."""

    def __init__(self, messages: Sequence[_Message]) -> None:
        self.handled: list[int] = []
        self._messages = messages
        self._changed = Signal()

    async def handle(self, body: bytes, context: Context) -> None:
        await self._work(int(body))

    async def handle_batch(self, bodies: list[bytes]) -> None:
        for body in bodies:
            await self._work(int(body))

    async def _work(self, index: int) -> None:
        for _ in range(self._messages[index].suspensions):
            await checkpoint()

        self.handled.append(index)
        self._changed.wake_from_thread()

    async def until(self, count: int) -> None:
        with anyio.fail_after(_PATIENCE):
            while len(self.handled) < count:
                await self._changed.wait()


async def _stop_and_go_on(messages: Sequence[_Message], stop_at: int, form: dict[str, Any]) -> list[int]:
    """Stop once so many of the first half are handled; publish the second half to a service that is running."""
    service, broker = _Service(messages), MemoryBroker()
    handler = service.handle_batch if "batch" in form else service.handle
    app = PyStream("shop").with_broker(broker, mount(handler, "orders", **form))
    half = len(messages) // 2
    async with app.start() as running:
        for index in range(half):
            await _publish(running, index, messages)

        await service.until(min(stop_at, half))

    async with app.start() as running:
        for index in range(half, len(messages)):
            await _publish(running, index, messages)
            await checkpoint()

        await service.until(len(messages))

    assert broker.stored("orders") == 0
    return service.handled


async def _publish(running: Any, index: int, messages: Sequence[_Message]) -> None:
    key = messages[index].key
    await running.publisher().publish(str(index).encode(), "orders", key=key and Key(key))


@pytest.mark.promise("DISPATCH-5", "DISPATCH-6", "DISPATCH-43")
@pytest.mark.parametrize("form", _FORMS)
def test_a_stop_at_any_moment_loses_and_repeats_nothing(anyio_backend: Any, form: dict[str, Any]) -> None:
    """A stop and a new start handle every message exactly once, in the promised order, and without another stop."""

    @settings(max_examples=8, deadline=None, phases=_PHASES)
    @given(
        st.lists(st.builds(_Message, st.sampled_from([None, *"abc"]), st.integers(0, 3)), min_size=2, max_size=30),
        st.integers(0, 15),
    )
    def holds(messages: list[_Message], stop_at: int) -> None:
        handled = play(anyio_backend, _stop_and_go_on, messages, stop_at, form)

        assert sorted(handled) == list(range(len(messages)))
        for group in _ordered(messages, form):
            mine = [index for index in handled if index in group]
            assert mine == sorted(mine), "order broken"

    holds()


def _ordered(messages: Sequence[_Message], form: dict[str, Any]) -> list[set[int]]:
    """The groups of messages that this form handles in order."""
    kind = form.get("workers") or form.get("threads") or 1
    if kind == 1:
        return [set(range(len(messages)))]

    if isinstance(kind, int):
        return []

    return [{index for index, message in enumerate(messages) if message.key == key} for key in "abc"]
