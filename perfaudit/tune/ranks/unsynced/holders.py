"""Who has the model, its parameters or an optimizer in a program, by name.

Names of attributes begin with a point: ".model" of `self.model`. Those of the model itself, which is called, are there with
"()" behind them as well.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.distributed import ddp_calls
from perfaudit.static.understanding.losses import arguments_of
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.tune.ranks.project_functions import function_run, parameters_of, with_bases
from perfaudit.tune.ranks.unsynced.assigned_names import ASSIGNS, assignments, is_name, sets_attribute
from perfaudit.tune.ranks.unsynced.numbers_of_weights import is_number, is_penalty, is_setting

MODES = {"train", "eval", "zero_grad"}  # methods of a model or an optimizer that read no gradient
DEEPEST = 3  # functions into which a model is followed
READS_GRADIENTS = regex(r"\.grad\b|[\"']grad[\"']|clip_grad|unscale_")
# Of a model or a weight: what leads to no gradient.
_FACTS = {
    "device", "dtype", "shape", "training", "config", "cfg", "args", "hparams", "hyp", "names", "stride", "nc", "num_classes"
}  # fmt: skip
_GIVES_NUMBERS = {
    "forward", "generate", "state_dict", "scale", "get_scale", "zero_grad", "step", "get_last_lr", "get_lr"
}  # fmt: skip
_COMPILE = "torch.compile"
_MOVES = {"to", "cuda", "cpu", "train", "eval", "float", "half", "bfloat16", "requires_grad_"}  # gives the model itself
_COMPUTES = (
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.MatMult,
)  # not `+` and `-`, of lists and sets as well
Find = Callable[[Source, Sequence[ast.AST], set[str]], bool]
_Assigned = tuple[Source, ast.expr, set[str]]


class Holders:
    """Says of an expression whether it has anything of the model, of its parameters or of an optimizer."""

    def __init__(self, sources: Sequence[Source], source: Source, inside: ast.AST) -> None:
        self._sources, self._own = sources, source
        around = {id(each) for each in source.ancestors(inside)}
        self._around = around
        self._class = source.enclosing(inside, ast.ClassDef)
        self._scope = scope = source.enclosing(inside, *FUNCTIONS)
        # The function with the loop, what it gets where it is called, and all calls of functions of the project.
        self._given_to_loop = list(_given_to(sources, scope)) if isinstance(scope, FUNCTIONS) else []
        self._functions: dict[str, list[tuple[Source, Function]]] = {}
        for each in sources:
            for function in each.nodes(ast.FunctionDef):
                if id(function) not in around:  # the one with the loop does not call itself
                    self._functions.setdefault(function.name, []).append((each, function))
        self._named = {each.name for source in sources for each in source.definitions}
        self._calls = [
            (each, call) for each in sources for call in each.nodes(ast.Call) if last_name(call.func) in self._functions
        ]
        self._attributes = {
            node.attr for each in sources for node in each.nodes(ast.Attribute) if isinstance(node.ctx, ast.Store)
        }
        self._readers = self._all_readers()
        self.quiet: Sequence[ast.AST] = ()  # calls that give nothing of what they get, see `told_scalers`
        self.owners = frozenset[
            str
        ]()  # names of objects that have the model or the optimizer in the function of the loop
        self._asked: list[int] = []  # functions that are being looked at, by id
        # By what is found, function, names, and how many functions are being looked at.
        self._known: dict[tuple[str, int, frozenset[str], int], bool] = {}

    def _all_readers(self) -> set[str]:
        """Names of functions that read gradients, by themselves or in what they call."""
        found = {
            name
            for name, some in self._functions.items()
            if any(READS_GRADIENTS.search(each.text_of(function)) for each, function in some)
        }
        calls = {
            name: {
                last_name(node.func)
                for _, function in some
                for node in ast.walk(function)
                if isinstance(node, ast.Call)
            }
            for name, some in self._functions.items()
        }
        while more := {name for name, called in calls.items() if name not in found and called & (found - MODES)}:
            found |= more
        return found

    def holders(self, model: str, optimizers: set[str]) -> set[str]:
        """Names by which the model, its parameters or an optimizer is had: `params = list(model.parameters())`."""
        wrapped = {
            last_name(given) for source in self._sources for call in ddp_calls(source) for given in call.args[:1]
        }
        assigned = [
            (source, *each) for source in self._sources for each in assignments(source, self._seen_from_loop(source))
        ]
        assigned += [(source, value, {name}) for source, name, value in self._given_to_loop]
        models = {name for each in ({model} | wrapped) - {""} for name in (each, f".{each}")}
        others = {name for each in optimizers for name in (each, f".{each}")}
        names = self._with_assigned(models | {f"{name}()" for name in models} | others, assigned)
        while more := self._kept_by_functions(names) - names:
            names = self._with_assigned(names | more, assigned)
        return names - self.owners  # of which the attributes are looked at one by one

    def _seen_from_loop(self, source: Source) -> Iterator[ast.AST]:
        """Assignments whose names the file of the loop may use.

        Its own, and those of files that call its function; of other files those of globals and attributes.
        """
        is_near = source is self._own or any(source is each for each, *_ in self._given_to_loop)
        for node in source.nodes(*ASSIGNS, ast.With):
            if is_near or source.scope(node) is source.tree or sets_attribute(node):
                yield node

    def _kept_by_functions(self, names: set[str]) -> set[str]:
        """Globals and attributes in which functions of the project keep what they get: `def attach(net): box.net = net`."""
        kept = set[str]()
        for source, call in self._calls:
            if (run := self._run_with(source, call, names)) is None:
                continue
            here, function, held = run
            nodes = [node for statement in function.body for node in ast.walk(statement)]
            stated = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
            own = self._with_assigned(held, [(here, *each) for each in assignments(here, nodes)])
            kept |= {name for name in own if name.startswith(".") or name in stated}
        return kept

    def _with_assigned(self, names: set[str], assigned: Sequence[_Assigned]) -> set[str]:
        names = set(names)
        while True:
            more = set[str]()
            for source, value, targets in assigned:
                looped = self._names_at(source, value, names)
                if targets - names and self._holds(source, value, looped):
                    more |= targets - (looped - names)
                if self._is_model(source, value, names):
                    more |= targets | {f"{target}()" for target in targets}
            if more <= names:
                return names
            names |= more

    def _names_at(self, source: Source, node: ast.expr, names: set[str]) -> set[str]:
        """These names, and those of the loops around a node that go over what is held: `for p in model.parameters():`."""
        used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        loops = []
        for each in source.ancestors(node):
            if isinstance(each, FUNCTIONS):
                break
            if isinstance(each, ast.For) and id(each) not in self._around:
                loops.append(each)
        for loop in reversed(loops):
            bound = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
            if (used & bound or loop is not loops[0]) and self._holds(source, loop.iter, names):
                names = names | bound
        return names

    def _is_model(self, source: Source, node: ast.expr, names: set[str]) -> bool:
        """Whether this is the model itself, and not who has it: `model`, `self.model.module`, `DDP(net)`, `net.to(device)`."""
        if isinstance(node, ast.Name):
            return f"{node.id}()" in names
        if isinstance(node, ast.Attribute):
            return f".{node.attr}()" in names or (node.attr == "module" and self._is_model(source, node.value, names))
        if isinstance(node, ast.IfExp):
            return all(self._is_model(source, each, names) for each in (node.body, node.orelse))
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES:
            return self._is_model(source, node.func.value, names)
        is_wrapped = any(node is each for each in ddp_calls(source)) or source.qualified_name(node.func) == _COMPILE
        return is_wrapped and any(self._is_model(source, each, names) for each in node.args[:1])

    def _holds(self, source: Source, node: ast.AST, names: set[str]) -> bool:
        """Whether an expression has one of these names, or anything of it.

        Not as what is called: `model(x)` is what it gives.
        """
        if (isinstance(node, ast.Attribute) and node.attr in _FACTS) or is_number(node):
            return False
        if isinstance(node, ast.Name) and self._is_of_loop(source, node):  # it is handed on as a whole
            return True
        if isinstance(node, (ast.Name, ast.Attribute)) and (parts := dotted_name(node)):
            root, *attributes = parts.split(".")
            return root in names or any(f".{each}" in names for each in attributes)
        if isinstance(node, ast.Attribute) and f".{node.attr}" in names:
            return True
        if (isinstance(node, ast.Subscript) and is_setting(node)) or is_penalty(node):
            return False
        children = _parts_given(node)
        if isinstance(node, ast.Call):
            if is_super(node) or any(node is each for each in self.quiet):
                return False
            if (run := self._run_with(source, node, names)) is not None:
                return self._looks_into(self._gives_away, *run)
            children = iter([*node.args, *node.keywords])
            method = node.func if isinstance(node.func, ast.Attribute) else None
            gives = (
                method is not None and method.attr not in _GIVES_NUMBERS and not self._is_model(source, method, names)
            )
            if (
                method is not None
                and (gives or not dotted_name(method.value))
                and dotted_name(method.value) not in self.owners
            ):
                return self._holds(source, method.value, names) or any(
                    self._holds(source, child, names) for child in children
                )
        return any(self._holds(source, child, names) for child in children)

    def _is_of_loop(self, source: Source, node: ast.AST) -> bool:
        """Whether a name is that of the object that has the model or the optimizer as an attribute in the function of the loop.

        Of `self` in other methods of its class, too.
        """
        if not (isinstance(node, ast.Name) and node.id in self.owners and source is self._own):
            return False
        if node.id == "self":
            return source.enclosing(node, ast.ClassDef) is self._class
        return source.enclosing(node, *FUNCTIONS) is self._scope

    def _run_with(self, source: Source, call: ast.Call, names: set[str]) -> tuple[Source, Function, set[str]] | None:
        """The function of the project that a call runs with some of what these names hold, and the names of that in it.

        None where it gets nothing of it, or the text does not say what it gets, or which function it is.
        """
        if last_name(call.func) not in self._named or len(self._asked) >= DEEPEST:
            return None
        run = function_run(self._sources, source, call)
        return None if run is None else self._run_given(source, call, run, names)

    def _run_given(
        self, source: Source, call: ast.Call, run: tuple[Source, Function], names: set[str]
    ) -> tuple[Source, Function, set[str]] | None:
        """A function with the names of what a call gives it of what is held, see `_run_with`."""
        if id(run[1]) in self._asked:
            return None
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        number = sum(self._holds(source, value, names) for value in values)
        held = {name for name, value in arguments_of(call, run[1]) if self._holds(source, value, names)}
        held &= parameters_of(run[1])
        if not number or len(held) != number:  # some may be passed, or taken, as * or **
            return None
        known = self._names_in_file(source, run[0], names)
        models = {f"{name}()" for name, value in arguments_of(call, run[1]) if self._is_model(source, value, names)}
        return (*run, known - {f"{name}()" for name in parameters_of(run[1])} | held | models)

    def _overriding(self, source: Source, call: ast.Call) -> list[tuple[Source, Function]]:
        """The methods by which subclasses of the project replace the one that `self.run()` runs."""
        own = source.enclosing(call, ast.ClassDef)
        if own is None or not dotted_name(call.func).startswith("self."):
            return []
        return [
            (each, function)
            for each, function in self._functions.get(last_name(call.func), ())
            if (definition := each.enclosing(function, ast.ClassDef)) is not None
            and definition is not own
            and own.name in with_bases(self._sources, definition)
        ]

    def _names_in_file(self, source: Source, other: Source, names: set[str]) -> set[str]:
        """Those of these names that stand for the same in another file: of attributes, and of what it has at its top level."""
        if other is source or other.star_modules:
            return names
        own = {*other.bound_in(other.tree), *other.aliases}.union(*(node.names for node in other.nodes(ast.Global)))
        return {name for name in names if name.startswith(".") or name.removesuffix("()") in own}

    def _looks_into(self, find: Find, here: Source, function: Function, names: set[str]) -> bool:
        """Whether this is found in a function, in which something is held under these names."""
        key = (find.__name__, id(function), frozenset(names), len(self._asked))
        if key not in self._known:
            self._asked.append(id(function))
            try:
                nodes = [node for statement in function.body for node in ast.walk(statement)]
                own = self._with_assigned(names, [(here, *each) for each in assignments(here, nodes)])
                self._known[key] = find(here, nodes, own)
            finally:
                self._asked.pop()
        return self._known[key]

    def _gives_away(self, source: Source, nodes: Sequence[ast.AST], names: set[str]) -> bool:
        """Whether what is held under these names is given back, or kept anywhere but under a name."""
        out = [node.value for node in nodes if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None]
        out += [node.value for node in nodes if isinstance(node, ast.Assign) and not all(map(is_name, node.targets))]
        return any(self._holds(source, each, names) for each in out)


def _parts_given(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression that it may give: not the questions in it, nor what numbers are computed of."""
    if isinstance(node, ast.IfExp):
        return iter([node.body, node.orelse])
    if isinstance(node, ast.DictComp):
        return iter([node.key, node.value, *(each.iter for each in node.generators)])
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return iter([] if is_number(node.elt) else [node.elt, *(each.iter for each in node.generators)])
    if isinstance(node, ast.BinOp) and isinstance(node.op, _COMPUTES):
        return iter([each for each in (node.left, node.right) if isinstance(each, (ast.List, ast.Tuple))])
    return ast.iter_child_nodes(node)


def is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _given_to(sources: Sequence[Source], function: Function) -> Iterator[tuple[Source, str, ast.expr]]:
    """What calls of a function's name give it, each with the file and the parameter."""
    for source in sources:
        for call in source.nodes(ast.Call):
            if last_name(call.func) == function.name:
                yield from ((source, name, value) for name, value in arguments_of(call, function))
