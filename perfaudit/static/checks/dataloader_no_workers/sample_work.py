"""Whether making a batch takes work that another process could do, as far as the files of the project show it."""

from __future__ import annotations

import ast
import builtins
import sys

from perfaudit.expressions import regex
from perfaudit.static.checks.dataloader_no_workers.device_samples import makes_device_tensor
from perfaudit.static.checks.dataloader_no_workers.samples import (
    class_of_samples,
    function_named,
    may_read_when_asked,
    method_of,
    values_held,
)
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.defaults import default_expression
from perfaudit.static.understanding.devices import moves_to_device
from perfaudit.static.understanding.names import dotted_name
from perfaudit.static.understanding.values import UNKNOWN, Argument, argument, assigned_value, constant, resolve

COLLATE = 6  # position of the parameter in DataLoader.__init__ of every torch since 1.0
FOLLOW = 3  # calls and base classes followed from `__getitem__`
# What reads, decodes, transforms or tokenises. Slices, casts, stacking and padding take microseconds.
_WORKS = regex(
    r"open\(|(?<![A-Za-z])(?:im|pd\.|np\.)?(?:read|load|decode|encode|resize|crop|flip|rotate|warp)(?!er?s?\b)|transform|augment"
    r"|[Tt]okeniz(?!er\.pad\b)|Image\b|cv2|librosa|audio|soundfile|wav|resampl|stft|fft|mel_|[Ss]pectr|skimage|scipy|frombuffer|process|featuri"
    r"|interpol|dgl\.batch|\.from_data_list|graph|sleep|parse|json|pickle|h5|lmdb|mmap|memmap|sql|request|render|simulat"
)
_OF_TENSORS = regex(r"torch|[Tt]ensor|transform|default_collate|\bdgl\b|\bjax\b")
_FLIPPED_TENSOR = regex(r"\.flip\(\s*[\[(]?-?\d")  # a view that is copied, in microseconds
_SEARCHES = {f"numpy.{name}" for name in ("where", "argwhere", "nonzero", "unique", "searchsorted", "argsort")}
_KNOWN = {"torch", "numpy", *sys.stdlib_module_names}
_BASES_WITHOUT_SAMPLES = ("torch.utils.data.Dataset", "torch.utils.data.dataset.Dataset")

Place = tuple[Source, Function]
Class = tuple[Source, ast.ClassDef]


def only_arranges(source: Source, call: ast.Call) -> bool:
    """Whether what makes a batch is in sight and reads, decodes, transforms or tokenises nothing.

    Of several data sets, of which a branch takes one, all.
    """
    dataset = argument(source, call, "dataset", 0)
    bindings = source.lookup(dataset) if isinstance(dataset, ast.Name) else []
    values = [assigned_value(source, binding) for binding in bindings if not _is_name_of_dataset(source, binding)]
    if len(values) > 1:
        return all(isinstance(value, ast.Call) and _only_arranges(source, call, value) for value in values)
    return _only_arranges(source, call, dataset)


def _is_name_of_dataset(source: Source, binding: ast.AST) -> bool:
    """Whether a binding is a parameter that is a text by default: the name of a data set, which the data set itself replaces."""
    function = source.enclosing(binding, *FUNCTIONS)
    if not isinstance(binding, ast.arg) or not isinstance(function, FUNCTIONS):
        return False
    return isinstance(constant(source, default_expression(function, binding) or UNKNOWN), str)


def _only_arranges(source: Source, call: ast.Call, dataset: Argument) -> bool:
    made = makers_of_batches(source, call, dataset)
    found = _class(source, dataset)
    if found is not None and may_read_when_asked(*found) and not _looks_up_own_lists(*found):
        return False
    if made is None or _is_around_pictures(source, dataset):
        return False
    collate = _collate(source, call)
    if any(_draws_in_loops(function) for _, function in made if collate is None or function is not collate[1]):
        return False
    if any(
        _draws_for_each_part(source, inside, function) or searches_in_loops(inside, function)
        for inside, function in made
    ):
        return False
    return not any(
        _WORKS.search(_FLIPPED_TENSOR.sub("", _code(inside, part)))
        for inside, function in made
        for part in function.body
    )


def _is_around_pictures(source: Source, dataset: Argument) -> bool:
    """Whether a data set is given one of torchvision's, which decodes and transforms: `Pairs(datasets.ImageFolder(root, t))`."""
    made = resolve(source, dataset) if isinstance(dataset, ast.expr) else None
    given = [*made.args, *(keyword.value for keyword in made.keywords)] if isinstance(made, ast.Call) else []
    inner = [resolve(source, each) for each in given]
    names = [source.qualified_name(each.func) or "" for each in inner if isinstance(each, ast.Call)]
    return any(name.startswith("torchvision.datasets.") for name in names)


