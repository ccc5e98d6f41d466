"""Whether a loop that runs a model leaves something behind that carries its graph and may be differentiated."""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.elsewhere import function_run
from perfaudit.static.understanding.members import is_own
from perfaudit.static.understanding.names import dotted_name, last_name

_FREE = {  # attributes and functions behind which there is no graph
    *("item", "tolist", "detach", "data", "numpy", "shape", "size", "dtype", "device", "argmax", "argmin"),
    *("argsort", "eq", "ne", "gt", "ge", "lt", "le", "long", "int", "bool", "byte", "any", "all", "isnan"),
    *("nonzero", "numel", "dim", "ndim", "len", "float", "str", "print", "round", "isinstance", "range", "keys"),
    *("format", "multinomial", "bincount", "one_hot", "logical_and", "logical_or", "logical_not"),
}
_TO_NUMPY = regex(  # functions of numpy that take no tensor with a graph, and those that convert one, as their names say
    r"math\.\w+|(np|numpy)\.(array|asarray|isin|in1d|concatenate|vstack|hstack|searchsorted|unique|digitize)|(\w+\.)*\w*(to|as|get|2)_?numpy",
    words="math.|np.|numpy",
)
_MAX_KEEPERS = 4  # functions followed from a loop that may keep what they are given
MAX_CALLS = 2  # functions followed from a loop that make something without a graph of what they are given
_RUN = regex(r"\.(module|forward|__call__)$")
_DECODES = regex(r"decod|viterbi|nms")  # what comes out are labels and places, which carry no graph
_SHOWN = regex(
    r"(print|float|int|str|round|format|len|info|debug|warning|write|log|add_scalar|isnan|isfinite|exp|sqrt|save_image|imshow)$"
)
_GROWS = {"append", "extend", "add", "update", "insert", "push", "put", "store", "setdefault", "add_batch", "write"}
_WITH_INDICES = {"max", "min", "topk", "sort", "kthvalue", "median", "mode"}  # return values and indices


def graph_escapes(source: Source, loop: Loop, runs: list[ast.Call], in_order: bool = False) -> bool:
    """Whether gradients of what the loop computes may be used behind it.

    in_order: a name that is converted before anything else reads it, as in `out = out.data.cpu().numpy()`, carries none. No
    patch may rest on that: it takes every turn to come as far as the conversion.
    """
    flow = _Flow(loop, runs, source=source, in_order=in_order)
    for holder in flow.holders(source):
        if not isinstance(holder, ast.Name) or any(isinstance(a, ast.Lambda) for a in source.ancestors(holder)):
            return True
        if any(not _is_number_only(source, use) for use in _read_behind(source, loop, holder)):
            return True
    if flow.is_kept_by_calls(source, _MAX_KEEPERS) or any(_keeps_what_it_runs(source, run) for run in runs):
        return True
    return any(flow.carries(node.value) for node in walk(loop) if isinstance(node, ast.Return) and node.value)


def leaves_no_graph(source: Source, function: Function, runs: list[ast.Call]) -> bool:
    """Whether a function keeps and returns nothing that carries the graph of these runs, and returns something."""
    return _Flow(function, runs, source=source).leaves_nothing(source)


def _keeps_what_it_runs(source: Source, run: ast.Call) -> bool:
    """Whether a run is the call of a function of this file that runs the model, and may keep what comes out."""
    function = called_function(source, run)
    if function is None:
        return False
    return not _Flow(function, _runs_in(source, function), source=source).keeps_nothing(source, _MAX_KEEPERS)


def _runs_in(source: Source, function: Function) -> list[ast.Call]:
    """The calls in a function that may run a model: of what it is given, of what its object keeps, and of names around it."""
    given = {argument.arg for argument in walk(function.args) if isinstance(argument, ast.arg)}
    calls = [node for node in walk(function) if isinstance(node, ast.Call) and called_function(source, node) is None]
    own = source.bound_in(function).keys()
    return [
        call
        for call in calls
        if (name := _RUN.sub("", dotted_name(call.func))) in given
        or is_own(call.func)
        or (name.isidentifier() and name not in own and name not in source.aliases and not hasattr(builtins, name))
    ]


