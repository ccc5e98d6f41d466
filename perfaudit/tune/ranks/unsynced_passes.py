"""What would use gradients that `no_sync` leaves unsummed: reasons not to put the passes of an accumulation under it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.understanding.distributed import ddp_calls
from perfaudit.static.understanding.losses import arguments_of
from perfaudit.static.understanding.names import dotted_name, is_like_an_optimizer, last_name
from perfaudit.tune.ranks.accumulations import Accumulation
from perfaudit.tune.ranks.project_functions import function_run, parameters_of

_STEPS_NO_WEIGHTS = regex(r"sched|prof|warm_?up|^lr_")  # names of what has a `step` besides optimizers
_SCHEDULE = regex(r"[Ss]chedule|LR$")
_READS_GRADIENTS = regex(r"\.grad\b|[\"']grad[\"']|clip_grad|unscale_")
_READER = regex(r"^grad$|clip_grad|unscale_")  # last names of what reads gradients
# What a function that gets the model may not do, if it is to compute something of it and no more.
_TRAINS = regex(r"\.backward\b|\.step\b|zero_grad|register_\w*hook|requires_grad")
_PARAMETERS = {"parameters", "named_parameters", "modules", "named_modules", "children", "named_children"}
_LOOKS = {"print", "len", "isinstance", "hasattr", "id", "type"}
_REDUCES = {"sum", "any", "all"}  # of a comprehension, which is looked at by itself
_COMPUTES = {"norm", "abs", "pow", "square", "sum", "mean", "numel"}  # methods of a weight that give something else
_FACTS = {"device", "dtype", "shape", "training"}  # of a model or a weight, that lead to no gradient
_MODES = {"train", "eval", "zero_grad"}  # methods of a model or an optimizer that read no gradient
# Other methods that may be called of who has a model or an optimizer; what gets the parameters is looked at by itself.
_LEFT_ALONE = {*_MODES, *_PARAMETERS, "forward", "state_dict", "scale", "get_scale"}
_GIVES_NUMBERS = {"forward", "state_dict", "scale", "get_scale", "zero_grad", "step", "get_last_lr", "get_lr"}
_OF_SCHEDULE = {"step", "get_last_lr", "get_lr"}
_COMPILE = "torch.compile"
_MOVES = {"to", "cuda", "cpu", "train", "eval", "float", "half", "bfloat16", "requires_grad_"}  # gives the model itself
# What sees gradients of each pass, or steps in it.
_HOOKS = ("register_post_accumulate_grad_hook", "register_comm_hook", "_apply_optimizer_in_backward")
_DEEPEST = 3  # functions into which a model is followed
_ASSIGNS = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Expr)  # the last of `kept.append(model)`
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_Find = Callable[[Source, Sequence[ast.AST], set[str]], bool]


def step_elsewhere(sources: Sequence[Source], found: Accumulation) -> str:
    """Where an optimizer steps besides those that follow the last pass, as file:line; "" for nowhere.

    Such a step may follow passes whose gradients no rank has sent: `if len(loader) % 4: optimizer.step()` behind a loop.
    """
    inside = _ids_below(found.steps)
    for source in sources:
        for node in source.nodes(ast.Attribute):
            if node.attr != "step" or id(node) in inside or not isinstance(node.ctx, ast.Load):
                continue
            owner, parent = last_name(node.value).lower(), source.parent(node)
            is_called = isinstance(parent, ast.Call) and parent.func is node
            if is_like_an_optimizer(owner) or (is_called and not _STEPS_NO_WEIGHTS.search(owner)):
                return f"{source.path}:{node.lineno}"
    return ""


def use_of_gradients(sources: Sequence[Source], source: Source, found: Accumulation, model: ast.expr) -> str:
    """What may look at gradients, or change them, in each pass and not behind the last one alone; "" for nothing.

    Gradients of earlier passes are there in all of the loop, so that what stands in front of the pass counts as well; and those
    of the last passes of an epoch in the loops around it.
    """
    for hook in _HOOKS:
        if place := next((f"{each.path}" for each in sources if each.mentions(hook)), ""):
            return f"{place} says {hook}, which sees the gradients of each pass"
    loops = [each for each in source.ancestors(found.passes[0]) if isinstance(each, LOOPS)]
    under = _ids_below(found.steps)
    if reader := next((each for loop in loops for each in _readers(loop.body, under)), None):
        return f"gradients are looked at in each pass, or behind the last one, by {source.path}:{reader.lineno}"
    program = _Program(sources, source, found.passes[0])
    holders = program.holders(last_name(model), _optimizers(found.steps))
    inside = [node for statement in loops[0].body for node in ast.walk(statement) if id(node) not in under]
    if why := program.use_in(source, inside, holders):
        return why
    return program.optimizer_behind(source, loops[0], under, _optimizers(found.steps))


def _ids_below(statements: Iterable[ast.stmt]) -> set[int]:
    return {id(node) for statement in statements for node in ast.walk(statement)}


def _readers(statements: Iterable[ast.stmt], left_out: set[int]) -> Iterator[ast.expr]:
    """Where gradients are read, or changed, by name: `.grad`, `getattr(p, "grad")`, `clip_grad_norm_`, `unscale_`."""
    for node in (node for statement in statements for node in ast.walk(statement) if id(node) not in left_out):
        if (isinstance(node, (ast.Name, ast.Attribute)) and _READER.search(last_name(node))) or (
            isinstance(node, ast.Constant) and node.value == "grad"
        ):
            yield node


def _optimizers(steps: Sequence[ast.stmt]) -> set[str]:
    """Names of what steps in these statements, and of what is stepped by a scaler."""
    found = set()
    for node in (node for statement in steps for node in ast.walk(statement)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
            found |= {last_name(node.func.value), *map(last_name, node.args)}
    return found - {""}


class _Program:
    """Who has the model, its parameters or an optimizer in a program, by name, and what is done with them.

    Names of attributes begin with a point: ".model" of `self.model`.
    """

    def __init__(self, sources: Sequence[Source], source: Source, inside: ast.AST) -> None:
        self._sources, self._own = sources, source
        around = {id(each) for each in source.ancestors(inside)}
        self._functions: dict[str, list[tuple[Source, Function]]] = {}
        for each in sources:
            for function in each.nodes(ast.FunctionDef):
                if id(function) not in around:  # the one with the loop does not call itself
                    self._functions.setdefault(function.name, []).append((each, function))
        self._named = {each.name for source in sources for each in source.definitions}
        self._readers = self._all_readers()
        self._asked: list[int] = []  # functions that are being looked at, by id
        # By what is found, function, names, and how many functions are being looked at.
        self._known: dict[tuple[str, int, frozenset[str], int], bool] = {}

    def _all_readers(self) -> set[str]:
        """Names of functions that read gradients, by themselves or in what they call."""
        found = {
            name
            for name, some in self._functions.items()
            if any(_READS_GRADIENTS.search(each.text_of(function)) for each, function in some)
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
        while more := {name for name, called in calls.items() if name not in found and called & (found - _MODES)}:
            found |= more
        return found

    def holders(self, model: str, optimizers: set[str]) -> set[str]:
        """Names by which the model, its parameters or an optimizer is had: `params = list(model.parameters())`.

        Those of the model itself, which is called, are there with "()" behind them as well.
        """
        wrapped = {
            last_name(given) for source in self._sources for call in ddp_calls(source) for given in call.args[:1]
        }
        assigned = [(source, *each) for source in self._sources for each in _assignments(self._seen_from_loop(source))]
        models = {name for each in ({model} | wrapped) - {""} for name in (each, f".{each}")}
        others = {name for each in optimizers for name in (each, f".{each}")}
        return self._with_assigned(models | {f"{name}()" for name in models} | others, assigned)

    def optimizer_behind(
        self, source: Source, place: ast.stmt | ast.expr, left_out: set[int], names: set[str], depth: int = _DEEPEST
    ) -> str:
        """What gets an optimizer behind a place, where it may step; "" for nothing.

        Behind it is what stands below it, or in a loop around it, in its function and in those that call that one.
        """
        assigned = [(source, *each) for each in _assignments(source.nodes(*_ASSIGNS))]
        names = self._with_assigned(
            names | {f".{name.lstrip('.')}" for name in names},
            [
                each for each in assigned if not isinstance(each[1], ast.Call)
            ],  # what a call makes of it may be the model
        )
        scope = source.enclosing(place, *FUNCTIONS) or source.tree
        around = [each for each in source.ancestors(place) if isinstance(each, LOOPS) and source.scope(each) is scope]
        looped, left_out = _ids_below(around), left_out | {id(node) for node in ast.walk(place)}
        end = place.end_lineno or place.lineno
        behind = [
            node
            for node in ast.walk(scope)
            if isinstance(node, ast.Call)
            and (node.lineno > end or id(node) in looped)
            and id(node) not in left_out
            and source.scope(node) is scope
        ]
        if why := self._handed_on(source, behind, names):
            return why
        calls = [(each, call) for each in self._sources for call in each.nodes(ast.Call)] if depth else []
        for each, call in calls:
            if isinstance(scope, FUNCTIONS) and last_name(call.func) == scope.name:
                given = [_last_names(value) for name, value in arguments_of(call, scope) if name in names]
                if why := self.optimizer_behind(each, call, left_out, names.union(*given), depth - 1):
                    return why
        return ""

    def _handed_on(self, source: Source, nodes: Iterable[ast.AST], names: set[str]) -> str:
        """Which call gives what these names hold to anything but a schedule, or a function of the project that keeps it."""
        for call in (node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) not in _LOOKS):
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            if not any(self._holds(source, each, names) for each in given):
                continue
            run = self._run_with(source, call, names)
            made = source.qualified_name(call.func) or last_name(call.func)
            if _SCHEDULE.search(made) if run is None else not self._looks_into(self._hands_on, *run):
                continue
            return (
                f"`{source.brief(call.func)}` of {source.path}:{call.lineno} gets the optimizer behind passes that may not be "
                "summed"
            )
        return ""

    def _hands_on(self, source: Source, nodes: Sequence[ast.AST], names: set[str]) -> bool:
        return bool(self._handed_on(source, nodes, names))

    def _seen_from_loop(self, source: Source) -> Iterator[ast.AST]:
        """Assignments whose names the file of the loop may use: its own, of other files those of globals and attributes."""
        for node in source.nodes(*_ASSIGNS, ast.With):
            if source is self._own or source.scope(node) is source.tree or _sets_attribute(node):
                yield node

    def _with_assigned(self, names: set[str], assigned: Sequence[tuple[Source, ast.expr, set[str]]]) -> set[str]:
        names = set(names)
        while True:
            more = set[str]()
            for source, value, targets in assigned:
                if targets - names and self._holds(source, value, names):
                    more |= targets
                if self._is_model(source, value, names):
                    more |= targets | {f"{target}()" for target in targets}
            if more <= names:
                return names
            names |= more

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

    def use_in(self, source: Source, nodes: Iterable[ast.AST], names: set[str]) -> str:
        """What these nodes do that may read gradients of what is held under these names, or change them; "" for nothing."""
        for node in nodes:
            given: list[ast.expr] = []
            if isinstance(node, ast.Call):
                name = last_name(node.func)
                is_mode = (
                    isinstance(node.func, ast.Attribute)
                    and name in _MODES
                    and self._holds(source, node.func.value, names)
                )
                if name in self._readers and not is_mode:
                    return f"`{source.brief(node.func)}` of {source.path}:{node.lineno} looks at gradients in each pass"
                if name not in _LOOKS and not _reduces(node) and not self._only_computes(source, node, names):
                    given = [*node.args, *(keyword.value for keyword in node.keywords)]
                    given += [] if self._is_left_alone(source, node.func, names) else [node.func]
                if self._uses_by_itself(source, node, names):
                    what = source.brief(node.func)
                    return f"`{what}` of {source.path}:{node.lineno} has the model or the optimizer in each pass"
            elif isinstance(node, ast.For) and not _only_sets_numbers(node):
                given = [node.iter]
            elif isinstance(node, ast.Assign) and not all(map(_is_name, node.targets)):
                given = [node.value]
            elif isinstance(node, _COMPREHENSIONS) and not _only_computes_of_each(node):
                given = [each.iter for each in node.generators]
            if any(self._holds(source, each, names) for each in given):
                what = source.brief(node.func if isinstance(node, ast.Call) else given[0], 40)
                return f"`{what}` of {source.path}:{given[0].lineno} gets the model or the optimizer in each pass"
        return ""

    def _is_left_alone(self, source: Source, called: ast.expr, names: set[str]) -> bool:
        """Whether a call runs the model, or a method of who has it that neither reads gradients nor steps."""
        if self._is_model(source, called, names):
            return True
        if not isinstance(called, ast.Attribute):
            return False
        owner = last_name(called.value).lower()
        is_schedule = bool(_STEPS_NO_WEIGHTS.search(owner)) and not is_like_an_optimizer(owner)
        return called.attr in (_LEFT_ALONE | _OF_SCHEDULE if is_schedule else _LEFT_ALONE)

    def _holds(self, source: Source, node: ast.AST, names: set[str]) -> bool:
        """Whether an expression has one of these names, or anything of it.

        Not as what is called: `model(x)` is what it gives.
        """
        if isinstance(node, ast.Attribute) and node.attr in _FACTS:
            return False
        if isinstance(node, (ast.Name, ast.Attribute)) and (parts := dotted_name(node)):
            root, *attributes = parts.split(".")
            return root in names or any(f".{each}" in names for each in attributes)
        if isinstance(node, ast.Attribute) and f".{node.attr}" in names:
            return True
        if (isinstance(node, ast.Subscript) and _is_setting(node)) or _is_penalty(node):
            return False
        children = ast.iter_child_nodes(node)
        if isinstance(node, ast.Call):
            if (run := self._run_with(source, node, names)) is not None:
                return self._looks_into(self._gives_away, *run)
            children = iter([*node.args, *node.keywords])
            method = node.func if isinstance(node.func, ast.Attribute) else None
            gives = (
                method is not None and method.attr not in _GIVES_NUMBERS and not self._is_model(source, method, names)
            )
            if method is not None and (gives or not dotted_name(method.value)):
                return self._holds(source, method.value, names) or any(
                    self._holds(source, child, names) for child in children
                )
        return any(self._holds(source, child, names) for child in children)

    def _run_with(self, source: Source, call: ast.Call, names: set[str]) -> tuple[Source, Function, set[str]] | None:
        """The function of the project that a call runs with some of what these names hold, and the names of that in it.

        None where it gets nothing of it, or the text does not say what it gets, or which function it is.
        """
        if last_name(call.func) not in self._named or len(self._asked) >= _DEEPEST:
            return None
        run = function_run(self._sources, source, call)
        if run is None or id(run[1]) in self._asked:
            return None
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        number = sum(self._holds(source, value, names) for value in values)
        held = {name for name, value in arguments_of(call, run[1]) if self._holds(source, value, names)}
        held &= parameters_of(run[1])
        if not number or len(held) != number:  # some may be passed, or taken, as * or **
            return None
        known = names if run[0] is source else {name for name in names if name.startswith(".")}
        models = {f"{name}()" for name, value in arguments_of(call, run[1]) if self._is_model(source, value, names)}
        return (*run, known - {f"{name}()" for name in parameters_of(run[1])} | held | models)

    def _only_computes(self, source: Source, call: ast.Call, names: set[str]) -> bool:
        """Whether a call runs a function of the project that calls the model it gets, and does nothing else with it.

        `loss = loss_of(model, batch)`, `evaluate(model, held_out)`.
        """
        run = self._run_with(source, call, names) if last_name(call.func) not in self._readers else None
        return (
            run is not None
            and not _TRAINS.search(run[0].text_of(run[1]))
            and not self._looks_into(self._gives_away, *run)
            and not self._looks_into(self._uses, *run)
        )

    def _uses_by_itself(self, source: Source, call: ast.Call, names: set[str]) -> bool:
        """Whether a call runs a function of the project that gets nothing of it, and has it as a global or an attribute."""
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        if last_name(call.func) not in self._named or any(self._holds(source, each, names) for each in values):
            return False
        run = function_run(self._sources, source, call)
        if run is None or id(run[1]) in self._asked:
            return False
        if len(self._asked) >= _DEEPEST:
            return True
        known = names if run[0] is source else {name for name in names if name.startswith(".")}
        taken = parameters_of(run[1])
        return self._looks_into(self._uses, *run, known - taken - {f"{name}()" for name in taken})

    def _looks_into(self, find: _Find, here: Source, function: Function, names: set[str]) -> bool:
        """Whether this is found in a function, in which something is held under these names."""
        key = (find.__name__, id(function), frozenset(names), len(self._asked))
        if key not in self._known:
            self._asked.append(id(function))
            try:
                nodes = [node for statement in function.body for node in ast.walk(statement)]
                own = self._with_assigned(names, [(here, *each) for each in _assignments(nodes)])
                self._known[key] = find(here, nodes, own)
            finally:
                self._asked.pop()
        return self._known[key]

    def _gives_away(self, source: Source, nodes: Sequence[ast.AST], names: set[str]) -> bool:
        """Whether what is held under these names is given back, or kept anywhere but under a name."""
        out = [node.value for node in nodes if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None]
        out += [node.value for node in nodes if isinstance(node, ast.Assign) and not all(map(_is_name, node.targets))]
        return any(self._holds(source, each, names) for each in out)

    def _uses(self, source: Source, nodes: Sequence[ast.AST], names: set[str]) -> bool:
        return bool(self.use_in(source, nodes, names))


def _assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, set[str]]]:
    """What is assigned, each with the last names of all that it is assigned to."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            yield node.value, _last_names(node.target)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if isinstance(method := node.value.func, ast.Attribute) and method.attr in ("append", "extend", "add"):
                yield from ((each, _last_names(method.value)) for each in node.value.args)
        elif isinstance(node, ast.With):
            for item in node.items:
                if item.optional_vars is not None:
                    yield item.context_expr, _last_names(item.optional_vars)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, set[str]]]:
    """Of `a, b = x, y` each with its own."""
    parts = [each.elts for each in (target, value) if isinstance(each, (ast.Tuple, ast.List))]
    is_starred = any(isinstance(each, ast.Starred) for some in parts for each in some)
    if len(parts) == 2 and len(parts[0]) == len(parts[1]) and not is_starred:
        for one, other in zip(*parts, strict=True):
            yield from _pairs(one, other)
    else:
        yield value, _last_names(target)