def _draws_in_loops(function: Function) -> bool:
    """Whether a loop in a loop computes parts of an array: `frames[i, a:b] = np.maximum(...)`, a sample that is made anew."""
    inner = [
        loop
        for outer in ast.walk(function)
        if isinstance(outer, ast.For)
        for loop in ast.walk(outer)
        if isinstance(loop, ast.For) and loop is not outer
    ]
    return any(
        isinstance(target, ast.Subscript)
        and any(isinstance(part, ast.Slice) for part in ast.walk(target.slice))
        and any(isinstance(part, ast.Call) for part in ast.walk(statement.value))
        for loop in inner
        for statement in ast.walk(loop)
        if isinstance(statement, ast.Assign)
        for target in statement.targets
    )


def searches_in_loops(inside: Source, function: ast.AST) -> bool:
    """Whether a loop in a loop asks numpy where something is: `np.where(nodes == item)[0][0]` for each item of each sample."""
    return any(
        isinstance(call, ast.Call) and inside.qualified_name(call.func) in _SEARCHES
        for outer in ast.walk(function)
        if isinstance(outer, ast.For)
        for loop in ast.walk(outer)
        if isinstance(loop, (ast.For, ast.ListComp)) and loop is not outer
        for call in ast.walk(loop)
    )


def _draws_for_each_part(source: Source, inside: Source, function: Function) -> bool:
    """Whether a loop fills a list with what is drawn until it fits: `negatives.append(draw_other(items))` for each item."""
    for loop in (node for node in ast.walk(function) if isinstance(node, ast.For)):
        calls = [node for part in loop.body for node in ast.walk(part) if isinstance(node, ast.Call)]
        fills = any(isinstance(call.func, ast.Attribute) and call.func.attr == "append" for call in calls)
        if fills and any(_draws_until_it_fits(source, inside, call) for call in calls):
            return True
    return False


def _draws_until_it_fits(source: Source, inside: Source, call: ast.Call) -> bool:
    found = function_named(inside, call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
    dotted = inside.qualified_name(call.func)
    if found is None and dotted and inside is not source and source.neighbours is not None:
        found = source.neighbours.definition_of(dotted, inside)
    loops = [node for node in ast.walk(found[1]) if isinstance(node, ast.While)] if found is not None else []
    drawn = [node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.Call)]
    return found is not None and any(
        (found[0].qualified_name(node.func) or "").startswith(("random.", "numpy.random.")) for node in drawn
    )


def _looks_up_own_lists(source: Source, definition: ast.ClassDef) -> bool:
    """Whether all that `__getitem__` takes by an index of the object are lists that methods of the class have filled."""
    item = method_of(definition, "__getitem__")
    taken = [node.value for node in ast.walk(item) if isinstance(node, ast.Subscript)] if item is not None else []
    names = [dotted_name(node) for node in taken if not isinstance(node, ast.Subscript)]
    values = [value for name in names for value in values_held(source, definition, name.removeprefix("self."))]
    return (
        bool(values)
        and all(name.startswith("self.") and name.count(".") == 1 for name in names)
        and all(_is_list_of_method(source, definition, value) for value in values)
    )


def _is_list_of_method(source: Source, definition: ast.ClassDef, value: ast.expr) -> bool:
    """`self.bags, self.labels = self.make()`, which returns lists that are empty at first: `return bags, labels`."""
    name = dotted_name(value.func) if isinstance(value, ast.Call) else ""
    method = method_of(definition, name.removeprefix("self.")) if name.startswith("self.") else None
    if method is None:
        return False
    returned = [node.value for node in ast.walk(method) if isinstance(node, ast.Return)]
    parts = [part for row in returned for part in (row.elts if isinstance(row, ast.Tuple) else [row])]
    bindings = [source.lookup(part) if isinstance(part, ast.Name) else [] for part in parts]
    return bool(parts) and all(
        found and all(isinstance(assigned_value(source, binding), ast.List) for binding in found) for found in bindings
    )


def collates_on_device(source: Source, call: ast.Call) -> bool:
    """Whether the collate function, also a method of an object of another file's class, moves the batch to a device."""
    found = _collate(source, call)
    return any(
        isinstance(node, ast.Call) and moves_to_device(inside, node)
        for inside, function in ([found] if found is not None else _methods_that_may_collate(source, call))
        for node in ast.walk(function)
    )


def _methods_that_may_collate(source: Source, call: ast.Call) -> list[Place]:
    """The methods that a collate function may be, where one of several objects has it: `collate = model.convert`."""
    given = argument(source, call, "collate_fn", COLLATE)
    node = (resolve(source, given) or given) if isinstance(given, ast.expr) else None
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return []
    classes = [_class(source, assigned_value(source, binding)) for binding in source.lookup(node.value)]
    methods = [_find_method(*owner, node.attr) for owner in classes if owner is not None]
    return [method for method in methods if method is not None]


