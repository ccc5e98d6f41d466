"""Where the value of each expression lies, for what its names stand for at that place."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod

from perfaudit.static.source import Function, Source
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.device_calls import (
    is_text,
    makes_cuda_tensors,
    of_attribute,
    of_builtin,
    of_imported,
    of_method,
)
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
from perfaudit.static.understanding.losses import key, makes_loss
from perfaudit.static.understanding.names import dotted_name, last_name

_GROWING_METHODS = {"append", "extend", "add", "update", "insert", "setdefault"}


class ExpressionReader(ABC):
    """Notes the kind of each expression that it is asked for, and what names are after those that bind some.

    kinds: by the ids of nodes; seeds: what the backward pass says of names. `names` is what is known where the code is read.
    """

    def __init__(self, source: Source, kinds: dict[int, Kind], seeds: dict[str, Kind]) -> None:
        self.source = source
        self.kinds = kinds
        self.seeds = seeds
        self.names: dict[str, Value] = {}

    @abstractmethod
    def follow(self, function: Function, call: ast.Call, given: Kind) -> Value:
        """What a function of this file returns to a call that passes this kind at most; unclear where it is not read."""

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

    # Names

    def value_of_name(self, name: str) -> Value:
        value = self.names.get(name)
        if value is not None:
            return value
        return Kind.MAYBE if name in self.seeds else Kind.UNKNOWN

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
