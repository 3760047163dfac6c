"""What a check is: a named async method of a group, with what it needs of a broker."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

import pytest

from pystream_testing.conformance._failure import ConformanceFailure
from pystream_testing.conformance.subject import Capabilities, Subject

__all__ = ["Check", "CheckGroup", "check", "checks_of"]

CheckMethod: TypeAlias = "Callable[[Any, Subject], Awaitable[None]]"

_CAPABILITIES = frozenset(field.name for field in fields(Capabilities))


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the suite.

    Attributes:
        name: Its lasting name, as `routing.in_order`.
        promise: What it proves, in one sentence.
        needs: The capabilities without which it is skipped.
        without: The capabilities with which it is skipped.
        method: The function; its first argument is the group's object.
        group: The class it belongs to.
    """

    name: str
    promise: str
    needs: tuple[str, ...]
    without: tuple[str, ...]
    method: CheckMethod
    group: type[CheckGroup]

    def skipped_for(self, capabilities: Capabilities) -> str | None:
        """Why it does not apply to a broker of these capabilities, or none if it does."""
        return _reason(self.needs, self.without, capabilities)

    async def run(self, subject: Subject) -> None:
        """Run it, whether or not it applies.

        Raises:
            ConformanceFailure: The broker does not pass.

        Cancel safety: what it has opened is closed.
        """
        await self.method(self.group(), subject)


class CheckGroup:
    """The base of every group: its tests are inherited, and none of them can be overridden.

    Attributes:
        group: The first half of the names of its checks.
        pytestmark: Runs the checks on the event loops of the fixture `anyio_backend`.
    """

    group: ClassVar[str]
    pytestmark: ClassVar[list[Any]] = [pytest.mark.anyio]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        inherited = {name for base in cls.__mro__[1:] for name in vars(base) if name.startswith("test_")}
        overridden = sorted(inherited & set(vars(cls)))
        if overridden:
            # Else a check could be lost without a word.
            raise TypeError(
                f"{cls.__qualname__} overrides {', '.join(overridden)}; declare in the subject's capabilities"
                " what the broker cannot do"
            )


_MARKS: dict[object, tuple[tuple[str, ...], tuple[str, ...]]] = {}


def check(*needs: str, without: tuple[str, ...] = ()) -> Callable[[CheckMethod], CheckMethod]:
    """Make a method a check that applies where the needed capabilities are declared, and not those of `without`."""
    unknown = {*needs, *without} - _CAPABILITIES
    if unknown:
        raise TypeError(f"no capabilities: {', '.join(sorted(unknown))}")

    def decorate(method: CheckMethod) -> CheckMethod:
        @functools.wraps(method)
        async def checked(self: CheckGroup, subject: Subject) -> None:
            reason = _reason(needs, without, subject.capabilities)
            if reason is not None:
                pytest.skip(reason)

            await _run(method, self, subject)

        _MARKS[checked] = needs, without
        return checked

    return decorate


def checks_of(suite: type[CheckGroup]) -> Iterator[Check]:
    """The checks that a class has or inherits, group after group, in the order they are written."""
    for owner in reversed(suite.__mro__):
        if issubclass(owner, CheckGroup):
            yield from _own_checks(owner)


def _own_checks(owner: type[CheckGroup]) -> Iterator[Check]:
    for name, method in vars(owner).items():
        if not name.startswith("test_") or method not in _MARKS:
            continue

        needs, without = _MARKS[method]
        promise = (method.__doc__ or "").partition("\n")[0]
        own = name.removeprefix(f"test_{owner.group}_")
        yield Check(f"{owner.group}.{own}", promise, needs, without, method, owner)


async def _run(method: CheckMethod, group: CheckGroup, subject: Subject) -> None:
    try:
        await method(group, subject)
    except pytest.skip.Exception as skip:
        raise ConformanceFailure(f"a check skipped itself, which nothing declares: {skip}") from skip
    except ConformanceFailure:
        raise
    except ExceptionGroup as errors:
        failures, _ = errors.split(ConformanceFailure)
        raise _first(failures or errors) from errors
    except Exception as error:
        raise _first(error) from error


def _first(error: Exception) -> ConformanceFailure:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]

    if isinstance(error, ConformanceFailure):
        return error

    return ConformanceFailure(f"the broker raised {type(error).__name__}: {error}")


def _reason(needs: tuple[str, ...], without: tuple[str, ...], capabilities: Capabilities) -> str | None:
    missing = [name for name in needs if not getattr(capabilities, name)]
    if missing:
        return f"declared: not capable of {', '.join(missing)}"

    found = [name for name in without if getattr(capabilities, name)]
    return f"declared: {', '.join(found)}" if found else None
