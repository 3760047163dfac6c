"""The order service with one handler exchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pystream import FailurePolicy, PyStream, mount
from pystream.protocols import Broker
from pystream.subscriber import ByKey

from examples.orders.books import Books
from examples.orders.run import MakeApp
from examples.orders.service import Topics, confirm, move_stock, receive


def service(
    *,
    confirm: Callable[..., Any] = confirm,
    receive: Callable[..., Any] = receive,
    move_stock: Callable[..., Any] = move_stock,
    workers: int | ByKey | None = None,
    on_failure: FailurePolicy | None = None,
) -> MakeApp:
    """A maker of the service over bare names; `workers` are those of a `move_stock` that states none."""

    def make(broker: Broker, topics: Topics, books: Books) -> PyStream:
        app = PyStream("orders", state=books, on_failure=on_failure).with_broker(
            broker,
            mount(confirm, topics.orders, reply_to=topics.confirmed),
            mount(receive, topics.confirmed),
            mount(move_stock, topics.stock, workers=workers),
        )
        app.post_settle(books.settled)
        return app

    return make
