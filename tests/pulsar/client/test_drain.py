"""Trap 7: nothing that was asked for is ever lost, and nobody is left asleep."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pystream_pulsar._client.drain import ArmedDrain

from tests.pulsar.client.scripted import OK, Binding, Consumer


class Wakes:
    """Counts wake-ups."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def consumer(scripted: Binding) -> Consumer:
    """A consumer of the scripted binding."""
    return Consumer([])


@pytest.mark.promise("PULSAR-40")
def test_an_empty_pull_arms_and_a_message_wakes_once(consumer: Consumer) -> None:
    """A pull that finds nothing is followed by one wake, and the next pull brings the message."""
    wakes = Wakes()
    drain = ArmedDrain(consumer, wakes)
    assert drain.pull(4) == []
    consumer.arrive("a")
    consumer.arrive("b")
    assert wakes.count == 1
    assert drain.pull(4) == ["a", "b"]


@pytest.mark.promise("PULSAR-40")
def test_short_pulls_ask_once(consumer: Consumer) -> None:
    """However often an armed drain is pulled, one request is out, so that no message can be swallowed."""
    drain = ArmedDrain(consumer, Wakes())
    assert [drain.pull(4) for _ in range(5)] == [[]] * 5
    assert consumer.asked == 1


@pytest.mark.promise("PULSAR-40")
def test_an_answer_in_line_belongs_to_the_pull(consumer: Consumer) -> None:
    """Messages that wait already come with this very pull, and no wake is made for them."""
    wakes = Wakes()
    drain = ArmedDrain(consumer, wakes)
    for name in "abc":
        consumer.arrive(name)

    assert drain.pull(2) == ["a", "b"]
    assert wakes.count == 0


@pytest.mark.promise("PULSAR-41")
def test_polls_only_after_a_full_pull(consumer: Consumer) -> None:
    """Polling, whose empty form blocks the loop, is left for pulls that follow a full one."""
    drain = ArmedDrain(consumer, Wakes())
    for number in range(5):
        consumer.arrive(number)

    assert drain.pull(2) == [0, 1]
    assert (consumer.polls, consumer.asked) == (0, 2)
    assert drain.pull(2) == [2, 3]
    assert (consumer.polls, consumer.asked) == (2, 2)
    assert drain.pull(2) == [4]
    assert (consumer.polls, consumer.asked) == (4, 3)  # the empty poll is followed by the request that stays
    assert drain.pull(2) == []
    consumer.arrive(5)
    assert drain.pull(2) == [5]
    assert (consumer.polls, consumer.asked) == (4, 4)  # after short pulls: asked, not polled


@pytest.mark.promise("PULSAR-41")
def test_polls_after_many_answers_in_line(consumer: Consumer) -> None:
    """A long pull that has had sixteen answers in line polls for the rest, and asks when that is all."""
    drain = ArmedDrain(consumer, Wakes())
    for number in range(20):
        consumer.arrive(number)

    assert drain.pull(64) == list(range(20))
    assert (consumer.asked, consumer.polls) == (17, 5)
    for number in range(15):
        consumer.arrive(number)

    assert drain.pull(64) == list(range(15))
    assert consumer.polls == 5


@pytest.mark.promise("PULSAR-40")
def test_an_end_wakes_and_says_why(consumer: Consumer) -> None:
    """A consumer that is closed under an armed drain wakes it once, and the drain knows the result."""
    wakes = Wakes()
    drain = ArmedDrain(consumer, wakes)
    drain.pull(1)
    consumer.end()
    assert (wakes.count, drain.ended) == (1, "AlreadyClosed")
    assert drain.pull(1) == []


@pytest.mark.promise("PULSAR-40")
def test_an_end_in_line_wakes_too(consumer: Consumer) -> None:
    """A pull that finds the consumer closed raises nothing, says why, and wakes once."""
    wakes = Wakes()
    drain = ArmedDrain(consumer, wakes)
    consumer.closed = True
    assert drain.pull(3) == []
    assert drain.pull(3) == []
    assert (wakes.count, drain.ended, consumer.asked) == (1, "AlreadyClosed", 1)


@pytest.mark.promise("PULSAR-40")
def test_an_end_found_by_a_poll(consumer: Consumer) -> None:
    """A consumer that closes between two polls gives what it had, then the end."""
    wakes = Wakes()
    drain = ArmedDrain(consumer, wakes)
    consumer.arrive("a")
    consumer.arrive("b")
    drain.pull(1)
    original = consumer.receive

    def last_answer(_milliseconds: int) -> object:
        message: object = original(_milliseconds)
        consumer.closed = True
        return message

    consumer.receive = last_answer  # type: ignore[method-assign]  # closes right after its answer
    assert drain.pull(3) == ["b"]
    assert (wakes.count, drain.ended) == (1, "AlreadyClosed")


@pytest.mark.promise("PULSAR-42")
def test_a_wake_that_raises_stays_inside(consumer: Consumer, caplog: pytest.LogCaptureFixture) -> None:
    """A wake-up that fails is logged and does not leave the client's callback."""

    def fail() -> None:
        raise RuntimeError("the loop is gone")

    drain = ArmedDrain(consumer, fail)
    drain.pull(1)
    consumer.arrive("a")
    assert "the loop is gone" in caplog.text
    assert drain.pull(1) == ["a"]
    consumer.closed = True
    assert drain.pull(1) == []  # the wake for an end is made in line, and a pull never raises


@pytest.mark.promise("PULSAR-40")
@given(steps=st.lists(st.one_of(st.just(0), st.integers(1, 4)), max_size=60))
def test_every_message_once_and_in_order(steps: list[int]) -> None:
    """Any mixture of arrivals and pulls gives every message once, in order, with one wake per arming."""
    consumer, wakes = Consumer([]), Wakes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pystream_pulsar._client.binding._pulsar", Binding())
        drain = ArmedDrain(consumer, wakes)
        sent, got, armed = 0, [], False
        for step in [*steps, 100]:
            if step == 0:
                before = wakes.count
                consumer.arrive(sent)
                sent += 1
                assert wakes.count - before == int(armed)
                armed = False
            else:
                messages = drain.pull(step)
                assert len(messages) <= step
                got += messages
                armed = len(messages) < step

    assert got == list(range(sent))


@pytest.mark.promise("PULSAR-40")
def test_messages_from_another_thread(consumer: Consumer) -> None:
    """While a thread brings 5,000 messages, a loop that sleeps after every short pull sees each once."""
    awake = threading.Event()
    drain = ArmedDrain(consumer, awake.set)
    lock = threading.Lock()
    arrive, receive_async = consumer.arrive, consumer.receive_async

    def bring() -> None:
        for number in range(5000):
            with lock:  # the client's own lock; its callback is made outside it
                callback = consumer.requests.popleft() if consumer.requests else None
                if callback is None:
                    arrive(number)

            if callback is not None:
                callback(OK, number)

    def ask(callback: object) -> None:
        with lock:
            if not consumer.waiting:
                consumer.requests.append(callback)  # type: ignore[arg-type]  # the drain's callback
                return

        receive_async(callback)  # type: ignore[arg-type]  # as above

    consumer.receive_async = ask  # type: ignore[method-assign]  # the same, with a lock
    thread = threading.Thread(target=bring)
    thread.start()
    got: list[int] = []
    while len(got) < 5000:
        messages = drain.pull(16)
        got += messages
        if len(messages) < 16 and len(got) < 5000:
            assert awake.wait(10), f"asleep with {len(got)} of 5000"
            awake.clear()

    thread.join(10)
    assert got == list(range(5000))
