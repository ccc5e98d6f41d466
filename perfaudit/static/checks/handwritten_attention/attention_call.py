"""The call that does what a written-out attention does, where its text settles every argument."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from perfaudit.records import NamedTuple, field, record
from perfaudit.static.checks.handwritten_attention.attention_lengths import have_one_length
from perfaudit.static.checks.handwritten_attention.attention_mask import is_causal, is_infinite, is_low, seen_by
from perfaudit.static.checks.handwritten_attention.attention_scale import inverse, is_number, is_root_of_width
from perfaudit.static.checks.handwritten_attention.attention_values import Chain
from perfaudit.static.source import LOOPS, Source
from perfaudit.static.understanding.members import built_as, own_values
from perfaudit.static.understanding.values import constant

AXES = 4  # batch, heads, positions, width
_SOFTMAX = {"torch.softmax", "torch.nn.functional.softmax"}
# Methods of a tensor that change nothing.
_READING = {"size", "bool", "dim", "to", "float", "view", "expand", "unsqueeze", "squeeze"}
_MATMUL = {"torch.matmul", "torch.bmm"}


class Call(NamedTuple):
    """What the call replaces: the last product becomes the call, the statements before it go."""

    output: ast.expr
    arguments: tuple[str, ...]
    replaced: tuple[ast.stmt, ...]
    has_dropout: bool
    layers: frozenset[str]  # of the class, which the call replaces: a softmax, a dropout


@record(slots=True)
class _Parts:
    """What was read of a chain so far; `name` is what holds the scores or weights."""

    name: str = ""
    scale: str | None = None  # "" for the library's own
    mask: str | None = None
    hides: bool = False  # whether what is hidden is infinitely low, at any scale
    dropout: str | None = None
    softmax: bool = False
    names: set[str] = field(default_factory=set)
    layers: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)  # names in what the call takes


def plain_call(source: Source, chain: Chain) -> Call | None:
    """The call for a chain that stands in consecutive statements of one block and does nothing uncertain; else None."""
    output, values = chain.outputs[0]
    sides = _factors(source, output)
    query, key = chain.query, _key(source, chain)
    if len(chain.outputs) != 1 or sides is None or sides[1] is not values or key is None:
        return None
    if not isinstance(query, ast.Name) or not isinstance(values, ast.Name):
        return None
    statements = _statements(source, chain.product, output)
    if statements is None:
        return None
    reader = _Reader(source, chain, key)
    replaced = []
    for statement in statements[:-1]:
        if not reader.stands_apart(statement):
            replaced.append(statement)
            if not reader.assignment(statement):
                return None
    if not reader.expression(sides[0]):
        return None
    parts = reader.parts
    if not parts.softmax or parts.names & {query.id, key.id, values.id}:
        return None
    if not _serve_nothing_else(source, chain, statements, output, parts.names):
        return None
    arguments = [query.id, key.id, values.id]
    arguments += [parts.mask] if parts.mask else []
    arguments += [f"dropout_p={parts.dropout}"] if parts.dropout else []
    if parts.scale is None:
        arguments.append("scale=1.0")
    elif parts.scale:
        arguments.append(f"scale={parts.scale}")
    replaced += [
        each
        for each in statements[:-1]
        if each not in replaced and _serves_only(chain, each, replaced, _names_in(arguments))
    ]
    return Call(output, tuple(arguments), tuple(replaced), parts.dropout is not None, frozenset(parts.layers))


def _names_in(texts: Sequence[str]) -> set[str]:
    """All words of these texts, the names among them."""
    return set(re.findall(r"\w+", " ".join(texts)))


def _serves_only(chain: Chain, statement: ast.stmt, replaced: list[ast.stmt], wanted: set[str]) -> bool:
    """Whether what a statement between those of the chain gives its name is read in the replaced ones only, as a mask is.

    wanted: names that the call reads. A statement that might do something else besides stays.
    """
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or _may_act(statement.value):
        return False
    if not isinstance(statement.targets[0], ast.Name) or statement.targets[0].id in wanted:
        return False
    inside = {id(node) for each in replaced for node in ast.walk(each)}
    named = [
        node
        for node in ast.walk(chain.function)
        if isinstance(node, ast.Name) and node.id == statement.targets[0].id and node is not statement.targets[0]
    ]
    return bool(named) and all(id(node) in inside for node in named)


def _may_act(value: ast.expr) -> bool:
    """Whether computing a value may do something else, as any call might but those of views and sizes of tensors."""
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call | ast.NamedExpr | ast.Await | ast.Yield)]
    return any(
        not (isinstance(c, ast.Call) and isinstance(c.func, ast.Attribute) and c.func.attr in _READING) for c in calls
    )


def _statements(source: Source, first: ast.expr, last: ast.expr) -> list[ast.stmt] | None:
    """The statements from one expression's to the other's, where both stand in one block."""
    begin, end = source.statement(first), source.statement(last)
    if hasattr(end, "body"):  # in a condition or the head of a loop
        return None
    block = source.block(end)
    places = [n for n, statement in enumerate(block) if statement is begin or statement is end]
    return block[places[0] : places[-1] + 1] if places and any(s is begin for s in block) else None


def _factors(source: Source, node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Both sides of a matrix product."""
    if isinstance(node, ast.BinOp):
        return node.left, node.right
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    if source.qualified_name(node.func) in _MATMUL and len(node.args) == 2:
        return node.args[0], node.args[1]
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("matmul", "bmm") and len(node.args) == 1:
        return (node.func.value, node.args[0]) if source.qualified_name(node.func) is None else None
    return None


