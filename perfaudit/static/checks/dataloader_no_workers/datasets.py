"""What the samples of a DataLoader are, as far as one file shows: on a device, in memory, one stream for every worker."""

from __future__ import annotations

import ast
import functools

from perfaudit.expressions import regex
from perfaudit.static.checks.dataloader_no_workers.samples import Found, class_of_samples, method_of, only_looks_up
from perfaudit.static.project.neighbours import Neighbours
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.called_functions import assigned_once, called_function
from perfaudit.static.understanding.calls_by_name import calls_by_derived, is_built
from perfaudit.static.understanding.devices import device_text, moves_to_device
from perfaudit.static.understanding.loaders import given_to
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import ABSENT, Argument, argument, assigned_value, constant, local_class

COLLATE = 6  # position of the parameter in DataLoader.__init__ of every torch since 1.0
FOLLOW = 6  # names followed from the call to the tensors of the dataset; real code needs two or three
_CHANGES_LISTS = {"append", "extend", "insert", "add", "update", "pop", "popleft", "remove", "clear", "setdefault"}

_SETS_OF_TENSORS = {"torch.utils.data.TensorDataset"}
_PARTS = {"torch.utils.data.Subset", "torch.utils.data.random_split"}
_LISTS = {"range", "list", "zip", "enumerate", "sorted"}
_INDICES = regex(r"(^|_)(idx|index|indices|ids|nids?|eids?)$")
_OF_TENSORS = {"size", "shape", "dim", "dtype", "numel"}
_OF_CUDA = regex(r"torch\.cuda\.(?:sparse\.)?[A-Z]\w*Tensor")  # classes of tensors, called to make one
_GENERATOR = regex(r"\.(_?rng|_?random(_?(state|generator))?|.*_rng|rng_.*|.*random_state)$")
_DRAWS = {  # methods of `random.Random`, `numpy.random.Generator` and `RandomState`
    *("random", "randint", "randrange", "uniform", "choice", "choices", "sample", "shuffle", "gauss", "normal"),
    *("integers", "permutation", "rand", "randn", "random_sample", "standard_normal", "beta", "binomial", "poisson"),
}
_FILES = {  # what may not be read by several processes that inherited it open
    *("h5py.File", "lmdb.open", "lmdb.Environment", "zipfile.ZipFile", "tarfile.open", "sqlite3.connect", "open"),
    *("tables.open_file", "netCDF4.Dataset", "cv2.VideoCapture", "gzip.open", "bz2.open", "lzma.open"),
}


def is_on_device(source: Source, call: ast.Call) -> bool:
    """Whether the dataset or the collate function, as far as this file shows them, moves tensors to a device.

    Pinning such a tensor raises, and so does making one in a worker process that was forked.
    """
    return any(makes_device_tensor(source, node) for node in _reachable_nodes(source, call))


def may_be_on_device(source: Source, call: ast.Call) -> bool:
    """Whether the dataset or the collate function comes from another file of the project that uses an accelerator."""
    if source.neighbours is None:
        return False
    called: list[ast.AST | None] = [node.func for node in _reachable_nodes(source, call) if isinstance(node, ast.Call)]
    collate = argument(source, call, "collate_fn", COLLATE)
    called.append(collate if isinstance(collate, ast.expr) else None)
    found = (source.qualified_name(node) for node in called)
    names = {name for name in found if name and "." in name and name[:6] != "torch."}
    modules = {name.rpartition(".")[0] or "." for name in names}
    return source.neighbours.imports_a_marked_file("accelerator", sorted(modules | names))