@functools.lru_cache(maxsize=256)
def _keeps(source: Source, function: Function, names: frozenset[str], calls: int) -> bool:
    """Whether a function, or what it calls, may put the graph of some parameters where it outlives the call; it may return it."""
    if not calls:
        return True
    names = frozenset(name for name in names if not _is_converted_first(function, name))
    flow = _Flow(function, [], source=source, names=names)
    return not flow.keeps_nothing(source, calls - 1)


def _converted_at_once(loop: Loop | Function | ast.Module) -> frozenset[str]:
    """Names that are given what is left of them without a graph before anything else reads them, in the block that binds them."""
    names = [node for node in walk(loop) if isinstance(node, ast.Name)]
    found = set()
    for block in (body for node in walk(loop) if isinstance(body := getattr(node, "body", None), list)):
        for place, statement in enumerate(block):
            name = _converted_name(statement)
            before = [node for node in names if node.id == name and node.lineno < statement.lineno]
            targets = [t for earlier in block[:place] if isinstance(earlier, ast.Assign) for t in earlier.targets]
            bound = {id(part) for target in targets for part in (target, *getattr(target, "elts", []))}
            if name and before and all(id(node) in bound for node in before):
                found.add(name)
    return frozenset(found)


def _is_converted_first(function: Function, name: str) -> bool:
    """Whether the first statement of a function that reads a parameter gives it what is left of it without a graph."""
    reads = (s for s in function.body if any(isinstance(n, ast.Name) and n.id == name for n in walk(s)))
    first = next(reads, None)
    if not isinstance(first, ast.Assign) or len(first.targets) != 1 or dotted_name(first.targets[0]) != name:
        return False
    return not _Flow(ast.Module([], []), [], names=frozenset([name])).carries(first.value)


def _converted_name(statement: ast.stmt) -> str:
    """The name in `out = out.data.cpu().numpy()`, `out = to_cpu(out).detach()` and `out = torch.argmax(out, 1)`.

    "" for any other statement.
    """
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    inner: ast.AST = statement.value
    ways = set()
    if isinstance(inner, ast.Call) and dotted_name(inner.func) == "torch.argmax" and inner.args:
        inner, ways = inner.args[0], {"argmax"}
    while isinstance(inner, (ast.Call, ast.Attribute)):
        if isinstance(inner, ast.Attribute):
            ways.add(inner.attr)
        is_function = isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and len(inner.args) == 1
        if isinstance(inner, ast.Call):
            inner = inner.args[0] if is_function and ways else inner.func
        else:
            inner = inner.value
    name = dotted_name(statement.targets[0]) if isinstance(inner, ast.Name) else ""
    return name if name == dotted_name(inner) and ways & {"numpy", "detach", "data", "item", "tolist", "argmax"} else ""


def proves_no_graph(loop: Loop | Function, runs: list[ast.Call]) -> bool:
    """Whether the loop says `model(x).numpy()`: it raises where gradients are recorded, so something switches them off.

    Of a value that surely is part of the graph: not of `output` where it is also the index of the largest.
    """
    return _Flow(loop, runs).proves_no_graph()


