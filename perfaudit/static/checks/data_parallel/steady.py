"""Which expressions are worth the same in every process, whatever batches it trained on: settings, counters, lengths."""

from __future__ import annotations

import ast

from perfaudit.static.checks.data_parallel.program import argument_for
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import assigned_value

_BUILTINS = {
    *("len", "int", "float", "str", "bool", "min", "max", "isinstance", "hasattr", "range", "abs", "round", "sorted"),
    *("list", "tuple", "dict", "type", "sum"),
}
_LIBRARY = (
    *("torch.cuda.is_available", "torch.cuda.device_count", "torch.device", "torch.backends", "os.path.", "os.getenv"),
    *("os.environ.get", "os.cpu_count", "math.", "argparse.", "pathlib.Path"),
)
_METHODS = {"parse_args", "add_argument", "lower", "upper", "strip", "split", "startswith", "endswith", "format", "get"}


class Steady:
    """Answers for one file; what is being asked about counts as steady, so that counters may count from themselves."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._asked: dict[int, bool] = {}

    def is_steady(self, node: ast.AST | None) -> bool:
        """Whether an expression has one value in all processes at the same place of the program."""
        match node:
            case None | ast.Constant():
                return True
            case ast.Name():
                return self._is_steady_name(node)
            case ast.Attribute():
                return self.is_steady(node.value)
            case ast.Call():
                return self._is_steady_call(node)
            case (
                ast.BinOp()
                | ast.UnaryOp()
                | ast.BoolOp()
                | ast.Compare()
                | ast.IfExp()
                | ast.Tuple()
                | ast.List()
                | ast.Dict()
                | ast.Subscript()
                | ast.Slice()
                | ast.JoinedStr()
                | ast.FormattedValue()
                | ast.Starred()
            ):
                inner = (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
                return all(self.is_steady(child) for child in inner)
        return False

    def runs_steadily(self, node: ast.AST) -> bool:
        """Whether all processes reach a place of their function, or none does, as far as conditions around it tell."""
        child = node
        for around in self.source.ancestors(node):
            if isinstance(around, (ast.If, ast.IfExp, ast.While)) and child is not around.test:
                if not self.is_steady(around.test):
                    return False
            elif isinstance(
                around, (ast.Try, ast.TryStar, ast.ExceptHandler, ast.Match, ast.BoolOp, ast.comprehension)
            ):
                return False
            elif isinstance(around, (*FUNCTIONS, ast.Lambda)):
                return isinstance(around, FUNCTIONS)
            child = around
        return True

    def _is_steady_call(self, call: ast.Call) -> bool:
        handed = [*call.args, *(keyword.value for keyword in call.keywords)]
        if isinstance(call.func, ast.Name) and not self.source.lookup(call.func):
            if call.func.id == "len" and len(handed) == 1 and isinstance(handed[0], (ast.Name, ast.Attribute)):
                return self._is_made_before(handed[0])
            if call.func.id in _BUILTINS and call.func.id not in self.source.aliases:
                return all(self.is_steady(value) for value in handed)
        name = self.source.qualified_name(call.func) or ""
        if any(name == known or (known.endswith(".") and name.startswith(known)) for known in _LIBRARY):
            return all(self.is_steady(value) for value in handed)
        if isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS:
            return self.is_steady(call.func.value) and all(self.is_steady(value) for value in handed)
        return False

    def _is_made_before(self, node: ast.expr) -> bool:
        """Whether what is counted was made before the loops: a loader, a dataset."""
        while isinstance(node, ast.Attribute):
            node = node.value
        bound = self.source.lookup(node) if isinstance(node, ast.Name) else []
        return bool(bound) and all(self.source.enclosing(one, *LOOPS) is None for one in bound)

    def _is_steady_name(self, name: ast.Name) -> bool:
        bound = self.source.lookup(name)
        if not bound:
            return name.id in self.source.aliases or name.id in _BUILTINS or name.id.startswith("__")
        return all(self._is_steady_binding(binding) for binding in bound)

    def _is_steady_binding(self, binding: ast.AST) -> bool:
        if id(binding) in self._asked:
            return self._asked[id(binding)]
        self._asked[id(binding)] = True
        self._asked[id(binding)] = found = self._is_bound_steadily(binding)
        return found

    def _is_bound_steadily(self, binding: ast.AST) -> bool:
        source = self.source
        if isinstance(binding, (*FUNCTIONS, ast.ClassDef)):
            return True
        if isinstance(binding, ast.arg):
            return self._is_given_steadily(binding)
        if not self.runs_steadily(binding):
            return False
        statement = source.statement(binding)
        if isinstance(statement, ast.AugAssign):
            return self.is_steady(statement.value)
        if isinstance(statement, ast.For):
            return self._is_counter(statement, binding)
        value = assigned_value(source, binding)
        return value is not None and self.is_steady(value)

    def _is_counter(self, loop: ast.For, binding: ast.AST) -> bool:
        over = loop.iter
        if isinstance(over, ast.Call) and last_name(over.func) == "tqdm" and over.args:
            over = over.args[0]
        if not isinstance(over, ast.Call):
            return False
        if last_name(over.func) in ("range", "trange"):
            return loop.target is binding and all(self.is_steady(argument) for argument in over.args)
        is_pair = isinstance(loop.target, ast.Tuple) and len(loop.target.elts) == 2
        return (
            last_name(over.func) == "enumerate"
            and isinstance(loop.target, ast.Tuple)
            and is_pair
            and loop.target.elts[0] is binding
        )

    def _is_given_steadily(self, parameter: ast.arg) -> bool:
        passed = self.arguments_for(parameter)
        return bool(passed) and all(self.is_steady(value) for value in passed)

    def arguments_for(self, parameter: ast.arg) -> list[ast.expr]:
        """What all calls pass for a parameter of a plain function; none where the file does not show all of them."""
        function = self.source.enclosing(parameter, *FUNCTIONS, ast.Lambda)
        if not isinstance(function, FUNCTIONS) or self.source.parent(function) is not self.source.tree:
            return []
        calls = callers(self.source, function)
        if len(self.source.uses_of(function, function.name)) != len(calls):
            return []
        passed = [argument_for(self.source, call, function, parameter) for call in calls]
        return [value for value in passed if value is not None] if None not in passed else []

    def is_reached_steadily(self, node: ast.AST, depth: int = 5) -> bool:
        """Whether all processes reach a place equally often, as far as the conditions on the way there tell."""
        if not depth or not self.runs_steadily(node):
            return False
        function = self.source.enclosing(node, *FUNCTIONS)
        if not isinstance(function, FUNCTIONS):
            return True
        calls = callers(self.source, function)
        if not calls or len(self.source.uses_of(function, function.name)) != len(calls):
            return False
        return all(self.is_reached_steadily(call, depth - 1) for call in calls)