def makes_device_tensor(source: Source, node: ast.AST) -> bool:
    """Whether a node moves a tensor to a device or makes it there: `x.cuda()`, `torch.cuda.FloatTensor(x)`, `device=device`."""
    if isinstance(node, ast.Call) and _OF_CUDA.fullmatch(source.qualified_name(node.func) or ""):
        return True
    if isinstance(node, ast.Call) and moves_to_device(source, node):
        targets = [*node.args, *(keyword.value for keyword in node.keywords)]
        return not targets or not all(_is_of_sample(source, target) for target in targets)
    if not isinstance(node, ast.keyword) or node.arg != "device" or _is_of_sample(source, node.value):
        return False
    return device_text(node.value) != "cpu"


def _is_of_sample(source: Source, node: ast.expr) -> bool:
    """Whether an expression is the device of a tensor that a function is given, `x.device`: where samples lie, on the host."""
    owner = node.value if isinstance(node, ast.Attribute) and node.attr == "device" else None
    bindings = source.lookup(owner) if isinstance(owner, ast.Name) else []
    if not isinstance(owner, ast.Name) or len(bindings) != 1 or not isinstance(bindings[0], ast.arg):
        return False
    parents = [source.parent(use) for use in source.uses_of(bindings[0], owner.id)]
    return any(isinstance(parent, ast.Attribute) and parent.attr in _OF_TENSORS for parent in parents)


@functools.lru_cache(maxsize=4)  # several questions of one call
def _reachable_nodes(source: Source, call: ast.Call) -> tuple[ast.AST, ...]:
    """Every node of the expressions and definitions of this file that dataset and collate function are made from."""
    given = (argument(source, call, "dataset", 0), argument(source, call, "collate_fn", COLLATE))
    edge: list[ast.AST] = [node for node in given if isinstance(node, ast.expr)]
    nodes: dict[int, ast.AST] = {}
    for _ in range(FOLLOW + 1):
        new = []
        for root in edge:
            if id(root) not in nodes:
                new += [node for node in walk(root) if id(node) not in nodes]
                nodes.update((id(node), node) for node in new)
        asked = {_key(n): n for n in new if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)}
        edge = [definition for node in asked.values() for definition in _definitions(source, node)]
    return tuple(nodes.values())


def _key(node: ast.Name | ast.Attribute) -> object:
    """What tells apart names to look up: an attribute by its name alone, a name by its place too."""
    return node.attr if isinstance(node, ast.Attribute) else id(node)


def _definitions(source: Source, node: ast.Name | ast.Attribute) -> list[ast.AST]:
    """What a name or an attribute stands for in this file: the values assigned to it, its function or class."""
    if isinstance(node, ast.Name):
        bindings = [binding for binding in source.lookup(node) if not _comes_later(source, binding, node)]
    else:
        bindings = _stores(source).get(node.attr, [])
    found: list[ast.AST] = []
    for binding in bindings:
        statement = source.statement(binding) if not isinstance(binding, ast.arg) else None
        if isinstance(binding, (*FUNCTIONS, ast.ClassDef)):
            found.append(binding)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and statement.value is not None:
            found.append(statement.value)
    return found


def _comes_later(source: Source, binding: ast.AST, use: ast.Name) -> bool:
    """Whether a name is bound below where it is read, in the same function and no loop around both."""
    if (
        not isinstance(binding, ast.Name)
        or binding.lineno <= use.lineno
        or source.scope(binding) is not source.scope(use)
    ):
        return False
    around = {id(ancestor) for ancestor in source.ancestors(use) if isinstance(ancestor, LOOPS)}
    return not any(id(ancestor) in around for ancestor in source.ancestors(binding))


@remember
def _stores(source: Source) -> dict[str, list[ast.AST]]:
    """Attributes that are assigned to, by their name."""
    table: dict[str, list[ast.AST]] = {}
    for node in source.nodes(ast.Attribute):
        if isinstance(node.ctx, ast.Store):
            table.setdefault(node.attr, []).append(node)
    return table


