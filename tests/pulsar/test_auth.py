"""`Token`: what it takes, what it gives, and that nobody sees it."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest
from pystream.errors import ConfigurationError
from pystream_pulsar import PulsarConnectError, Token

HIDDEN = "s3cr3t-t0ken"


@pytest.mark.promise("PULSAR-120")
def test_a_token_is_text_or_comes_from_a_function() -> None:
    """A token is given as text, or by a function that is called at every reading."""
    numbers = iter("12")
    given = Token(lambda: HIDDEN + next(numbers))
    assert (Token(HIDDEN).read(), Token(HIDDEN).changes) == (HIDDEN, False)
    assert (given.changes, given.read(), given.read()) == (True, f"{HIDDEN}1", f"{HIDDEN}2")


@pytest.mark.promise("PULSAR-120")
def test_a_token_is_a_value() -> None:
    """Equal tokens are equal, a token can be copied and pickled, and none can be changed."""
    token = Token(HIDDEN)
    assert token == Token(HIDDEN) == copy.copy(token) == pickle.loads(pickle.dumps(token))  # noqa: S301  # our own
    assert token != Token("another")
    with pytest.raises(dataclasses.FrozenInstanceError):
        token._source = "another"  # type: ignore[misc]  # which is what must not work


@pytest.mark.promise("PULSAR-121")
def test_a_token_is_not_shown() -> None:
    """Neither the repr nor the text of a token holds it, wherever it stands."""
    assert repr(Token(HIDDEN)) == str(Token(HIDDEN)) == f"{Token(HIDDEN)}" == "Token(...)"
    assert HIDDEN not in repr([Token(HIDDEN)])


NO_TOKENS: list[tuple[Any, str]] = [
    ("", "Token(...): the token is empty"),
    (" \n", "Token(...): the token is empty"),
    (
        f"{HIDDEN}\n",
        "Token(...): the token holds a space, a line break or a character outside ASCII; strip what surrounds it",
    ),
    (
        f"Bearer {HIDDEN}",
        "Token(...): the token holds a space, a line break or a character outside ASCII; strip what surrounds it",
    ),
    (HIDDEN.encode(), "Token(...): give the token as text, or a function that gives it, not bytes"),
    (None, "Token(...): give the token as text, or a function that gives it, not NoneType"),
]
"""What is no token, and the whole text of the refusal."""


@pytest.mark.promise("PULSAR-122")
@pytest.mark.parametrize(("source", "message"), NO_TOKENS)
def test_what_is_no_token(source: Any, message: str) -> None:
    """What cannot be a token is refused at once, without being shown."""
    with pytest.raises(ConfigurationError) as refused:
        Token(source)

    assert str(refused.value) == message


def failing() -> str:
    """A function that has no token."""
    raise LookupError("no such file")


@pytest.mark.promise("PULSAR-122")
@pytest.mark.parametrize(
    ("source", "why"),
    [
        (failing, "raised LookupError"),
        (lambda: None, "gave NoneType, not text"),
        (lambda: "", "gave one that is empty"),
        (
            lambda: f"{HIDDEN}\n",
            "gave one that holds a space, a line break or a character outside ASCII; strip what surrounds it",
        ),
    ],
    ids=["raises", "none", "empty", "line break"],
)
def test_a_function_without_a_token(source: Any, why: str) -> None:
    """A function that fails, or gives what cannot be a token, is an error of ours that does not show it."""
    with pytest.raises(PulsarConnectError) as refused:
        Token(source).read()

    assert str(refused.value) == f"the token could not be had: its function {why}"
    assert refused.value.result == "ErrorGettingAuthenticationData"
