"""What says how long a script trains: an option of its command line, or a number in its text.

It is found by its name and only told to people, so that a wrong guess changes nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

_BEFORE = r"(?:(?:num|n|nb|max|total|train|training)_)*"
# In the order in which they are told; `num_steps` comes last, as in reinforcement learning it may be the length of a rollout.
_NAMES = [
    re.compile(name)
    for name in (
        rf"{_BEFORE}epochs?",
        rf"{_BEFORE}(?:timesteps|iterations?|iters?|niters?|updates)",
        rf"(?!num_|n_){_BEFORE}steps",
        rf"{_BEFORE}steps",
    )
]
MOST = 2  # that are told
_DECLARE = ("add_argument", "option")  # an option, with argparse and with click

Found = tuple[str, str]  # a name, and words that say where it is set


def words_of_length(text: str, file: str, arguments: Sequence[str] = ()) -> str:
    """What sets the length of a training: "`--epochs` (1 now)", or "`EPOCHS = 1` in train.py:4"; "" where nothing is seen.

    arguments: that the script is given.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    options = {**dict(_options_in(tree)), **dict(_options_given(arguments))}
    by_option = [(name, f"`{name}`" + (f" ({value} now)" if value else "")) for name, value in options.items()]
    places = _in_order(by_option) or _in_order(_numbers_in(tree, file)) or [*_ranges_in(tree, file)]
    return " or ".join(places[:MOST])


def _in_order(found: Sequence[Found] | Iterator[Found]) -> list[str]:
    """The words of those that are named so, in the order of the names, each once."""
    ranked = [(rank, words) for name, words in found if (rank := _rank(name)) is not None]
    return list(dict.fromkeys(words for _, words in sorted(ranked, key=lambda each: each[0])))


def _rank(name: str) -> int | None:
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).strip("-").replace("-", "_").lower()
    return next((rank for rank, pattern in enumerate(_NAMES) if pattern.fullmatch(plain)), None)


def _options_given(arguments: Sequence[str]) -> Iterator[Found]:
    """Options that the script is given, with their values."""
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.startswith("-") and _rank(name) is not None:
            yield name, value if equals else next(iter(arguments[at + 1 : at + 2]), "")


def _options_in(tree: ast.Module) -> Iterator[Found]:
    """Options that are declared, with their defaults."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in _DECLARE:
            continue
        names = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        for name in [each for each in names if each.startswith("-") and _rank(each) is not None][:1]:
            default = next((each.value for each in call.keywords if each.arg == "default"), None)
            yield name, str(default.value) if isinstance(default, ast.Constant) else ""


def _numbers_in(tree: ast.Module, file: str) -> Iterator[Found]:
    """Whole numbers that a name, a field or an argument of a call is given."""
    for node in ast.walk(tree):
        pairs: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.Assign):
            pairs = [(each.id, node.value) for each in node.targets if isinstance(each, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            pairs = [(node.target.id, node.value)]
        elif isinstance(node, ast.Call):
            pairs = [(each.arg, each.value) for each in node.keywords if each.arg is not None]
        for name, value in pairs:
            if isinstance(value, ast.Constant) and type(value.value) is int:
                is_argument = isinstance(node, ast.Call)
                said = f"{name}={value.value}" if is_argument else f"{name} = {value.value}"
                yield name, f"`{said}` in {file}:{value.lineno}"


def _ranges_in(tree: ast.Module, file: str) -> Iterator[str]:
    """The outermost loops over so many numbers in which a backward pass stands."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.For) and _is_range(node.iter) and "backward" in ast.dump(node):
            yield f"`{ast.unparse(node.iter)}` in {file}:{node.lineno}"
        else:
            waiting += ast.iter_child_nodes(node)


def _is_range(loop: ast.expr) -> bool:
    """Whether it is `range(20)` or the like."""
    return (
        isinstance(loop, ast.Call)
        and isinstance(loop.func, ast.Name)
        and loop.func.id in ("range", "trange")
        and bool(loop.args)
        and all(isinstance(each, ast.Constant) for each in loop.args)
    )