def is_in_memory(source: Source, dataset: ast.expr, depth: int = FOLLOW) -> bool:
    """Whether the samples surely are tensors or numbers in memory, or parts of such a dataset.

    A TensorDataset, a tensor, a list or a range; an object of a class whose `__getitem__` only looks up what it holds. To
    hand them over from another process costs more than to take them.
    """
    if not depth:
        return False
    if isinstance(dataset, (ast.Name, ast.Attribute)) and (found := _bound_in_module(source, dataset)) is not None:
        return all(_is_bound_in_memory(found[0], binding, depth - 1) for binding in found[1])
    if isinstance(dataset, ast.Name):
        bindings = [binding for binding in source.lookup(dataset) if not _comes_later(source, binding, dataset)]
        made = [assigned_value(source, binding) for binding in bindings]
        if _INDICES.search(dataset.id) and bindings and not any(isinstance(value, ast.Call) for value in made):
            return True  # `DataLoader(train_idx)`, the numbers of samples, as a function of another file gives them
        return bool(bindings) and all(_is_bound_in_memory(source, binding, depth - 1) for binding in bindings)
    if isinstance(dataset, (ast.List, ast.Tuple, ast.ListComp)):
        return True
    if isinstance(dataset, ast.Attribute) and dotted_name(dataset.value) == "self":
        stores = [s for s in _stores(source).get(dataset.attr, []) if not _is_split_of_itself(source, s, dataset.attr)]
        return bool(stores) and all(_is_bound_in_memory(source, store, depth - 1) for store in stores)
    if not isinstance(dataset, ast.Call):
        return False
    name = source.qualified_name(dataset.func) or ""
    if name in _SETS_OF_TENSORS or (isinstance(dataset.func, ast.Name) and dataset.func.id in _LISTS):
        return True
    if name in _PARTS:
        return bool(dataset.args) and is_in_memory(source, dataset.args[0], depth - 1)
    if _is_made_by_torch(source, dataset):
        return True
    if isinstance(function := called_function(source, dataset), FUNCTIONS) and local_class(source, dataset) is None:
        returned = [
            node.value
            for node in source.nodes(ast.Return)
            if source.scope(node) is function and not _is_passed_over(source, node, function, dataset)
        ]
        return bool(returned) and all(v is not None and is_in_memory(source, v, depth - 1) for v in returned)
    return only_looks_up(source, dataset)


def _bound_in_module(source: Source, node: ast.expr) -> tuple[Source, list[ast.AST]] | None:
    """What binds a variable of another module of the project, `data.train_set` or an imported `train_set`, and that file."""
    dotted = source.qualified_name(node) if source.neighbours is not None else None
    if source.neighbours is None or not dotted or dotted.partition(".")[0] == "torch":
        return None
    found = source.neighbours.bindings_of(dotted)
    return found if found is not None and all(isinstance(binding, ast.Name) for binding in found[1]) else None


def _is_passed_over(source: Source, node: ast.Return, function: Function, call: ast.Call) -> bool:
    """Whether a call passes another text than the one under which its function returns here: `if kind == "dev": return x`."""
    test = parent.test if isinstance(parent := source.parent(node), ast.If) and node in parent.body else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    names = [parameter.arg for parameter in function.args.args]
    if not isinstance(test.left, ast.Name) or test.left.id not in names:
        return False
    expected = constant(source, test.comparators[0])
    passed = constant(source, argument(source, call, test.left.id, names.index(test.left.id)))
    return isinstance(expected, str) and isinstance(passed, str) and passed != expected


def _is_split_of_itself(source: Source, store: ast.AST, name: str) -> bool:
    """Whether an attribute gets a part of what it held before: `self.train, self.val = random_split(self.train, lengths)`."""
    statement = source.statement(store)
    value = statement.value if isinstance(statement, ast.Assign) else None
    is_part = isinstance(value, ast.Call) and source.qualified_name(value.func) in _PARTS and bool(value.args)
    return is_part and isinstance(value, ast.Call) and dotted_name(value.args[0]) == f"self.{name}"


