"""Which expressions of a training loop are tensors on the device: followed from the loss and from what is moved there.

The code is read in order, branches are joined, loops are read once. What is not clear stays UNKNOWN.
"""

from __future__ import annotations

import ast
import enum
import re
from dataclasses import dataclass
from typing import TypeAlias

from perfaudit.static.context import (
    StepCode,
    StepLoop,
    called_function,
    changes_default_device,
    device_text,
    dotted_name,
    last_name,
    names_accelerator,
    step_code,
)
from perfaudit.static.losses import key, loss_names, makes_loss
from perfaudit.static.source import Function, Loop, Source
from perfaudit.static.values import resolve


class Kind(enum.IntEnum):
    """Where a value lies, as far as the text tells."""

    HOST = 0  # a Python value, or a tensor in host memory
    UNKNOWN = 1
    MAYBE = 2  # made from device tensors by code that is not read here: one of them, or something that holds them
    TENSOR = 3


Value: TypeAlias = "Kind | tuple[Value, ...]"  # a tuple where each element of a tuple or list is known

_HOST_ATTRIBUTE = re.compile(
    r"(shape|device|dtype|ndim|layout|is_\w+|requires_grad|grad_fn|names?|itemsize|nbytes|output_nr|retains_grad)$"
)
_TENSOR_ATTRIBUTE = re.compile(r"(grad|data|T|mT|H|mH|real|imag)$")
_HOST_METHOD = re.compile(
    r"(item|tolist|cpu|numpy|size|dim|numel|nelement|ndimension|element_size|stride|storage_offset|data_ptr|get_device|"
    r"is_\w+|untyped_storage|storage|backward|register_hook|keys)$"
)
_HOST_BUILTIN = re.compile(
    r"(float|int|bool|str|repr|len|isinstance|issubclass|print|range|round|hash|id|type|hasattr|callable|format)$"
)
_COLLECTION = re.compile(r"(list|tuple|set|dict|sorted|reversed|iter|next|enumerate|zip|map|filter|sum|any|all)$")
_GROWING_METHODS = {"append", "extend", "add", "update", "insert", "setdefault"}
_CREATOR = re.compile(
    r"torch\.(tensor|as_tensor|zeros|ones|full|empty|eye|rand|randn|randint|randperm|arange|linspace)$"
)
_HOST_TORCH = {"torch.is_tensor", "torch.numel", "torch.save", "torch.from_numpy", "torch.is_floating_point"}
_GRAD_NORMS = {"torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_norm", "torch.nn.utils.get_total_norm"}
_TENSOR_FUNCTION = re.compile(r"^torch\.([a-z_0-9]+|(nn\.functional|linalg|special|fft)\.[a-z_0-9]+|autograd\.grad)$")
_MAX_DEPTH = 3  # calls followed from the loop, for what they return; findings look one deep


@dataclass(frozen=True, slots=True)
class Region:
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
    if isinstance(step.loop, ast.While):
        reader.value(step.loop.test)
    else:
        reader.bind(step.loop.target, reader.elements(step.loop.iter))
    reader.block(step.loop.body)
    return tuple(Region(code, kinds) for code in step_code(source, step))


def _seeds(source: Source, root: Loop | Function) -> dict[str, Kind]:
    return {name: Kind.TENSOR if sure else Kind.MAYBE for name, sure in loss_names(source, root).items()}


# ---- reading code in order -----------------------------------------------------------------------------------------


