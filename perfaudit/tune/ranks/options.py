"""What is an option of a program, by its name: what is read when it starts, and stays."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.names import last_name

OPTIONS = regex(
    r"^(args?|arguments|opts|options|params|cfg|conf|config|configuration|hparams|hyper_?parameters|settings|flags)$"
)
_OPTIMIZER_TOO = "opt"  # what a name stands for that optimizers have as often as options
_PARSERS = regex(r"^(parse_args|parse_known_args|parse_opts?|get_opts?|Namespace)$")


def is_of_options(sources: Sequence[Source], node: ast.expr) -> bool:
    """Whether this is options, or a part of them: `args`, `cfg.train`, `self.config["train"]`."""
    while not _is_named_as_options(sources, last_name(node).lower().lstrip("_")):
        if not isinstance(node, (ast.Attribute, ast.Subscript)):
            return False
        node = node.value
    return True


def _is_named_as_options(sources: Sequence[Source], name: str) -> bool:
    """Whether options have this name; `opt` only where nothing but a parser of arguments, or other options, gives it."""
    if name != _OPTIMIZER_TOO:
        return bool(OPTIONS.search(name))
    values = [
        node.value
        for source in sources
        for node in source.nodes(ast.Assign)
        for target in node.targets
        for name_set in (target.elts if isinstance(target, ast.Tuple) else [target])
        if last_name(name_set).lstrip("_") == _OPTIMIZER_TOO
    ]
    parsed = [value for value in values if isinstance(value, ast.Call) and _PARSERS.search(last_name(value.func))]
    others = (last_name(value).lstrip("_") for value in values if value not in parsed)
    return bool(parsed) and all(other == _OPTIMIZER_TOO or OPTIONS.search(other) for other in others)
