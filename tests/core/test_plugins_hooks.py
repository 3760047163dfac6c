"""The frozen hook table: what may enter it, in which order, and the refusals of the rest."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import AsyncIterator, Iterator
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from pystream.errors import ConfigurationError, PluginError
from pystream.hookspecs import ServiceEvent, Settled, hookimpl
from pystream.plugins import HookTable, freeze, validate_function

if TYPE_CHECKING:
    from decimal import Decimal as Unresolvable

HOOKS = ["on_startup", "after_startup", "on_shutdown", "after_shutdown", "post_settle"]
EVENT = ServiceEvent(title="billing", version="1.0.0")


def five() -> Any:
    """A plugin with all five hooks, `async` ones among them."""

    class Five:
        @hookimpl
        def on_startup(self, event: ServiceEvent) -> None: ...

        @hookimpl
        async def after_startup(self, event: ServiceEvent) -> None: ...

        @hookimpl
        def on_shutdown(self) -> None: ...

        @hookimpl
        async def after_shutdown(self) -> None: ...

        @hookimpl
        def post_settle(self, event: Settled) -> None: ...

    return Five()


def plugin(**attributes: Any) -> Any:
    """A plugin made of the given attributes of its class."""
    return type("Plugin", (), attributes)()


@pytest.mark.promise("SDK-8")
def test_table_says_how_each_hook_is_called() -> None:
    """The table knows of each hook whose it is, whether it is async and whether it takes the event."""
    table = freeze([("five", five())], {})

    rows = {name: getattr(table, name) for name in HOOKS}
    assert {name: [(h.name, h.is_async, h.takes_event) for h in row] for name, row in rows.items()} == {
        "on_startup": [("five.on_startup", False, True)],
        "after_startup": [("five.after_startup", True, True)],
        "on_shutdown": [("five.on_shutdown", False, False)],
        "after_shutdown": [("five.after_shutdown", True, False)],
        "post_settle": [("five.post_settle", False, True)],
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        table.on_startup = ()  # type: ignore[misc]  # the point of the test


@pytest.mark.promise("SDK-8")
def test_no_plugins_and_no_functions_give_an_empty_table() -> None:
    """Without plugins and functions every row is the empty tuple."""
    assert freeze([], {}) == HookTable()
    assert all(getattr(HookTable(), name) == () for name in HOOKS)


@pytest.mark.promise("SDK-9")
@pytest.mark.parametrize("hook", HOOKS)
def test_start_hooks_go_forward_and_stop_hooks_backward(hook: str) -> None:
    """Plugins in registration order, then the app's functions; for the stop hooks the reverse of it."""

    def one() -> None: ...

    def two() -> None: ...

    plugins = [("alpha", five()), ("beta", five())]

    row = [h.name for h in getattr(freeze(plugins, {hook: [one, two]}), hook)]

    forward = [f"alpha.{hook}", f"beta.{hook}", *(f"{fn.__module__}.{fn.__qualname__}" for fn in (one, two))]
    assert row == (forward[::-1] if "shutdown" in hook else forward)


@pytest.mark.promise("SDK-8")
def test_frozen_function_is_the_bound_method_itself() -> None:
    """What the table holds is called without pluggy, and runs the plugin's own method."""
    calls: list[object] = []

    class Recorder:
        @hookimpl
        def on_startup(self, event: ServiceEvent) -> None:
            calls.append((self, event))

    recorder = Recorder()
    (hook,) = freeze([("recorder", recorder)], {}).on_startup
    hook.fn(EVENT)

    assert calls == [(recorder, EVENT)]


@pytest.mark.promise("SDK-8")
def test_modules_static_methods_and_other_names_are_plugins_too() -> None:
    """A module, a class of static methods and an implementation under another name are accepted."""
    module = ModuleType("audit")

    @hookimpl(specname="after_startup")
    def announce(event: ServiceEvent) -> None: ...

    module.announce = announce  # type: ignore[attr-defined]  # a module made by hand

    class Statics:
        @staticmethod
        @hookimpl
        def on_startup(event: ServiceEvent) -> None: ...

    table = freeze([("audit", module), ("statics", Statics)], {})

    assert [h.name for h in table.after_startup] == ["audit.after_startup"]
    assert [h.name for h in table.on_startup] == ["statics.on_startup"]


