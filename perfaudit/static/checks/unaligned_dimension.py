"""PA206: a large vocabulary or width that leaves tensor cores a ragged edge."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.members import attributes
from perfaudit.static.understanding.values import Known, argument, constant, enclosing_function

VOCABULARY = 1000  # entries; below, the output layer is small whatever its alignment
VOCABULARY_STEP = 64
WIDTH = 512  # features; below, a layer is bound by memory traffic and launches
WIDTH_STEP = 8  # float16 and bfloat16 values in 16 bytes, what cuBLAS asks of a row for its fastest kernels

RECURRENT = {f"torch.nn.{name}" for name in ("LSTM", "GRU", "RNN")}


@check("PA206", call="torch.nn.Linear")
def unaligned_output(source: Source, linear: ast.Call) -> Iterator[Seen]:
    outputs = _size(source, linear, "out_features", 1)
    if outputs is None or outputs < VOCABULARY or outputs % VOCABULARY_STEP == 0:
        return
    if outputs not in _vocabularies(source):
        return
    padded = -(-outputs // VOCABULARY_STEP) * VOCABULARY_STEP
    yield Seen(
        linear,
        f"the vocabulary of {outputs} is no multiple of {VOCABULARY_STEP}: `{source.brief(linear)}` runs in slower kernels "
        "in mixed precision",
        Proposal(
            f"pad the vocabulary to {padded}, in the embedding and the output layer; the added entries are never the target"
        ),
    )


@check("PA206", call=["torch.nn.Linear", *sorted(RECURRENT)])
def unaligned_width(source: Source, layer: ast.Call) -> Iterator[Seen]:
    kind = source.qualified_name(layer.func)
    width = _size(source, layer, "out_features" if kind == "torch.nn.Linear" else "hidden_size", 1)
    if width is None or width < WIDTH or width % WIDTH_STEP == 0 or width in _vocabularies(source):
        return
    if kind == "torch.nn.Linear" and not _is_hidden(source, layer, width):
        return
    down, up = width // WIDTH_STEP * WIDTH_STEP, -(-width // WIDTH_STEP) * WIDTH_STEP
    yield Seen(
        layer,
        f"the width of {width} is no multiple of {WIDTH_STEP}: `{source.brief(layer)}` runs in slower kernels in mixed precision",
        Proposal(f"take {down} or {up} for a new model"),
    )


def _is_hidden(source: Source, linear: ast.Call, width: int) -> bool:
    """Whether a later linear layer of the class or function takes this width in; then only the author chose it."""
    here = source.enclosing(linear, ast.ClassDef, *FUNCTIONS)
    return any(
        (other.lineno, other.col_offset) > (linear.lineno, linear.col_offset)
        and source.enclosing(other, ast.ClassDef, *FUNCTIONS) is here
        and _size(source, other, "in_features", 0) == width
        for other in source.calls("torch.nn.Linear")
    )


@remember
def _vocabularies(source: Source) -> frozenset[int]:
    """The numbers of entries of the embeddings of a file that are plain numbers."""
    sizes = (_size(source, call, "num_embeddings", 0) for call in source.calls("torch.nn.Embedding"))
    return frozenset(size for size in sizes if size is not None)


def _size(source: Source, call: ast.Call, name: str, position: int) -> int | None:
    """A size that is a literal, a name for one, a parameter with such a default, or a field of a class of this file."""
    given = argument(source, call, name, position)
    if isinstance(given, Known):
        return None
    value = constant(source, given)
    if isinstance(given, ast.Name) and not isinstance(value, int):
        value = constant(source, default) if (default := _default(source, given)) is not None else None
    elif isinstance(given, ast.Attribute):
        field = _field(source, given.attr)
        value = constant(source, field) if field is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _default(source: Source, name: ast.Name) -> ast.expr | None:
    bindings = source.lookup(name)
    function = enclosing_function(source, bindings[0]) if len(bindings) == 1 else None
    if function is None or not isinstance(bindings[0], ast.arg):
        return None
    positional = [*function.args.posonlyargs, *function.args.args]
    given = list(zip(reversed(positional), reversed(function.args.defaults), strict=False))
    given += [(a, d) for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if d is not None]
    return next((default for parameter, default in given if parameter is bindings[0]), None)


def _field(source: Source, name: str) -> ast.expr | None:
    """The value of `vocab_size: int = 50257` in a class body, if nothing in the file sets another."""
    fields = _fields(source).get(name, [])
    if len(fields) != 1 or any(keyword.arg == name for keyword in source.nodes(ast.keyword)):
        return None
    is_set = any(isinstance(node.ctx, ast.Store) for node in attributes(source).get(name, []))
    return fields[0] if not is_set else None


@remember
def _fields(source: Source) -> dict[str, list[ast.expr | None]]:
    """The values of the annotated names in class bodies."""
    table: dict[str, list[ast.expr | None]] = {}
    for definition in source.nodes(ast.ClassDef):
        for statement in definition.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                table.setdefault(statement.target.id, []).append(statement.value)
    return table