def _key(source: Source, chain: Chain) -> ast.Name | None:
    """`k` of a product with `k.transpose(-2, -1)`."""
    sides = _factors(source, chain.product)
    if sides is None or sides[1] is not chain.key:
        return None
    node = chain.key
    if isinstance(node, ast.Attribute) and node.attr == "mT":
        return node.value if isinstance(node.value, ast.Name) else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.keywords:
        return None
    axes = [constant(source, a) for a in node.args]
    last = ([-2, -1], [-1, -2], *([[2, 3], [3, 2]] if chain.rank == AXES else []))
    if node.func.attr != "transpose" or axes not in last or not isinstance(node.func.value, ast.Name):
        return None
    return node.func.value


def _serve_nothing_else(
    source: Source, chain: Chain, statements: list[ast.stmt], output: ast.expr, names: set[str]
) -> bool:
    """Whether the names of the chain are read nowhere but in it, or hold something else by then."""
    first, last = statements[0], statements[-1]
    rebound = {t.id for t in last.targets if isinstance(t, ast.Name)} if isinstance(last, ast.Assign) else set()
    inside = {id(n) for s in statements[:-1] for n in ast.walk(s)} | {id(n) for n in ast.walk(output)}
    in_loop = source.enclosing(first, *LOOPS, within=chain.function) is not None
    for node in ast.walk(chain.function):
        if not isinstance(node, ast.Name) or node.id not in names or id(node) in inside:
            continue
        if isinstance(node.ctx, ast.Store):
            continue
        before = (node.lineno, node.col_offset) < (first.lineno, first.col_offset)
        if in_loop or (not before and node.id not in rebound):
            return False
        if not before and node.lineno <= (last.end_lineno or last.lineno):
            return False
    return not any(isinstance(n, (ast.Global, ast.Nonlocal)) for n in ast.walk(chain.function))