def _is_bound_in_memory(source: Source, binding: ast.AST, depth: int) -> bool:
    """The same of a name where this node binds it, also by `train, val = random_split(tensors, ...)`, or as a parameter."""
    if isinstance(binding, ast.arg):
        given = given_to(source, binding)
        if given is None and source.neighbours is not None:
            return _is_handed_in_memory(source, binding, source.neighbours, depth)
        return bool(given) and all(is_in_memory(source, value, depth) for value in given or ())
    value = assigned_value(source, binding)
    statement = source.statement(binding) if isinstance(binding, (ast.Name, ast.Attribute)) else None
    if (
        value is None
        and isinstance(statement, ast.Assign)
        and _is_returned_in_memory(source, statement, binding, depth)
    ):
        return True
    if value is None and isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
        is_split = source.qualified_name(statement.value.func) == "torch.utils.data.random_split"
        value = statement.value if is_split else None
    elif value is None and isinstance(statement, ast.Assign):
        value = _value_in_row(statement, binding)
    return value is not None and is_in_memory(source, value, depth)


def _is_handed_in_memory(source: Source, parameter: ast.arg, neighbours: Neighbours, depth: int) -> bool:
    """Whether the files that import this one hand only tensors in memory to a parameter, as a trainer gets its data sets."""
    function = source.enclosing(parameter, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, FUNCTIONS):
        return False
    from perfaudit.static.understanding.program_settings import name_and_place  # most files make their data themselves

    name, place = name_and_place(source, function, parameter)
    given = [
        (there, argument(there, call, parameter.arg, place))
        for there in neighbours.importers_calling(name)
        for call in there.nodes(ast.Call)
        if last_name(call.func) == name
    ] or [
        (there, argument(there, call, parameter.arg, place))
        for there, call in (calls_by_derived(source, name) if function.name == "__init__" else ())
    ]
    return bool(given) and all(
        value is ABSENT or (isinstance(value, ast.expr) and _is_made_in_memory(there, value, neighbours, depth))
        for there, value in given
    )


def _is_made_in_memory(there: Source, value: ast.expr, neighbours: Neighbours, depth: int) -> bool:
    """The same of what another file hands over, also by a function that it imports: `load(args, mode="train")`."""
    made = assigned_once(there, value) if isinstance(value, ast.Name) else value
    if is_in_memory(there, made, depth):
        return True
    dotted = there.qualified_name(made.func) if isinstance(made, ast.Call) else None
    found = neighbours.definition_of(dotted, there) if dotted and depth else None
    if found is None or not isinstance(found[1], FUNCTIONS):
        return False
    inside, function = found
    returned = [node.value for node in inside.nodes(ast.Return) if inside.scope(node) is function]
    return bool(returned) and all(v is not None and is_in_memory(inside, v, depth - 1) for v in returned)


def _is_returned_in_memory(source: Source, statement: ast.Assign, binding: ast.AST, depth: int) -> bool:
    """Whether a name gets a dataset in memory of the row that a function of another file returns: `train, val = build()`."""
    target, call = statement.targets[0], statement.value
    if not isinstance(call, ast.Call) or not isinstance(target, ast.Tuple) or source.neighbours is None:
        return False
    place = next((n for n, element in enumerate(target.elts) if element is binding), None)
    found = source.neighbours.definition_of(source.qualified_name(call.func) or "")
    if place is None or found is None or not isinstance(found[1], FUNCTIONS):
        return False
    inside, function = found
    returned = [node.value for node in inside.nodes(ast.Return) if inside.scope(node) is function]
    rows = [value for value in returned if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)]
    return len(rows) == len(returned) > 0 and all(is_in_memory(inside, row.elts[place], depth) for row in rows)


