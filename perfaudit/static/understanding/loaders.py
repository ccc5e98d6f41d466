"""Which DataLoader call a loop runs over, and which expressions are parts of the batches it yields."""

from __future__ import annotations

import ast
from collections.abc import Callable

from perfaudit.expressions import regex
from perfaudit.records import NamedTuple
from perfaudit.static import edit
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.called_functions import assigned_once, called_function, callers
from perfaudit.static.understanding.families import relatives
from perfaudit.static.understanding.generators import iterable_behind
from perfaudit.static.understanding.members import attributes, is_own
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
_ASKS_DICT = {"items", "keys", "values", "get"}
_OF_BATCHES = regex(r"loader|batch|(^|_)(iter|dl)$", words="loader|batch|iter|dl")  # names of what yields batches
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Pass(NamedTuple):
    """A loop over a DataLoader. `batch` is the part of its target that holds the batch, `loaders` all it may run over."""

    loop: ast.For | ast.AsyncFor
    batch: ast.expr
    over: ast.expr
    loaders: Calls


def pin_memory(source: Source, call: ast.Call) -> edit.Edits | None:
    """`pin_memory=True` in a call of DataLoader; None where the False is somebody else's as well, in a dict or a variable."""
    pinned = argument(source, call, "pin_memory", PIN_MEMORY)
    if pinned is ABSENT:
        return edit.add_keyword(source, call, "pin_memory", "True")
    if not isinstance(pinned, ast.Constant) or not any(ancestor is call for ancestor in source.ancestors(pinned)):
        return None
    return edit.replace(source, pinned, "True")


# ---- which loader --------------------------------------------------------------------------------------------------


@remember  # several rules ask for the same file
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


@remember
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


@remember
def unseen_passes(source: Source) -> tuple[Pass, ...]:
    """The training loops over what the file is handed: a parameter, or an attribute of an object; it shows no loader.

    And the other loops of a function that trains, which evaluate as a rule, or go round the steps: some make several of each
    batch. Beside such a training, the loops of other functions over what is named as loaders are.
    """
    return _unseen(source, is_handed_in)


@remember
def perhaps_passes(source: Source) -> tuple[Pass, ...]:
    """As `unseen_passes`, and loops over what functions of other files return, or over an element of such a thing."""
    return _unseen(source, _comes_from_elsewhere)


def _unseen(source: Source, comes: Callable[[Source, ast.expr], bool]) -> tuple[Pass, ...]:
    training = [step.loop for step in step_loops(source)]
    functions = {id(function) for loop in training if (function := source.enclosing(loop, *FUNCTIONS)) is not None}
    inside = {id(node) for loop in training for node in walk(loop)}
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
    if any(one.loop in training for one in found):
        found += _evaluations_beside(source, comes, {id(one.loop) for one in found} | inside)
    return tuple(found)


def _evaluations_beside(source: Source, comes: Callable[[Source, ast.expr], bool], known: set[int]) -> list[Pass]:
    """The loops over what is named as loaders are, in functions beside those that train: `for x, y in self.valid_loader`."""
    found = []
    for loop in source.nodes(ast.For):
        batch, over = _without_count(source, loop.target, loop.iter)
        over = _without_progress(source, over)
        is_named = id(loop) not in known and _OF_BATCHES.search(last_name(over).lower()) is not None
        if (
            is_named
            and source.enclosing(loop, *LOOPS) is None
            and comes(source, over)
            and loaders(source, over) is None
        ):
            found.append(Pass(loop, batch, over, ()))
    return found


def _without_progress(source: Source, over: ast.expr) -> ast.expr:
    """What a loop runs over without the bar around it, also `bar = tqdm(loader)` in a statement of its own."""
    for _ in range(4):
        bindings = source.lookup(over) if isinstance(over, ast.Name) else []
        shown = (
            (assigned_value(source, bindings[0]) or _context_behind(source, bindings[0]))
            if len(bindings) == 1
            else None
        )
        bar = over if isinstance(over, ast.Call) else shown
        passed = _passed_on(source, bar) if isinstance(bar, ast.Call) else None
        if passed is None:
            return over
        over = passed
    return over


