"""The log: lasting offsets, trimmed at the old end."""

from __future__ import annotations

import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pystream.memory import Log


class _Entry:
    pass


@pytest.mark.promise("MEMORY-15")
def test_offsets_rise_by_one_and_survive_trimming() -> None:
    """An entry keeps its offset however much was trimmed before it."""
    log: Log[str] = Log()
    assert [log.append(letter) for letter in "abcde"] == [0, 1, 2, 3, 4]
    log.trim(1)
    log.trim(3)
    assert (log.first, log.end, len(log)) == (3, 5, 2)
    assert [log.read(3), log.read(4)] == ["d", "e"]
    assert log.append("f") == 5


@pytest.mark.promise("MEMORY-15")
@pytest.mark.parametrize("offset", [-1, 0, 1, 3])
def test_reading_outside_the_log_is_an_index_error(offset: int) -> None:
    """A trimmed offset and one that is not stored yet are index errors, never another entry."""
    log: Log[str] = Log()
    for letter in "abc":
        log.append(letter)

    log.trim(2)
    with pytest.raises(IndexError):
        log.read(offset)


@pytest.mark.promise("MEMORY-7")
@pytest.mark.parametrize("before", range(11))
def test_what_is_trimmed_is_let_go(before: int) -> None:
    """A trimmed entry is not kept alive by the log, whether or not the list was moved."""
    log: Log[_Entry] = Log()
    entries = [weakref.ref(entry) for entry in [_Entry() for _ in range(10)] if log.append(entry) >= 0]
    log.trim(before)
    assert [entry() is not None for entry in entries] == [offset >= before for offset in range(10)]


@pytest.mark.promise("MEMORY-15")
@given(st.lists(st.one_of(st.none(), st.integers(-1, 40)), max_size=80))
def test_the_log_is_a_list_with_a_moving_start(steps: list[int | None]) -> None:
    """Whatever is appended and trimmed, the log answers as a plain list with a start would."""
    log: Log[int] = Log()
    model: list[int] = []
    first = 0
    for step in steps:
        if step is None:
            assert log.append(len(model)) == len(model)
            model.append(len(model))
        else:
            log.trim(step)
            first = max(first, min(step, len(model)))

        assert (log.first, log.end, len(log)) == (first, len(model), len(model) - first)
        assert [log.read(offset) for offset in range(first, len(model))] == model[first:]
