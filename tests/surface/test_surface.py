"""What plugin authors build on changes only where somebody means it to."""

from __future__ import annotations

import sys
from types import ModuleType

import pluggy
import pytest

from tests.surface.rendering import MODULES, foreign_types, rendered, snapshot


@pytest.mark.promise("SDK-110")
@pytest.mark.parametrize("module", MODULES)
def test_surface_is_as_it_was(module: str) -> None:
    """The public names and signatures are those kept beside this test: a change of the surface is a change here."""
    assert rendered(module) == snapshot(module).read_text("utf-8")


@pytest.mark.promise("SDK-111")
@pytest.mark.parametrize("module", MODULES)
def test_signatures_name_no_foreign_type(module: str) -> None:
    """A signature of the surface names types of ours and of the standard library only."""
    assert foreign_types(module) == []


def _method(self: object, manager: list[pluggy.PluginManager] | None) -> None: ...


_Alias = dict[str, pluggy.PluginManager]


class _Holder:
    manager: dict[str, pluggy.PluginManager]
    alias: _Alias

    @property
    def held(self) -> pluggy.PluginManager:
        raise NotImplementedError

    method = _method


@pytest.mark.promise("SDK-111")
def test_a_foreign_type_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign type is found in a field, a property and an argument, however deep it stands."""
    module = ModuleType("tests.surface.invented")
    vars(module).update(Holder=_Holder, __all__=["Holder"])
    monkeypatch.setitem(sys.modules, module.__name__, module)
    foreign = "pluggy._manager.PluginManager"

    assert foreign_types(module.__name__) == [
        f"Holder.{member}: {foreign}" for member in ("manager", "alias", "held", "method")
    ]