class _Flow:
    """Which names in the loop carry a graph, whatever the order of the statements."""

    def __init__(
        self,
        loop: Loop | Function | ast.Module,
        runs: list[ast.Call],
        source: Source | None = None,
        names: frozenset[str] = frozenset(),
        calls: int = MAX_CALLS,
        in_order: bool = False,
    ) -> None:
        """source: the file, where what a function makes of its arguments is looked up, `calls` deep. names: those that carry.

        in_order: as for `graph_escapes`, also in the functions that are looked up.
        """
        self.loop = loop
        self.in_order = in_order
        self.without = _converted_at_once(loop) if in_order else frozenset()
        self.source = source
        self.calls = calls
        self.freed: dict[tuple[str, int, frozenset[str]], bool] = {}
        self.run_without: dict[int, bool] = {}
        self.runs = {id(run) for run in runs}
        self.models = {dotted_name(run.func) for run in runs} - {""}
        self.names: set[str] = set(names)
        self._follow()

    def _follow(self) -> None:
        """Adds the names that get something which carries a graph, until there are no more."""
        before = -1
        while before != len(self.names):
            before = len(self.names)
            for target, value in self.assignments():
                self.bind(target, value)

    def assignments(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        for node in walk(self.loop):
            match node:
                case ast.Assign():
                    for target in node.targets:
                        yield target, node.value
                case ast.AugAssign() | ast.NamedExpr():
                    yield node.target, node.value
                case ast.AnnAssign(value=ast.expr() as value):
                    yield node.target, value
                case ast.For() | ast.comprehension():
                    yield node.target, node.iter

    def bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                for element, part in zip(target.elts, value.elts, strict=True):
                    self.bind(element, part)
                return
            indices = isinstance(value, ast.Call) and last_name(value.func) in _WITH_INDICES
            for element in target.elts[:1] if indices else target.elts:
                self.bind(element, value)
        elif (name := dotted_name(target)) and name not in self.without and self.carries(value):
            self.names.add(name)

    def carries(self, node: ast.AST | None) -> bool:
        """Whether the value of an expression may be part of the graph that the model's runs record."""
        match node:
            case None | ast.Constant() | ast.Compare() | ast.JoinedStr() | ast.Lambda():
                return False
            case ast.Name():
                return node.id in self.names
            case ast.Attribute():
                return dotted_name(node) in self.names or (node.attr not in _FREE and self.carries(node.value))
            case ast.Subscript():
                is_index = isinstance(node.slice, ast.Constant) and node.slice.value == 1
                if is_index and isinstance(node.value, ast.Call) and last_name(node.value.func) in _WITH_INDICES:
                    return False
                return self.carries(node.value)
            case ast.Call():
                if id(node) in self.runs:
                    return not self._is_run_without(node)
                if isinstance(node.func, (ast.Name, ast.Attribute)) and last_name(node.func) in _FREE:
                    return False
                if _TO_NUMPY.fullmatch(dotted_name(node.func)):
                    return False
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                receiver = node.func.value if isinstance(node.func, ast.Attribute) else node.func
                if not (self.carries(receiver) or any(self.carries(argument) for argument in given)):
                    return False
                return not self._is_made_without(node)
        return any(self.carries(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))

    def _is_run_without(self, run: ast.Call) -> bool:
        """Whether a run is the call of a function of this file that returns something without the graph of the model it runs."""
        function = called_function(self.source, run) if self.source is not None and self.calls else None
        if self.source is None or function is None or function.decorator_list:
            return False
        if id(run) not in self.run_without:
            self.run_without[id(run)] = False  # while it is looked at, for one that calls itself
            self.run_without[id(run)] = self._returns_without(self.source, function)
        return self.run_without[id(run)]

    def _returns_without(self, source: Source, function: Function) -> bool:
        runs = _runs_in(source, function)
        flow = _Flow(function, runs, source, calls=self.calls - 1, in_order=self.in_order)
        returned = [node.value for node in walk(function) if isinstance(node, ast.Return) and node.value is not None]
        is_plain = not any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in walk(function))
        return bool(runs and returned) and is_plain and not any(flow.carries(value) for value in returned)

    def _is_made_without(self, call: ast.Call) -> bool:
        """Whether a function of the project makes something without a graph of what it is given, as a score in numbers."""
        if self.source is None or not self.calls:
            return False
        there = function_run(self.source, call)
        if there is None or there.function.decorator_list or any(isinstance(a, ast.Starred) for a in call.args):
            return False
        given = frozenset(name for name, value in there.named_arguments if self.carries(value))
        handed = [value for _, value in there.named_arguments if self.carries(value)]
        if len(handed) < sum(self.carries(a) for a in (*call.args, *(k.value for k in call.keywords))) or not given:
            return False
        place = (there.source.path, there.function.lineno, given)
        if place not in self.freed:
            self.freed[place] = False  # while it is looked at, for one that calls itself
            names = frozenset(name for name in given if not _is_converted_first(there.function, name))
            flow = _Flow(there.function, [], there.source, names, self.calls - 1, self.in_order)
            self.freed[place] = flow.leaves_nothing(there.source)
        return self.freed[place]

    def leaves_nothing(self, source: Source) -> bool:
        """Whether a function returns something, none of which carries a graph, and keeps none."""
        if not self.keeps_nothing(source, _MAX_KEEPERS):
            return False
        returned = [node.value for node in walk(self.loop) if isinstance(node, ast.Return) and node.value is not None]
        return bool(returned) and not any(self.carries(value) for value in returned)

    def keeps_nothing(self, source: Source, calls: int) -> bool:
        """Whether a function puts no graph into what outlives it: what it was given, and names and objects it did not make."""
        given = {argument.arg for argument in walk(self.loop) if isinstance(argument, ast.arg)}
        grown = self._grown_names(source)
        if grown is None or grown & given or not grown <= source.bound_in(self.loop).keys():
            return False
        if any(dotted_name(target) in grown and _may_be_old(value) for target, value in self.assignments()):
            return False
        self.names |= grown
        self._follow()
        declared = {
            name for node in walk(self.loop) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names
        }
        return not declared & self.names and not self.is_kept_by_calls(source, calls)

    def is_kept_by_calls(self, source: Source, calls: int) -> bool:
        """Whether a function of the project that is given something which carries a graph may keep it."""
        for call in (node for node in walk(self.loop) if isinstance(node, ast.Call) and id(node) not in self.runs):
            there = function_run(source, call)
            if there is None or there.function is self.loop:
                continue
            names = frozenset(name for name, value in there.named_arguments if self.carries(value))
            is_unpacked = any(isinstance(a, ast.Starred) and self.carries(a.value) for a in call.args)
            if is_unpacked or (names and _keeps(there.source, there.function, names, calls)):
                return True
        return False

    def _grown_names(self, source: Source) -> set[str] | None:
        """Names that are grown by something that carries a graph, or set an item to it; None where an object is that keeps it."""
        bound = {id(node) for target, _ in self.assignments() for node in walk(target) if isinstance(node, ast.Name)}
        holders = [*self.holders(source)]
        if not all(isinstance(holder, ast.Name) for holder in holders):
            return None
        return {holder.id for holder in holders if isinstance(holder, ast.Name) and id(holder) not in bound}

    def proves_no_graph(self) -> bool:
        calls = (node for node in walk(self.loop) if isinstance(node, ast.Call))
        sure = self.surely_named()
        return any(
            isinstance(call.func, ast.Attribute) and call.func.attr == "numpy" and self._is_sure(call.func.value, sure)
            for call in calls
        )

    def surely_named(self) -> set[str]:
        """Names of which no assignment in the loop gives something without a graph, nor something made of such a name.

        Of what a call gives several of, the first: the others may be labels or lengths that are handed through.
        """
        several = [
            t.elts[1:] for t, value in self.assignments() if isinstance(t, ast.Tuple) and isinstance(value, ast.Call)
        ]
        sure = self.names - {dotted_name(element) for rest in several for element in rest}
        before = -1
        while before != len(sure):
            before = len(sure)
            for target, value in self.assignments():
                for name in {dotted_name(part) for part in walk(target)} & sure:
                    if not self._is_sure(value, sure):
                        sure.discard(name)
        return sure

    def _is_sure(self, node: ast.expr, sure: set[str]) -> bool:
        """Whether all names that carry a graph into an expression do so surely; one that may not, ends it."""
        inner = (part for part in walk(node) if isinstance(part, (ast.Name, ast.Attribute)))
        carrying = {name for part in inner if (name := dotted_name(part)) in self.names}
        calls = (part for part in walk(node) if isinstance(part, ast.Call) and id(part) not in self.runs)
        if any(_DECODES.search(last_name(call.func)) and not self._is_of_model(call) for call in calls):
            return False
        return carrying <= sure and self.carries(node)

    def _is_of_model(self, call: ast.Call) -> bool:
        """Whether a call is a method of a model that the loop runs: what that gives may be part of the graph."""
        return any(dotted_name(call.func).startswith(f"{model}.") for model in self.models)

    def holders(self, source: Source) -> Iterator[ast.expr]:
        """What is set in the loop, or grown there, and carries a graph; each as the expression that stands there."""
        for target, value in self.assignments():
            for node in walk(target):
                if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and self.carries(value):
                    yield node.value
                elif isinstance(node, (ast.Name, ast.Attribute)) and dotted_name(node) in self.names:
                    yield node
        for node in walk(self.loop):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS):
                continue
            given = (*node.args, *(k.value for k in node.keywords))
            if any(self.carries(argument) and not self._is_dropped_before(source, argument) for argument in given):
                yield node.func.value

    def _is_dropped_before(self, source: Source, node: ast.expr) -> bool:
        """Whether a name got a value without a graph before its use, in the same block: `x = x.detach()`, `all.append(x)`."""
        statement = source.statement(node)
        if not isinstance(node, ast.Name) or not isinstance(statement, ast.Expr):
            return False
        for earlier in reversed(source.before(statement)):
            targets = earlier.targets if isinstance(earlier, ast.Assign) else []
            if len(targets) == 1 and dotted_name(targets[0]) == node.id and isinstance(earlier, ast.Assign):
                return not self.carries(earlier.value)
            if any(_binds(part, node.id) for part in walk(earlier) if isinstance(part, ast.expr)):
                return False
        return False


