"""The producers behind a publisher: one per topic, opened by the first publish that needs it.

All state belongs to the owner's loop; a publish from elsewhere is handed to it as a ticket
and sleeps on a signal of its own loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from pystream.errors import BrokerClosed, PyStreamError
from pystream.protocols import Outgoing
from pystream.signal import Signal

from pystream_pulsar._home import Home
from pystream_pulsar.topic import PulsarTopic
from pystream_pulsar.transport import ProducerSpec, Transport, TransportProducer

__all__ = ["Line", "Producers", "Ticket"]


class Ticket:
    """One message that somebody waits for.

    Args:
        outgoing: The message.
        here: Whether its publisher sleeps on the owner's loop.
    """

    __slots__ = ("_here", "abandoned", "answered", "error", "opens", "outgoing", "signal")

    def __init__(self, outgoing: Outgoing, *, here: bool) -> None:
        self._here = here
        self.outgoing = outgoing
        self.signal = Signal()
        self.answered = False
        self.abandoned = False
        self.opens: Line | None = None
        self.error: Exception | None = None

    def answer(self, error: Exception | None) -> None:
        """End the wait: the message was confirmed, or failed."""
        self.error = error
        self.answered = True
        self.wake()

    def wake(self) -> None:
        if self._here:
            self.signal.wake()
        else:
            self.signal.wake_from_thread()


class Line:
    """The sends to one topic, in order: those that the client has, and those that wait.

    Args:
        spec: How its producer is opened.
        home: The owner's loop.
        gone: Called when opening has failed or nobody wants it any more.
    """

    __slots__ = ("_gone", "_home", "_opening", "_pending", "_producer", "_sending", "_waiting", "spec")

    def __init__(self, spec: ProducerSpec, home: Home, gone: Callable[[Line], None]) -> None:
        self.spec = spec
        self._home = home
        self._gone = gone
        self._producer: TransportProducer | None = None
        self._opening = False
        self._waiting: deque[Ticket] = deque()
        self._pending: set[Ticket] = set()
        self._sending = False

    def submit(self, ticket: Ticket) -> None:
        """Send a message as soon as its turn comes. All methods: on the owner's loop."""
        self._waiting.append(ticket)
        if self._producer is not None:
            self._send_waiting()
        elif not self._opening:
            self._appoint()

    def opened(self, producer: TransportProducer) -> None:
        """The producer is there: send what waits."""
        self._opening = False
        self._producer = producer
        self._send_waiting()

    def failed(self, error: Exception) -> None:
        """The producer could not be opened: nobody waits on, and the next publish tries again."""
        self._gone(self)
        self._opening = False
        while self._waiting:
            self._waiting.popleft().answer(error)

    def given_up(self) -> None:
        """The publish that was opening the producer was cancelled: another one that waits opens it."""
        self._opening = False
        if self._producer is None:
            self._appoint()

    def close(self, error: Exception) -> None:
        """Fail everything that was not confirmed."""
        tickets = [*self._pending, *self._waiting]
        self._pending.clear()
        self._waiting.clear()
        for ticket in tickets:
            ticket.answer(error)

    def _appoint(self) -> None:
        while self._waiting and self._waiting[0].abandoned:
            self._waiting.popleft()

        if not self._waiting:
            self._gone(self)
            return

        self._opening = True
        ticket = self._waiting[0]
        ticket.opens = self
        ticket.wake()

    def _send_waiting(self) -> None:
        if self._sending:  # a confirmation that came in line, from within the loop below
            return

        self._sending = True
        while self._waiting and len(self._pending) < self.spec.max_pending:
            ticket = self._waiting.popleft()
            if not ticket.abandoned:
                self._send(ticket)

        self._sending = False

    def _send(self, ticket: Ticket) -> None:
        if self._producer is not None:
            self._pending.add(ticket)
            self._producer.send(ticket.outgoing, partial(self._confirmed, ticket))

    def _confirmed(self, ticket: Ticket, error: Exception | None) -> None:
        """On any thread, perhaps in line."""
        if self._home.here():
            self._finish(ticket, error)
            return

        try:
            self._home.call(partial(self._finish, ticket, error))
        except BrokerClosed:  # the loop is closed: nobody is left to be told
            return

    def _finish(self, ticket: Ticket, error: Exception | None) -> None:
        if ticket not in self._pending:
            return

        self._pending.remove(ticket)
        ticket.answer(error)
        if self._waiting:
            self._send_waiting()


class Producers:
    """The lines of one connection and one policy.

    Args:
        transport: Opens the producers.
        home: The owner's loop.
        spec: Makes the specification of a topic's producer.
    """

    __slots__ = ("_closed", "_home", "_lines", "_spec", "_transport")

    def __init__(self, transport: Transport, home: Home, spec: Callable[[PulsarTopic], ProducerSpec]) -> None:
        self._transport = transport
        self._home = home
        self._spec = spec
        self._lines: dict[str, Line] = {}
        self._closed: Exception | None = None

    async def publish(self, outgoing: Outgoing) -> None:
        """Return once the message is confirmed. From any loop or thread.

        Raises:
            ConfigurationError: The destination is no topic.
            PublishError: The message was refused or not confirmed, or no producer could be opened.
            BrokerClosed: The connection or its loop was closed.

        Cancel safety: the message may or may not have been sent.
        """
        here = self._home.here()
        ticket = Ticket(outgoing, here=here)
        line = self._lines.get(outgoing.destination)
        if here and line is not None and self._closed is None:
            line.submit(ticket)
        else:
            topic = PulsarTopic(outgoing.destination)
            self._home.run(partial(self._submit, topic, ticket))

        try:
            while not ticket.answered:
                await self._sleep(ticket)

        except BaseException:
            ticket.abandoned = True
            raise

        if ticket.error is not None:
            raise ticket.error

    def close(self, error: Exception) -> None:
        """Fail what was not confirmed, and everything from here on. On the owner's loop."""
        self._closed = error
        for line in set(self._lines.values()):
            line.close(error)

        self._lines.clear()

    def _submit(self, topic: PulsarTopic, ticket: Ticket) -> None:
        if self._closed is not None:
            ticket.answer(self._closed)
            return

        name = topic.full_name
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(self._spec(topic), self._home, self._gone)

        self._lines[ticket.outgoing.destination] = line
        line.submit(ticket)

    def _gone(self, line: Line) -> None:
        for name in [name for name, known in self._lines.items() if known is line]:
            del self._lines[name]

    async def _sleep(self, ticket: Ticket) -> None:
        await ticket.signal.wait()
        line, ticket.opens = ticket.opens, None
        if line is not None:
            await self._open(line, ticket)

    async def _open(self, line: Line, ticket: Ticket) -> None:
        """Open a line's producer in the task of the publish that was chosen for it."""
        try:
            producer = await self._transport.produce(line.spec)
        except PyStreamError as error:
            self._home.run(partial(line.failed, error))
        except BaseException:
            ticket.abandoned = True
            self._home.run(line.given_up)
            raise
        else:
            self._home.run(partial(line.opened, producer))
