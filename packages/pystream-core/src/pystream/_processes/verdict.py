"""Why a service of several processes has ended: asked to, cut short, or because a process failed."""

from __future__ import annotations

import logging
import signal
from typing import Final, Literal

from pystream._processes.spawned import Ended
from pystream._runtime.signals import SAME_REQUEST
from pystream.errors import ProcessEnded, ServiceAborted, ServiceFailed

logger = logging.getLogger("pystream.processes")

_BY_SIGNAL: Final = frozenset(code for signum in (signal.SIGINT, signal.SIGTERM) for code in (-signum, 128 + signum))


class Verdict:
    """Weighs signals against the ends of processes, which may be noticed in any order.

    A signal to the whole group can end a process before the supervising one has seen it: such
    an end is forgiven if the signal follows within half a second.

    Args:
        target: The service's import string.
        processes: How many processes it has.

    Attributes:
        stopping: Whether the service is to stop, for whatever reason.
        aborted: The second signal, or none.
    """

    def __init__(self, target: str, processes: int) -> None:
        self.stopping = False
        self.aborted: int | None = None
        self._target = target
        self._processes = processes
        self._first: float | None = None
        self._culprits: list[Ended] = []
        self._unstarted: list[ProcessEnded] = []

    def signalled(self, signum: int, at: float) -> Literal["stop", "abort"] | None:
        """What a signal asks for; none if it repeats the first."""
        asked: Literal["stop", "abort"] = "stop"
        if self._first is None:
            self._first = at
            self.stopping = True
        elif at - self._first < SAME_REQUEST:
            return None
        else:
            asked = "abort"
            self.aborted = self.aborted or signum

        self._culprits = [ended for ended in self._culprits if at - ended.at >= SAME_REQUEST or not self._due(ended)]
        return asked

    def ended(self, ended: Ended) -> None:
        """Take note of the end of a process."""
        if self._due(ended):
            return

        self._culprits.append(ended)
        self.stopping = True
        if not _excusable(ended):
            logger.error("%s: %s; the service stops", self._target, self._error(ended))

    def unstarted(self, number: int, error: OSError) -> None:
        """Take note of a process that could not be started."""
        self.stopping = True
        self._unstarted.append(ProcessEnded(number, self._processes, None, None, f"{error.strerror or error}"))

    def in_doubt(self, now: float) -> bool:
        """Whether a signal may still follow that explains an end."""
        return any(_excusable(ended) and now - ended.at < SAME_REQUEST for ended in self._culprits)

    def failure(self) -> ServiceFailed | None:
        """What the service's run is to raise, once every process has ended and nothing is in doubt."""
        culprits = [*self._unstarted, *map(self._error, self._culprits)]
        if culprits:
            return ServiceFailed("process", self._target, culprits[:1])  # the others were logged

        return None if self.aborted is None else ServiceAborted(self.aborted, self._target)

    def _due(self, ended: Ended) -> bool:
        """Whether the process ended as it was asked to."""
        if ended.code == 0:
            return self.stopping

        if self.aborted is not None:
            return True

        return self.stopping and ended.process.bounds is None and ended.code in _BY_SIGNAL

    def _error(self, ended: Ended) -> ProcessEnded:
        process = ended.process
        return ProcessEnded(process.number, self._processes, process.pid, ended.code, process.killed or process.reason)


def _excusable(ended: Ended) -> bool:
    return ended.code == 0 or ended.code in _BY_SIGNAL
