"""Functions that a call runs in another way than by their name here: those of other files of the project, as helpers, methods
of a trainer and the `forward` of a loss; and of this file the methods of objects, as the `forward` of a model.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Callable, Iterable, Iterator

from perfaudit.expressions import regex
from perfaudit.records import NamedTuple
from perfaudit.static.project.neighbours import Neighbours
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import called_function, callers
from perfaudit.static.understanding.each_time import runs_each_time, runs_in_any_case
from perfaudit.static.understanding.evaluation import EVALUATION_NAME
from perfaudit.static.understanding.handed_in import handed_in
from perfaudit.static.understanding.losses import arguments_of
from perfaudit.static.understanding.members import is_own, own_values
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.step_code import leaves_step
from perfaudit.static.understanding.values import assigned_value

_MAX_BASES = 4  # classes looked through for a method
_RUNS = ("forward", "__call__")  # what calling an object runs
_HARMLESS = {"staticmethod", "classmethod", "no_grad", "inference_mode"}  # decorators that run what they decorate
_PASSED_ON = {"to", "cuda", "train", "eval", "half", "float", "requires_grad_"}  # methods that return their own object
_BUILDERS = {"from_pretrained", "load_from_checkpoint"}  # methods of a class that build an object of it
_WRAPS = regex(
    r"DataParallel|convert_sync_batchnorm|^compile$", words="DataParallel|convert_sync|compile"
)  # what calls the object that it is given


class Elsewhere(NamedTuple):
    """A function and the call that runs it; `source` is its file, which knows nothing of its neighbours if it is another one.

    caller: the function of another file that has the call; None for a call in the file that is looked at.
    """

    source: Source
    function: Function
    call: ast.Call
    caller: Elsewhere | None = None

    @property
    def way(self) -> str:
        """By what call a function two calls deep is reached, for messages: ", which `step` calls"; else ""."""
        return f", which `{self.caller.function.name}` calls" if self.caller is not None else ""

    @property
    def outermost(self) -> Elsewhere:
        """The function that a call in the file that is looked at runs: this one, or the one that calls it."""
        return self.caller or self

    @property
    def owner(self) -> ast.ClassDef | None:
        """The class of a method."""
        parent = self.source.parent(self.function)
        return parent if isinstance(parent, ast.ClassDef) else None

    @property
    def named_arguments(self) -> Iterator[tuple[str, ast.expr]]:
        """The parameters that the call passes by position or name, each with what it passes; not `self`."""
        names = [a.arg for a in (*self.function.args.posonlyargs, *self.function.args.args)]
        is_static = any(last_name(decorator) == "staticmethod" for decorator in self.function.decorator_list)
        if self.owner is not None and not is_static:
            names = names[1:]
        if not any(isinstance(argument, ast.Starred) for argument in self.call.args):
            yield from zip(names, self.call.args, strict=False)
        yield from ((keyword.arg, keyword.value) for keyword in self.call.keywords if keyword.arg is not None)

    @property
    def rest(self) -> Iterator[ast.expr]:
        """What the call passes for `**kwargs`: by other names than those of the parameters, or as a dict."""
        arguments = self.function.args
        names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        if arguments.kwarg is not None:
            yield from (keyword.value for keyword in self.call.keywords if keyword.arg not in names)


@functools.lru_cache(maxsize=32)  # several rules ask for the same code
def called_each_step(source: Source, root: Loop | Function) -> tuple[Elsewhere, ...]:
    """The functions of other files that a loop, or a function that it calls, runs each time, in the order of the calls."""
    calls = [node for part in root.body for node in walk(part) if isinstance(node, ast.Call)]
    found = (_called_with_care(source, call) for call in calls if runs_each_time(source, call, root))
    return tuple(there for there in found if there is not None and not evaluates_elsewhere(there))


def called_from(source: Source, there: Elsewhere) -> Iterator[Elsewhere]:
    """The functions that a function of another file runs in any case: of its own file, or of a third one.

    A method of `self` is its class' own only where no other class in sight has a method of that name. What is called in a
    loop without gradients evaluates.
    """
    if source.neighbours is None or leaves_step(there.function):
        return
    for call in (node for part in there.function.body for node in walk(part) if isinstance(node, ast.Call)):
        function = called_function(there.source, call)
        if function is None:
            further = _callee(there.source, call, source.neighbours)
        else:
            further = _plain(there.source, function, call)
        if further is None or further.function is there.function or evaluates_elsewhere(further):
            continue
        if _is_own_method(call) and not _is_only_one(further.function, source, there.source, further.source):
            continue
        if there.source.enclosing(call, *LOOPS, within=there.function) and in_no_grad(there.source, call):
            continue
        if runs_in_any_case(there.source, call, there.function):
            yield further._replace(caller=there)


def evaluates_elsewhere(there: Elsewhere) -> bool:
    """Whether a function of another file is by its name no part of a step, or puts a model into eval mode."""
    if EVALUATION_NAME.search(there.function.name.lower()):
        return True
    return any(last_name(n.func) == "eval" for n in walk(there.function) if isinstance(n, ast.Call))


def _is_own_method(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and last_name(call.func.value) == "self"


def _is_only_one(method: Function, *sources: Source) -> bool:
    """Whether no other function in these files has the name of a method, which may be that of a subclass."""
    return not any(
        definition.name == method.name and definition is not method
        for source in sources
        for definition in source.definitions
    )


def called_elsewhere(source: Source, call: ast.Call) -> Elsewhere | None:
    """The function that a call surely runs in another way than by a name of this file; None for a library's, or if not clear."""
    if called_function(source, call) is not None:
        return None
    return _callee(source, call, source.neighbours)


