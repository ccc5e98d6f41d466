"""Whether the samples of a DataLoader lie ready in memory, so that looking one up is all there is to do.

A data set may be defined in another file of the project; its class is then read there.
"""

from __future__ import annotations

import ast
import re

from perfaudit.expressions import regex
from perfaudit.static.checks.dataloader_no_workers.samples import (
    READ_WHEN_ASKED,
    Found,
    class_of_samples,
    may_read_when_asked,
    method_of,
    values_held,
)
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import assigned_value, resolve

_OTHER_SETS = regex(r"dataset|subset|base|source|reader|loader|images?_?folder|hdf5|h5|env|store", re.IGNORECASE)
# Calls and methods that make a tensor or a number of what lies in memory, at the price of a copy at most.
_TAKES = {
    "tensor",
    "as_tensor",
    "from_numpy",
    "FloatTensor",
    "LongTensor",
    "Tensor",
    "Variable",
    "asarray",
    "array",
    "int",
    "float",
    "str",
}
_TAKES_METHODS = {
    *(
        "float",
        "long",
        "int",
        "double",
        "half",
        "bool",
        "copy",
        "clone",
        "squeeze",
        "unsqueeze",
        "view",
        "reshape",
        "astype",
    ),
    *("item", "tolist", "detach", "numpy", "permute", "transpose", "type", "contiguous", "flatten"),
}
_FOLLOW = 4  # names and functions followed from the call to a class


def only_looks_up(source: Source, dataset: ast.expr) -> bool:
    """Whether a sample is what lies in memory under its index, of a class of this project that does nothing else.

    Tensors, arrays, numbers or strings that `__init__` loaded or was given. Another process would have to send them back,
    which costs more than to take them. Not where what is held may be read when it is asked for, as HDF5 and memory maps are.
    """
    found = class_of_samples(source, dataset)
    if found is None:
        table = _classes_of_table(source, dataset)
        return bool(table) and all(looks_up(source, inside, definition, call) for (inside, definition), call in table)
    (inside, definition), call = found
    return looks_up(source, inside, definition, call)


def _classes_of_table(source: Source, dataset: ast.expr) -> list[tuple[Found, ast.Call]]:
    """The classes of a dict of which one is built, `kind = kinds[name]; kind(path)`; [] where one of them is not in sight."""
    call = resolve(source, dataset) or dataset
    if not isinstance(call, ast.Call):
        return []
    picked = (resolve(source, call.func) or call.func) if isinstance(call.func, ast.Name) else call.func
    if isinstance(picked, ast.Call):
        picked = _returned_once(source, picked) or picked
    table = resolve(source, picked.value) if isinstance(picked, ast.Subscript) else None
    if not isinstance(table, ast.Dict) or not table.values:
        return []
    found: list[tuple[Found, ast.Call]] = []
    for value in table.values:
        made = ast.Call(value, call.args, call.keywords)
        if (kind := class_of_samples(source, made)) is None:
            return []
        found.append((kind[0], call))
    return found


def _returned_once(source: Source, call: ast.Call) -> ast.expr | None:
    """What a function of this file returns, where it does so in one place: `def kind(name): return kinds[name]`."""
    named = source.lookup(call.func) if isinstance(call.func, ast.Name) else []
    if len(named) != 1 or not isinstance(named[0], FUNCTIONS):
        return None
    returned = [node.value for node in ast.walk(named[0]) if isinstance(node, ast.Return)]
    return returned[0] if len(returned) == 1 else None


def _with_bases(source: Source, definition: ast.ClassDef) -> list[ast.ClassDef]:
    """A class and those of the same file that it is derived from, the nearest first."""
    found = [definition]
    for kind in found:
        for base in kind.bases:
            bindings = source.lookup(base) if isinstance(base, ast.Name) else []
            found += [b for b in bindings if isinstance(b, ast.ClassDef) and b not in found]
    return found


def looks_up(source: Source, inside: Source, definition: ast.ClassDef, call: ast.Call) -> bool:
    """The same of a class and the call by which another file builds it."""
    kinds = _with_bases(inside, definition)
    item = next((method for kind in kinds if (method := method_of(kind, "__getitem__")) is not None), None)
    if (
        item is None
        or len(item.args.args) != 2
        or item.decorator_list
        or any(may_read_when_asked(inside, kind) for kind in kinds)
    ):
        return False
    returned = [node.value for node in ast.walk(item) if isinstance(node, ast.Return)]
    steps = [node for node in ast.walk(item) if isinstance(node, (ast.For, ast.While, ast.With, ast.ListComp, ast.Try))]
    if not returned or steps:
        return False
    reads = _Reads(inside, item)
    put_in = [node.value for node in ast.walk(item) if isinstance(node, ast.Assign) and _is_put_in(node)]
    if not all(value is not None and reads.is_plain(value) for value in (*returned, *put_in)) or not reads.held:
        return False
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if any(READ_WHEN_ASKED.search(source.text_of(resolve(source, value) or value)) for value in given):
        return False
    return all(any(_is_held(inside, kind, name) for kind in kinds) for name in reads.held)


def _is_put_in(statement: ast.Assign) -> bool:
    """`sample["label"] = torch.tensor(self.labels[i])`"""
    return any(isinstance(target, ast.Subscript) for target in statement.targets)


