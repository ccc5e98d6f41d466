"""Whether a program runs only with a torch from before 2.0, by what it imports and calls: what came later is no cure for it."""

from __future__ import annotations

import ast
import functools

from perfaudit.expressions import regex
from perfaudit.static.project.marks import BEFORE_AUTOCAST, INDEXED_LOSS, OLD_TORCH, is_python_2
from perfaudit.static.source import FUNCTIONS, Source

_SIX = "torch._six"
_GONE = {
    "torchtext.legacy",
    _SIX,
    "torch.utils.ffi",
}  # modules that no torch from 2.0 on, nor a torchtext for it, has
_OF_TORCHTEXT = {  # left `torchtext.data` with torchtext 0.9, for torch 1.8
    *("Field", "LabelField", "RawField", "NestedField", "ReversibleField", "BucketIterator", "BPTTIterator"),
    *("TabularDataset", "Iterator"),
}
_OVER_ALL = {"sum", "mean", "max", "min", "prod", "norm", "std", "var"}  # of all elements, where they are given nothing
# What torch 1.x lacks, or has only in its last versions, as it stands in a patch.
NEW = regex(
    r"\bfused=|\bforeach=|_foreach_|scaled_dot_product_attention|\bcompile\(|autocast|approximate=|\bmish\b|use_reentrant"
    r"|matmul_precision|rms_norm|RMSNorm|get_total_norm|persistent_workers|set_to_none",
    words="fused=|foreach=|_foreach_|scaled_dot_product|compile(|autocast|approximate=|mish|use_reentrant"
    "|matmul_precision|rms_norm|RMSNorm|get_total_norm|persistent_workers|set_to_none",
)


@functools.lru_cache(maxsize=4)  # several rules ask for the same file
def needs_old_torch(source: Source) -> bool:
    """Whether this file, or one of the project that it imports, needs what is only there in a torch before 2.0, or beside one.

    Not where a `try` around an import says that it may fail.
    """
    return _needs(source, OLD_TORCH)


def lacks_autocast(source: Source) -> bool:
    """Whether it needs what no torch with autocast in bfloat16 has, which came with 1.10; `torch._six` stayed until 2.0."""
    return _needs(source, BEFORE_AUTOCAST)


def _needs(source: Source, mark: str) -> bool:
    if _runs_before_1_0(source):
        return True
    kept = {_SIX} if mark == BEFORE_AUTOCAST else set()
    imported = [name for s in _imports(source) if not _may_fail(source, s) for name in _imported_names(s)]
    if any(_is_gone(name) and name.rpartition(".")[0] not in kept and name not in kept for name in imported):
        return True
    if "torchtext" in source.text and any(
        _is_gone(source.qualified_name(n) or "") for n in source.nodes(ast.Attribute)
    ):
        return True
    return source.neighbours is not None and (source.neighbours.imports_carry(mark) or imports_what_raises(source))


def imports_what_raises(source: Source) -> bool:
    """Whether a file that this one imports indexes a loss without dimensions, which raises in every torch since 1.0.

    Where this one reads a loss as torch has it since 0.4, what indexes one elsewhere is no part of its training.
    """
    if source.neighbours is None or ".item()" in source.text:
        return False
    return source.neighbours.imports_carry(INDEXED_LOSS)


def _runs_before_1_0(source: Source) -> bool:
    """Whether the file raises in every torch from 1.1 on, or is of Python 2. A volatile variable only draws a warning."""
    if "xrange(" in source.text and is_python_2(source.text.encode("utf-8", "replace")):
        return True
    return raises_since_1_1(source)


@functools.lru_cache(maxsize=4)  # asked for each finding
def raises_since_1_1(source: Source) -> bool:
    """Whether the file indexes a loss or sum without dimensions (`loss.data[0]`) or unpacks a packed sequence into two: errors in
    every torch since 1.0, and 1.1.
    """
    if ".data[0]" in source.text and any(_is_indexed_loss(node) for node in source.nodes(ast.Subscript)):
        return True
    return "pack_padded_sequence" in source.text and any(
        isinstance(parent := source.parent(call), ast.Assign)
        and isinstance(parent.targets[0], ast.Tuple)
        and len(parent.targets[0].elts) == 2
        for call in source.nodes(ast.Call)
        if _last_name(call.func) == "pack_padded_sequence"
    )


def indexes_a_number(source: Source) -> bool:
    """Whether a file has one of `indexed_numbers`."""
    return bool(indexed_numbers(source))


@functools.lru_cache(maxsize=4)  # as above
def indexed_numbers(source: Source) -> tuple[ast.Subscript, ...]:
    """The first of a loss as an array, `loss.data.cpu().numpy()[0]`, or of one that is computed there,
    `nll_loss(out, y).data[0]`: it has no first since torch 0.4.
    """
    if "[0]" not in source.text or (".numpy()" not in source.text and ".data[0]" not in source.text):
        return ()
    firsts = (n for n in source.nodes(ast.Subscript) if isinstance(n.slice, ast.Constant) and n.slice.value == 0)
    return tuple(node for node in firsts if _is_of_loss(node.value))


def _is_of_loss(value: ast.expr) -> bool:
    """Whether a value is a loss as an array, or the data of one that is computed there."""
    if isinstance(value, ast.Call) and _last_name(value.func) == "numpy":
        return any("loss" in _last_name(part).lower() for part in ast.walk(value))
    computed = value.value if isinstance(value, ast.Attribute) and value.attr == "data" else None
    return isinstance(computed, ast.Call) and "loss" in _last_name(computed.func).lower()


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_indexed_loss(node: ast.Subscript) -> bool:
    """`loss.data[0]`, of whatever loss, and `(label != 0).sum().data[0]`: of what else has no dimensions."""
    data = node.value
    is_first = isinstance(node.slice, ast.Constant) and node.slice.value == 0
    if not is_first or not isinstance(data, ast.Attribute) or data.attr != "data":
        return False
    whole = data.value
    if isinstance(whole, ast.Call) and isinstance(whole.func, ast.Attribute) and not whole.args and not whole.keywords:
        return whole.func.attr in _OVER_ALL
    return "loss" in _last_name(whole).lower()


def _imports(source: Source) -> list[ast.Import | ast.ImportFrom]:
    return [*source.nodes(ast.Import), *source.nodes(ast.ImportFrom)]


def _imported_names(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    return [f"{statement.module}.{alias.name}" for alias in statement.names] if not statement.level else []


def _is_gone(dotted: str) -> bool:
    if any(dotted == name or dotted.startswith(f"{name}.") for name in _GONE):
        return True
    module, _, name = dotted.rpartition(".")
    return module == "torchtext.data" and name in _OF_TORCHTEXT


def _may_fail(source: Source, statement: ast.stmt) -> bool:
    """Whether the import is one of several ways: in a `try`, under a condition, or in a function that need not run."""
    return source.enclosing(statement, ast.Try, ast.If, *FUNCTIONS) is not None
