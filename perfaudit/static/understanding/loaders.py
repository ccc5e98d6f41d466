"""Which DataLoader call a loop runs over, and which expressions are parts of the batches it yields."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import NamedTuple

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.understanding.called_functions import assigned_once, called_function, callers
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, Argument, argument, assigned_value

LOADER = "torch.utils.data.DataLoader"
PIN_MEMORY = 7  # position in DataLoader.__init__ of every torch since 1.0
Calls = tuple[ast.Call, ...]

_PASSES_ON = {  # yield what their first argument yields
    *(
        "tqdm.tqdm",
        "tqdm.auto.tqdm",
        "tqdm.autonotebook.tqdm",
        "tqdm.notebook.tqdm",
        "tqdm.rich.tqdm",
        "tqdm.tqdm_notebook",
    ),
    *("rich.progress.track", "fastprogress.progress_bar", "fastprogress.fastprogress.progress_bar", "itertools.islice"),
}
_VIEWS = {"view", "reshape", "squeeze", "unsqueeze", "flatten"}  # of a contiguous tensor: the same memory
_ALSO_VIEWS = _VIEWS | {"permute", "transpose", "t", "detach", "expand", "narrow"}  # the same memory, in another order
_CONVERTS = {"double", "half", "bfloat16", "int", "short", "byte", "bool", "type", "type_as"}
_COMPUTES = {
    "add",
    "sub",
    "mul",
    "div",
    "true_divide",
    "clamp",
    "round",
    "abs",
    "neg",
    "pow",
    "sqrt",
    "exp",
    "log",
    "repeat",
}
# Samples and labels mostly have these types, and the call is there to be on the safe side.
_MAY_CONVERT = {"float", "long"}
_NEW_TENSORS = {
    f"torch.{name}"
    for name in (
        *("cat", "concat", "concatenate", "stack", "hstack", "vstack", "tensor", "Tensor", "as_tensor", "from_numpy"),
        *("FloatTensor", "DoubleTensor", "LongTensor", "zeros", "ones", "full", "empty", "eye", "arange", "linspace"),
        *("rand", "randn", "randint", "randperm", "zeros_like", "ones_like", "rand_like", "randn_like", "full_like"),
    )
}
_ASKS_DICT = {"items", "keys", "values", "get"}
VARIABLE = "torch.autograd.Variable"
_OF_BATCHES = regex(r"loader|batch|(^|_)(iter|dl)$")  # names of what yields batches
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Pass(NamedTuple):
    """A loop over a DataLoader. `batch` is the part of its target that holds the batch, `loaders` all it may run over."""

    loop: ast.For | ast.AsyncFor
    batch: ast.expr
    over: ast.expr
    loaders: Calls


class Part(NamedTuple):
    """A part of a batch: the loaders it may come from, the statement that takes the batch, the names on the way.

    No loaders where a training loop runs over what another file hands in.
    """

    loaders: Calls
    taken: ast.stmt
    names: tuple[str, ...]


def pin_memory(source: Source, call: ast.Call) -> edit.Edits | None:
    """`pin_memory=True` in a call of DataLoader; None where the False is somebody else's as well, in a dict or a variable."""
    pinned = argument(source, call, "pin_memory", PIN_MEMORY)
    if pinned is ABSENT:
        return edit.add_keyword(source, call, "pin_memory", "True")
    if not isinstance(pinned, ast.Constant) or not any(ancestor is call for ancestor in source.ancestors(pinned)):
        return None
    return edit.replace(source, pinned, "True")


# ---- which loader --------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)  # several rules ask for the same file
def passes(source: Source) -> tuple[Pass, ...]:
    """Every loop of a file that surely runs over DataLoaders of this file, in document order."""
    if not source.calls(LOADER):
        return ()
    found = []
    loops: list[ast.For | ast.AsyncFor] = [*source.nodes(ast.For), *source.nodes(ast.AsyncFor)]
    for loop in sorted(loops, key=lambda item: item.lineno):
        batch, over = _without_count(source, loop.target, loop.iter)
        calls = loaders(source, over)
        if calls:
            found.append(Pass(loop, batch, over, calls))
    return tuple(found)


