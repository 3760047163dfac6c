"""The dispatch forms: who takes the next delivery, and on which task it is handled.

A form decides that and nothing else; what happens to a delivery is the pipeline's affair.
"""

from __future__ import annotations

from pystream._runtime.forms._form import Died, Form, let_on
from pystream._runtime.forms.lanes import Lanes
from pystream._runtime.forms.pool import Pool
from pystream._runtime.forms.sequential import Sequential
from pystream._runtime.forms.threads import Compile, Threads
from pystream.subscriber import ByKey

__all__ = ["Compile", "Died", "Form", "make_form", "make_threads"]


def make_form(workers: int | ByKey, name: str, died: Died = let_on) -> Form:
    """The form that `workers=` asks for; its tasks are named after the subscription."""
    if isinstance(workers, ByKey):
        return Lanes(workers.lanes, name, died)

    return Pool(workers, name, died) if workers > 1 else Sequential()


def make_threads(threads: int | ByKey, name: str, compiled: Compile, max_tracked: int, died: Died = let_on) -> Form:
    """The form that `threads=` asks for; its threads are named after the subscription."""
    keyed = isinstance(threads, ByKey)
    size = threads.lanes if isinstance(threads, ByKey) else threads
    return Threads(size, name, keyed=keyed, compiled=compiled, max_tracked=max_tracked, died=died)