def _value_in_row(statement: ast.Assign, binding: ast.AST) -> ast.expr | None:
    """What a name gets of `train, val = TensorDataset(a), TensorDataset(b)`; None where the two sides do not fit."""
    target, value = statement.targets[0], statement.value
    if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(value, (ast.Tuple, ast.List)):
        return None
    is_starred = any(isinstance(element, ast.Starred) for element in (*target.elts, *value.elts))
    if is_starred or len(target.elts) != len(value.elts):
        return None
    return next((v for t, v in zip(target.elts, value.elts, strict=True) if t is binding), None)


def _is_made_by_torch(source: Source, value: ast.expr) -> bool:
    """Whether an expression is a tensor in memory, or a list of them: `torch.randn(n, 3)`, `[torch.rand(2) for ...]`."""
    if isinstance(value, ast.ListComp):
        return _is_made_by_torch(source, value.elt)
    if isinstance(value, ast.Tuple):
        return all(_is_made_by_torch(source, element) for element in value.elts)
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        name = source.qualified_name(value.func)
        if name is not None:
            return name.startswith("torch.") and name.count(".") == 1 and name != "torch.load"
        value = value.func.value
    return False


def is_of_base_nobody_builds(source: Source, call: ast.Call) -> bool:
    """Whether a class of loaders unpacks its own options, `**self.options`, and is not built, nor a class derived from it.

    A template's base class that a project has left behind.
    """
    owner = source.enclosing(call, ast.ClassDef)
    dataset = argument(source, call, "dataset", 0)
    bindings = source.lookup(dataset) if isinstance(dataset, ast.Name) else []
    is_handed_in = any(isinstance(binding, ast.arg) for binding in bindings)
    if not isinstance(owner, ast.ClassDef) or not _unpacks_own(call) or not is_handed_in:
        return False
    return not is_built(source, owner.name) and not calls_by_derived(source, owner.name)


def repeats_constructor(source: Source, call: ast.Call) -> bool:
    """Whether a method of a class of loaders builds another one of the options with which its constructor builds this one.

    `DataLoader(sampler=..., **self.options)` beside `super().__init__(sampler=..., **self.options)`, which is told already.
    """
    owner, own = source.enclosing(call, ast.ClassDef), _unpacks_own(call)
    if not own or not isinstance(owner, ast.ClassDef) or last_name(call.func) == "__init__":
        return False
    above = [c for c in source.nodes(ast.Call) if last_name(c.func) == "__init__" and _unpacks_own(c) == own]
    return any(source.enclosing(each, ast.ClassDef) is owner for each in above)


def _unpacks_own(call: ast.Call) -> str:
    """What a call unpacks of its object: "self.options"; "" for nothing."""
    names = [dotted_name(keyword.value) for keyword in call.keywords if keyword.arg is None]
    return next((name for name in names if name.startswith("self.")), "")


def is_made_by_eval(source: Source, dataset: Argument) -> bool:
    """Whether the class of the dataset is named by a text, `eval(name)(...)`: what its samples cost, nobody can read."""
    value = assigned_once(source, dataset) if isinstance(dataset, ast.Name) else dataset
    made = value.func if isinstance(value, ast.Call) else None
    return isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "eval"


def is_made_anew(source: Source, call: ast.Call, dataset: Argument) -> bool:
    """Whether a loop builds the loader, each time over data that a call in the same turn has made: workers start each time."""
    loop = source.enclosing(call, *LOOPS)
    if not isinstance(dataset, ast.Name) or not isinstance(loop, LOOPS):
        return False
    bindings = source.lookup(dataset)
    statements = [source.statement(binding) for binding in bindings if isinstance(binding, ast.Name)]
    return bool(statements) and all(
        isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Call)
        and source.enclosing(statement, *LOOPS) is loop
        and isinstance(statement.targets[0], ast.Tuple)
        for statement in statements
    )


def is_iterable(source: Source, dataset: ast.expr) -> Found | None:
    """The class of the dataset where it is an IterableDataset, of this file or another one of the project, and its file."""
    definition = local_class(source, dataset)
    elsewhere = class_of_samples(source, dataset) if definition is None else None
    found = (source, definition) if definition is not None else elsewhere and elsewhere[0]
    return found if found is not None and _is_stream(*found) else None


