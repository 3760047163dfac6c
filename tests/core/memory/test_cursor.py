"""The cursor: the mark-delete position and what is acknowledged beyond it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pystream.memory import Cursor

_END = 12


@pytest.mark.promise("MEMORY-15")
def test_the_mark_advances_over_what_was_acknowledged_beyond_it() -> None:
    """Acknowledging out of order moves the mark only once the gap is closed."""
    cursor = Cursor()
    assert [cursor.acknowledge(offset) for offset in (2, 1, 4, 0, 3)] == [0, 0, 0, 3, 5]


@pytest.mark.promise("MEMORY-15")
def test_acknowledging_twice_changes_nothing() -> None:
    """An offset that is done stays done, below the mark and beyond it."""
    cursor = Cursor(5)
    for offset in (5, 5, 8, 8, 3):
        cursor.acknowledge(offset)

    assert cursor.mark == 6
    assert cursor.backlog(10) == 3


@pytest.mark.promise("MEMORY-15")
def test_a_rewound_cursor_reads_what_is_not_acknowledged() -> None:
    """After a rewind the cursor passes over acknowledged offsets and reads the others again."""
    cursor = Cursor()
    assert [cursor.next(5) for _ in range(6)] == [0, 1, 2, 3, 4, None]
    for offset in (0, 2, 4):
        cursor.acknowledge(offset)

    cursor.rewind()
    assert [cursor.next(5) for _ in range(3)] == [1, 3, None]
    assert cursor.next(6) == 5


@pytest.mark.promise("MEMORY-15")
@given(st.lists(st.one_of(st.sampled_from(["next", "rewind"]), st.integers(0, _END - 1)), max_size=60))
def test_a_cursor_is_a_set_of_acknowledged_offsets(steps: list[str | int]) -> None:
    """Whatever is read, acknowledged and rewound, the cursor answers as a plain set would."""
    cursor = Cursor()
    done: set[int] = set()
    position = 0
    for step in steps:
        if step == "rewind":
            cursor.rewind()
            position = 0
        elif step == "next":
            expected = next((offset for offset in range(position, _END) if offset not in done), None)
            position = _END if expected is None else expected + 1
            assert cursor.next(_END) == expected
        else:
            assert isinstance(step, int)
            done.add(step)
            assert cursor.acknowledge(step) == cursor.mark

        assert cursor.mark == next(offset for offset in range(_END + 1) if offset not in done)
        assert cursor.backlog(_END) == _END - len(done)
        assert all(cursor.is_acknowledged(offset) == (offset in done) for offset in range(_END))