class _Reads:
    """What a `__getitem__` returns, as far as it only takes things held by the object at its index."""

    def __init__(self, source: Source, item: Function) -> None:
        self._source = source
        self._index = item.args.args[1].arg
        self._followed: set[int] = (
            set()
        )  # names of which the values are being looked at: `label = torch.tensor([label])`
        self.held: set[str] = set()

    def is_plain(self, node: ast.expr, depth: int = _FOLLOW * 3) -> bool:
        if not depth:
            return False
        if isinstance(node, ast.Constant) or (
            isinstance(node, ast.Attribute) and dotted_name(node).startswith("self.")
        ):
            return True
        if isinstance(node, (ast.Tuple, ast.List)):
            return all(self.is_plain(element, depth - 1) for element in node.elts)
        if isinstance(node, ast.Dict):
            return all(value is not None and self.is_plain(value, depth - 1) for value in node.values)
        if isinstance(node, ast.DictComp):
            return self._is_taken_of_items(node)
        if isinstance(node, ast.Subscript):
            return self._is_looked_up(node)
        if isinstance(node, ast.Call):
            return self._is_taken(node, depth)
        if isinstance(node, ast.Name):
            if node.id == self._index:
                return True
            bindings = self._source.lookup(node)
            further = [binding for binding in bindings if id(binding) not in self._followed]
            self._followed.update(map(id, further))
            values = [self._bound_value(binding) for binding in further]
            return bool(bindings) and all(value is not None and self.is_plain(value, depth - 1) for value in values)
        return False

    def _bound_value(self, binding: ast.AST) -> ast.expr | None:
        """What a name is bound to; of `row, column = self.places[i]`, the right side."""
        value = assigned_value(self._source, binding)
        if value is not None or not isinstance(binding, ast.Name):
            return value
        statement = self._source.statement(binding)
        return statement.value if isinstance(statement, ast.Assign) and self._is_row(statement) else None

    def _is_row(self, statement: ast.Assign) -> bool:
        return len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Tuple)

    def _is_taken(self, call: ast.Call, depth: int) -> bool:
        name = last_name(call.func)
        if isinstance(call.func, ast.Attribute) and name in _TAKES_METHODS:
            is_function = (self._source.qualified_name(call.func) or "") in (f"torch.{name}", f"numpy.{name}")
            taken = (
                call.args[:1] if is_function else [call.func.value]
            )  # `torch.transpose(x, 0, 1)`, `x.transpose(0, 1)`
            return bool(taken) and self.is_plain(taken[0], depth - 1)
        if name in ("tuple", "list") and len(call.args) == 1 and isinstance(call.args[0], ast.GeneratorExp):
            return self._is_taken_of_each(call.args[0])
        return name in _TAKES and bool(call.args) and self.is_plain(call.args[0], depth - 1)

    def _is_taken_of_each(self, row: ast.GeneratorExp) -> bool:
        """`tuple(tensor[i] for tensor in self.tensors)`: what lies under the index in each of what is held."""
        turn = row.generators[0]
        held = dotted_name(turn.iter)
        if len(row.generators) != 1 or turn.ifs or not held.startswith("self."):
            return False
        if not isinstance(turn.target, ast.Name) or not self._is_under_index(row.elt, turn.target.id):
            return False
        self.held.add(held.split(".")[1])
        return True

    def _is_taken_of_items(self, row: ast.DictComp) -> bool:
        """`{name: torch.tensor(values[i]) for name, values in self.encodings.items()}`"""
        turn = row.generators[0]
        held = dotted_name(turn.iter.func) if isinstance(turn.iter, ast.Call) else ""
        if len(row.generators) != 1 or turn.ifs or not held.startswith("self.") or not held.endswith(".items"):
            return False
        if not isinstance(turn.target, ast.Tuple) or held.count(".") != 2:
            return False
        if row.value is None or not self._is_under_index(row.value, dotted_name(turn.target.elts[-1])):
            return False
        self.held.add(held.split(".")[1])
        return True

    def _is_under_index(self, node: ast.expr, name: str) -> bool:
        """Whether an expression is what a name holds under the index, also made a tensor: `torch.tensor(name[i])`."""
        while isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in _TAKES_METHODS:
                node = node.func.value
            elif last_name(node.func) in _TAKES and node.args:
                node = node.args[0]
            else:
                return False
        return (
            isinstance(node, ast.Subscript)
            and dotted_name(node.value) == name
            and dotted_name(node.slice) == self._index
        )

    def _is_looked_up(self, node: ast.Subscript) -> bool:
        """`self.x[i]`, `self.x[i][0]`, `self.x[i : i + self.length]`, `self.x.iloc[i]`, `self.x["states"][row][i]`."""
        slices = [node.slice]
        held = node.value
        while isinstance(held, ast.Subscript):
            slices.append(held.slice)
            held = held.value
        name = dotted_name(held)
        nodes = [n for part in slices for n in ast.walk(part)]
        if not name.startswith("self.") or any(isinstance(n, ast.Call) for n in nodes):
            return False
        self.held.add(name.split(".")[1])
        return any(isinstance(n, ast.Name) and self._is_place(n) for n in nodes)

    def _is_place(self, name: ast.Name, depth: int = _FOLLOW) -> bool:
        """Whether a name is the index, what the object holds for it, or counted from it: `end = begin + self.length`."""
        if name.id == self._index:
            return True
        values = [self._bound_value(binding) for binding in self._source.lookup(name)] if depth else []
        return bool(values) and all(v is not None and self._leads_to_place(v, depth - 1) for v in values)

    def _leads_to_place(self, value: ast.expr, depth: int) -> bool:
        if isinstance(value, ast.Subscript):
            return self._is_looked_up(value)
        if isinstance(value, ast.BinOp):
            return self._leads_to_place(value.left, depth) or self._leads_to_place(value.right, depth)
        return isinstance(value, ast.Name) and self._is_place(value, depth)


def _is_held(source: Source, definition: ast.ClassDef, name: str) -> bool:
    """Whether what the object holds under a name is data: not another data set, which may do anything for a sample."""
    values = list(values_held(source, definition, name))
    if not values:
        return False
    return not any(isinstance(value, ast.Name) and _OTHER_SETS.search(name) for value in values)