class _Reader:
    """Reads the statements of a chain; False for anything whose argument the text does not settle."""

    def __init__(self, source: Source, chain: Chain, key: ast.Name) -> None:
        self.source = source
        self.chain = chain
        self.key = key
        self.parts = _Parts()

    def stands_apart(self, node: ast.stmt) -> bool:
        """Whether a statement in between computes something else (the values), which may stay before the call."""
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            return False
        target = node.targets[0]
        bound = target.elts if isinstance(target, ast.Tuple) else [target]
        names = {n.id for n in bound if isinstance(n, ast.Name)}
        used = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
        product = {n.id for n in ast.walk(self.chain.product) if isinstance(n, ast.Name)}
        if len(names) != len(bound) or (names | used) & self.parts.names or names & (product | self.parts.used):
            return False
        return not any(n is self.chain.product or isinstance(n, ast.NamedExpr) for n in ast.walk(node.value))

    def assignment(self, node: ast.stmt) -> bool:
        self.parts.used |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - {"self"}
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == self.parts.name:
            return isinstance(node.op, (ast.Mult, ast.Div)) and self.read_scale(
                node.value, isinstance(node.op, ast.Div)
            )
        if isinstance(node, ast.Expr):
            return self.read_fill_in_place(node.value)
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            return False
        if not self.expression(node.value):
            return False
        self.parts.name = node.targets[0].id
        self.parts.names.add(self.parts.name)
        return True

    def expression(self, node: ast.expr) -> bool:
        if node is self.chain.product:
            return not self.parts.name
        if isinstance(node, ast.Name):
            return bool(self.parts.name) and node.id == self.parts.name
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
            if self.expression(node.left):
                return self.read_scale(node.right, isinstance(node.op, ast.Div))
            return isinstance(node.op, ast.Mult) and self.expression(node.right) and self.read_scale(node.left, False)
        return isinstance(node, ast.Call) and self.call(node)

    def read_fill_in_place(self, node: ast.expr) -> bool:
        """`scores.masked_fill_(mask, -inf)`, a statement of its own."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.keywords:
            return False
        owner = node.func.value
        is_own = isinstance(owner, ast.Name) and owner.id == self.parts.name
        return is_own and node.func.attr == "masked_fill_" and len(node.args) == 2 and self.read_mask(*node.args)

    def call(self, node: ast.Call) -> bool:
        name = self.source.qualified_name(node.func)
        if name in _SOFTMAX or (isinstance(node.func, ast.Call) and not node.keywords):
            return bool(node.args) and self.expression(node.args[0]) and self.read_softmax(node, node.args[1:])
        if name == "torch.nn.functional.dropout":
            return self.expression(node.args[0]) and self.read_dropout_call(node) if node.args else False
        if name is not None or not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr == "softmax" and self.expression(node.func.value):
            return self.read_softmax(node, node.args)
        if node.func.attr == "masked_fill" and len(node.args) == 2 and self.expression(node.func.value):
            return self.read_mask(node.args[0], node.args[1])
        built = built_as(self.source, node, node.func.attr)
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "self") or len(node.args) != 1:
            return False
        kinds = {self.source.qualified_name(item.func) for item in built}
        self.parts.layers.add(node.func.attr)
        if len(own_values(self.source, node, node.func.attr)) != len(built) or node.keywords:
            return False
        if kinds == {"torch.nn.Softmax"}:
            return self.expression(node.args[0]) and self.read_softmax(node, [])
        if kinds == {"torch.nn.Dropout"} and self.expression(node.args[0]) and self.parts.softmax:
            layer = self.source.text_of(node.func)
            return self.dropout(f"{layer}.p if {layer}.training else 0.0")
        return False

    def read_softmax(self, node: ast.Call, rest: list[ast.expr]) -> bool:
        if self.parts.softmax or len(rest) > 1 or any(k.arg != "dim" for k in node.keywords):
            return False
        self.parts.softmax = node is self.chain.softmax
        return self.parts.softmax

    def read_dropout_call(self, node: ast.Call) -> bool:
        given = dict(zip(("input", "p", "training"), node.args, strict=False))
        given.update({k.arg: k.value for k in node.keywords if k.arg})
        if set(given) != {"input", "p", "training"} or len(node.keywords) + len(node.args) != 3:
            return False
        share, training = self.source.text_of(given["p"]), self.source.text_of(given["training"])
        if not all(isinstance(given[key], (ast.Constant, ast.Name, ast.Attribute)) for key in ("p", "training")):
            return False
        return self.parts.softmax and self.dropout(f"{share} if {training} else 0.0")

    def dropout(self, text: str) -> bool:
        if self.parts.dropout is not None:
            return False
        self.parts.dropout = text
        return True

    # Scale

    def read_scale(self, factor: ast.expr, divides: bool) -> bool:
        if self.parts.scale is not None or self.parts.softmax or not is_number(self.source, factor):
            return False
        text = self.source.text_of(factor)
        if "\n" in text or "\r" in text:
            return False
        widths = (self.key.id, getattr(self.chain.query, "id", ""))
        is_own = is_root_of_width(self.source, factor if divides else inverse(self.source, factor), widths)
        if self.parts.mask and not (is_own and self.parts.hides):  # a negative scale would turn it over
            return False
        if is_own:
            self.parts.scale = ""
        elif divides:
            self.parts.scale = (
                f"1 / {text}" if isinstance(factor, (ast.Call, ast.Attribute, ast.Name)) else f"1 / ({text})"
            )
        else:
            self.parts.scale = text
        return True

    # Mask

    def read_mask(self, hidden: ast.expr, filler: ast.expr) -> bool:
        if self.parts.mask is not None or self.parts.softmax:
            return False
        mask, keeps = seen_by(self.source, hidden)
        self.parts.hides = is_infinite(self.source, filler)
        if is_causal(self.source, self.chain.function, mask, keeps) and (
            self.parts.hides or is_low(self.source, filler)
        ):
            self.parts.mask = "is_causal=True"
            return self.is_square()
        slices = mask.slice.elts if isinstance(mask, ast.Subscript) and isinstance(mask.slice, ast.Tuple) else []
        if len(slices) < 2 or not all(isinstance(s, ast.Slice) for s in slices):  # may have one axis: refused there
            return False
        text = self.source.text_of(mask)
        if not is_infinite(self.source, filler) or "\n" in text or "\r" in text:
            return False
        if isinstance(hidden, ast.Compare):
            self.parts.mask = f"attn_mask={text} != {self.source.text_of(hidden.comparators[0])}"
        else:
            self.parts.mask = f"attn_mask={text}" if keeps else f"attn_mask=~{text}"
        return True

    def is_square(self) -> bool:
        """Whether the scores have as many keys as queries: the library's triangle hides other positions otherwise."""
        output, values = self.chain.outputs[0]
        names = tuple(n.id for n in (self.chain.query, self.key, values) if isinstance(n, ast.Name))
        return have_one_length(self.source, self.chain.function, output, names)
