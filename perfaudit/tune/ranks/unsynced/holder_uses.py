"""What a program does with the model, its parameters or an optimizer, and what of that may read gradients or change them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.understanding.losses import arguments_of
from perfaudit.static.understanding.names import is_like_an_optimizer, last_name
from perfaudit.tune.ranks.project_functions import function_run, parameters_of
from perfaudit.tune.ranks.unsynced.assigned_names import ASSIGNS, assignments, is_name, last_names
from perfaudit.tune.ranks.unsynced.holders import DEEPEST, MODES, READS_GRADIENTS, Holders, is_super
from perfaudit.tune.ranks.unsynced.numbers_of_weights import (
    COMPREHENSIONS,
    only_computes_of_each,
    only_sets_numbers,
    reduces,
)

_STEPS_NO_WEIGHTS = regex(r"sched|prof|warm_?up|^lr_")  # names of what has a `step` besides optimizers
_SCHEDULE = regex(r"[Ss]chedule|LR$")
# What a function that gets the model may not do, if it is to compute something of it and no more.
_TRAINS = regex(r"\.backward\b|\.step\b|zero_grad|register_\w*hook|requires_grad")
_PARAMETERS = {"parameters", "named_parameters", "modules", "named_modules", "children", "named_children"}
_LOOKS = {"print", "len", "isinstance", "hasattr", "id", "type", "super"}
_GIVES_AS_IT_IS = {"enumerate", "zip", "list", "tuple", "iter", "next", "reversed"}  # what comes out is looked at
# Other methods that may be called of who has a model or an optimizer; what gets the parameters is looked at by itself.
_LEFT_ALONE = {*MODES, *_PARAMETERS, "forward", "generate", "state_dict", "save_pretrained", "scale", "get_scale"}
_OF_SCHEDULE = regex(r"^(step|get_)")
# Methods of an optimizer or of a scaler, behind the loop, that step no weights; `step` is looked at by itself.
_MAKES_NO_STEP = {*_LEFT_ALONE, "step", "update", "load_state_dict", "add_param_group", "consolidate_state_dict"}
_LOGS = regex(r"^(log|print|info|debug|warn|write)")
# Libraries that look at a model, or take gradients through hooks, which see those of one rank under `no_sync` or not.
_ONLY_LOOK = regex(
    r"^(torch|torchvision|wandb|logging|tensorboard|tensorboardX|mlflow|comet_ml|swanlab|neptune|torchinfo|torchsummary|thop"
    r"|fvcore|copy|gc|sys|os|pickle|json|rich|loguru|tqdm|pprint)(\.|$)"
)
_HOOKS = regex(r"^register_\w*hook$")


class Uses(Holders):
    """Says what is done with what is held, of the code of a loop and of the functions that it runs."""

    _with_model: set[str] | None = None

    def use_in(self, source: Source, nodes: Iterable[ast.AST], names: set[str]) -> str:
        """What these nodes do that may read gradients of what is held under these names, or change them; "" for nothing."""
        for node in nodes:
            given: list[ast.expr] = []
            if isinstance(node, ast.Call):
                name = last_name(node.func)
                is_mode = (
                    isinstance(node.func, ast.Attribute)
                    and name in MODES
                    and self._holds(source, node.func.value, names)
                )
                if name in self._readers and not is_mode:
                    return f"`{source.brief(node.func)}` of {source.path}:{node.lineno} looks at gradients in each pass"
                if self._is_unseen_method(source, node.func) and not self._is_model(source, node.func, names):
                    what = source.brief(node.func)
                    return (
                        f"`{what}` of {source.path}:{node.lineno} is of no file of the project, and runs in each pass"
                    )
                if (
                    name not in _LOOKS | _GIVES_AS_IT_IS
                    and not reduces(node)
                    and not self._only_computes(source, node, names)
                ):
                    given = [*node.args, *(keyword.value for keyword in node.keywords)]
                    given += [] if self._is_left_alone(source, node.func, names) else [node.func]
                if self._uses_by_itself(source, node, names):
                    what = source.brief(node.func)
                    return f"`{what}` of {source.path}:{node.lineno} has the model or the optimizer in each pass"
                if root := self._library_with_model(source, node, names):
                    what = source.brief(node.func)
                    return f"`{what}` of {source.path}:{node.lineno} is of {root}, which has the model, in each pass"
            elif isinstance(node, ast.For) and not only_sets_numbers(node):
                given = [node.iter]
            elif isinstance(node, ast.Assign) and not all(map(is_name, node.targets)):
                given = [node.value]
            elif isinstance(node, COMPREHENSIONS) and not only_computes_of_each(node):
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
        is_schedule = not may_step(last_name(called.value).lower())
        return called.attr in _LEFT_ALONE or (is_schedule and bool(_OF_SCHEDULE.search(called.attr)))

    def _only_computes(self, source: Source, call: ast.Call, names: set[str]) -> bool:
        """Whether a call runs a function of the project that calls the model it gets, and does nothing else with it.

        `loss = loss_of(model, batch)`, `evaluate(model, held_out)`.
        """
        if last_name(call.func) in self._readers or (run := self._run_with(source, call, names)) is None:
            return False
        others = [self._run_given(source, call, each, names) for each in self._overriding(source, call)]
        return all(each is not None and self._computes(*each) for each in (run, *others))

    def _computes(self, here: Source, function: Function, names: set[str]) -> bool:
        return (
            not _TRAINS.search(here.text_of(function))
            and not self._looks_into(self._gives_away, here, function, names)
            and not self._looks_into(self._uses, here, function, names)
        )

    def _uses_by_itself(self, source: Source, call: ast.Call, names: set[str]) -> bool:
        """Whether a call runs a function of the project that gets nothing of it, and has it as a global or an attribute."""
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        if last_name(call.func) not in self._named or any(self._holds(source, each, names) for each in values):
            return False
        run = function_run(self._sources, source, call)
        runs = self._methods_of_loop(source, call) if run is None else [run, *self._overriding(source, call)]
        return any(self._uses_in(source, *each, names) for each in runs)

    def _uses_in(self, source: Source, here: Source, function: Function, names: set[str]) -> bool:
        """Whether a function that gets nothing of it uses what is held under these names, as the file of its call has them."""
        if id(function) in self._asked or not self._names_any(source, here, function, names):
            return False
        if len(self._asked) >= DEEPEST:
            return True
        known = self._names_in_file(source, here, names)
        taken = parameters_of(function)
        return self._looks_into(self._uses, here, function, known - taken - {f"{name}()" for name in taken})

    def _names_any(self, source: Source, here: Source, function: Function, names: set[str]) -> bool:
        """Whether a function, or one of a name that stands in it, has one of these names: a quick look before a thorough one."""
        known = {here.path: self._names_in_file(source, here, names)}
        wanted, seen = [(here, function)], set[int]()
        while wanted:
            file, each = wanted.pop()
            if id(each) in seen:
                continue
            seen.add(id(each))
            held = known.setdefault(file.path, self._names_in_file(source, file, names))
            taken = parameters_of(each)
            for node in ast.walk(each):
                name = last_name(node)
                if isinstance(node, ast.Name) and (name in held - taken or self._is_handed_on(file, node)):
                    return True
                if isinstance(node, ast.Attribute) and f".{name}" in held:
                    return True
                if isinstance(node, ast.Call) and (
                    self._is_unseen_method(file, node.func) or self._library_with_model(file, node, names)
                ):
                    return True
                wanted += self._functions.get(name, ())
        return False

    def _is_handed_on(self, source: Source, name: ast.Name) -> bool:
        """Whether this is the object that has the model, and not as what an attribute is of."""
        return self._is_of_loop(source, name) and not isinstance(source.parent(name), ast.Attribute)

    def _methods_of_loop(self, source: Source, call: ast.Call) -> list[tuple[Source, Function]]:
        """The methods that a call of the loop's own object may run, by their name: those of a class in another file."""
        return self._functions.get(last_name(call.func), []) if self._is_own_method(source, call.func) else []

    def _is_own_method(self, source: Source, called: ast.expr) -> bool:
        """Whether this is `self.run`, `super().run` or `state.run` of the object that has the model or the optimizer."""
        if not isinstance(called, ast.Attribute):
            return False
        if is_super(called.value):
            return (
                "self" in self.owners and source is self._own and source.enclosing(called, ast.ClassDef) is self._class
            )
        return self._is_of_loop(source, called.value)

    def _is_unseen_method(self, source: Source, called: ast.expr) -> bool:
        """Whether this is a method of the loop's own object that no file of the project has: one of a library's class."""
        name = last_name(called)
        return (
            self._is_own_method(source, called)
            and name not in self._named
            and not (name in _LEFT_ALONE or (_LOGS.search(name) and "grad" not in name))
            and name not in self._attributes
        )

    def _library_with_model(self, source: Source, call: ast.Call, names: set[str]) -> str:
        """The library of which a function is called, where another one of it got what is held: `lib.register(model)`; else ""."""
        root = _library(source, call.func)
        return root if root and root in self._libraries(names) else ""

    def _libraries(self, names: set[str]) -> set[str]:
        """Libraries that get something of this in a statement of its own."""
        if self._with_model is None:
            self._with_model = {
                root
                for source in self._sources
                for given, to in _statements_that_give(source)
                if (root := _library(source, to)) and not self._is_of_project(root)
                if not self._functions.get(last_name(to)) and any(self._holds(source, each, names) for each in given)
            }
        return self._with_model

    def _is_of_project(self, root: str) -> bool:
        return any(
            f"/{each.path}".find(f"/{root}/") >= 0 or f"/{each.path}".endswith(f"/{root}.py") for each in self._sources
        )

    def hook_that_reads(self) -> str:
        """Where a hook that reads gradients is put on a weight or a module, as file:line; "" for nowhere.

        It sees what has added up so far, and that is of one rank under `no_sync`.
        """
        for source in self._sources:
            for call in source.nodes(ast.Call):
                if _HOOKS.search(last_name(call.func)) and any(self._reads(source, each) for each in call.args):
                    return f"{source.path}:{call.lineno}"
        return ""

    def _reads(self, source: Source, given: ast.expr) -> bool:
        names = {last_name(node) for node in ast.walk(given)}
        return bool(names & self._readers) or bool(READS_GRADIENTS.search(source.text_of(given)))

    def _uses(self, source: Source, nodes: Sequence[ast.AST], names: set[str]) -> bool:
        return bool(self.use_in(source, nodes, names))

    def optimizer_behind(
        self,
        source: Source,
        place: ast.stmt | ast.expr,
        left_out: set[int],
        names: set[str],
        path: frozenset[str] = frozenset(),
        trains: frozenset[str] = frozenset(),
    ) -> str:
        """What gets an optimizer behind a place, where it may step; "" for nothing.

        Behind it is what stands below it, or in a loop around it, in its function and in those that call that one. path: names of
        the functions that lead to the loop; a call of one of them trains as the loop does, and so does one of `trains`.
        """
        assigned = [(source, *each) for each in assignments(source, source.nodes(*ASSIGNS))]
        names = self._with_assigned(
            names | {f".{name.lstrip('.')}" for name in names},
            [
                each for each in assigned if not isinstance(each[1], ast.Call)
            ],  # what a call makes of it may be the model
        )
        scope = source.enclosing(place, *FUNCTIONS) or source.tree
        around = [each for each in source.ancestors(place) if isinstance(each, LOOPS) and source.scope(each) is scope]
        looped, left_out = ids_below(around), left_out | {id(node) for node in ast.walk(place)}
        end = place.end_lineno or place.lineno
        behind = [
            node
            for node in ast.walk(scope)
            if isinstance(node, ast.Call)
            and (node.lineno > end or id(node) in looped)
            and id(node) not in left_out
            and source.scope(node) is scope
            and (last_name(node.func) not in path | trains or _library(source, node.func))
        ]
        if why := self._handed_on(source, behind, names):
            return why
        if not isinstance(scope, FUNCTIONS) or len(path) >= DEEPEST or scope.name in path:
            return ""
        path |= {scope.name}
        for other, call in self._calls_of(scope):
            given = [last_names(value) for name, value in arguments_of(call, scope) if name in names]
            if why := self.optimizer_behind(other, call, left_out, names.union(*given), path, trains):
                return why
        return ""

    def _calls_of(self, function: Function) -> list[tuple[Source, ast.Call]]:
        return [
            (source, call)
            for source in self._sources
            for call in source.nodes(ast.Call)
            if last_name(call.func) == function.name
        ]

    def _handed_on(self, source: Source, nodes: Iterable[ast.AST], names: set[str]) -> str:
        """Which call gives what these names hold to anything but a schedule, or a function of the project that keeps it."""
        for call in (node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) not in _LOOKS):
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            if (
                isinstance(call.func, ast.Attribute)
                and call.func.attr == "step"
                and may_step(last_name(call.func.value))
            ):
                continue  # `step_elsewhere` looks at it
            if self._may_step(call.func, names):
                given.append(call.func)
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

    def _may_step(self, called: ast.expr, names: set[str]) -> bool:
        """Whether this is a method of an optimizer that may step with what gradients there are: `optimizer.second_step()`."""
        return (
            isinstance(called, ast.Attribute)
            and called.attr not in _MAKES_NO_STEP
            and bool(last_names(called.value) & names)
            and not isinstance(called.value, ast.Subscript)
        )

    def _hands_on(self, source: Source, nodes: Sequence[ast.AST], names: set[str]) -> bool:
        return bool(self._handed_on(source, nodes, names))


def may_step(owner: str) -> bool:
    """Whether what has this name, and a `step`, may move weights: anything but a schedule, or a profiler."""
    return is_like_an_optimizer(owner) or not _STEPS_NO_WEIGHTS.search(owner.lower())


def ids_below(statements: Iterable[ast.AST]) -> set[int]:
    return {id(node) for statement in statements for node in ast.walk(statement)}


def _statements_that_give(source: Source) -> Iterator[tuple[list[ast.expr], ast.expr]]:
    """What statements give to what they call, `lib.register(model)`, or set, `lib.model = model`."""
    for statement in source.nodes(ast.Expr):
        if isinstance(call := statement.value, ast.Call):
            yield [*call.args, *(keyword.value for keyword in call.keywords)], call.func
    for assigned in source.nodes(ast.Assign):
        yield from (([assigned.value], target) for target in assigned.targets if isinstance(target, ast.Attribute))


def _library(source: Source, called: ast.expr) -> str:
    """The library that a called function is imported from; "" for none, and for one that only looks at what it gets."""
    name = source.qualified_name(called) or ""
    return "" if not name or name.startswith(".") or _ONLY_LOOK.search(name) else name.partition(".")[0]
