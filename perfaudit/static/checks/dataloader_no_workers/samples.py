"""Whether the samples of a DataLoader lie ready in memory, so that looking one up is all there is to do.

A data set may be defined in another file of the project; its class is then read there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import assigned_value, resolve

# What is read when it is asked for, in the text of a class or of what it is given.
READ_WHEN_ASKED = regex(
    r"h5py|memmap|mmap|lmdb|zarr|load_dataset|load_from_disk|netCDF|open_dataset|pyarrow|parquet|ffcv|decord"
    r"|ImageFolder|DatasetFolder|torchvision\.datasets|datasets\.[A-Z]|Reader\(|Dataset\("
)
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

Found = tuple[Source, ast.ClassDef]


def class_of_samples(source: Source, dataset: ast.expr) -> tuple[Found, ast.Call] | None:
    """The class of the data set, of this file or of another one of the project, and the call that builds it."""
    node = resolve(source, dataset) or dataset
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name):
        for definition in source.bound_in(source.tree).get(node.func.id, []):
            if isinstance(definition, ast.ClassDef):
                return (source, definition), node
    dotted = source.qualified_name(node.func) or ""
    if source.neighbours is None or not dotted or dotted.partition(".")[0] == "torch":
        return None
    found = source.neighbours.definition_of(dotted)
    return ((found[0], found[1]), node) if found is not None and isinstance(found[1], ast.ClassDef) else None


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
    if not all(value is not None and reads.is_plain(value) for value in returned) or not reads.held:
        return False
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if any(READ_WHEN_ASKED.search(source.text_of(resolve(source, value) or value)) for value in given):
        return False
    return all(any(_is_held(inside, kind, name) for kind in kinds) for name in reads.held)


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
        if (
            len(row.generators) != 1
            or turn.ifs
            or not held.startswith("self.")
            or not isinstance(turn.target, ast.Name)
        ):
            return False
        if not isinstance(row.elt, ast.Subscript) or dotted_name(row.elt.value) != turn.target.id:
            return False
        if dotted_name(row.elt.slice) != self._index:
            return False
        self.held.add(held.split(".")[1])
        return True

    def _is_taken_of_items(self, row: ast.DictComp) -> bool:
        """`{name: tensor[i] for name, tensor in self.tensors.items()}`"""
        turn = row.generators[0]
        held = dotted_name(turn.iter.func) if isinstance(turn.iter, ast.Call) else ""
        if len(row.generators) != 1 or turn.ifs or not held.startswith("self.") or not held.endswith(".items"):
            return False
        if not isinstance(turn.target, ast.Tuple) or not isinstance(row.value, ast.Subscript) or held.count(".") != 2:
            return False
        if (
            dotted_name(row.value.value) != dotted_name(turn.target.elts[-1])
            or dotted_name(row.value.slice) != self._index
        ):
            return False
        self.held.add(held.split(".")[1])
        return True

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


def values_held(source: Source, definition: ast.ClassDef, name: str) -> Iterator[ast.expr]:
    """What is assigned to `self.name`; of `self.x, self.y = load()`, the right side."""
    for node in _attributes_set(source, definition).get(name, ()):
        statement = source.statement(node)
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            yield assigned_value(source, node) or statement.value


@remember  # asked for each name that a class reads
def _attributes_set(source: Source, definition: ast.ClassDef) -> dict[str, list[ast.Attribute]]:
    """The places in a class that assign an attribute, by its name."""
    found: dict[str, list[ast.Attribute]] = {}
    for node in ast.walk(definition):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.setdefault(node.attr, []).append(node)
    return found


def may_read_when_asked(source: Source, definition: ast.ClassDef) -> bool:
    """Whether the text of a class names what is read when it is asked for.

    An HDF5 file that `__init__` opens by `with` is closed behind it: what the object holds of it was read there.
    """
    body = body_of(source, definition)
    if "h5py" in body and (constructor := method_of(definition, "__init__")) is not None:
        text = whole = source.text_of(constructor)
        items = [item for node in ast.walk(constructor) if isinstance(node, ast.With) for item in node.items]
        for opened in (item.context_expr for item in items):
            if isinstance(opened, ast.Call) and source.qualified_name(opened.func) == "h5py.File":
                text = text.replace(source.text_of(opened), "", 1)
        body = body.replace(whole, text, 1)
    return READ_WHEN_ASKED.search(body) is not None


def body_of(source: Source, definition: ast.ClassDef) -> str:
    """The text of a class without the line that names it and its bases."""
    return "\n".join(source.text_of(statement) for statement in definition.body)


def method_of(definition: ast.ClassDef, name: str) -> Function | None:
    return next((item for item in definition.body if isinstance(item, FUNCTIONS) and item.name == name), None)


def function_named(source: Source, node: ast.expr) -> tuple[Source, ast.AST] | None:
    """The function that an expression names, here or in another file of the project; a lambda."""
    if isinstance(node, ast.Lambda):
        return source, node
    if isinstance(node, ast.Name) and len(bindings := source.lookup(node)) == 1 and isinstance(bindings[0], FUNCTIONS):
        return source, bindings[0]
    dotted = source.qualified_name(node) or ""
    if source.neighbours is None or not dotted or dotted.partition(".")[0] == "torch":
        return None
    found = source.neighbours.definition_of(dotted)
    return found if found is not None and isinstance(found[1], FUNCTIONS) else None
