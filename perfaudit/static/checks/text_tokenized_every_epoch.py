"""PA112: a dataset that tokenizes the same text again whenever a sample is taken."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.demonstrations import is_main_guard, is_test
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.reaching import reaching
from perfaudit.static.understanding.values import assigned_value

_TOKENIZER = regex(r"(^|_)tokeni[sz]er$", re.IGNORECASE)
_METHODS = {"encode", "encode_plus", "tokenize", "batch_encode_plus", "__call__"}
# A text that is drawn, cut or changed by chance is another one in each epoch.
_CHANCE = regex(
    r"rand|choice|shuffle|sample\(|permut|augment|dropout|drop_|noise|mixup|corrupt|bernoulli|prob|mask_tokens|span",
    re.IGNORECASE,
)
_KEEPS = regex(r"cache|memo", re.IGNORECASE)
# Beside an image or a recording that is read and decoded, the text costs little.
_READS_MORE = regex(
    r"Image\.open|imread|read_image|librosa|torchaudio|soundfile|decord|VideoReader|\bopen\(|np\.load|torch\.load"
)
_PLAIN = {"str", "strip", "join", "split", "lower", "replace", "rstrip", "lstrip", "iloc", "loc", "get"}
_MAX_FOLLOWED = 6  # names, from what is tokenized to where it comes from


@check("PA112", ast.ClassDef)
def text_tokenized_every_epoch(source: Source, definition: ast.ClassDef) -> Iterator[Seen]:
    taken = next((f for f in definition.body if isinstance(f, FUNCTIONS) and f.name == "__getitem__"), None)
    if taken is None or not _is_dataset(source, definition) or not source.mentions("okeni"):
        return
    if is_test(source, definition) or _makes_one_pass(source) or _KEEPS.search(source.text_of(definition)):
        return
    text = _all_text(source, definition, taken)
    if _CHANCE.search(text) or _READS_MORE.search(text):
        return
    calls = [n for part in taken.body for n in ast.walk(part) if isinstance(n, ast.Call)]
    places = [call for call in calls if _tokenizes(call) and _runs_in_any_case(source, call, taken)]
    fixed = [call for call in places if call.args and _is_by_index(source, call.args[0], taken)]
    if fixed:
        yield Seen(
            fixed[0],
            f"`{source.brief(fixed[0])}` in `__getitem__` tokenizes the same text again in every epoch, one text a call",
            Proposal(
                "tokenize all texts once, in one call (`tokenizer(texts)`, which a fast tokenizer does in parallel) or by "
                "`datasets.map(..., batched=True)`, and take the ids by index; pad in `collate_fn`"
            ),
            tuple(fixed[1:]),
        )


def _is_dataset(source: Source, definition: ast.ClassDef) -> bool:
    """Whether a class is a dataset that is indexed, by its base, or by its name where it has none."""
    names = [source.qualified_name(base) or dotted_name(base) for base in definition.bases]
    has_length = any(isinstance(f, FUNCTIONS) and f.name == "__len__" for f in definition.body)
    if not names and has_length:
        names = [definition.name]
    return any(name.endswith("Dataset") and "Iterable" not in name for name in names)


def _makes_one_pass(source: Source) -> bool:
    """Whether the file is a script that trains nothing: it goes through its texts once."""
    if not any(is_main_guard(statement) for statement in source.tree.body):
        return False
    if source.neighbours is not None and source.neighbours.is_imported():
        return False
    return not backward_calls(source) and not source.calls(".fit") and not source.calls(".train")


def _all_text(source: Source, definition: ast.ClassDef, taken: Function) -> str:
    """The text of `__getitem__` and of the methods of the class that it may call."""
    names = {n.attr for n in ast.walk(taken) if isinstance(n, ast.Attribute) and dotted_name(n.value) == "self"}
    methods = [f for f in definition.body if isinstance(f, FUNCTIONS) and f.name in names]
    return "\n".join(source.text_of(function) for function in (taken, *methods))


def _tokenizes(call: ast.Call) -> bool:
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr in _METHODS:
        func = func.value
    return bool(_TOKENIZER.search(last_name(func)))


def _runs_in_any_case(source: Source, call: ast.Call, taken: Function) -> bool:
    conditional = (ast.If, ast.IfExp, ast.Try, ast.For, ast.While, ast.Lambda, ast.ListComp)
    return source.enclosing(call, *conditional, within=taken) is None


def _is_by_index(source: Source, node: ast.expr, taken: Function, depth: int = _MAX_FOLLOWED) -> bool:
    """Whether a text is an element of what the dataset holds: `self.texts[index]`, by nothing but names and plain methods."""
    index = taken.args.args[1].arg if len(taken.args.args) > 1 else ""
    if not depth or not index:
        return False
    match node:
        case ast.Subscript(value=held, slice=place):
            if _is_own(held) and any(isinstance(n, ast.Name) and n.id == index for n in ast.walk(place)):
                return True
            return _is_by_index(source, held, taken, depth - 1)
        case ast.Call(func=ast.Name(id="str"), args=[text]):
            return _is_by_index(source, text, taken, depth)
        case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join"), args=[text]):
            return _is_by_index(source, text, taken, depth)
        case ast.Call(func=ast.Attribute(value=text, attr=name)) if name in _PLAIN:
            return _is_by_index(source, text, taken, depth)
        case ast.Attribute(value=text) if not _is_own(node):
            return _is_by_index(source, text, taken, depth)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return any(_is_by_index(source, side, taken, depth - 1) for side in (left, right))
        case ast.Name():
            values = [assigned_value(source, binding) for binding in reaching(source, node)]
            return bool(values) and all(v is not None and _is_by_index(source, v, taken, depth - 1) for v in values)
    return False


def _is_own(node: ast.expr) -> bool:
    """Whether an expression is `self.texts`, or a view of it: `self.frame.iloc`, `self.frame["text"]`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)) and dotted_name(node).count(".") != 1:
        node = node.value
    return isinstance(node, ast.Attribute) and dotted_name(node.value) == "self"