def _context_behind(source: Source, binding: ast.AST) -> ast.expr | None:
    """`tqdm(loader)` of `with tqdm(loader) as bar`."""
    item = source.parent(binding)
    return item.context_expr if isinstance(item, ast.withitem) and item.optional_vars is binding else None


def _passed_on(source: Source, call: ast.Call) -> ast.expr | None:
    """The argument that a call yields the items of: of a progress bar, or of a generator of the project."""
    if source.qualified_name(call.func) in _PASSES_ON:
        named = (keyword.value for keyword in call.keywords if keyword.arg == "iterable")
        return call.args[0] if call.args else next(named, None)
    return iterable_behind(source, call)


def is_handed_in(source: Source, node: ast.expr) -> bool:
    """Whether an expression is a parameter, or an attribute of `self`: something that a file is given."""
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
    if is_handed_in(source, node) or not depth or not isinstance(node, ast.Name):
        return is_handed_in(source, node)
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
    if source.neighbours is None or not isinstance(owner, ast.Name):
        return False
    if module or owner is not value.func or source.lookup(owner):
        return bool(module) and source.neighbours.is_own_module(module)
    return source.neighbours.bound_by_star(owner.id, source) is not None


def _without_count(source: Source, target: ast.expr, over: ast.expr) -> tuple[ast.expr, ast.expr]:
    """The target and iterable of a loop without `enumerate` and the number it adds, also inside a progress bar.

    And without an `iter` in the head of the loop, which begins anew there each time.
    """
    over = _without_iter(source, over)
    inner = _without_progress(source, over)
    if isinstance(inner, ast.Name):  # `numbered = enumerate(loader)` in a statement of its own
        inner = assigned_once(source, inner)
    if not isinstance(inner, ast.Call) or last_name(inner.func) != "enumerate" or not inner.args:
        return target, over
    if not isinstance(target, (ast.Tuple, ast.List)) or len(target.elts) != 2:
        return target, over
    return target.elts[1], _without_iter(source, inner.args[0])


def _without_iter(source: Source, over: ast.expr) -> ast.expr:
    """`loader` of `iter(loader)`."""
    match over:
        case ast.Call(func=ast.Name(id="iter") as name, args=[inner], keywords=[]) if not source.lookup(name):
            return inner
    return over


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
        if (passed := _passed_on(source, node)) is not None:
            return loaders(source, passed, known)
        function = called_function(source, node)
        return known_calls([loaders_returned(source, function, None, known)]) if function else None
    if isinstance(node, ast.IfExp):
        return known_calls([loaders(source, branch, known) for branch in (node.body, node.orelse)])
    if isinstance(node, ast.Name):
        return known_calls([_loaders_bound(source, binding, known) for binding in source.lookup(node)])
    if isinstance(node, ast.Attribute) and (stores := _own_stores(source, node)) is not None:
        return known_calls([_loaders_bound(source, store, known) for store in stores])
    if isinstance(node, ast.Subscript):
        return _loaders_in_dict(source, node.value, known)
    return None


def _own_stores(source: Source, node: ast.Attribute) -> list[ast.Attribute] | None:
    """Where the class around a use sets an attribute of `self`, or a base or subclass of it in this file does.

    None for another object's attribute, or where another object's is set by the same name.
    """
    mentions = _mentions(source, node.attr)
    if not is_own(node) or any(isinstance(one.ctx, ast.Store) for one in mentions.get(None, ())):
        return None
    return [one for one in _of_same_object(source, node) if isinstance(one.ctx, ast.Store)]


