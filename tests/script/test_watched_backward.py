"""Whether calls before a number that was read have a part in a loss, as its graph tells."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from perfaudit.script.watched_backward import MOST_NODES, reaches_before


class Node:
    """Of a graph, as torch has it."""

    def __init__(self, number: int, following: Iterable[Node | None] = ()) -> None:
        self._number, self.next_functions = number, [(each, 0) for each in following]

    def _sequence_nr(self) -> int:
        return self._number


class Root:
    """A tensor that this node has made; None of a parameter."""

    def __init__(self, grad_fn: object) -> None:
        self.grad_fn = grad_fn


EARLY, LATE = Root(Node(9, [Node(4)])), Root(Node(9, [Node(6), None]))


def chain(length: int) -> Root:
    node = Node(6)
    for _ in range(length - 1):
        node = Node(6, [node])
    return Root(node)


@pytest.mark.parametrize(
    ("roots", "reaches"),
    [
        (EARLY, True),
        (LATE, False),
        ([LATE, EARLY], True),
        ((LATE, LATE), False),
        ([LATE, Root(None)], False),
        (chain(MOST_NODES), False),
        (chain(MOST_NODES + 1), None),
        (Root(object()), None),
        ([LATE, object()], None),
        (None, None),  # given by name
    ],
)
def test_whether_a_loss_is_made_of_earlier_calls(roots: object, reaches: bool | None) -> None:
    assert reaches_before(roots, 5) is reaches