class _Reader:
    """Reads statements in order and notes the kind of each expression; one for the loop, one for each call followed."""

    def __init__(
        self, source: Source, kinds: dict[int, Kind], seeds: dict[str, Kind], stack: tuple[Function, ...] = ()
    ) -> None:
        self.source = source
        self.kinds = kinds
        self.seeds = seeds
        self.stack = stack
        self.names: dict[str, Value] = {}
        self.returned: list[Value] = []

    # Statements

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                value = self.value(node.value)
                for target in node.targets:
                    self.bind(target, value)
            case ast.AnnAssign():
                if node.value is not None:
                    self.bind(node.target, self.value(node.value))
            case ast.AugAssign():
                self.bind(node.target, _arithmetic(self.value(node.target), self.value(node.value)))
            case ast.Return():
                self.returned.append(self.value(node.value) if node.value else Kind.HOST)
            case ast.If():
                self.value(node.test)
                self.branches([node.body, node.orelse])
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

    def branches(self, blocks: list[list[ast.stmt]]) -> None:
        before = dict(self.names)
        after: list[dict[str, Value]] = []
        for block in blocks:
            self.names = dict(before)
            self.block(block)
            if not (block and isinstance(block[-1], (ast.Continue, ast.Break, ast.Return, ast.Raise))):
                after.append(self.names)
        self.names = after[0] if after else before
        for other in after[1:]:
            names = self.names.keys() | other.keys()
            self.names = {n: _joined(self.names.get(n, Kind.UNKNOWN), other.get(n, Kind.UNKNOWN)) for n in names}

    def bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            starred = any(isinstance(element, ast.Starred) for element in target.elts)
            for position, element in enumerate(target.elts):
                if isinstance(value, tuple) and len(value) == len(target.elts) and not starred:
                    self.bind(element, value[position])
                else:
                    self.bind(element, _element(value))
            return
        if isinstance(target, ast.Starred):
            self.bind(target.value, _held(_whole(value)))
            return
        if isinstance(target, ast.Subscript):
            self.value(target.value)
            self.value(target.slice)
            self.grow(target.value, value)
        name = key(target)
        if not name:
            return
        if name in self.seeds and _whole(value) in (Kind.UNKNOWN, Kind.MAYBE):
            value = max(self.seeds[name], _whole(value))
        for other in [n for n in self.names if n.startswith((f"{name}.", f"{name}["))]:
            del self.names[other]
        self.names[name] = value

    def grow(self, container: ast.expr, value: Value) -> None:
        """Note that a list or dict now holds this value."""
        name = dotted_name(container)
        if name and _whole(value) >= Kind.MAYBE and _whole(self.names.get(name, Kind.UNKNOWN)) <= Kind.MAYBE:
            self.names[name] = Kind.MAYBE

    # Expressions

    def value(self, node: ast.expr) -> Value:
        value = self._value(node)
        known = self.kinds.get(id(node))
        kind = _whole(value)
        self.kinds[id(node)] = kind if known is None else _whole(_joined(known, kind))
        return value

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant() | ast.Lambda():
                return Kind.HOST
            case ast.Name():
                return self.stored(node.id)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript():
                base = self.value(node.value)
                self.value(node.slice)
                if (name := key(node)) and (name in self.names or name in self.seeds):
                    return self.stored(name)
                index = node.slice.value if isinstance(node.slice, ast.Constant) else None
                if isinstance(base, tuple) and isinstance(index, int) and index < len(base):
                    return base[index]
                return _element(base)
            case ast.Call():
                return self.call(node)
            case ast.BinOp():
                left, right = self.value(node.left), self.value(node.right)
                is_text = isinstance(node.left, ast.JoinedStr) or _is_text(node.left)
                return Kind.HOST if is_text else _arithmetic(left, right)
            case ast.UnaryOp():
                value = self.value(node.operand)
                return Kind.HOST if isinstance(node.op, ast.Not) else value
            case ast.BoolOp():
                values = [self.value(value) for value in node.values]
                return _all_joined(values)
            case ast.Compare():
                values = [self.value(value) for value in (node.left, *node.comparators)]
                if any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops):
                    return Kind.HOST
                if any(_is_text(value) for value in (node.left, *node.comparators)):
                    return Kind.HOST
                return _all_arithmetic(values)
            case ast.IfExp():
                self.value(node.test)
                return _joined(self.value(node.body), self.value(node.orelse))
            case ast.NamedExpr():
                value = self.value(node.value)
                self.bind(node.target, value)
                return self.stored(node.target.id)
            case ast.Tuple() | ast.List():
                values = [self.value(element) for element in node.elts]
                return (
                    _held(_whole(tuple(values)))
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
        return Kind.HOST if isinstance(node, ast.JoinedStr) else _held(_whole(tuple(inner)))

    def stored(self, name: str) -> Value:
        value = self.names.get(name)
        if value is not None:
            return value
        return Kind.MAYBE if name in self.seeds else Kind.UNKNOWN

    def attribute(self, node: ast.Attribute) -> Value:
        base = _whole(self.value(node.value))
        if (name := dotted_name(node)) and (name in self.names or name in self.seeds):
            return self.names[name] if name in self.names else max(self.seeds[name], Kind.MAYBE)
        if _HOST_ATTRIBUTE.match(node.attr):
            return Kind.HOST
        if base is Kind.TENSOR and _TENSOR_ATTRIBUTE.match(node.attr):
            return Kind.TENSOR
        return Kind.MAYBE if base >= Kind.MAYBE else Kind.UNKNOWN

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        outside = dict(self.names)
        for generator in node.generators:
            self.bind(generator.target, self.elements(generator.iter))
            for test in generator.ifs:
                self.value(test)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        values = [self.value(part) for part in parts]
        self.names = outside
        return _held(_whole(tuple(values))) if len(values) > 1 else _held(_whole(values[0]))

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
                return (Kind.HOST, _element(self.value(node.func.value)))
        return _element(value)

    # Calls

    def call(self, node: ast.Call) -> Value:
        arguments = [self.value(argument) for argument in node.args]
        arguments += [self.value(keyword.value) for keyword in node.keywords]
        given = max((_whole(argument) for argument in arguments), default=Kind.HOST)
        name = self.source.qualified(node.func)
        if name is not None:
            return self.imported(node, name, given)
        if isinstance(node.func, ast.Attribute):
            function = called_function(self.source, node)
            return self.follow(function, node, given) if function else self.method(node, node.func, given)
        if isinstance(node.func, ast.Name):
            if not self.source.lookup(node.func):
                return self.builtin(node.func.id, arguments, given)
            function = called_function(self.source, node)
            if function is not None:
                return self.follow(function, node, given)
        else:
            self.value(node.func)
        if makes_loss(self.source, node) and given >= Kind.MAYBE:
            return Kind.TENSOR
        return Kind.MAYBE if given >= Kind.MAYBE else Kind.UNKNOWN

    def imported(self, node: ast.Call, name: str, given: Kind) -> Value:
        """What a function of an imported module returns."""
        if name.startswith(("numpy.", "math.")) or name in _HOST_TORCH:
            return Kind.HOST
        if _CREATOR.match(name):
            device = next((keyword.value for keyword in node.keywords if keyword.arg == "device"), None)
            if device is not None:
                return Kind.TENSOR if names_accelerator(self.source, device) else Kind.UNKNOWN
            return Kind.UNKNOWN if changes_default_device(self.source) else Kind.HOST
        if name in _GRAD_NORMS:
            return Kind.TENSOR
        if given < Kind.MAYBE:
            return Kind.UNKNOWN
        return Kind.TENSOR if _TENSOR_FUNCTION.match(name) else Kind.MAYBE

    def builtin(self, name: str, arguments: list[Value], given: Kind) -> Value:
        if _HOST_BUILTIN.match(name):
            return Kind.HOST
        if name in ("min", "max", "abs") and (len(arguments) > 1 or name == "abs"):
            return _all_arithmetic(arguments)
        if _COLLECTION.match(name) and all(_whole(argument) is Kind.HOST for argument in arguments):
            return Kind.HOST
        return Kind.MAYBE if given >= Kind.MAYBE else Kind.UNKNOWN

    def method(self, node: ast.Call, func: ast.Attribute, given: Kind) -> Value:
        receiver = _whole(self.value(func.value))
        self.kinds[id(func)] = Kind.UNKNOWN
        if _HOST_METHOD.match(func.attr) or (func.attr == "format" and _is_text(func.value)):
            return Kind.HOST
        if func.attr == "cuda":
            return Kind.TENSOR
        if func.attr == "to":
            return self.moved(node, receiver)
        if func.attr in _GROWING_METHODS and given >= Kind.MAYBE:
            self.grow(func.value, given)
            return Kind.UNKNOWN
        if receiver >= Kind.MAYBE:
            return receiver
        return Kind.MAYBE if given >= Kind.MAYBE else receiver

    def moved(self, node: ast.Call, receiver: Kind) -> Kind:
        targets = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "device")]
        if any(names_cpu(self.source, target) for target in targets):
            return Kind.HOST
        if any(names_accelerator(self.source, target) for target in targets):
            return Kind.TENSOR
        return receiver

    def follow(self, function: Function, call: ast.Call, given: Kind) -> Value:
        """What a function of this file returns for these arguments; notes the kinds inside it on the way."""
        unread = Kind.MAYBE if given >= Kind.MAYBE else Kind.UNKNOWN
        is_generator = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(function))
        if any(known is function for known in self.stack) or len(self.stack) >= _MAX_DEPTH or is_generator:
            return unread
        seeds = _seeds(self.source, function)
        shared = {name: kind for name, kind in self.seeds.items() if name.startswith("self.")}
        reader = _Reader(self.source, self.kinds, shared | seeds, (*self.stack, function))
        self.pass_arguments(function, call, reader)
        reader.block(function.body)
        if isinstance(call.func, ast.Attribute):  # a method: what it has set on `self` is seen by the caller
            self.names.update({n: v for n, v in reader.names.items() if n.startswith("self.")})
        return _all_joined(reader.returned) if reader.returned else Kind.HOST

    def pass_arguments(self, function: Function, call: ast.Call, reader: _Reader) -> None:
        parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        if isinstance(call.func, ast.Attribute) and parameters[:1] in (["self"], ["cls"]):
            parameters = parameters[1:]
            reader.names.update({n: v for n, v in self.names.items() if n.startswith("self.")})
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            return
        for name, argument in zip(parameters, call.args, strict=False):
            reader.names[name] = self.value(argument)
        for keyword in call.keywords:
            if keyword.arg is not None:
                reader.names[keyword.arg] = self.value(keyword.value)