@pytest.mark.promise("SDK-8")
def test_hook_of_a_later_version_may_be_optional() -> None:
    """`@hookimpl(optionalhook=True)` lets a plugin implement a hook this version does not have."""

    @hookimpl(optionalhook=True)
    def on_reload(self: object, event: object) -> None: ...

    assert freeze([("audit", plugin(on_reload=on_reload))], {}) == HookTable()


def _generator(self: object, event: ServiceEvent) -> Iterator[None]:
    yield


async def _async_generator(self: object, event: ServiceEvent) -> AsyncIterator[None]:
    yield


def _event(self: object, event: ServiceEvent) -> None: ...


def _nothing(self: object) -> None: ...


def _two(self: object, event: ServiceEvent, app: object = None) -> None: ...


def _other_name(self: object, service: ServiceEvent) -> None: ...


def _keyword(self: object, *, event: ServiceEvent) -> None: ...


async def _star(self: object, *event: ServiceEvent) -> None: ...


def _wrong_type(self: object, event: Settled) -> None: ...


EXPECTED = "expected '[async] def on_startup(event: ServiceEvent)'"
WRAPPER = "is marked as a wrapper, which hooks of pystream cannot be"
GENERATOR = "is a generator, which would never run"
NOT_ONE = "which is not one positional parameter)"


def marked(fn: Any, **options: Any) -> Any:
    """A copy of the function with the marker, which would otherwise stay on the original."""
    copy = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__)
    copy.__annotations__ = fn.__annotations__
    copy.__kwdefaults__ = fn.__kwdefaults__
    return hookimpl(**options)(copy)


@pytest.mark.promise("SDK-10")
@pytest.mark.parametrize(
    ("implementation", "problem", "given"),
    [
        (marked(_generator), GENERATOR, "def on_startup(event: ServiceEvent): yield"),
        (marked(_async_generator), GENERATOR, "async def on_startup(event: ServiceEvent): yield"),
        (marked(_generator, hookwrapper=True), WRAPPER, "def on_startup(event: ServiceEvent): yield"),
        (marked(_generator, wrapper=True), WRAPPER, "def on_startup(event: ServiceEvent): yield"),
        (
            marked(_event, tryfirst=True),
            WRAPPER.replace("a wrapper", "tryfirst"),
            "def on_startup(event: ServiceEvent)",
        ),
        (marked(_event, trylast=True), WRAPPER.replace("a wrapper", "trylast"), "def on_startup(event: ServiceEvent)"),
        (
            marked(_two),
            "cannot be called (it takes 2: event, app=None)",
            "def on_startup(event: ServiceEvent, app: object = None)",
        ),
        (marked(_other_name), "must name its parameter 'event'", "def on_startup(service: ServiceEvent)"),
        (marked(_keyword), f"cannot be called (it takes event, {NOT_ONE}", "def on_startup(*, event: ServiceEvent)"),
        (marked(_star), f"cannot be called (it takes *event, {NOT_ONE}", "async def on_startup(*event: ServiceEvent)"),
        (
            marked(_wrong_type),
            "cannot be called (its parameter 'event' is annotated Settled)",
            "def on_startup(event: Settled)",
        ),
    ],
)
def test_implementation_that_is_no_hook_is_refused(implementation: Any, problem: str, given: str) -> None:
    """The refusal names the plugin, the hook, what is wrong, and both signatures."""
    with pytest.raises(PluginError) as refusal:
        freeze([("audit", plugin(on_startup=implementation))], {})

    assert str(refusal.value) == f"plugin 'audit': hook 'on_startup' {problem}: {EXPECTED}, given '{given}'"