@functools.lru_cache(maxsize=4)
def passes_side_by_side(source: Source) -> tuple[Pass, ...]:
    """The loops over several DataLoaders of this file at once, a pass for each: `for (x, y), (u, v) in zip(labelled, others)`."""
    found = []
    for loop in source.nodes(ast.For) if source.calls(LOADER) else ():
        batch, over = _without_count(source, loop.target, loop.iter)
        over = _without_progress(source, over)
        row = assigned_once(source, over) if isinstance(over, ast.Name) else over
        if not isinstance(row, ast.Call) or not isinstance(row.func, ast.Name) or row.func.id != "zip" or row.keywords:
            continue
        if source.lookup(row.func) or not isinstance(batch, (ast.Tuple, ast.List)) or len(batch.elts) != len(row.args):
            continue
        if any(isinstance(element, ast.Starred) for element in (*batch.elts, *row.args)):
            continue
        sides = [(part, one, loaders(source, one)) for part, one in zip(batch.elts, row.args, strict=True)]
        found += [Pass(loop, part, one, calls) for part, one, calls in sides if calls]
    return tuple(found)


@functools.lru_cache(maxsize=4)
def unseen_passes(source: Source) -> tuple[Pass, ...]:
    """The training loops over what the file is handed: a parameter, or an attribute of an object; it shows no loader.

    And the other loops of a function that trains, which evaluate as a rule, or go round the steps: some make several of each
    batch.
    """
    return _unseen(source, _is_handed_in)


@functools.lru_cache(maxsize=4)
def perhaps_passes(source: Source) -> tuple[Pass, ...]:
    """As `unseen_passes`, and loops over what functions of other files return, or over an element of such a thing."""
    return _unseen(source, _comes_from_elsewhere)


def _unseen(source: Source, comes: Callable[[Source, ast.expr], bool]) -> tuple[Pass, ...]:
    training = [step.loop for step in step_loops(source)]
    functions = {id(function) for loop in training if (function := source.enclosing(loop, *FUNCTIONS)) is not None}
    inside = {id(node) for loop in training for node in ast.walk(loop)}
    more = [
        n for n in source.nodes(ast.For) if id(n) not in inside and id(source.enclosing(n, *FUNCTIONS)) in functions
    ]
    around = {id(a) for loop in training for a in source.ancestors(loop)}
    found = []
    for loop in (*training, *more):
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            batch, over = _without_count(source, loop.target, loop.iter)
            over = _without_progress(source, over)
            is_step = any(loop is step for step in training)
            if id(loop) in around and not is_step and not _OF_BATCHES.search(last_name(over).lower()):
                continue
            if comes(source, over) and loaders(source, over) is None:
                found.append(Pass(loop, batch, over, ()))
    return tuple(found)


def _without_progress(source: Source, over: ast.expr) -> ast.expr:
    """What a loop runs over without the bar around it, also `bar = tqdm(loader)` in a statement of its own."""
    for _ in range(4):
        bindings = source.lookup(over) if isinstance(over, ast.Name) else []
        shown = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
        bar = over if isinstance(over, ast.Call) else shown
        if not isinstance(bar, ast.Call) or not bar.args or source.qualified_name(bar.func) not in _PASSES_ON:
            return over
        over = bar.args[0]
    return over