def _called_with_care(source: Source, call: ast.Call) -> Elsewhere | None:
    """The same, or the method of what other files hand in: of a logger, a loss, a model. No patch may rest on it."""
    if called_function(source, call) is not None:
        return None
    return _callee(source, call, source.neighbours, class_of_object=_class_of_any)


def function_run(source: Source, call: ast.Call) -> Elsewhere | None:
    """The function that a call surely runs, of this file or of another one."""
    function = called_function(source, call)
    return Elsewhere(source, function, call) if function is not None else called_elsewhere(source, call)


def class_of(source: Source, node: ast.expr) -> Definition | None:
    """The class whose object an expression is, in this file or another one, with that file; None where it is not clear."""
    return _class_of(source, node, source.neighbours)


def base_elsewhere(source: Source, definition: ast.ClassDef) -> Definition | None:
    """The first base of a class, where that is a class of another file of the project."""
    if not definition.bases:
        return None
    return _class(_imported_definition(source, definition.bases[0], source.neighbours))


def built_by(source: Source, node: ast.expr) -> list[ast.Call]:
    """The calls that build the object that an expression is, in a file that is seen alone; none where one is not in sight."""
    return _builders(source, node, set()) or []


def generator_elsewhere(source: Source, call: ast.Call) -> Elsewhere | None:
    """The generator of another file that a call makes, a function or a method of an object whose class is in sight."""
    there = _callee(source, call, source.neighbours, _generator)
    return there if there is not None and there.source is not source else None


def class_meant(source: Source, node: ast.expr) -> tuple[Source, ast.AST] | None:
    """The class whose object an expression is, of this file or another one, where all that builds it is of one class in sight."""
    return _class_of(source, node, source.neighbours)


def method_meant(source: Source, node: ast.Attribute) -> tuple[Source, ast.AST] | None:
    """The method that `dataset.collate` stands for, where all that builds the object is of one class in sight."""
    owner = class_meant(source, node.value)
    bound = owner[0].bound_in(owner[1]).get(node.attr, []) if owner is not None else []
    return (owner[0], bound[0]) if owner is not None and len(bound) == 1 else None


Making = Callable[[Source, ast.AST, ast.Call], Elsewhere | None]  # what a call of a function is taken for


def _callee(
    source: Source,
    call: ast.Call,
    neighbours: Neighbours | None,
    making: Making | None = None,
    class_of_object: Callable[[Source, ast.expr, Neighbours | None], Definition | None] | None = None,
) -> Elsewhere | None:
    making, class_of_object = making or _plain, class_of_object or _class_of
    found = _imported_definition(source, call.func, neighbours)
    if found is not None and isinstance(found[1], FUNCTIONS):
        return making(found[0], found[1], call)
    if isinstance(call.func, ast.Attribute):
        owner = class_of_object(source, call.func.value, neighbours)
        there = _method(owner, (call.func.attr,), call, making) if owner is not None else None
        if there is not None or class_of_object is _class_of or not is_own(call.func):
            return there
    owner = class_of_object(source, call.func, neighbours)
    return _method(owner, _RUNS, call, making) if owner is not None else None


Definition = tuple[Source, ast.AST]


def _imported_definition(source: Source, node: ast.AST | None, neighbours: Neighbours | None) -> Definition | None:
    """The definition in another file that an imported name stands for, or one that only `from module import *` can have bound."""
    dotted = source.qualified_name(node) or ""
    if neighbours is None or dotted.partition(".")[0] == "torch":
        return None
    if not dotted:
        is_free = isinstance(node, ast.Name) and not hasattr(builtins, node.id) and not source.lookup(node)
        found = neighbours.bound_by_star(node.id, source) if is_free and isinstance(node, ast.Name) else None
        return (found[0], found[1][0]) if found is not None and len(found[1]) == 1 else None
    return neighbours.definition_of(dotted, None if source.neighbours is neighbours else source)


def _class_of(source: Source, node: ast.expr, neighbours: Neighbours | None) -> Definition | None:
    """The class whose object an expression is, however it is named, moved or wrapped: all that builds it must be of this class.

    Of `self`, the base of its class, where that is in another file.
    """
    if isinstance(node, ast.Name) and node.id == "self":
        own = source.enclosing(node, ast.ClassDef)
        return _class(_imported_definition(source, own.bases[0], neighbours)) if own is not None and own.bases else None
    found: Definition | None = None
    for call in _builders(source, node, set()) or ():
        built = _class_built(source, call, neighbours)
        if built is None or (found is not None and built[1] is not found[1]):
            return None
        found = built
    return found