def makes_samples_on_device(source: Source, call: ast.Call) -> bool:
    """Whether `__getitem__` of a class of the project, or a method or function that it calls, moves the sample to a device."""
    owner = _class(source, argument(source, call, "dataset", 0))
    edge = [_find_method(*owner, "__getitem__")] if owner is not None else []
    known: set[int] = set()
    for _ in range(FOLLOW + 1):
        places = [place for place in edge if place is not None and id(place[1]) not in known]
        known.update(id(function) for _, function in places)
        if any(makes_device_tensor(inside, node) for inside, function in places for node in ast.walk(function)):
            return True
        edge = [found for inside, function in places if owner for found in _further(inside, function, owner)]
    return False


def makes_arrays_only(source: Source, call: ast.Call) -> bool:
    """Whether a batch is NumPy arrays, which no loader pins: its collate function makes them of all that it is given.

    Or it, what it calls and the samples' own code are in sight, and do with NumPy what they do.
    """
    found = _collate(source, call)
    if found is None:
        return False
    if _puts_all_into_arrays(*found):
        return True
    owner = _class(source, argument(source, call, "dataset", 0))
    item = _find_method(*owner, "__getitem__") if owner is not None else None
    if owner is None or item is None or _OF_TENSORS.search(item[0].text_of(item[1])):
        return False
    made, edge = {id(found[1]): found}, [found]
    for _ in range(FOLLOW + 1):  # a helper in a helper, too
        further = [place for inside, function in edge for place in _further(inside, function, owner)]
        edge = [(place[0], place[1]) for place in further if place is not None and id(place[1]) not in made]
        if len([place for place in further if place is None]):
            return False
        made.update({id(function): (inside, function) for inside, function in edge})
    texts = [inside.text_of(function) for inside, function in made.values()]
    return not edge and any("np." in text for text in texts) and not any(_OF_TENSORS.search(text) for text in texts)


def _further(source: Source, function: Function, owner: Class) -> list[Place | None]:
    """The functions of the project that a function calls; None for one that is not in sight."""
    found: list[Place | None] = []
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and dotted_name(node.func.value) == "self":
            found.append(_find_method(*owner, node.func.attr))
        elif isinstance(node.func, ast.Name) and not hasattr(builtins, node.func.id):
            there = function_named(source, node.func)
            found.append((there[0], there[1]) if there is not None and isinstance(there[1], FUNCTIONS) else None)
    return found


def _puts_all_into_arrays(source: Source, function: Function) -> bool:
    """Whether a collate function takes of the samples only `np.array([sample[key] for sample in batch])`, and their keys."""
    given = [a for a in function.args.args if a.arg != "self"]
    if len(given) != 1:
        return False
    uses = source.uses_of(given[0], given[0].arg)
    return (
        bool(uses)
        and any(_is_in_array(source, use) for use in uses)
        and all(_is_in_array(source, use) or _is_measure(source, use) for use in uses)
    )


def _is_in_array(source: Source, use: ast.AST) -> bool:
    generator = source.parent(use)
    comprehension = source.parent(generator) if isinstance(generator, ast.comprehension) else None
    call = source.parent(comprehension) if comprehension is not None else None
    return isinstance(call, ast.Call) and (source.qualified_name(call.func) or "").startswith("numpy.")


def _is_measure(source: Source, use: ast.AST) -> bool:
    """`len(batch)` and `batch[0].keys()`."""
    parent = source.parent(use)
    if isinstance(parent, ast.Subscript):
        owner = source.parent(parent)
        return isinstance(owner, ast.Attribute) and owner.attr in ("keys", "shape")
    return isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "len"


def is_part_of_dataset(source: Source, call: ast.Call) -> bool:
    """Whether a dataset holds the loader to make its samples: a worker that asks for one may have no children."""
    owner = source.enclosing(call, ast.ClassDef)
    if not isinstance(owner, ast.ClassDef) or method_of(owner, "__getitem__") is None:
        return False
    statement = source.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    kept = {dotted_name(target) for target in targets}
    held = source.parent(call)
    if isinstance(held, ast.Call) and isinstance(held.func, ast.Attribute) and held.func.attr == "append":
        kept.add(dotted_name(held.func.value))
    item = method_of(owner, "__getitem__")
    read = {dotted_name(node) for node in ast.walk(item) if isinstance(node, ast.Attribute)} if item else set()
    return any(name.startswith("self.") and name in read for name in kept)


def has_one_sample(source: Source, call: ast.Call) -> bool:
    """Whether `__len__` of the dataset returns 1: workers would start anew for every step."""
    found = _class(source, argument(source, call, "dataset", 0))
    length = _find_method(*found, "__len__") if found is not None else None
    if length is None:
        return False
    returned = [node.value for node in ast.walk(length[1]) if isinstance(node, ast.Return)]
    return bool(returned) and all(value is not None and constant(length[0], value) == 1 for value in returned)


