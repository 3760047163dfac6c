"""The frozen hook table, and the checks that every hook passes before it enters it.

pluggy finds, orders and verifies the implementations once, when a service starts; the
runtime calls the tuples of the table and never pluggy.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pluggy

from pystream import hookspecs
from pystream._callables import call_problem, is_async, name_of, shown, yields
from pystream._hook_parameters import TAKES, HookParameter, read_hook_parameters
from pystream.errors import ConfigurationError, PluginError
from pystream.hookspecs import PROJECT, ServiceEvent, Settled

__all__ = ["HOOKS", "Hook", "HookTable", "freeze", "is_async", "validate_function"]

HOOKS: Final[Mapping[str, type]] = {
    "on_startup": ServiceEvent,
    "after_startup": ServiceEvent,
    "on_shutdown": ServiceEvent,
    "after_shutdown": ServiceEvent,
    "post_settle": Settled,
}
"""Each hook's name and the type of its event."""

_REVERSED: Final = frozenset({"on_shutdown", "after_shutdown"})
_FUNCTIONS: Final = (types.FunctionType, types.MethodType, staticmethod, classmethod)
_FLAGS: Final = {"hookwrapper": "a wrapper", "wrapper": "a wrapper", "tryfirst": "tryfirst", "trylast": "trylast"}


@dataclass(frozen=True, slots=True)
class Hook:
    """One function to call.

    Attributes:
        name: Whose it is and what it is called, for logs and errors.
        fn: The function, bound if it is a method.
        is_async: Whether it is a coroutine function.
        takes_event: Whether it takes the event, and that alone.
        parameters: What it takes, if that is more, or something else.
    """

    name: str
    fn: Callable[..., Any]
    is_async: bool
    takes_event: bool
    parameters: tuple[HookParameter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HookTable:
    """The hooks of one started service, each tuple in the order of its calls.

    Start hooks and `post_settle`: plugins in registration order, then the app's functions.
    Stop hooks: the reverse of it.
    """

    on_startup: tuple[Hook, ...] = ()
    after_startup: tuple[Hook, ...] = ()
    on_shutdown: tuple[Hook, ...] = ()
    after_shutdown: tuple[Hook, ...] = ()
    post_settle: tuple[Hook, ...] = ()


def freeze(
    plugins: Iterable[tuple[str, object]], app_functions: Mapping[str, Sequence[Callable[..., Any]]]
) -> HookTable:
    """Check every hook and put them into the order of their calls.

    Args:
        plugins: Names and plugins, in registration order, as `load_plugins` gives them.
        app_functions: A hook's name to the functions given to the app, in registration order.

    Raises:
        PluginError: A hook of a plugin is not what its specification says.
        ConfigurationError: A function of the app cannot be a hook, or the hook is unknown.
    """
    manager = _registered(plugins)
    rows: dict[str, tuple[Hook, ...]] = {}
    for hook_name in HOOKS:
        found = [
            _hook(f"{impl.plugin_name}.{hook_name}", impl.function)
            for impl in getattr(manager.hook, hook_name).get_hookimpls()
        ]
        found += [validate_function(hook_name, fn) for fn in app_functions.get(hook_name, ())]
        rows[hook_name] = tuple(reversed(found)) if hook_name in _REVERSED else tuple(found)

    return HookTable(**rows)


def validate_function(hook_name: str, fn: Callable[..., Any], *, has_state: bool = True) -> Hook:
    """The table's value for a function given to the app.

    Args:
        hook_name: One of the five hooks.
        fn: A `def` or an `async def`. It takes nothing, or the event; for a start or a stop also
            `State[T]` and, while the brokers are connected, `Out[T]`.
        has_state: Whether the app has a state.

    Raises:
        ConfigurationError: There is no such hook, or the function cannot be called as one.
    """
    if hook_name not in HOOKS:
        raise ConfigurationError(f"there is no hook {hook_name!r}; the hooks are {', '.join(HOOKS)}")

    name = name_of(fn)
    if not callable(fn):
        raise ConfigurationError(f"{name} is not a function; {_takes(hook_name)}")

    if yields(fn):
        raise ConfigurationError(f"{name} is a generator, which is never run as a hook; use a def or an async def")

    problem = call_problem(fn, HOOKS[hook_name])
    if not problem:
        return _hook(name, fn)

    if hook_name not in TAKES:
        raise ConfigurationError(f"{name}: {_takes(hook_name)}, but {problem}")

    parameters = read_hook_parameters(hook_name, fn, name, has_state=has_state)
    return Hook(name, fn, is_async(fn), takes_event=False, parameters=parameters)


def _takes(hook_name: str) -> str:
    if hook_name in TAKES:
        return f"a function for {hook_name} takes {TAKES[hook_name]}, or no parameters"

    return f"a function for {hook_name} takes no parameters, or the event ({HOOKS[hook_name].__name__})"


class _Manager(pluggy.PluginManager):
    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        """The marks of a function; pluggy before 1.7 runs a plugin's properties to find them."""
        value = inspect.getattr_static(plugin, name, None)
        return super().parse_hookimpl_opts(plugin, name) if isinstance(value, _FUNCTIONS) else None


def _registered(plugins: Iterable[tuple[str, object]]) -> _Manager:
    manager = _Manager(PROJECT)
    manager.add_hookspecs(hookspecs)
    for name, plugin in plugins:
        _check_plugin(manager, name, plugin)
        try:
            manager.register(plugin, name)
        except (pluggy.PluginValidationError, ValueError) as error:
            raise PluginError(f"plugin {name!r}: {' '.join(str(error).split())}") from error

    manager.check_pending()
    return manager


def _check_plugin(manager: _Manager, name: str, plugin: object) -> None:
    implemented = 0
    for attribute in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, attribute)
        if options is None:
            _check_unmarked(name, plugin, attribute)
            continue

        _check_implementation(name, plugin, attribute, dict(options))
        implemented += 1

    if not implemented:
        raise PluginError(
            f"plugin {name!r} ({type(plugin).__name__}) implements no hook: mark a function of it with "
            f"@hookimpl and name it after one of {', '.join(HOOKS)}"
        )


