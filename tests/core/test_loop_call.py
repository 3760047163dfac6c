"""`LoopCall`: a call that other threads request of a loop."""

from __future__ import annotations

import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pystream.signal import LoopCall


@pytest.mark.anyio
@pytest.mark.promise("SDK-60")
async def test_requests_of_other_threads() -> None:
    """A request from another thread has the callback called on the loop; requests that wait count as one."""
    called: list[int] = []
    call = LoopCall(lambda: called.append(threading.get_ident()))
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.extend(call.request() for _ in range(10)))
    thread.start()
    thread.join(10)
    assert called == []
    with anyio.fail_after(10):
        while not called:
            await checkpoint()

    for _ in range(5):
        await checkpoint()

    assert called == [threading.get_ident()]
    assert answers == [True] * 10


@pytest.mark.anyio
@pytest.mark.promise("SDK-60")
async def test_a_request_during_the_call() -> None:
    """A request made while the callback runs has it called again: nothing that was added meanwhile is missed."""
    called: list[int] = []

    def callback() -> None:
        called.append(len(called))
        if len(called) == 1:
            call.request()

    call = LoopCall(callback)
    call.request()
    with anyio.fail_after(10):
        while len(called) < 2:
            await checkpoint()


@pytest.mark.promise("SDK-60")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_closed_loop(backend: str) -> None:
    """A request to a loop that is closed answers false, each time, and raises nothing."""

    async def make() -> LoopCall:
        return LoopCall(lambda: None)

    call = anyio.run(make, backend=backend)
    assert [call.request(), call.request()] == [False, False]
