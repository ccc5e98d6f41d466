"""Which expressions of a training loop are tensors on the device: followed from the loss and from what is moved there.

The code is read in order, branches are joined, loops are read once. What is not clear stays UNKNOWN.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from perfaudit.records import NamedTuple
from perfaudit.static.source import FUNCTIONS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.device_calls import (
    is_text,
    makes_cuda_tensors,
    of_attribute,
    of_builtin,
    of_imported,
    of_method,
)
from perfaudit.static.understanding.elsewhere import Elsewhere
from perfaudit.static.understanding.kinds import (
    Kind,
    Value,
    all_arithmetic,
    all_joined,
    arithmetic,
    element_of,
    holder_kind,
    join_values,
    whole,
)
from perfaudit.static.understanding.losses import arguments_of, key, loss_names, losses_returned, makes_loss
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.step_code import StepCode, step_code
from perfaudit.static.understanding.step_loops import StepLoop

_GROWING_METHODS = {"append", "extend", "add", "update", "insert", "setdefault"}
_MAX_DEPTH = 3  # calls followed from the loop, for what they return; findings look two deep
_MAX_FOLLOWED = 500  # calls followed in all for one loop; thirty functions that call each other make 25,000 of them


class Region(NamedTuple):
    """Code that runs on every step, and the kind of every expression in it that was reached."""

    code: StepCode
    kinds: dict[int, Kind]

    def kind(self, node: ast.AST) -> Kind:
        return self.kinds.get(id(node), Kind.UNKNOWN)


def device_values(source: Source, step: StepLoop) -> tuple[Region, ...]:
    """The loop and the functions it calls on every step, each with the kinds of its expressions."""
    kinds: dict[int, Kind] = {}
    seeds = _seeds(source, step.loop)
    for function in step.helpers:  # `self.loss` set in one method and read in another
        seeds |= {name: kind for name, kind in _seeds(source, function).items() if name.startswith("self.")}
    reader = _Reader(source, kinds, seeds)
    reader.names = _before(source, step.loop)
    if isinstance(step.loop, ast.While):
        reader.value(step.loop.test)
    else:
        reader.bind(step.loop.target, reader.elements(step.loop.iter))
    reader.block(step.loop.body)
    return tuple(Region(code, kinds) for code in step_code(source, step))


def values_elsewhere(
    there: Elsewhere, kind_of: Callable[[ast.expr], Kind], given_back: Iterable[ast.expr] = ()
) -> Region:
    """A function of another file, with the kinds of its expressions for what this call passes.

    given_back: what it returns to a caller that runs the backward pass on it.
    """
    kinds: dict[int, Kind] = {}
    reader = _Reader(there.source, kinds, _seeds(there.source, there.function, given_back), (there.function,))
    if there.owner is not None:
        reader.names = _device_attributes(there.source, there.owner)
    reader.names.update({name: kind_of(argument) for name, argument in there.named_arguments})
    if there.function.args.kwarg is not None:
        rest = [kind_of(argument) for argument in there.rest]
        reader.names[there.function.args.kwarg.arg] = holder_kind(max(rest, default=Kind.HOST))
    reader.block(there.function.body)
    return Region(StepCode(there.function, ()), kinds)  # the call is in this file, whose nodes the other does not know


def _seeds(source: Source, root: Loop | Function, given_back: Iterable[ast.expr] = ()) -> dict[str, Kind]:
    """What the backward pass says of names, less the inputs of the loss that come from the loader and are moved here."""
    moved = {name for node in walk(root) for name in _names_moved(node)}
    return {
        name: Kind.TENSOR if sure else Kind.MAYBE
        for name, sure in loss_names(source, root, given_back).items()
        if sure or name not in moved
    }


def _names_moved(node: ast.AST) -> Iterator[str]:
    """`x` of `x = x.to(device)`, `x` and `y` of `x, y = x.cuda(), t.tensor(y).to(device)`."""
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        pairs = [(target, node.value)]
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(node.value, (ast.Tuple, ast.List)):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        for name, value in pairs:
            if isinstance(value, ast.Call) and last_name(value.func) in ("to", "cuda"):
                yield key(name)


def _before(source: Source, loop: Loop) -> dict[str, Value]:
    """What names are when the loop begins: read from the statements before it, and from `__init__` for `self`.

    Of names that the loop sets again only those are told that begin as tensors on the device.
    """
    reader = _Reader(source, {}, {})
    function = source.enclosing(loop, *FUNCTIONS)
    owner = source.parent(function) if function is not None else None
    if isinstance(owner, ast.ClassDef):
        reader.names = _device_attributes(source, owner)
    around: list[ast.stmt] = [loop]
    for ancestor in source.ancestors(loop):
        if isinstance(ancestor, (*FUNCTIONS, ast.ClassDef)):
            break
        if isinstance(ancestor, ast.stmt):
            around.append(ancestor)
    for statement in reversed(around):
        if isinstance(statement, (ast.For, ast.AsyncFor)) and statement is not loop:
            reader.bind(statement.target, reader.elements(statement.iter))
        for earlier in source.block(statement):
            if earlier is statement:
                break
            reader.statement(earlier)
    again = {key(node) for node in walk(loop) if isinstance(getattr(node, "ctx", None), ast.Store)}
    return {n: v for n, v in reader.names.items() if n not in again or whole(v) is Kind.TENSOR}


def _device_attributes(source: Source, owner: ast.ClassDef) -> dict[str, Value]:
    """What `__init__` gives to `self` that lies, or may lie, on the device."""
    reader = _Reader(source, {}, {})
    for maker in source.bound_in(owner).get("__init__", []):
        reader.block(maker.body if isinstance(maker, FUNCTIONS) else [])
    return {n: v for n, v in reader.names.items() if n.startswith("self.") and whole(v) >= Kind.MAYBE}


# ---- reading code in order -----------------------------------------------------------------------------------------


class _Reader:
    """Reads statements in order and notes the kind of each expression; one for the loop, one for each call followed."""

    def __init__(
        self,
        source: Source,
        kinds: dict[int, Kind],
        seeds: dict[str, Kind],
        stack: tuple[Function, ...] = (),
        followed: list[Function] | None = None,
    ) -> None:
        self.source = source
        self.kinds = kinds
        self.seeds = seeds
        self.stack = stack
        self.followed = [] if followed is None else followed  # by this reader and those it began
        self.names: dict[str, Value] = {}
        self.returned: list[Value] = []
        self.gives_loss: dict[int, tuple[int, int] | None] = {}  # calls that return a loss, and where in a tuple

    # Statements

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                self.note_losses(node)
                value = self.value(node.value)
                for target in node.targets:
                    self.bind(target, self.beside_loss(target, node.value, value))
            case ast.AnnAssign():
                if node.value is not None:
                    self.bind(node.target, self.value(node.value))
            case ast.AugAssign():
                self.bind(node.target, arithmetic(self.value(node.target), self.value(node.value)))
            case ast.Return():
                self.returned.append(self.value(node.value) if node.value else Kind.HOST)
            case ast.If():
                self.conditions(node)
            case ast.For() | ast.AsyncFor():
                self.bind(node.target, self.elements(node.iter))
                self.block(node.body)
                self.block(node.orelse)
            case ast.While():
                self.value(node.test)
                self.block(node.body)
                self.block(node.orelse)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self.bind(item.optional_vars, Kind.UNKNOWN)
                self.block(node.body)
            case ast.Try() | ast.TryStar():
                self.block(node.body)
                before = dict(self.names)
                for handler in node.handlers:
                    self.block(handler.body)
                    self.names = dict(before)
                self.block(node.orelse)
                self.block(node.finalbody)
            case ast.Match():
                self.value(node.subject)
                self.branches([case.body for case in node.cases] + [[]])
            case ast.Delete():
                for target in node.targets:
                    self.names.pop(key(target), None)
            case ast.Expr() | ast.Assert() | ast.Raise():
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.value(child)
            case _:  # definitions are read where they are called
                pass

    def conditions(self, node: ast.If) -> None:
        """One condition after the other: a chain of hundreds of `elif` is as many levels of the tree, too many to go into."""
        after: list[dict[str, Value] | None] = []
        while True:
            self.value(node.test)
            before = self.names
            after.append(self.branch(node.body, before))
            self.names = dict(before)
            if len(node.orelse) != 1 or not isinstance(node.orelse[0], ast.If):
                break
            node = node.orelse[0]
        self.names = self.join([after.pop(), self.branch(node.orelse, before)], before)
        for other in reversed(after):
            self.names = self.join([other, self.names], before)

    def branches(self, blocks: list[list[ast.stmt]]) -> None:
        before = self.names
        self.names = self.join([self.branch(block, before) for block in blocks], before)

    def branch(self, block: list[ast.stmt], before: dict[str, Value]) -> dict[str, Value] | None:
        """What the names are behind a block; None where it is left otherwise than at its end."""
        self.names = dict(before)
        self.block(block)
        leaves = bool(block) and isinstance(block[-1], (ast.Continue, ast.Break, ast.Return, ast.Raise))
        return None if leaves else self.names

    def join(self, after: list[dict[str, Value] | None], before: dict[str, Value]) -> dict[str, Value]:
        """What the names are behind branches; what they were before where none of these comes to its end."""
        joined: dict[str, Value] | None = None
        for names in after:
            if joined is None or names is None:
                joined = joined if names is None else names
                continue
            every = joined.keys() | names.keys()
            joined = {n: join_values(joined.get(n, Kind.UNKNOWN), names.get(n, Kind.UNKNOWN)) for n in every}
        return before if joined is None else joined

    def note_losses(self, node: ast.Assign) -> None:
        """Note where the call of `loss, parts = losses_of(batch)` returns what the backward pass starts from."""
        target = node.targets[0]
        elements = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        places = [n for n, element in enumerate(elements) if self.seeds.get(key(element)) is Kind.TENSOR]
        if isinstance(node.value, ast.Call) and len(places) == 1:
            self.gives_loss[id(node.value)] = None if elements == [target] else (places[0], len(elements))

    def beside_loss(self, target: ast.expr, made_by: ast.expr, value: Value) -> Value:
        """What a call returns of which nothing is known but that it gives the loss: `loss, accuracy = model(batch)`."""
        if value is not Kind.UNKNOWN or not isinstance(made_by, ast.Call) or not isinstance(target, ast.Tuple):
            return value
        has_loss = any(self.seeds.get(key(element)) is Kind.TENSOR for element in target.elts)
        return Kind.MAYBE if has_loss else value

    def bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            starred = any(isinstance(element, ast.Starred) for element in target.elts)
            for position, element in enumerate(target.elts):
                if isinstance(value, tuple) and len(value) == len(target.elts) and not starred:
                    self.bind(element, value[position])
                else:
                    self.bind(element, element_of(value))
            return
        if isinstance(target, ast.Starred):
            self.bind(target.value, holder_kind(whole(value)))
            return
        if isinstance(target, ast.Subscript):
            self.value(target.value)
            self.value(target.slice)
            self.grow(target.value, value)
        name = key(target)
        if not name:
            return
        if name in self.seeds and whole(value) in (Kind.UNKNOWN, Kind.MAYBE):
            value = max(self.seeds[name], whole(value))
        for other in [n for n in self.names if n.startswith((f"{name}.", f"{name}["))]:
            del self.names[other]
        self.names[name] = value

    def grow(self, container: ast.expr, value: Value) -> None:
        """Note that a list or dict now holds this value."""
        name = dotted_name(container)
        if name and whole(value) >= Kind.MAYBE and whole(self.names.get(name, Kind.UNKNOWN)) <= Kind.MAYBE:
            self.names[name] = Kind.MAYBE

    # Expressions

    def value(self, node: ast.expr) -> Value:
        value = self._value(node)
        known = self.kinds.get(id(node))
        kind = whole(value)
        self.kinds[id(node)] = kind if known is None else whole(join_values(known, kind))
        return value

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant() | ast.Lambda():
                return Kind.HOST
            case ast.Name():
                return self.value_of_name(node.id)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript():
                base = self.value(node.value)
                self.value(node.slice)
                if (name := key(node)) and (name in self.names or name in self.seeds):
                    return self.value_of_name(name)
                index = node.slice.value if isinstance(node.slice, ast.Constant) else None
                if isinstance(base, tuple) and isinstance(index, int) and index < len(base):
                    return base[index]
                return element_of(base)
            case ast.Call():
                return self.call(node)
            case ast.BinOp():
                left, right = self.value(node.left), self.value(node.right)
                return Kind.HOST if is_text(node.left) else arithmetic(left, right)
            case ast.UnaryOp():
                value = self.value(node.operand)
                return Kind.HOST if isinstance(node.op, ast.Not) else value
            case ast.BoolOp():
                values = [self.value(value) for value in node.values]
                return all_joined(values)
            case ast.Compare():
                values = [self.value(value) for value in (node.left, *node.comparators)]
                if any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops):
                    return Kind.HOST
                if any(is_text(value) for value in (node.left, *node.comparators)):
                    return Kind.HOST
                return all_arithmetic(values)
            case ast.IfExp():
                self.value(node.test)
                return join_values(self.value(node.body), self.value(node.orelse))
            case ast.NamedExpr():
                value = self.value(node.value)
                self.bind(node.target, value)
                return self.value_of_name(node.target.id)
            case ast.Tuple() | ast.List():
                values = [self.value(element) for element in node.elts]
                return (
                    holder_kind(whole(tuple(values)))
                    if any(isinstance(e, ast.Starred) for e in node.elts)
                    else tuple(values)
                )
            case ast.Starred() | ast.Await():
                return self.value(node.value)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self.comprehension(node)
            case ast.FormattedValue():
                self.value(node.value)
                return Kind.HOST
        inner = [self.value(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return Kind.HOST if isinstance(node, ast.JoinedStr) else holder_kind(whole(tuple(inner)))

    def value_of_name(self, name: str) -> Value:
        value = self.names.get(name)
        if value is not None:
            return value
        return Kind.MAYBE if name in self.seeds else Kind.UNKNOWN

    def attribute(self, node: ast.Attribute) -> Value:
        base = whole(self.value(node.value))
        if (name := dotted_name(node)) and (name in self.names or name in self.seeds):
            return self.names[name] if name in self.names else max(self.seeds[name], Kind.MAYBE)
        return of_attribute(node.attr, base)

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        outside = dict(self.names)
        for generator in node.generators:
            self.bind(generator.target, self.elements(generator.iter))
            for test in generator.ifs:
                self.value(test)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        values = [self.value(part) for part in parts]
        self.names = outside
        return holder_kind(whole(tuple(values))) if len(values) > 1 else holder_kind(whole(values[0]))

    def elements(self, node: ast.expr) -> Value:
        """What a loop over this expression yields."""
        value = self.value(node)
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            if name == "enumerate" and node.args:
                return (Kind.HOST, self.elements(node.args[0]))
            if name == "zip":
                return tuple(self.elements(argument) for argument in node.args)
            if name == "items" and isinstance(node.func, ast.Attribute):
                return (Kind.HOST, element_of(self.value(node.func.value)))
        return element_of(value)

    # Calls

    def call(self, node: ast.Call) -> Value:
        arguments = [self.value(argument) for argument in node.args]
        arguments += [self.value(keyword.value) for keyword in node.keywords]
        given = max((whole(argument) for argument in arguments), default=Kind.HOST)
        name = self.source.qualified_name(node.func)
        if name is not None:
            return of_imported(self.source, node, name, given)
        function = called_function(self.source, node)
        if function is None and self.is_module_on_device(node.func):
            return Kind.MAYBE
        if isinstance(node.func, ast.Attribute):
            return self.follow(function, node, given) if function else self.method(node, node.func, given)
        if isinstance(node.func, ast.Name):
            if not self.source.lookup(node.func):
                return of_builtin(node.func.id, arguments)
            if function is not None:
                return self.follow(function, node, given)
        else:
            self.value(node.func)
        is_tensor = (makes_loss(self.source, node) and given >= Kind.MAYBE) or makes_cuda_tensors(
            self.source, node.func
        )
        return Kind.TENSOR if is_tensor else Kind.MAYBE if given >= Kind.MAYBE else Kind.UNKNOWN

    def is_module_on_device(self, func: ast.expr) -> bool:
        """Whether what is called is a name for what was moved to the device: a model, which gives tensors there."""
        value = self.names.get(dotted_name(func))
        return value is Kind.TENSOR and not makes_loss(self.source, ast.Call(func, [], []))

    def method(self, node: ast.Call, func: ast.Attribute, given: Kind) -> Value:
        receiver = whole(self.value(func.value))
        self.kinds[id(func)] = Kind.UNKNOWN
        if func.attr in _GROWING_METHODS and given >= Kind.MAYBE:
            self.grow(func.value, given)
            return Kind.UNKNOWN
        return of_method(self.source, node, func, receiver, given)

    def follow(self, function: Function, call: ast.Call, given: Kind) -> Value:
        """What a function of this file returns for these arguments; notes the kinds inside it on the way."""
        unread = Kind.MAYBE if given >= Kind.MAYBE else Kind.UNKNOWN
        if any(known is function for known in self.stack) or len(self.stack) >= _MAX_DEPTH:
            return unread
        is_generator = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(function))
        if is_generator or len(self.followed) >= _MAX_FOLLOWED:
            return unread
        self.followed.append(function)
        is_loss, place = id(call) in self.gives_loss, self.gives_loss.get(id(call))
        seeds = _seeds(self.source, function, losses_returned(self.source, function, place) if is_loss else ())
        shared = {name: kind for name, kind in self.seeds.items() if name.startswith("self.")}
        reader = _Reader(self.source, self.kinds, shared | seeds, (*self.stack, function), self.followed)
        of_self = isinstance(call.func, ast.Attribute) and dotted_name(call.func.value) == "self"
        if of_self:
            reader.names.update({n: v for n, v in self.names.items() if n.startswith("self.")})
        reader.names.update({name: self.value(argument) for name, argument in arguments_of(call, function)})
        reader.block(function.body)
        if of_self:  # what a method has set on `self` is seen by the caller
            self.names.update({n: v for n, v in reader.names.items() if n.startswith("self.")})
        if _is_abstract(function):
            return unread
        return all_joined(reader.returned) if reader.returned else Kind.HOST


def _is_abstract(function: Function) -> bool:
    """Whether a function leaves its work to subclasses: it only raises, or has nothing but a docstring."""
    body = [statement for statement in function.body if not _is_documentation(statement)]
    return not body or isinstance(body[0], (ast.Raise, ast.Pass))


def _is_documentation(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
