"""Whether queries, keys and values are as long as one another: a causal mask of the library is right for no other keys."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.members import is_own, own_values
from perfaudit.static.understanding.values import constant

_KEEPS = {"float", "half", "bfloat16", "type_as", "contiguous", "clone", "detach", "double"}
_SHAPES = {"view", "reshape", "transpose", "permute", "unsqueeze", "squeeze", "flatten", "swapaxes", "movedim"}
_CUTS = {"chunk", "split", "tensor_split"}
_LAYERS = {f"torch.nn.{name}" for name in ("Linear", "Dropout", "Identity", "LayerNorm", "RMSNorm")}
_NAME = regex(r"Name\(id='(\w+)'")


def have_one_length(source: Source, function: Function, at: ast.expr, names: tuple[str, ...]) -> bool:
    """Whether names come to an expression by the same steps from the same tensor, in every run.

    Not where one of them may be joined to a cache, is bound under a condition, or is a parameter of its own.
    """
    lengths = _Lengths(source)
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg):
            lengths.bind_anew(argument.arg)
    return (
        lengths.run(function.body, source.statement(at)) and len({lengths.names.get(name, name) for name in names}) == 1
    )


class _Lengths:
    """Follows a function and keeps for each name a word for how long its value is; equal words, equal lengths.

    A part of a tensor has the word of every other part, a projection that of what it projects. What is not understood
    gets a word that nothing else has.
    """

    def __init__(self, source: Source, names: dict[str, str] | None = None, anew: list[int] | None = None) -> None:
        self.source = source
        self.names = dict(names or {})
        self.anew = anew if anew is not None else [0]  # words given out, here and in what is read inside

    def bind_anew(self, name: str) -> None:
        self.names[name] = self.unknown()

    def unknown(self) -> str:
        self.anew[0] += 1
        return f"?{self.anew[0]}"

    def run(self, block: list[ast.stmt], until: ast.stmt) -> bool:
        """Reads statements up to one; whether it was met."""
        for statement in block:
            if statement is until:
                return True
            blocks = [
                b for name in ("body", "orelse", "finalbody") if isinstance(b := getattr(statement, name, None), list)
            ]
            inside = next((b for b in blocks if any(n is until for s in b for n in ast.walk(s))), None)
            if isinstance(statement, (ast.For, ast.AsyncFor, ast.While)) or (inside is None and blocks):
                self.forget(statement)
            if inside is not None:
                for part in ast.iter_child_nodes(statement):  # `if (k := ...)`, `with ... as k`
                    if not isinstance(part, ast.stmt):
                        self.forget(part)
                return self.run(inside, until)
            if not blocks:
                self.statement(statement)
        return False

    def forget(self, node: ast.AST) -> None:
        for name in ast.walk(node):
            if isinstance(name, ast.Name) and not isinstance(name.ctx, ast.Load):
                self.bind_anew(name.id)

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Mult, ast.Div)):
            return  # in place: a tensor keeps its shape
        if not isinstance(node, ast.Assign) or any(isinstance(n, ast.NamedExpr) for n in ast.walk(node)):
            self.forget(node)
            return
        target, value = node.targets[0], node.value
        if len(node.targets) == 1 and isinstance(target, ast.Name):
            self.names[target.id] = self.of(value)
        elif len(node.targets) == 1 and isinstance(target, ast.Tuple):
            if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
                words: list[str | None] = [self.of(item) for item in value.elts]
            else:
                words = [self.part(value)] * len(target.elts)
            self.forget(node)
            for item, word in zip(target.elts, words, strict=True):
                if isinstance(item, ast.Name) and word is not None:
                    self.names[item.id] = word
        else:
            self.forget(node)

    def part(self, node: ast.expr) -> str | None:
        """The word for each part of a tensor, or of what was cut from one; None where a tuple may hold anything."""
        word = self.of(node)
        return f"part of {word}" if word.endswith(")") else None

    def of(self, node: ast.expr) -> str:
        """The word for the value of an expression."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, node.id)
        if isinstance(node, ast.Subscript) and isinstance(constant(self.source, node.slice), int):
            return self.part(node.value) or self.unknown()
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)) and self.is_factor(node.right):
            return self.of(node.left)
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)) and len(node.generators) == 1:
            generator = node.generators[0]
            if isinstance(generator.target, ast.Name) and not generator.ifs and not generator.is_async:
                return self.each(generator.target.id, generator.iter, node.elt)
        return self.of_call(node) if isinstance(node, ast.Call) else self.unknown()

    def is_factor(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Constant) or is_own(node) or isinstance(constant(self.source, node), (int, float))

    def each(self, name: str, items: ast.expr, made: ast.expr) -> str:
        """`[f(y) for y in items]`, of which each part is f of a part."""
        part = self.part(items)
        if part is None:
            return self.unknown()
        known = self.anew[0]
        word = _Lengths(self.source, {**self.names, name: part}, self.anew).of(made)
        return f"each({word})" if self.anew[0] == known else self.unknown()

    def of_call(self, node: ast.Call) -> str:
        name = self.source.qualified_name(node.func)
        if name == "einops.rearrange" and node.args:
            return f"{self.of(node.args[0])}.rearrange{self.arguments_text(node)}"
        if isinstance(node.func, ast.Name) and node.func.id == "map" and len(node.args) == 2:
            function = node.args[0]
            if isinstance(function, ast.Lambda) and len(function.args.args) == 1:
                return self.each(function.args.args[0].arg, node.args[1], function.body)
        if name is not None or not isinstance(node.func, ast.Attribute):
            return self.unknown()
        if self.is_projection(node, node.func):
            return self.of(node.args[0])
        if is_own(node.func):
            return self.unknown()
        short = node.func.attr
        if short in _KEEPS or short == "to":
            return self.of(node.func.value)
        if short in _SHAPES or short == "unbind" or (short in _CUTS and self.cuts_width(node)):
            return f"{self.of(node.func.value)}.{short}{self.arguments_text(node)}"
        return self.unknown()

    def is_projection(self, node: ast.Call, func: ast.Attribute) -> bool:
        """`self.key(x)`, where the class builds nothing but layers of one input under the name that keep the length."""
        if not is_own(func) or len(node.args) != 1 or node.keywords or called_function(self.source, node) is not None:
            return False
        built = own_values(self.source, node, func.attr)
        kinds = {self.source.qualified_name(v.func) if isinstance(v, ast.Call) else None for v in built}
        return bool(kinds) and kinds <= _LAYERS and self.source.enclosing(node, *FUNCTIONS) is not None

    def cuts_width(self, node: ast.Call) -> bool:
        """Whether a tensor is cut along its last axis, so that the parts are as long as one another."""
        given = [k.value for k in node.keywords if k.arg == "dim"] or node.args[1:2]
        return bool(given) and constant(self.source, given[0]) in (-1, 2)

    def arguments_text(self, call: ast.Call) -> str:
        """The arguments as text, with names told apart by what they hold."""
        is_method = self.source.qualified_name(call.func) is None
        given = [*(call.args if is_method else call.args[1:]), *call.keywords]
        texts = (_NAME.sub(lambda m: f"Name({self.names.get(m[1], m[1])}", ast.dump(item)) for item in given)
        return f"({', '.join(texts)})"
