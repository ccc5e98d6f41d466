"""What is known of a value on its way through an attention: an operand, scores, weights, the peak of the scores."""

from __future__ import annotations

import ast

from perfaudit.records import field, record, replace
from perfaudit.static.source import Function


@record(slots=True, eq=False)
class Chain:
    """One product of queries and keys, and what becomes of it.

    `outputs` are the products with the values, each with the values; several stand in branches of one `if`.
    """

    product: ast.expr
    query: ast.expr
    key: ast.expr
    function: Function
    rank: int | None = None  # axes of the scores, if known
    softmax: ast.expr | None = None
    outputs: list[tuple[ast.expr, ast.expr]] = field(default_factory=list)  # the product with the values, the values
    is_masked: bool = False
    has_dropout: bool = False
    wanted: bool = False  # the scores or weights serve something else too
    is_asked_for: bool = False  # the weights are given to who asks for them, which is not done by default
    returned_at: set[tuple[int, int]] = field(
        default_factory=set
    )  # where in a tuple of how many the weights are returned


@record(frozen=True, slots=True)
class Operand:
    """Something that may be multiplied: whether its last step turned it, its rank if known, whether it is `self.x`.

    features: the place of the width of a head, counted from the end, where the text tells; -2: the sequence is last.
    is_many: it stands for several of the kind, as `chunk` and `map` give them. guess: the rank where it is not known and its
    last step has exchanged the last two axes: 3 of `transpose(1, 2)`.
    """

    turned: bool = False
    rank: int | None = None
    is_own: bool = False
    features: int | None = None
    is_many: bool = False
    guess: int | None = None


@record(frozen=True, slots=True)
class Scores:
    """Products of queries and keys; `axis` is the place of the keys, counted from the end."""

    chains: frozenset[Chain]
    axis: int = -1
    rank: int | None = None
    is_masked: bool = False


@record(frozen=True, slots=True)
class Weights:
    """Scores after the softmax over the keys; `is_turned` when keys and queries have changed places."""

    chains: frozenset[Chain]
    axis: int = -1
    rank: int | None = None
    is_masked: bool = False
    is_turned: bool = False


@record(frozen=True, slots=True)
class Peak:
    """The largest score of each row, for subtracting it."""

    chains: frozenset[Chain]


Value = Operand | Scores | Weights | Peak
PLAIN = Operand()


def chains(value: Value | None) -> frozenset[Chain]:
    return frozenset() if value is None or isinstance(value, Operand) else value.chains


def want(*values: Value | None) -> None:
    """Note that scores or weights serve something else."""
    for value in values:
        for chain in chains(value):
            chain.wanted = True


def join_values(first: Value, second: Value) -> Value:
    """What a name is after two branches."""
    if isinstance(first, Operand) and isinstance(second, Operand):
        rank = first.rank if first.rank == second.rank else None
        features = first.features if first.features == second.features else None
        is_many = first.is_many and second.is_many
        return Operand(first.turned and second.turned, rank, first.is_own or second.is_own, features, is_many)
    if isinstance(first, Scores) and isinstance(second, Scores) and first.axis == second.axis:
        rank = first.rank if first.rank == second.rank else None
        return Scores(first.chains | second.chains, first.axis, rank, first.is_masked or second.is_masked)
    if isinstance(first, Weights) and isinstance(second, Weights):
        masked = first.is_masked or second.is_masked
        if first.is_turned == second.is_turned and first.axis == second.axis:
            return Weights(first.chains | second.chains, first.axis, None, masked, first.is_turned)
    want(first, second)
    return PLAIN


def piece(value: Operand) -> Operand:
    """What one name gets of an operand that is unpacked: one of several, or a slice along the first axis."""
    if value.is_many:
        return replace(value, is_many=False)
    if value.rank is None:
        return Operand(features=value.features)
    inside = value.features is not None and value.features > -value.rank
    return Operand(rank=value.rank - 1, features=value.features if inside else None)


def exchange_axes(value: Operand, first: object, second: object) -> Operand:
    """An operand with two axes exchanged."""
    features = value.features
    if features is not None:
        places = [_from_end(axis, value.rank) for axis in (first, second)]
        if None in places:
            features = None
        elif features in places:
            features = places[1 - places.index(features)]
    axes = [axis for axis in (first, second) if isinstance(axis, int)]
    guess = max(axes) + 1 if value.rank is None and sorted(axes) in ([1, 2], [2, 3]) else None
    return Operand(True, value.rank, value.is_own, features, guess=guess)


def permute_axes(value: Operand, axes: list[object]) -> Operand:
    """An operand with its axes in another order."""
    rank, features = len(axes), value.features
    if features is not None:
        places = [_from_end(axis, rank) for axis in axes]
        features = places.index(features) - rank if features in places else None
    return Operand(True, rank, value.is_own, features)


def _from_end(axis: object, rank: int | None) -> int | None:
    if not isinstance(axis, int):
        return None
    return axis if axis < 0 else None if rank is None else axis - rank