def _sets_attribute(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) for each in ast.walk(node))


def _last_names(target: ast.expr) -> set[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return set[str]().union(*map(_last_names, target.elts))
    target = target.value if isinstance(target, ast.Starred) else target
    if isinstance(target, ast.Subscript):
        return _last_names(target.value)
    if isinstance(target, ast.Attribute):
        return {f".{target.attr}"}
    return {target.id} if isinstance(target, ast.Name) else set()


def _is_name(target: ast.expr) -> bool:
    return (
        all(map(_is_name, target.elts)) if isinstance(target, (ast.Tuple, ast.List)) else isinstance(target, ast.Name)
    )


def _is_setting(node: ast.Subscript) -> bool:
    """Whether this is a number of an optimizer: `optimizer.param_groups[0]["lr"]`."""
    return _has_key_of_number(node) and isinstance(node.value, ast.Subscript) and _is_groups(node.value.value)


def _only_sets_numbers(loop: ast.For) -> bool:
    """Whether a loop over an optimizer's groups reads and sets their numbers alone: `for group in optimizer.param_groups:`."""
    inside = [node for statement in loop.body for node in ast.walk(statement)]
    return _is_groups(loop.iter) and _has_numbers_alone(loop.target, inside)


def _reduces(call: ast.Call) -> bool:
    """Whether this is `sum(p.norm() for p in ...)`, and the like."""
    return (
        last_name(call.func) in _REDUCES and bool(call.args) and all(isinstance(a, _COMPREHENSIONS) for a in call.args)
    )


def _is_penalty(node: ast.AST) -> bool:
    """Whether this is a number of all weights: `sum(p.norm() for p in model.parameters())`."""
    return (
        isinstance(node, ast.Call)
        and _reduces(node)
        and all(isinstance(each, _COMPREHENSIONS) and _only_computes_of_each(each) for each in node.args)
    )


def _only_computes_of_each(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> bool:
    """Whether a comprehension makes something else of each weight, or reads numbers of an optimizer's groups.

    `p.norm() for p in model.parameters()`, `group["lr"] for group in optimizer.param_groups`.
    """
    each = node.generators[0]
    if len(node.generators) > 1 or not isinstance(each.target, ast.Name):
        return False
    made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    inside = [child for part in (*made, *each.ifs) for child in ast.walk(part)]
    if _is_groups(each.iter):
        return _has_numbers_alone(each.target, inside)
    methods = [
        call.func.value
        for call in inside
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _COMPUTES
    ]
    is_of_weights = isinstance(each.iter, ast.Call) and last_name(each.iter.func) == "parameters"
    return is_of_weights and _stands_among(each.target, inside, methods)


def _has_numbers_alone(target: ast.expr, inside: Sequence[ast.AST]) -> bool:
    numbers = [node.value for node in inside if isinstance(node, ast.Subscript) and _has_key_of_number(node)]
    return isinstance(target, ast.Name) and _stands_among(target, inside, numbers)


def _stands_among(name: ast.Name, inside: Sequence[ast.AST], places: Sequence[ast.expr]) -> bool:
    """Whether a name is in these places and in no others."""
    return all(
        any(node is each for each in places) for node in inside if isinstance(node, ast.Name) and node.id == name.id
    )


def _has_key_of_number(node: ast.Subscript) -> bool:
    key = node.slice.value if isinstance(node.slice, ast.Constant) else None
    return isinstance(key, str) and key != "params"


def _is_groups(node: ast.expr) -> bool:
    return last_name(node) == "param_groups"
