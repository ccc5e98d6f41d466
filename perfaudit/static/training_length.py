"""What says how long a script trains: a file of settings, an option of its command line, or a number in its text.

It is found by its name and only told to people, so that a wrong guess changes nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from perfaudit.static.settings_files import ALWAYS, PYTHON, has_settings_of_files, numbers_said

_BEFORE = r"(?:(?:num|n|nb|max|total|train|training)_)*"
# In the order in which they are told; `num_steps` comes last, as in reinforcement learning it may be the length of a rollout.
_NAMES = [
    re.compile(name)
    for name in (
        rf"{_BEFORE}epochs?",
        # Those of a diffusion model are `timesteps` and `num_train_timesteps`.
        rf"{_BEFORE}(?:(?:total|max)_(?:train_|training_)?timesteps|iterations?|iters?|niters?|updates)",
        rf"(?!num_|n_){_BEFORE}steps",
        rf"{_BEFORE}steps",
    )
]
MOST = 2  # that are told
_DECLARE = ("add_argument", "option")  # an option, with argparse and with click

Found = tuple[str, str]  # a name, and words that say where it is set
Declared = tuple[list[str], str]  # all names of an option, and its default; "" where it has none that is written out


def words_of_length(
    text: str, file: str, arguments: Sequence[str] = (), settings: Sequence[tuple[str, str]] = ()
) -> str:
    """What sets the length of a training: "`--epochs` (1 now)", or "`EPOCHS = 1` in train.py:4"; "" where nothing is seen.

    arguments: that the script is given. settings: names and texts of files from which it takes settings. What they may say
    otherwise is told without a value.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    given = [*_overrides_given(arguments)]
    said = _said_in(settings, {_plain(name) for name, _ in given})
    files = [name for name, _ in settings if name.endswith(ALWAYS)]
    reads_some = bool(said or files) or has_settings_of_files(tree)
    declared = _options_in(tree)
    if reads_some or _has_other_defaults(tree):
        declared = [(names, "") for names, _ in declared]
    options = _options(declared, arguments) | dict(given)
    in_files = {_plain(name) for name, _ in said}
    by_option = [
        (name, f"`{name}`" + (f" ({value} now)" if value and _plain(name) not in in_files else ""))
        for name, value in options.items()
    ]
    places = (
        _in_order([*said, *by_option]) or _in_order(_numbers_in(tree, file, reads_some)) or [*_ranges_in(tree, file)]
    )
    asked = [name for name in files if any(word.endswith(name) for word in arguments)]
    others = [f"what {name} says" for name in asked[:1] if not said]
    return " or ".join([*places[:MOST], *others])


def _said_in(settings: Sequence[tuple[str, str]], overridden: set[str]) -> list[Found]:
    """What the first of these files that says something of the length says, but for what the command line says in its place."""
    for name, text in settings:
        if name.endswith(PYTHON):
            try:
                found = [*_numbers_in(ast.parse(text), name)]
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
        else:
            found = [(key, f"`{words}` in {name}:{line}") for key, words, line in numbers_said(text)]
        if told := [each for each in found if _rank(each[0]) is not None and _plain(each[0]) not in overridden]:
            return told
    return []


def _overrides_given(arguments: Sequence[str]) -> Iterator[Found]:
    """What a command line gives settings as hydra and OmegaConf take it: `trainer.max_epochs=3`."""
    for argument in arguments:
        name, equals, value = argument.lstrip("+").partition("=")
        if equals and not name.startswith("-") and _rank(name) is not None:
            yield name, value


def _in_order(found: Sequence[Found] | Iterator[Found]) -> list[str]:
    """The words of those that are named so, in the order of the names, each once."""
    ranked = [(rank, words) for name, words in found if (rank := _rank(name)) is not None]
    return list(dict.fromkeys(words for _, words in sorted(ranked, key=lambda each: each[0])))


def _rank(name: str) -> int | None:
    plain = _plain(name)
    return next((rank for rank, pattern in enumerate(_NAMES) if pattern.fullmatch(plain)), None)


def _plain(name: str) -> str:
    """A name in one spelling, without what it is a part of: "max_epochs" for `--maxEpochs` and `trainer.max-epochs`."""
    last = name.rpartition(".")[2]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", last).strip("-").replace("-", "_").lower()


def _options(declared: Sequence[Declared], arguments: Sequence[str]) -> dict[str, str]:
    """Options that are named so, those that are declared first, with their values; "" for one that is not sure."""
    given = [*_options_given(arguments)]
    known = {name for names, _ in declared for name in names}
    unknown = [name for name, _ in given if name not in known]
    is_sure = not any(each.startswith("@") for each in arguments)  # a file of arguments, with argparse
    found: dict[str, str] = {}
    for names, default in declared:
        told = next((each for each in names if _rank(each) is not None), None)
        if told is None:
            continue
        said = [value for name, value in given if name in names]
        may_be_given = any(_may_stand_for(each, name) for each in unknown for name in names)
        value = said[-1] if said else default if is_sure and not may_be_given else ""
        found[told] = value if found.get(told, value) == value else ""  # of another subcommand
    others = [(name, value) for name, value in given if name in unknown and _rank(name) is not None]
    return found | {name: value for name, value in others if not any(_may_stand_for(name, each) for each in known)}


def _may_stand_for(given: str, name: str) -> bool:
    """Whether an argument may give an option without its full name: `--ep 1` for `--epochs`, `-e1` or `-ve 1` for `-e`."""
    is_among_letters = len(name) == 2 and not given.startswith("--") and name[1] in given
    return name.startswith(given) or is_among_letters


def _options_given(arguments: Sequence[str]) -> Iterator[Found]:
    """Options that the script is given, with their values."""
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.startswith("-"):
            yield name, value if equals else next(iter(arguments[at + 1 : at + 2]), "")


def _options_in(tree: ast.Module) -> list[Declared]:
    """Options that are declared."""
    found = []
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in _DECLARE:
            continue
        names = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        default = next((each.value for each in call.keywords if each.arg == "default"), None)
        value = str(default.value) if isinstance(default, ast.Constant) and default.value is not None else ""
        found.append(([each for each in names if each.startswith("-")], value))
    return found


def _has_other_defaults(tree: ast.Module) -> bool:
    """Whether options have values that neither their declarations nor the arguments say: `parser.set_defaults(epochs=1)`."""
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and (call.func.attr == "set_defaults" or (call.func.attr == "parse_args" and _is_written_out(call.args[:1])))
        for call in ast.walk(tree)
    )


def _is_written_out(arguments: Sequence[ast.expr]) -> bool:
    return any(isinstance(each, (ast.List, ast.Tuple)) for each in arguments)


def _numbers_in(tree: ast.Module, file: str, reads_some: bool = False) -> Iterator[Found]:
    """Whole numbers that a name, a field or an argument of a call is given.

    reads_some: a field is told without its number, as a file may give it another one.
    """
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
                said = name if reads_some and isinstance(node, ast.AnnAssign) else said
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
