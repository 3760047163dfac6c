"""`load_plugins`: discovery, order, blocking and refusals, over real distributions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pystream.errors import PluginError
from pystream.plugins import load_plugins

from tests.core.distributions import Distributions

GROUP = "pystream.plugins"
GOOD = """
    from pystream.hookspecs import hookimpl

    @hookimpl
    def on_startup(event):
        pass
"""


@pytest.fixture
def distributions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Distributions:
    """An empty folder on the path to install distributions into."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("PYSTREAM_BLOCK_PLUGINS", raising=False)
    return Distributions(tmp_path)


@pytest.mark.promise("SDK-2")
def test_plugins_come_in_the_order_of_their_names(distributions: Distributions) -> None:
    """Entry points of all distributions are loaded in the order of their names."""
    distributions.install("dist-one", GOOD, GROUP, {"zeta": "{module}", "alpha": "{module}:on_startup"})
    distributions.install("dist-two", GOOD, GROUP, {"middle": "{module}"})

    assert [name for name, _ in load_plugins()] == ["alpha", "middle", "zeta"]


@pytest.mark.promise("SDK-2")
def test_plugin_is_imported_by_loading_and_not_before(distributions: Distributions) -> None:
    """Importing pystream and its plugin module imports no plugin; loading does."""
    module = distributions.install("dist-one", GOOD, GROUP, {"alpha": "{module}"})

    assert module not in sys.modules
    ((_, plugin),) = load_plugins()
    assert plugin is sys.modules[module]


@pytest.mark.promise("SDK-3")
def test_blocked_plugin_is_not_imported(distributions: Distributions, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name in PYSTREAM_BLOCK_PLUGINS is neither imported nor loaded, even where it is broken."""
    broken = distributions.install("dist-one", "raise RuntimeError('broken')", GROUP, {"broken": "{module}"})
    distributions.install("dist-two", GOOD, GROUP, {"good": "{module}", "other": "{module}"})
    monkeypatch.setenv("PYSTREAM_BLOCK_PLUGINS", "broken, other")

    assert [name for name, _ in load_plugins()] == ["good"]
    assert broken not in sys.modules


@pytest.mark.promise("SDK-3")
def test_explicit_plugins_replace_discovery(distributions: Distributions) -> None:
    """Given plugins are used exactly as given, in their order, and nothing is discovered."""
    distributions.install("dist-one", "raise RuntimeError('broken')", GROUP, {"broken": "{module}"})

    class Zeta:
        pass

    class Alpha:
        pass

    given = [Zeta(), Alpha(), Zeta()]
    loaded = load_plugins(given)

    assert [plugin for _, plugin in loaded] == given
    assert [name.rpartition(".")[2] for name, _ in loaded] == ["Zeta", "Alpha", "Zeta#2"]
    assert load_plugins([]) == []


@pytest.mark.promise("SDK-3")
def test_plugin_given_twice_is_refused() -> None:
    """One object given twice would run its hooks twice, and is refused by name."""
    plugin = object()

    with pytest.raises(PluginError, match=r"^plugin 'object' was given twice to PyStream\(plugins=\.\.\.\)$"):
        load_plugins([plugin, plugin])


@pytest.mark.promise("SDK-4")
@pytest.mark.parametrize(
    ("source", "reference", "cause"),
    [
        pytest.param("raise RuntimeError('no\\n  luck')", "{module}", "RuntimeError: no luck", id="exception"),
        pytest.param("import absent_module", "{module}", "No module named 'absent_module'", id="import-error"),
        pytest.param("def broken(:", "{module}", "SyntaxError: ", id="syntax-error"),
        pytest.param("raise SystemExit(3)", "{module}", "SystemExit: 3", id="system-exit"),
        pytest.param("class Panic(BaseException): ...\nraise Panic()", "{module}", "Panic", id="base-exception"),
        pytest.param(None, "{module}", "ModuleNotFoundError: No module named", id="no-module"),
        pytest.param("", "{module}:absent", "AttributeError: ", id="no-attribute"),
    ],
)
def test_plugin_that_cannot_be_imported_refuses_the_start(
    distributions: Distributions, source: str | None, reference: str, cause: str
) -> None:
    """One sentence names the entry point, the distribution, the cause, and both ways to block it."""
    module = distributions.install("Dist-Broken", source, GROUP, {"audit": reference})

    with pytest.raises(PluginError) as refusal:
        load_plugins()

    text = str(refusal.value)
    value = reference.replace("{module}", module)
    assert text.startswith(
        f"the entry point 'audit = {value}' (pystream.plugins) of Dist-Broken 1.2 cannot be imported: "
    )
    assert cause in text
    assert text.endswith(
        "; uninstall it, block it with PYSTREAM_BLOCK_PLUGINS=audit, or name the plugins to use "
        "with PyStream(plugins=[...])"
    )
    assert "\n" not in text
    assert refusal.value.__cause__ is not None


@pytest.mark.promise("SDK-4")
def test_interrupt_while_a_plugin_is_imported_goes_through(distributions: Distributions) -> None:
    """Ctrl-C during an import is the user's, not the plugin's."""
    distributions.install("dist-one", "raise KeyboardInterrupt", GROUP, {"audit": "{module}"})

    with pytest.raises(KeyboardInterrupt):
        load_plugins()


@pytest.mark.promise("SDK-4")
def test_two_plugins_of_one_name_are_refused(distributions: Distributions) -> None:
    """Two distributions that register one name are both named in the refusal."""
    distributions.install("dist-one", GOOD, GROUP, {"audit": "{module}"})
    distributions.install("dist-two", GOOD, GROUP, {"audit": "{module}"})

    with pytest.raises(PluginError, match=r"dist-\w+ 1\.2 and dist-\w+ 1\.2 both register 'audit'") as refusal:
        load_plugins()

    assert "dist-one 1.2" in str(refusal.value)
    assert "dist-two 1.2" in str(refusal.value)