def _of_same_object(source: Source, node: ast.Attribute) -> list[ast.Attribute]:
    """The mentions of an attribute of `self` that may mean one object: in the class around one, or one related to it."""
    own = source.enclosing(node, ast.ClassDef)
    if not isinstance(own, ast.ClassDef):
        return []
    mentions = _mentions(source, node.attr)
    found = [one for item in mentions.keys() & relatives(source, own) for one in mentions[item]]
    return sorted(found, key=lambda one: (one.lineno, one.col_offset))


@remember
def _mentions(source: Source, name: str) -> dict[int | None, list[ast.Attribute]]:
    """The mentions of an attribute: those of `self` by the class around them, those of other objects under None."""
    found: dict[int | None, list[ast.Attribute]] = {}
    for one in attributes(source).get(name, ()):
        found.setdefault(id(source.enclosing(one, ast.ClassDef)) if is_own(one) else None, []).append(one)
    return found


def known_calls(found: list[Calls | None]) -> Calls | None:
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
    if (entered := _context_behind(source, binding)) is not None:  # `with tqdm(loader) as batches`
        return loaders(source, entered, known)
    parent = source.parent(binding)
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
        return loaders_returned(source, function, (place, len(parent.elts)), known) if function else None
    return None


def loaders_returned(
    source: Source, function: Function, place: tuple[int, int] | None, known: frozenset[int] = frozenset()
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
    return known_calls(found)


def _loaders_passed(source: Source, parameter: ast.arg, known: frozenset[int]) -> Calls | None:
    """The loaders among what all calls in this file pass for a parameter; None where another thing may be passed."""
    given = given_to(source, parameter)
    return known_calls([loaders(source, value, known) for value in given]) if given is not None else None


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
    for name in [n for n in walk(over) if isinstance(n, ast.Name)]:
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
        return known_calls([loaders(source, value, known) for value in node.values]) if node.values else ()
    if isinstance(node, ast.Call):  # of a function of this file that makes the dict
        function = called_function(source, node)
        if function is None:
            return None
        returned = [n.value for n in walk(function) if isinstance(n, ast.Return) and source.scope(n) is function]
        return known_calls([_dict_behind(source, value, known) for value in returned])
    if isinstance(node, ast.Name) and len(bindings := source.lookup(node)) == 1:
        given = given_to(source, bindings[0]) if isinstance(bindings[0], ast.arg) else None
        values = [assigned_value(source, bindings[0])] if given is None else [*given]
        added = [_loaders_added(source, use, known) for use in source.uses_of(bindings[0], node.id)]
        return known_calls(
            [*(_dict_behind(source, value, known) for value in values), *(calls for calls in added if calls != ())]
        )
    if isinstance(node, ast.Attribute) and (stores := _own_stores(source, node)):  # `self.loaders["train"]`
        kept = [_dict_behind(source, assigned_value(source, store), known) for store in stores]
        mentions = (*_mentions(source, node.attr).get(None, ()), *_of_same_object(source, node))
        uses = [one for one in mentions if isinstance(one.ctx, ast.Load)]
        added = [_loaders_added(source, use, known) for use in uses]
        return known_calls([*kept, *(calls for calls in added if calls != ())])
    return None


def _dict_behind(source: Source, value: ast.expr | None, known: frozenset[int]) -> Calls | None:
    """The loaders of a dict that something is given; None where that cannot be told, or leads back to where it is asked."""
    is_new = value is not None and id(value) not in known
    return _loaders_in_dict(source, value, known | {id(value)}) if is_new and value is not None else None


def _loaders_added(source: Source, use: ast.Name | ast.Attribute, known: frozenset[int]) -> Calls | None:
    """The loaders that a use of a dict adds to it: `held["x"] = DataLoader(...)`; None for a use that may change it otherwise."""
    parent = source.parent(use)
    if isinstance(parent, ast.Attribute):
        return () if parent.attr in _ASKS_DICT else None
    if not isinstance(parent, ast.Subscript) or isinstance(parent.ctx, ast.Load):
        return ()
    value = assigned_value(source, parent)
    return loaders(source, value, known) if value is not None else None
