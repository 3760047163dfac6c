"""The dispatch forms: who takes the next delivery, and on which task it is handled.

A form decides that and nothing else; what happens to a delivery is the pipeline's affair.
"""

from __future__ import annotations

from pystream._runtime.forms._form import Form
from pystream._runtime.forms.lanes import Lanes
from pystream._runtime.forms.pool import Pool
from pystream._runtime.forms.sequential import Sequential
from pystream.subscriber import ByKey

__all__ = ["Form", "make_form"]


def make_form(workers: int | ByKey, name: str) -> Form:
    """The form that `workers=` asks for; its tasks are named after the subscription."""
    if isinstance(workers, ByKey):
        return Lanes(workers.lanes, name)

    return Pool(workers, name) if workers > 1 else Sequential()