def names_cpu(source: Source, node: ast.expr) -> bool:
    """Whether an expression is provably the host as a device: "cpu", `torch.device("cpu")`, a name bound once to it."""
    value = resolve(source, node)
    if isinstance(value, ast.Call) and source.qualified(value.func) == "torch.device" and value.args:
        value = value.args[0]
    return device_text(value) == "cpu"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _whole(value: Value) -> Kind:
    """The kind of a value taken as one thing: a tuple that holds tensors is no tensor."""
    if isinstance(value, tuple):
        return _held(max((_whole(element) for element in value), default=Kind.HOST))
    return value


def _held(kind: Kind) -> Kind:
    """The kind of something that holds a value of this kind."""
    return min(kind, Kind.MAYBE)


def _element(value: Value) -> Value:
    """The kind of one element of a value."""
    return _all_joined(list(value)) if isinstance(value, tuple) else value


def _joined(first: Value, second: Value) -> Value:
    """What a name is after two branches."""
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        return tuple(_joined(a, b) for a, b in zip(first, second, strict=True))
    a, b = _whole(first), _whole(second)
    if a is b:
        return a
    return Kind.MAYBE if max(a, b) >= Kind.MAYBE else Kind.UNKNOWN


def _all_joined(values: list[Value]) -> Value:
    result: Value = values[0] if values else Kind.HOST
    for value in values[1:]:
        result = _joined(result, value)
    return result


def _arithmetic(first: Value, second: Value) -> Kind:
    """The kind of a sum, product or comparison: a tensor if one side is one."""
    return max(_whole(first), _whole(second))


def _all_arithmetic(values: list[Value]) -> Kind:
    return max((_whole(value) for value in values), default=Kind.HOST)