def _may_be_old(value: ast.expr) -> bool:
    """Whether a value may be an object that was there before, as `kept = self.memory`, and is not made by the expression."""
    return isinstance(value, (ast.Name, ast.Attribute, ast.Subscript, ast.IfExp, ast.BoolOp))


# ---- reads behind the loop -----------------------------------------------------------------------------------------


def _read_behind(source: Source, loop: Loop, holder: ast.Name) -> Iterator[ast.Name]:
    """Reads of a name outside the loop that may see what the loop has left in it."""
    inside = {id(node) for node in walk(loop)}
    bindings = source.lookup(holder)
    for use in source.uses_of(bindings[0], holder.id) if bindings else ():
        if id(use) not in inside and not _is_set_anew(source, loop, use):
            yield use


def _is_set_anew(source: Source, loop: Loop, use: ast.Name) -> bool:
    """Whether an assignment between the loop and the read gives the name another value on every way to the read."""
    around_loop = {id(loop), *(id(ancestor) for ancestor in source.ancestors(loop))}
    child: ast.AST = use
    for ancestor in source.ancestors(use):
        if isinstance(child, ast.stmt) and id(child) not in around_loop:
            if isinstance(child, ast.For) and use is not child.iter and _binds(child.target, use.id):
                return True
            for earlier in reversed(source.before(child)):
                if id(earlier) in around_loop:
                    break
                if isinstance(earlier, ast.Assign) and any(_binds(target, use.id) for target in earlier.targets):
                    return True
        if isinstance(ancestor, FUNCTIONS):
            return False
        child = ancestor
    return False


def _binds(target: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in walk(target))


def _is_number_only(source: Source, use: ast.Name, depth: int = 2) -> bool:
    """Whether a read only takes the value of a tensor: it is shown, compared, or made a Python number."""
    child: ast.AST = use
    for ancestor in source.ancestors(use):
        if isinstance(ancestor, ast.Attribute) and ancestor.attr in _FREE:
            return True
        if isinstance(ancestor, ast.Call) and ancestor.func is not child:
            receiver = last_name(ancestor.func.value) if isinstance(ancestor.func, ast.Attribute) else ""
            return bool(_SHOWN.match(last_name(ancestor.func))) or "sched" in receiver
        if isinstance(ancestor, (ast.JoinedStr, ast.Compare)):
            return True
        if isinstance(ancestor, ast.Assign) and depth:  # `best = loss`: the same of the other name
            target = ancestor.targets[0]
            if len(ancestor.targets) > 1 or not isinstance(target, ast.Name):
                return False
            if target.id == use.id:
                return True
            return all(_is_number_only(source, other, depth - 1) for other in source.uses_of(target, target.id))
        if isinstance(ancestor, ast.stmt):
            return False
        child = ancestor
    return False
