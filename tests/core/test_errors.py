"""The errors: one root, sentences that name the culprit, attributes that survive pickling."""

from __future__ import annotations

import pickle
import signal

import pytest
from pystream import errors
from pystream.errors import (
    ConfigurationError,
    ConnectError,
    PyStreamError,
    RegistrationError,
    ServiceAborted,
    ServiceFailed,
)


@pytest.mark.promise("SDK-36")
@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_has_the_one_root(name: str) -> None:
    """Whatever pystream raises can be caught as PyStreamError, and reports its public module."""
    kind = getattr(errors, name)
    assert issubclass(kind, PyStreamError)
    assert kind.__module__ == "pystream.errors"
    assert kind.__doc__


@pytest.mark.promise("SDK-36")
def test_configuration_errors_are_value_errors() -> None:
    """What is refused before any I/O is also a ValueError."""
    assert issubclass(RegistrationError, ConfigurationError)
    assert issubclass(ConfigurationError, ValueError)


@pytest.mark.promise("SDK-36")
def test_one_refusal_is_its_sentence_and_several_are_a_list() -> None:
    """A RegistrationError shows one refusal as it is, and several with their number, one a line."""
    assert str(RegistrationError("no payload")) == "no payload"

    several = RegistrationError("no payload", "two payloads")
    assert str(several) == "2 refusals:\n- no payload\n- two payloads"
    assert several.refusals == ("no payload", "two payloads")


@pytest.mark.promise("SDK-36")
def test_service_failed_is_one_sentence() -> None:
    """It names culprit, step and every error: ours by their sentence, others with their class."""
    error = ServiceFailed("connect", "a (memory://a)", [ConnectError("nobody answers"), KeyError("x"), ValueError()])
    assert str(error) == "a (memory://a) failed (connect): nobody answers; KeyError: 'x'; ValueError"


@pytest.mark.promise("SDK-36")
@pytest.mark.parametrize(
    ("step", "subscription"),
    [
        ("state", None),
        ("on_startup", None),
        ("connect", None),
        ("close", None),
        ("subscribe", "orders"),
        ("handler", "orders"),
        ("subscription", "orders"),
        ("loop", "orders"),
    ],
)
def test_subscription_of_a_failure(step: str, subscription: str | None) -> None:
    """`subscription` is the culprit where a subscription is at fault, and none elsewhere."""
    assert ServiceFailed(step, "orders", [ValueError()]).subscription == subscription


@pytest.mark.promise("SDK-36")
@pytest.mark.parametrize(
    "error",
    [
        RegistrationError("no payload", "two payloads"),
        ServiceFailed("connect", "memory://", [ConnectError("nobody answers")]),
        ServiceAborted(signal.SIGINT, "shop", [ConnectError("nobody answers")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_can_be_pickled(error: PyStreamError) -> None:
    """An error comes out of another process with its class, its sentence and its attributes."""
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert {k: str(v) for k, v in vars(copy).items()} == {k: str(v) for k, v in vars(error).items()}


@pytest.mark.promise("SDK-36")
def test_aborted_service_names_the_signal() -> None:
    """A second signal is named, and its number is an attribute."""
    error = ServiceAborted(15, "shop")
    assert str(error) == "shop was aborted by a second signal (SIGTERM)"
    assert (error.signum, error.step, error.culprit, error.subscription) == (15, "aborted", "shop", None)
