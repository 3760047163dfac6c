"""Every error pystream raises; one root, one leaf per condition.

A plugin raises these or subclasses of them, never its client's own exceptions, which
it chains as causes.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

__all__ = [
    "BrokerClosed",
    "ConfigurationError",
    "ConnectError",
    "DecodeError",
    "NotConnected",
    "PluginError",
    "ProcessEnded",
    "PublishError",
    "PyStreamError",
    "RegistrationError",
    "ServiceAborted",
    "ServiceFailed",
    "ServiceStopped",
    "SettlementError",
    "SettlementRejected",
    "SettlementTimeout",
    "SettlementUnsupported",
    "StrayCancellation",
    "SubscribeError",
    "SubscriptionEnded",
    "WorkerDied",
]


class PyStreamError(Exception):
    """The root of every error pystream raises."""


class ConfigurationError(PyStreamError, ValueError):
    """A value that cannot work, refused where it was given and before any I/O."""


class RegistrationError(ConfigurationError):
    """One or more handlers that cannot be mounted.

    Attributes:
        refusals: One sentence per refusal, at least one.
    """

    def __init__(self, *refusals: str) -> None:
        self.refusals = refusals
        super().__init__(*refusals)

    def __str__(self) -> str:
        if len(self.refusals) == 1:
            return self.refusals[0]

        return "\n".join((f"{len(self.refusals)} refusals:", *(f"- {refusal}" for refusal in self.refusals)))


class PluginError(ConfigurationError):
    """A plugin that cannot be loaded or whose hooks are not what the specification says."""


class ConnectError(PyStreamError):
    """A broker that cannot be reached or refused the connection."""


class SubscribeError(PyStreamError):
    """A subscription the broker refused."""


class PublishError(PyStreamError):
    """A message the broker refused or did not confirm."""


class NotConnected(PyStreamError):
    """A handle used before its broker was connected."""


class BrokerClosed(PyStreamError):
    """A handle used after its broker was closed."""


class SettlementError(PyStreamError):
    """A settlement that was not made; also the second settlement of one delivery."""


class SettlementUnsupported(SettlementError):
    """The broker has no such settlement; nothing was done."""


class SettlementRejected(SettlementError):
    """The broker or the plugin refused this settlement; the delivery is unsettled."""


class SettlementTimeout(SettlementError):
    """The settlement was not confirmed in time; it may have been made."""


class SubscriptionEnded(PyStreamError):
    """A subscription from which nothing will come any more."""


class DecodeError(PyStreamError):
    """A message, or its headers, that cannot be read."""


class StrayCancellation(PyStreamError):
    """A handler that was cancelled by nobody who may; a failure of the handler."""


class WorkerDied(PyStreamError):
    """A worker, a lane or a thread that has ended by what is no failure of a handler; that is its cause."""


class ServiceStopped(PyStreamError):
    """A use of `MainRuntime` after its app has stopped, or a call that the stop has cut short."""


class ProcessEnded(PyStreamError):
    """One of a service's processes that ended although nothing had asked it to, or could not be started.

    Attributes:
        number: Which of the processes, from 1.
        processes: How many there are.
        pid: Its process id, or none if it could not be started.
        code: Its exit code; negative the number of the signal that killed it; none without a pid.
        reason: What it said, or why it was killed, in one sentence, if that is known.
    """

    def __init__(self, number: int, processes: int, pid: int | None, code: int | None, reason: str | None) -> None:
        self.number = number
        self.processes = processes
        self.pid = pid
        self.code = code
        self.reason = reason
        super().__init__(number, processes, pid, code, reason)

    def __str__(self) -> str:
        who = f"process {self.number} of {self.processes}"
        reason = f": {self.reason}" if self.reason else ""
        if self.pid is None or self.code is None:
            return f"{who} could not be started{reason}"

        how = f"ended with exit code {self.code}" if self.code >= 0 else f"was killed by {_signal_name(-self.code)}"
        return f"{who} (pid {self.pid}) {how}{reason}"


class ServiceFailed(PyStreamError):
    """A service that did not start, or stopped because something failed.

    Attributes:
        step: Where it failed: `plugins`, `state`, `on_startup`, `connect`, `subscribe`,
            `after_startup`, `handler`, `subscription`, `loop`, `close`, `process` or `aborted`.
        culprit: The subscription, broker or hook that failed.
        errors: What was raised; the first is the cause.
    """

    def __init__(self, step: str, culprit: str, errors: Sequence[BaseException]) -> None:
        self.step = step
        self.culprit = culprit
        self.errors: tuple[BaseException, ...] = tuple(errors)
        super().__init__(step, culprit, self.errors)

    @property
    def subscription(self) -> str | None:
        """The failed subscription's name, or none if something else failed."""
        return self.culprit if self.step in {"subscribe", "handler", "subscription", "loop"} else None

    def __str__(self) -> str:
        reason = "; ".join(_sentence(error) for error in self.errors)
        return f"{self.culprit} failed ({self.step}): {reason}"


class ServiceAborted(ServiceFailed):
    """A service whose graceful stop was cut short by a second signal.

    Attributes:
        signum: The number of the second signal.
    """

    def __init__(self, signum: int, culprit: str, errors: Sequence[BaseException] = ()) -> None:
        super().__init__("aborted", culprit, errors)
        self.signum = signum

    def __reduce__(self) -> tuple[type[ServiceAborted], tuple[int, str, tuple[BaseException, ...]]]:
        return type(self), (self.signum, self.culprit, self.errors)

    def __str__(self) -> str:
        return f"{self.culprit} was aborted by a second signal ({signal.Signals(self.signum).name})"


def _signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:  # a real-time signal
        return f"signal {signum}"


def _sentence(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, PyStreamError) and text:
        return text

    return f"{type(error).__name__}: {text}" if text else type(error).__name__