def makers_of_batches(source: Source, call: ast.Call, dataset: Argument) -> list[Place] | None:
    """The functions that make a batch: `__getitem__`, the collate function, and what they call of their own files.

    None where one of them is not in sight.
    """
    found = _class(source, dataset)
    item = _find_method(*found, "__getitem__") if found is not None else None
    if found is None or item is None:
        return None
    first = [(*item, found)]
    if isinstance(argument(source, call, "collate_fn", COLLATE), ast.expr):
        collate = _collate(source, call)
        if collate is None:
            return None
        first.append((*collate, found))
    made: dict[int, Place] = {}
    edge = first
    for _ in range(FOLLOW):
        following: list[tuple[Source, Function, Class]] = []
        for inside, function, owner in edge:
            if id(function) in made:
                continue
            made[id(function)] = (inside, function)
            called = _called_functions(inside, function, owner)
            if called is None:
                return None
            following += [(*place, owner) for place in called]
        edge = following
    return list(made.values())


def _called_functions(source: Source, function: Function, owner: Class) -> list[Place] | None:
    """Functions of the same file, and methods of the dataset, that a function calls; None where it calls one out of sight.

    What torch, NumPy and Python themselves have is known by its name.
    """
    found: list[Place] = []
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and dotted_name(node.func.value) == "self":
            method = _find_method(*owner, node.func.attr)
            if method is None:
                return None
            found.append(method)
        elif isinstance(node.func, ast.Name):
            bindings = source.lookup(node.func)
            known = (source.qualified_name(node.func) or "").partition(".")[0] in _KNOWN
            if not known and any(not isinstance(binding, (*FUNCTIONS, ast.ClassDef)) for binding in bindings):
                return None
            found += [(source, binding) for binding in bindings if isinstance(binding, FUNCTIONS)]
    return found


def _class(source: Source, dataset: object) -> Class | None:
    """The class of a dataset of this project: of `Mine(...)`, of a name or attribute that is assigned it, and of `self`."""
    if not isinstance(dataset, ast.expr):
        return None
    if isinstance(dataset, ast.Name) and dataset.id == "self":
        owner = source.enclosing(dataset, ast.ClassDef)
        return (source, owner) if isinstance(owner, ast.ClassDef) else None
    if isinstance(dataset, ast.Attribute) and dotted_name(dataset.value) == "self":
        stores = [
            node
            for node in source.nodes(ast.Attribute)
            if node.attr == dataset.attr and isinstance(node.ctx, ast.Store) and dotted_name(node.value) == "self"
        ]
        values = [assigned_value(source, store) for store in stores]
        if len(values) != 1 or values[0] is None:
            return None
        dataset = values[0]
    found = class_of_samples(source, resolve(source, dataset) or dataset)
    return found[0] if found is not None else None


def _collate(source: Source, call: ast.Call) -> Place | None:
    """The collate function, of this file or another one of the project; `dataset.collate_fn` is a method."""
    node = argument(source, call, "collate_fn", COLLATE)
    if not isinstance(node, ast.expr):
        return None
    if isinstance(node, ast.Call) and source.qualified_name(node.func) == "functools.partial" and node.args:
        node = node.args[0]
    if isinstance(node, ast.Attribute) and not (source.qualified_name(node) or "").startswith("torch."):
        owner = _class(source, node.value)
        if owner is not None:
            return _find_method(*owner, node.attr)
    found = function_named(source, node)
    return (found[0], found[1]) if found is not None and isinstance(found[1], FUNCTIONS) else None


def _find_method(source: Source, definition: ast.ClassDef, name: str, depth: int = FOLLOW) -> Place | None:
    """A method of a class, or of the classes of the project that it is derived from."""
    if (method := method_of(definition, name)) is not None:
        return source, method
    for base in definition.bases if depth else ():
        dotted = source.qualified_name(base) or ""
        if dotted in _BASES_WITHOUT_SAMPLES:
            continue
        above = source.lookup(base) if isinstance(base, ast.Name) else []
        found: tuple[Source, ast.AST] | None = (source, above[0]) if len(above) == 1 else None
        if not (found and isinstance(found[1], ast.ClassDef)) and source.neighbours is not None and dotted:
            found = source.neighbours.definition_of(dotted)
        if found is None or not isinstance(found[1], ast.ClassDef):
            continue
        if (inherited := _find_method(found[0], found[1], name, depth - 1)) is not None:
            return inherited
    return None


def _code(source: Source, statement: ast.stmt) -> str:
    """The text of a statement; of a docstring nothing."""
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return "" if is_text else source.text_of(statement)