def _is_handed_in(source: Source, node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return dotted_name(node.value) == "self"
    bindings = source.lookup(node) if isinstance(node, ast.Name) else []
    given = [binding for binding in bindings if not _only_shows(source, binding)]
    return len(given) == 1 and isinstance(given[0], ast.arg)


def _only_shows(source: Source, binding: ast.AST) -> bool:
    """Whether a name gets a progress bar around what it was: `loader = tqdm(loader)`."""
    value = assigned_value(source, binding) if isinstance(binding, ast.Name) else None
    if not isinstance(binding, ast.Name) or not isinstance(value, ast.Call) or not value.args:
        return False
    inner = value.args[0]
    return source.qualified_name(value.func) in _PASSES_ON and isinstance(inner, ast.Name) and inner.id == binding.id


def _comes_from_elsewhere(source: Source, node: ast.expr, depth: int = 4) -> bool:
    """Whether all that binds a name is handed in, or made by a function of another file of the project."""
    if isinstance(node, ast.Subscript) and depth:
        return _comes_from_elsewhere(source, node.value, depth - 1)
    if _is_handed_in(source, node) or not depth or not isinstance(node, ast.Name):
        return _is_handed_in(source, node)
    bindings = [binding for binding in source.lookup(node) if isinstance(binding, ast.Name)]
    return bool(bindings) and all(_is_bound_elsewhere(source, binding, depth - 1) for binding in bindings)


def _is_bound_elsewhere(source: Source, binding: ast.Name, depth: int) -> bool:
    statement = source.statement(binding)
    if isinstance(statement, ast.For):
        over = _without_progress(source, statement.iter)
        is_of_dict = isinstance(over, ast.Call) and last_name(over.func) in ("items", "values")
        owner = (
            over.func.value
            if is_of_dict and isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute)
            else None
        )
        return owner is not None and _comes_from_elsewhere(source, owner, depth)
    if not isinstance(statement, ast.Assign):
        return False
    value = _without_progress(source, statement.value)
    if not isinstance(value, ast.Call):
        return _comes_from_elsewhere(source, value, depth)
    owner = value.func
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    module = source.aliases.get(owner.id, "") if isinstance(owner, ast.Name) else ""
    return bool(module) and source.neighbours is not None and source.neighbours.is_own_module(module)


def _without_count(source: Source, target: ast.expr, over: ast.expr) -> tuple[ast.expr, ast.expr]:
    """The target and iterable of a loop without `enumerate` and the number it adds, also inside a progress bar."""
    inner = _without_progress(source, over)
    if not isinstance(inner, ast.Call) or last_name(inner.func) != "enumerate" or not inner.args:
        return target, over
    if not isinstance(target, (ast.Tuple, ast.List)) or len(target.elts) != 2:
        return target, over
    return target.elts[1], inner.args[0]


def loaders(source: Source, node: ast.expr, known: frozenset[int] = frozenset()) -> Calls | None:
    """Every DataLoader call of this file that an expression may be; None where it may be anything else.

    Follows names, `self.x`, parameters, functions of this file that return loaders, dicts of loaders and progress bars.
    `known` are the nodes on the way here: what leads back to them cannot be told.
    """
    if id(node) in known:
        return None
    known |= {id(node)}
    if isinstance(node, ast.Call):
        name = source.qualified_name(node.func)
        if name == LOADER or source.partial_behind(node) is not None:
            return (node,)
        if name in _PASSES_ON:
            return loaders(source, node.args[0], known) if node.args else None
        function = called_function(source, node)
        return _all([_loaders_returned(source, function, None, known)]) if function else None
    if isinstance(node, ast.IfExp):
        return _all([loaders(source, branch, known) for branch in (node.body, node.orelse)])
    if isinstance(node, ast.Name):
        return _all([_loaders_bound(source, binding, known) for binding in source.lookup(node)])
    if isinstance(node, ast.Attribute) and dotted_name(node.value) == "self":
        stores = [a for a in source.nodes(ast.Attribute) if a.attr == node.attr and isinstance(a.ctx, ast.Store)]
        own = [store for store in stores if dotted_name(store.value) == "self"]
        return _all([_loaders_bound(source, store, known) for store in own]) if len(own) == len(stores) else None
    if isinstance(node, ast.Subscript):
        return _loaders_in_dict(source, node.value, known)
    return None


