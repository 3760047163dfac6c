"""`Headers`: names match without case, are sent as written, and hold bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pystream.headers import Headers, find_header

NAMES = st.text("abAB-_", min_size=1, max_size=4)


@pytest.mark.promise("SDK-35")
def test_names_match_without_case_and_are_kept_as_written() -> None:
    """Any spelling finds a header; iterating shows the spelling it was set with."""
    headers = Headers({"X-Order": b"1", "plain": "text"})

    assert headers["x-order"] == headers["X-ORDER"] == b"1"
    assert "PLAIN" in headers
    assert list(headers) == ["X-Order", "plain"]
    assert headers["plain"] == b"text"
    assert repr(headers) == "Headers({'X-Order': b'1', 'plain': b'text'})"


@pytest.mark.promise("SDK-35")
def test_setting_another_spelling_replaces() -> None:
    """Setting a header under another spelling replaces value and spelling; deleting takes any spelling."""
    headers = Headers({"X-Order": b"1"})
    headers["x-order"] = "zwölf"
    assert dict(headers) == {"x-order": "zwölf".encode()}

    del headers["X-ORDER"]
    assert len(headers) == 0
    with pytest.raises(KeyError):
        headers["x-order"]


@pytest.mark.promise("SDK-35")
def test_it_is_a_copy() -> None:
    """Changing the headers changes nothing in what they were made from."""
    original = {"a": b"1"}
    headers = Headers(original)
    headers["a"] = b"2"
    headers["b"] = b"3"

    assert original == {"a": b"1"}


@pytest.mark.promise("SDK-35")
@given(st.lists(st.tuples(NAMES, st.binary(max_size=3))))
def test_it_is_a_mapping_over_lower_case_names(entries: list[tuple[str, bytes]]) -> None:
    """For any sequence of settings it holds the last value and spelling of each name."""
    headers = Headers()
    expected: dict[str, tuple[str, bytes]] = {}
    for name, value in entries:
        headers[name] = value
        expected[name.lower()] = (name, value)

    assert list(headers.items()) == list(expected.values())
    assert len(headers) == len(expected)


@pytest.mark.promise("SDK-35")
@pytest.mark.parametrize("wanted", ["x-id", "X-ID", "x-Id"])
def test_header_is_found_in_any_mapping(wanted: str) -> None:
    """find_header looks into a plain dict whatever the case; an empty value is a value, a missing name is none."""
    assert find_header({"X-Id": b"7", "other": b""}, wanted) == b"7"
    assert find_header({"X-Id": b""}, wanted) == b""
    assert find_header({}, wanted) is None
    assert find_header({"x-identity": b"7"}, wanted) is None