@pytest.mark.promise("SDK-10")
def test_class_in_place_of_an_instance_is_refused() -> None:
    """A class whose hooks need an instance is refused, and the way out is named."""

    class Audit:
        @hookimpl
        def on_startup(self, event: ServiceEvent) -> None: ...

    with pytest.raises(PluginError) as refusal:
        freeze([("audit", Audit)], {})

    assert str(refusal.value) == (
        "plugin 'audit': hook 'on_startup' cannot be called (it takes 2: self, event): "
        f"{EXPECTED}, given 'def on_startup(self, event: ServiceEvent)'; register an instance, not the class"
    )


@pytest.mark.promise("SDK-10")
def test_unknown_hook_name_is_refused() -> None:
    """A marked function that is named after no hook is refused with the names of the hooks."""
    with pytest.raises(PluginError) as refusal:
        freeze([("audit", plugin(on_start=hookimpl(_nothing)))], {})

    assert str(refusal.value) == f"plugin 'audit': there is no hook 'on_start'; the hooks are {', '.join(HOOKS)}"


@pytest.mark.promise("SDK-10")
def test_hook_without_the_marker_is_refused() -> None:
    """A function named after a hook but not marked would silently never run, and is refused."""

    def on_startup(self: object, event: ServiceEvent) -> None: ...

    with pytest.raises(PluginError) as refusal:
        freeze([("audit", plugin(on_startup=on_startup))], {})

    assert str(refusal.value) == (
        "plugin 'audit': 'on_startup' is the name of a hook but lacks the marker; "
        "expected @hookimpl '[async] def on_startup(event: ServiceEvent)'"
    )


class _Callable:
    def __call__(self, event: ServiceEvent) -> None: ...


@pytest.mark.promise("SDK-10")
@pytest.mark.parametrize("value", [5, None, hookimpl(_Callable()), hookimpl(functools.partial(print))])
def test_hook_that_is_no_function_is_refused(value: Any) -> None:
    """A value, or a callable that pluggy would pass over in silence, is refused."""
    with pytest.raises(PluginError) as refusal:
        freeze([("audit", plugin(on_startup=value))], {})

    assert str(refusal.value) == (
        f"plugin 'audit': hook 'on_startup' is no function but of type {type(value).__name__}; {EXPECTED}"
    )


@pytest.mark.promise("SDK-10")
@pytest.mark.parametrize("value", [None, 5, "audit.plugin", object()])
def test_plugin_without_hooks_is_refused(value: object) -> None:
    """An object that implements no hook, such as a module's name, is refused."""
    with pytest.raises(PluginError) as refusal:
        freeze([("audit", value)], {})

    assert str(refusal.value) == (
        f"plugin 'audit' ({type(value).__name__}) implements no hook: mark a function of it with @hookimpl "
        f"and name it after one of {', '.join(HOOKS)}"
    )


@pytest.mark.promise("SDK-10")
def test_properties_of_a_plugin_are_not_run() -> None:
    """Validation looks at a plugin without evaluating its properties."""

    def explode(_: object) -> None:
        raise AssertionError

    table = freeze([("audit", plugin(state=property(explode), on_startup=hookimpl(_nothing)))], {})

    assert [h.name for h in table.on_startup] == ["audit.on_startup"]


def _typed(event: ServiceEvent) -> None: ...
def _optional(event: ServiceEvent | None = None) -> None: ...
def _any(event: Any) -> None: ...
def _object(event: object) -> None: ...
def _plain(event): ...  # type: ignore[no-untyped-def]  # users write such functions
def _bare() -> None: ...
def _positional(whatever: ServiceEvent, /) -> None: ...
async def _coroutine(event: ServiceEvent) -> None: ...
def _arguments(name: str, event: ServiceEvent) -> None: ...


class _AsyncCallable:
    async def __call__(self, event: ServiceEvent) -> None: ...


@pytest.mark.promise("SDK-11")
@pytest.mark.parametrize(
    ("fn", "is_async", "takes_event"),
    [
        (_typed, False, True),
        (_optional, False, True),
        (_any, False, True),
        (_object, False, True),
        (_plain, False, True),
        (_bare, False, False),
        (_positional, False, True),
        (_coroutine, True, True),
        (functools.partial(_arguments, "x"), False, True),
        (functools.partial(_coroutine, EVENT), True, False),
        (_Callable(), False, True),
        (_AsyncCallable(), True, True),
        (lambda: None, False, False),
        ([].clear, False, False),
    ],
)
def test_app_function_takes_nothing_or_the_event(fn: Any, is_async: bool, takes_event: bool) -> None:
    """Functions, methods, partials, lambdas and callable objects may be given to the app."""
    hook = validate_function("on_startup", fn)

    assert (hook.fn, hook.is_async, hook.takes_event) == (fn, is_async, takes_event)
    assert hook.name