def _all(found: list[Calls | None]) -> Calls | None:
    """All of them together; None where one cannot be told, or there is none."""
    calls: Calls = ()
    for item in found:
        if item is None:
            return None
        calls += tuple(call for call in item if call not in calls)
    return calls or None


def _loaders_bound(source: Source, binding: ast.AST, known: frozenset[int]) -> Calls | None:
    """What a name or attribute is where this node binds it."""
    if isinstance(binding, ast.arg):
        return _loaders_passed(source, binding, known)
    value = assigned_value(source, binding)
    if _only_shows(source, binding) and len(source.lookup(binding)) > 1:  # type: ignore[arg-type]  # a name
        return ()
    if isinstance(value, ast.Constant) and value.value is None:  # `loader = None` before a branch: it is never iterated
        return ()
    if value is not None:
        return loaders(source, value, known)
    parent = source.parent(binding)
    if isinstance(parent, ast.withitem) and parent.optional_vars is binding:  # `with tqdm(loader) as batches`
        return loaders(source, parent.context_expr, known)
    statement = source.parent(parent) if isinstance(parent, (ast.Tuple, ast.List)) else None
    if not isinstance(statement, ast.Assign) or not isinstance(parent, (ast.Tuple, ast.List)):
        return None
    if any(isinstance(element, ast.Starred) for element in parent.elts):
        return None
    place = next(n for n, element in enumerate(parent.elts) if element is binding)
    if isinstance(statement.value, ast.Tuple) and len(statement.value.elts) == len(parent.elts):
        return loaders(source, statement.value.elts[place], known)
    if isinstance(statement.value, ast.Call):
        function = called_function(source, statement.value)
        return _loaders_returned(source, function, (place, len(parent.elts)), known) if function else None
    return None


def _loaders_returned(
    source: Source, function: Function, place: tuple[int, int] | None, known: frozenset[int]
) -> Calls | None:
    """What a function returns, or the element at `place` of the tuple of that length that it returns."""
    found: list[Calls | None] = []
    for node in source.nodes(ast.Return):
        if source.enclosing(node, *FUNCTIONS, ast.Lambda) is not function:
            continue
        value = node.value
        if place is not None and value is not None:
            is_fitting = isinstance(value, ast.Tuple) and len(value.elts) == place[1]
            value = value.elts[place[0]] if is_fitting and isinstance(value, ast.Tuple) else None
        found.append(loaders(source, value, known) if value is not None else None)
    return _all(found)


def _loaders_passed(source: Source, parameter: ast.arg, known: frozenset[int]) -> Calls | None:
    """The loaders among what all calls in this file pass for a parameter; None where another thing may be passed."""
    given = given_to(source, parameter)
    return _all([loaders(source, value, known) for value in given]) if given is not None else None


def given_to(source: Source, parameter: ast.arg) -> list[ast.expr] | None:
    """What all calls in this file pass for a parameter; None where one passes it nothing that can be read.

    So it is where the function is used otherwise than called.
    """
    function = source.enclosing(parameter, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, FUNCTIONS):
        return None
    calls = _constructor_calls(source, function) if function.name == "__init__" else callers(source, function)
    is_method = isinstance(source.parent(function), ast.ClassDef)
    if not calls or (not is_method and len(source.uses_of(function, function.name)) != len(calls)):
        return None
    given = [argument_for(source, call, function, parameter) for call in calls]
    found = [value for value in given if isinstance(value, ast.expr)]
    return found if len(found) == len(given) else None