def _check_unmarked(name: str, plugin: object, attribute: str) -> None:
    value = inspect.getattr_static(plugin, attribute, None)
    marked = isinstance(inspect.getattr_static(value, f"{PROJECT}_impl", None), dict)
    if not marked and attribute not in HOOKS:
        return

    expected = _expected(attribute)
    if marked or not (callable(value) or isinstance(value, (staticmethod, classmethod))):
        raise PluginError(
            f"plugin {name!r}: hook {attribute!r} is no function but of type {type(value).__name__}; "
            f"expected {expected}"
        )

    raise PluginError(
        f"plugin {name!r}: {attribute!r} is the name of a hook but lacks the marker; expected @hookimpl {expected}"
    )


def _check_implementation(name: str, plugin: object, attribute: str, options: Mapping[str, Any]) -> None:
    hook_name = options.get("specname") or attribute
    if hook_name not in HOOKS:
        if options.get("optionalhook"):
            return

        raise PluginError(f"plugin {name!r}: there is no hook {hook_name!r}; the hooks are {', '.join(HOOKS)}")

    fn = getattr(plugin, attribute)
    problem = _problem(fn, HOOKS[hook_name], options)
    if not problem:
        return

    hint = "; register an instance, not the class" if inspect.isclass(plugin) else ""
    raise PluginError(
        f"plugin {name!r}: hook {hook_name!r} {problem}: "
        f"expected {_expected(hook_name)}, given {shown(attribute, fn)}{hint}"
    )


def _problem(fn: Callable[..., Any], event_type: type, options: Mapping[str, Any]) -> str | None:
    for flag, words in _FLAGS.items():
        if options.get(flag):
            return f"is marked as {words}, which hooks of pystream cannot be"

    if yields(fn):
        return "is a generator, which would never run"

    problem = call_problem(fn, event_type)
    if problem:
        return f"cannot be called ({problem})"

    parameters = list(inspect.signature(fn).parameters)
    return "must name its parameter 'event'" if parameters not in ([], ["event"]) else None


def _hook(name: str, fn: Callable[..., Any]) -> Hook:
    return Hook(name, fn, is_async(fn), bool(inspect.signature(fn).parameters))


def _expected(hook_name: str) -> str:
    event_type = HOOKS.get(hook_name, ServiceEvent)
    return f"'[async] def {hook_name}(event: {event_type.__name__})'"