def _is_stream(source: Source, definition: ast.ClassDef, depth: int = FOLLOW) -> bool:
    """Whether a class is derived from IterableDataset, directly or through classes of its file."""
    for base in definition.bases if depth else ():
        if source.qualified_name(base) == "torch.utils.data.IterableDataset":
            return True
        above = source.lookup(base) if isinstance(base, ast.Name) else []
        if len(above) == 1 and isinstance(above[0], ast.ClassDef) and _is_stream(source, above[0], depth - 1):
            return True
    return False


def shards_itself(found: Found) -> bool:
    """Whether an iterable dataset asks which worker it is, or another one of its file does, of which it may consist.

    Else every worker yields every sample.
    """
    source, _ = found
    return bool(source.calls("torch.utils.data.get_worker_info"))


def writes_to_itself(source: Source, dataset: ast.expr) -> str:
    """What a dataset, a class of this file, changes of itself when a sample is taken ("self.count"); "" if nothing.

    A worker changes its own copy. What is written under a condition on the same thing is no state: a file that is opened
    on first use, a sample that is kept.
    """
    definition = local_class(source, dataset)
    items = [s for s in definition.body if isinstance(s, FUNCTIONS) and s.name == "__getitem__"] if definition else []
    for node in (n for item in items for n in walk(item)):
        written: ast.AST | None = None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            written = node
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            written = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES_LISTS:
            written = node.func.value
        name = dotted_name(written) if isinstance(written, ast.Attribute) else ""
        if not name.startswith("self."):
            continue
        tests = [a.test for a in source.ancestors(node) if isinstance(a, ast.If)]
        if not any(last_name(n) == last_name(written) for t in tests for n in walk(t)):  # type: ignore[arg-type]
            return name
    return ""


def draws_from_own_generator(source: Source, dataset: ast.expr) -> str:
    """The random generator that a dataset keeps and draws from when a sample is taken ("self.rng"); "" if it has none.

    Workers begin each epoch with a copy of it as the training process has it, which draws nothing any more: every epoch
    and every worker would see the same numbers. torch, and Python's `random` itself, are seeded anew in each worker.
    """
    definition = local_class(source, dataset)
    for item in definition.body if definition else ():
        if not isinstance(item, FUNCTIONS) or item.name != "__getitem__":
            continue
        for node in walk(item):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                name = dotted_name(node.func.value)
                if name.startswith("self.") and _GENERATOR.search(name) and node.func.attr in _DRAWS:
                    return name
    return ""


def keeps_file_open(source: Source, dataset: ast.expr) -> bool:
    """Whether the dataset, a class of the project, opens in `__init__` a file that workers would share."""
    found = class_of_samples(source, dataset)
    definition = local_class(source, dataset)
    inside, definition = (source, definition) if definition is not None or found is None else found[0]
    init = method_of(definition, "__init__") if definition is not None else None
    for node in walk(init) if init else ():
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
            continue
        value = assigned_value(inside, node)
        if value is not None and (_opens(inside, value) or _is_of_open_file(inside, value)):
            return True
    return False


def _opens(source: Source, value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and (source.qualified_name(value.func) or last_name(value.func)) in _FILES


def _is_of_open_file(source: Source, value: ast.expr) -> bool:
    """What HDF5 reads when it is asked for: `file["x"]` and `file.get("x")` of a `file = h5py.File(path)`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "get":
        held, key = value.func.value, value.args[0] if value.args else None
    elif isinstance(value, ast.Subscript):
        held, key = value.value, value.slice
    else:
        return False
    opened = assigned_once(source, held) if isinstance(held, ast.Name) else held
    is_file = isinstance(opened, ast.Call) and source.qualified_name(opened.func) == "h5py.File"
    return is_file and isinstance(key, ast.Constant) and isinstance(key.value, str)