def argument_for(source: Source, call: ast.Call, function: Function, parameter: ast.arg) -> Argument:
    """What a call of a function passes for a parameter."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    is_method = isinstance(source.parent(function), ast.ClassDef)
    position = names.index(parameter.arg) - is_method if parameter.arg in names else None
    if position is not None and position < 0:  # the object itself, which stands before the call
        return UNKNOWN
    return argument(source, call, parameter.arg, position)


def seen_by_caller(source: Source, over: ast.expr, function: Function, call: ast.Call) -> ast.expr | None:
    """What a loader inside a function is for one that calls it: the argument, where it is a parameter, else itself.

    None where the call passes nothing that can be read.
    """
    for name in [n for n in ast.walk(over) if isinstance(n, ast.Name)]:
        for binding in source.lookup(name):
            if isinstance(binding, ast.arg) and source.parent(source.parent(binding) or binding) is function:
                value = argument_for(source, call, function, binding) if binding.arg != "self" else over
                return value if isinstance(value, ast.expr) else None
    return over


def _constructor_calls(source: Source, init: Function) -> Calls:
    """The calls that build an object of the class whose `__init__` this is; none if the class is used otherwise."""
    definition = source.parent(init)
    if not isinstance(definition, ast.ClassDef):
        return ()
    uses = source.uses_of(definition, definition.name)
    calls = [call for use in uses if isinstance(call := source.parent(use), ast.Call) and call.func is use]
    return tuple(calls) if len(calls) == len(uses) else ()


def _loaders_in_dict(source: Source, node: ast.expr, known: frozenset[int]) -> Calls | None:
    """Every loader that a dict holds: `{"train": DataLoader(...)}`, `{x: DataLoader(sets[x]) for x in names}`."""
    if isinstance(node, ast.DictComp):
        return loaders(source, node.value, known)
    if isinstance(node, ast.Dict):
        return _all([loaders(source, value, known) for value in node.values])
    if isinstance(node, ast.Name) and len(bindings := source.lookup(node)) == 1:
        value = assigned_value(source, bindings[0])
        if value is None or id(value) in known:
            return None
        added = [_loaders_added(source, use, known) for use in source.uses_of(bindings[0], node.id)]
        return _all([_loaders_in_dict(source, value, known | {id(value)}), *(calls for calls in added if calls != ())])
    return None


def _loaders_added(source: Source, use: ast.Name, known: frozenset[int]) -> Calls | None:
    """The loaders that a use of a dict adds to it: `held["x"] = DataLoader(...)`; None for a use that may change it otherwise."""
    parent = source.parent(use)
    if isinstance(parent, ast.Attribute):
        return () if parent.attr in _ASKS_DICT else None
    if not isinstance(parent, ast.Subscript) or isinstance(parent.ctx, ast.Load):
        return ()
    value = assigned_value(source, parent)
    return loaders(source, value, known) if value is not None else None


# ---- what is a batch -----------------------------------------------------------------------------------------------


def batch_part(source: Source, node: ast.expr, depth: int = 6) -> Part | None:
    """Where an expression is a batch of a DataLoader of this file, or something taken out of one as it is; else None."""
    node = without_variable(source, node)
    if not depth:
        return None
    if isinstance(node, ast.Subscript):
        return batch_part(source, node.value, depth - 1)
    if isinstance(node, ast.Call):
        viewed = viewed_tensor(source, node)
        return batch_part(source, viewed, depth - 1) if viewed is not None else _next_batch(source, node)
    if not isinstance(node, ast.Name):
        return None
    part = _named_part(source, node, depth)
    return part and Part(part.loaders, part.taken, (node.id, *part.names))


def viewed_tensor(source: Source, call: ast.Call) -> ast.expr | None:
    """The tensor of which a call returns the same memory: `x` of `x.view(-1)` and of `torch.unsqueeze(x, 1)`."""
    name = source.qualified_name(call.func) or ""
    if name.startswith("torch."):
        return call.args[0] if call.args and name.removeprefix("torch.") in _VIEWS else None
    if isinstance(call.func, ast.Attribute) and call.func.attr in _VIEWS:
        return call.func.value
    return None


def without_variable(source: Source, node: ast.expr) -> ast.expr:
    """What is wrapped in `Variable(...)`, which hands out the same tensor since torch 0.4; else the node."""
    while isinstance(node, ast.Call) and node.args and source.qualified_name(node.func) == VARIABLE:
        node = node.args[0]
    return node


def _named_part(source: Source, name: ast.Name, depth: int) -> Part | None:
    for ancestor in source.ancestors(name):
        if isinstance(ancestor, _COMPREHENSIONS):
            for generator in ancestor.generators:
                if any(n.id == name.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)):
                    return _element(source, generator.target, generator.iter, name.id, depth)
        if isinstance(ancestor, (*FUNCTIONS, ast.Lambda)):
            break
    bound = reaching(source, name)
    parts = [_bound_part(source, binding, name.id, depth) for binding in bound]
    if not bound and (parameter := _parameter_at(source, name)) is not None:
        parts = _given_parts(source, parameter, depth)
        parts = [part for part in parts if part is not None and _is_of_training(source, part)] or parts
    found = [part for part in parts if part is not None]
    if not found or len(found) < len(parts):
        return None
    return Part(tuple(call for part in found for call in part.loaders), found[0].taken, found[0].names)


def _is_of_training(source: Source, part: Part) -> bool:
    return any(step.loop is part.taken for step in step_loops(source))


def _parameter_at(source: Source, name: ast.Name) -> ast.arg | None:
    """The parameter that a name stands for where nothing has bound it anew before."""
    given = [binding for binding in source.lookup(name) if isinstance(binding, ast.arg)]
    here = source.span(source.statement(name)).start
    is_anew = any(source.span(b).start < here for b in source.lookup(name) if not isinstance(b, ast.arg))
    return given[0] if len(given) == 1 and not is_anew else None


def _given_parts(source: Source, parameter: ast.arg, depth: int) -> list[Part | None]:
    """What the calls in this file of a function hand to its parameter; none for a method that others may call."""
    function = source.enclosing(parameter, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, FUNCTIONS):
        return []
    given = [argument_for(source, call, function, parameter) for call in callers(source, function)]
    return [batch_part(source, value, depth - 1) if isinstance(value, ast.expr) else None for value in given]


def _bound_part(source: Source, binding: ast.Name, name: str, depth: int) -> Part | None:
    """What the name is where this node binds it."""
    statement = source.statement(binding)
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        known = (*passes(source), *passes_side_by_side(source), *perhaps_passes(source))
        own = [item for item in known if item.loop is statement]
        if not own:
            return _element(source, statement.target, statement.iter, name, depth)
        of_batch = next((item for item in own if any(node is binding for node in ast.walk(item.batch))), None)
        return Part(of_batch.loaders, statement, ()) if of_batch is not None else None
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        place = next((n for n, element in enumerate(target.elts) if element is binding), None)
        return batch_part(source, value.elts[place], depth - 1) if place is not None else None
    return batch_part(source, value, depth - 1)


def _element(source: Source, target: ast.expr, over: ast.expr, name: str, depth: int) -> Part | None:
    """What a loop over the batch itself yields: `for t in batch`, `for k, v in batch.items()`."""
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and not over.args:
        is_value = isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(target.elts[1], ast.Name)
        if over.func.attr == "items" and isinstance(target, ast.Tuple) and is_value:
            value = target.elts[1]
            is_asked = isinstance(value, ast.Name) and value.id == name
            return batch_part(source, over.func.value, depth - 1) if is_asked else None
        return batch_part(source, over.func.value, depth - 1) if over.func.attr == "values" else None
    return batch_part(source, over, depth - 1) if isinstance(over, (ast.Name, ast.Subscript)) else None


def _next_batch(source: Source, call: ast.Call) -> Part | None:
    """`next(batches)` where `batches` is always `iter(loader)`."""
    if not (isinstance(call.func, ast.Name) and call.func.id == "next" and len(call.args) == 1):
        return None
    iterator = call.args[0]
    values: list[ast.expr | None] = [iterator]
    if isinstance(iterator, ast.Name):
        values = [assigned_value(source, binding) for binding in source.lookup(iterator)]
    found: list[Calls | None] = []
    for value in values:
        is_iter = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "iter"
        found.append(loaders(source, value.args[0]) if is_iter and isinstance(value, ast.Call) and value.args else None)
    calls = _all(found)
    return Part(calls, source.statement(call), ()) if calls else None


def reaching(source: Source, name: ast.Name) -> list[ast.Name]:
    """The bindings of a name of which one surely holds where it is read; none where branches or loops leave a doubt.

    Several only behind `try: batch = next(batches)` with an `except` that binds the name as well.
    """
    here = source.statement(name)
    bindings = [b for b in source.lookup(name) if isinstance(b, ast.Name)]
    before = [b for b in bindings if source.span(b).start < source.span(here).start]
    before = [b for b in before if not _is_in_other_branch(source, b, here)]
    if not before:
        return []
    last = max(before, key=lambda b: source.span(b).start)
    statement = source.statement(last)
    around = [here, *source.ancestors(here)]
    found = [last]
    block = source.parent(statement)
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        block = statement
    elif isinstance(block, ast.ExceptHandler) and isinstance(tried := source.parent(block), ast.Try):
        found += [b for b in before if source.parent(source.statement(b)) is tried]
        is_whole = len(tried.handlers) == 1 and len(found) == 2 and not tried.orelse
        statement, block = tried, source.parent(tried) if is_whole else None
    if not any(item is block for item in around) or _set_anew_in_loop(source, here, statement, bindings):
        return []
    return found


def _is_in_other_branch(source: Source, binding: ast.AST, here: ast.AST) -> bool:
    """Whether a binding stands in one branch of an `if` and a statement in the other one: `if old: x = ...`, `else: y = x`."""
    branches = _branches(source, here)
    return any(branches.get(test, is_then) is not is_then for test, is_then in _branches(source, binding).items())


def _branches(source: Source, node: ast.AST) -> dict[int, bool]:
    """The `if` statements around a node by id, and whether it stands in the first branch of each."""
    found = {}
    child = node
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, ast.If):
            found[id(ancestor)] = any(item is child for item in ancestor.body)
        child = ancestor
    return found


def _set_anew_in_loop(source: Source, here: ast.stmt, statement: ast.stmt, bindings: list[ast.Name]) -> bool:
    """Whether a loop between the binding and its use binds the name again, elsewhere than in the using statement."""
    for ancestor in source.ancestors(here):
        if ancestor is statement or ancestor is source.parent(statement):
            return False
        if isinstance(ancestor, LOOPS):
            inside = [b for b in bindings if any(a is ancestor for a in source.ancestors(b))]
            if any(source.statement(b) is not here for b in inside):
                return True
    return False


# ---- what is a batch no longer -------------------------------------------------------------------------------------


def is_made_on_host(source: Source, node: ast.expr, depth: int = 6) -> bool:
    """Whether an expression is, or may well be, a tensor that the training process made in host memory itself.

    Converted, joined, computed or filled there: nobody has page-locked its memory, whatever the loader did with the
    batch. `.type(torch.FloatTensor)` may find nothing to do; who writes it expects that it does.
    """
    if isinstance(node, ast.BinOp):
        return True
    if not depth:
        return False
    if isinstance(node, ast.Subscript):
        return is_made_on_host(source, node.value, depth - 1)
    if isinstance(node, ast.Call):
        name = source.qualified_name(node.func) or ""
        if name == VARIABLE:
            return bool(node.args) and is_made_on_host(source, node.args[0], depth - 1)
        if name in _NEW_TENSORS:
            return True
        if not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr in _ALSO_VIEWS | _MAY_CONVERT:
            return is_made_on_host(source, node.func.value, depth - 1)
        return node.func.attr in _CONVERTS | _COMPUTES
    if not isinstance(node, ast.Name):
        return False
    values = [assigned_value(source, binding) for binding in reaching(source, node)]
    return bool(values) and all(value is not None and is_made_on_host(source, value, depth - 1) for value in values)