def _class_of_any(source: Source, node: ast.expr, neighbours: Neighbours | None) -> Definition | None:
    """The same, and the class of what other files hand in, where all that do hand in objects of one class."""
    found = _class_of(source, node, neighbours)
    if found is not None or neighbours is None or source.neighbours is not neighbours:
        return found
    given = [_class_of(there, value, neighbours) for there, value in handed_in(source, node)]
    is_one = all(each is not None and each[1] is given[0][1] for each in given) if given and given[0] else False
    return given[0] if is_one else None


def _class_built(source: Source, call: ast.Call, neighbours: Neighbours | None) -> Definition | None:
    """The class of `Class(...)` and of `Class.from_pretrained(...)`, in this file or another one."""
    is_builder = isinstance(call.func, ast.Attribute) and call.func.attr in _BUILDERS
    named = call.func.value if is_builder and isinstance(call.func, ast.Attribute) else call.func
    bound = source.lookup(named) if isinstance(named, ast.Name) else []
    if bound:
        return (source, bound[0]) if len(bound) == 1 and isinstance(bound[0], ast.ClassDef) else None
    return _class(_imported_definition(source, named, neighbours))


def _builders(source: Source, node: ast.expr | None, seen: set[int]) -> list[ast.Call] | None:
    """The calls that build what an expression stands for, without what moves or wraps it; None where one is not in sight.

    seen: what was met before, which adds nothing: `model` in `model = model.cuda()`.
    """
    if node is None:
        return None
    if id(node) in seen:
        return []
    seen.add(id(node))
    if isinstance(node, ast.Constant) and node.value is None:  # `model = None` before a branch: nobody calls that
        return []
    if isinstance(node, ast.IfExp):
        return _together(_builders(source, branch, seen) for branch in (node.body, node.orelse))
    if isinstance(node, ast.Name):
        return _together(_bound_builders(source, binding, seen) for binding in source.lookup(node))
    if isinstance(node, ast.Attribute):
        values = own_values(source, node, node.attr) if is_own(node) else [None]
        return _together(_builders(source, value, seen) for value in values)
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr in _PASSED_ON:
        return _builders(source, node.func.value, seen)
    if _WRAPS.search(last_name(node.func)) and node.args:
        return _builders(source, node.args[0], seen)
    function = called_function(source, node)
    if function is None:
        return [node]
    returned = [r.value for r in source.nodes(ast.Return) if source.enclosing(r, *FUNCTIONS, ast.Lambda) is function]
    return _together(_builders(source, value, seen) for value in returned)


def _bound_builders(source: Source, binding: ast.AST, seen: set[int]) -> list[ast.Call] | None:
    """What builds a name where this node binds it: of a parameter, what all calls in this file hand to it."""
    if not isinstance(binding, ast.arg):
        return _builders(source, assigned_value(source, binding), seen)
    if id(binding) in seen:
        return []
    seen.add(id(binding))
    function = source.enclosing(binding, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, FUNCTIONS):
        return None
    calls = callers(source, function)
    is_method = isinstance(source.parent(function), ast.ClassDef)
    if not is_method and len(source.uses_of(function, function.name)) != len(calls):
        return None
    given = [dict(arguments_of(call, function)).get(binding.arg) for call in calls]
    return _together(_builders(source, value, seen) for value in given)


def _together(parts: Iterable[list[ast.Call] | None]) -> list[ast.Call] | None:
    """All of them; None where one is None, or there is no part."""
    found: list[ast.Call] = []
    is_empty = True
    for part in parts:
        if part is None:
            return None
        is_empty = False
        found += part
    return None if is_empty else found


def _class(found: Definition | None) -> Definition | None:
    return found if found is not None and isinstance(found[1], ast.ClassDef) else None


def _method(owner: Definition, names: tuple[str, ...], call: ast.Call, making: Making) -> Elsewhere | None:
    """The method of a class, or of the nearest of its bases in the same file."""
    source, definition = owner
    for _ in range(_MAX_BASES):
        if not isinstance(definition, ast.ClassDef):
            return None
        bound = source.bound_in(definition)
        for name in names:
            if found := bound.get(name):
                return making(source, found[0], call) if len(found) == 1 else None
        base = definition.bases[0] if definition.bases else None
        above = source.lookup(base) if isinstance(base, ast.Name) else []
        definition = above[0] if len(above) == 1 else source.tree
    return None


def _plain(source: Source, function: ast.AST, call: ast.Call) -> Elsewhere | None:
    """The function, unless a decorator may run it otherwise or it is a generator, which runs when somebody asks."""
    if not isinstance(function, FUNCTIONS) or _yields(function):
        return None
    decorators = [last_name(d.func if isinstance(d, ast.Call) else d) for d in function.decorator_list]
    return Elsewhere(source, function, call) if _HARMLESS.issuperset(decorators) else None


def _generator(source: Source, function: ast.AST, call: ast.Call) -> Elsewhere | None:
    is_plain = isinstance(function, FUNCTIONS) and not function.decorator_list and _yields(function)
    return Elsewhere(source, function, call) if is_plain and isinstance(function, FUNCTIONS) else None


def _yields(function: Function) -> bool:
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in walk(function))