class Pool: ...


def _pool(pool: Pool) -> None: ...
def _named(name: str, pool: Pool) -> None: ...
def _text_only(price: Unresolvable) -> None: ...
def _settled(event: Settled) -> None: ...
def _unannotated(event, more): ...  # type: ignore[no-untyped-def]  # users write such functions
def _rest(*events: ServiceEvent) -> None: ...
def _yielding() -> Iterator[None]:
    yield


TAKES = "on_startup is called for no delivery; it takes the event (ServiceEvent) and State[T]"


@pytest.mark.promise("SDK-11")
@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (_pool, f"{{name}}: the parameter 'pool' (Pool) cannot be filled, since {TAKES}"),
        (
            _text_only,
            f"{{name}}: the annotation of 'price' in module {__name__!r} cannot be resolved (name 'Unresolvable' "
            "is not defined); define or import the name at the top level of that module, outside `if TYPE_CHECKING`",
        ),
        (_settled, f"{{name}}: the parameter 'event' (Settled) cannot be filled, since {TAKES}"),
        (_arguments, f"{{name}}: the parameter 'name' (str) cannot be filled, since {TAKES}"),
        (_unannotated, "{name}: the parameter 'event' has no annotation; say what it should receive"),
        (_rest, "{name}: the parameter *events cannot be filled; name each parameter"),
        (
            functools.partial(_named, "x"),
            f"{__name__}._named: the parameter 'pool' (Pool) cannot be filled, since {TAKES}",
        ),
        (_yielding, "{name} is a generator, which is never run as a hook; use a def or an async def"),
        (
            5,
            "builtins.int is not a function; "
            "a function for on_startup takes the event (ServiceEvent) and State[T], or no parameters",
        ),
    ],
)
def test_app_function_that_cannot_be_called_is_refused(fn: Any, message: str) -> None:
    """The refusal names the function, what a hook takes, and what this one takes."""
    with pytest.raises(ConfigurationError) as refusal:
        validate_function("on_startup", fn)

    assert str(refusal.value) == message.format(name=f"{__name__}.{getattr(fn, '__name__', '')}")


@pytest.mark.promise("SDK-11")
@pytest.mark.parametrize(
    ("fn", "problem"),
    [
        (_pool, "its parameter 'pool' is annotated Pool"),
        (_typed, "its parameter 'event' is annotated ServiceEvent"),
        (_arguments, "it takes 2: name, event"),
        (_rest, "it takes *events, which is not one positional parameter"),
    ],
)
def test_post_settle_function_takes_nothing_or_the_event(fn: Any, problem: str) -> None:
    """What is called after each settlement is given the event alone; anything else is refused by name."""
    with pytest.raises(ConfigurationError) as refusal:
        validate_function("post_settle", fn)

    assert str(refusal.value) == (
        f"{__name__}.{fn.__name__}: a function for post_settle takes no parameters, or the event (Settled), "
        f"but {problem}"
    )


@pytest.mark.promise("SDK-11")
@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (functools.partial(_arguments, "x"), f"{__name__}._arguments"),
        (_Callable(), f"{__name__}._Callable"),
        ([].clear, "list.clear"),
    ],
)
def test_app_function_has_a_name_for_logs(fn: Any, name: str) -> None:
    """What has no name of its own is told by what it wraps, or by its type."""
    assert validate_function("on_startup", fn).name == name


@pytest.mark.promise("SDK-11")
def test_unknown_hook_of_the_app_is_refused() -> None:
    """A hook name that does not exist is refused with the names that do."""
    with pytest.raises(ConfigurationError, match=r"^there is no hook 'on_start'; the hooks are on_startup, "):
        validate_function("on_start", _bare)
