"""PA303: a training script with large float32 matmuls that never chose their precision."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.entry import (
    imported_files_say,
    imported_packages,
    place_of_setting,
    script_loops,
    setting,
)
from perfaudit.static.understanding.model_parts import has_large_matmuls

NAME = "torch.set_float32_matmul_precision"
_DECIDED = regex(
    r"matmul_precision|tf32|fp32_precision|autocast|GradScaler|[^a-z]amp[^a-z]|fp16|bf16|float16|\.half\(|mixed.?precision"
    r"|float64|\.double\(",
    re.IGNORECASE,
)
_SETS_UP = regex(r"seed|init|setup|set_up|configure|environ|backend|precision")
_KNOWN = {"torch", "torchvision", "numpy", "random", "os", "logging", "wandb", "warnings", "math"}


@check("PA303", ast.Module)
def tf32_not_enabled(source: Source, module: ast.Module) -> Iterator[Seen]:
    loops = script_loops(source)
    if not loops or not has_large_matmuls(source):
        return
    if imported_files_say(source, "precision") or imported_files_say(source, "tf32"):
        return
    if source.says(_DECIDED) or _set_up_elsewhere(source):
        return
    place = place_of_setting(source, loops[0])
    yield Seen(
        place,
        f"without `{NAME}` matmuls run in full float32, off the tensor cores",
        Proposal(
            "let matmuls round their inputs to TF32 (GPUs from Ampere on)", setting(source, place, NAME, '("high")')
        ),
    )


def _set_up_elsewhere(source: Source) -> bool:
    """Whether the script calls something of another file that, by its name, sets the program up."""
    packages = imported_packages(source)
    for alias, target in source.aliases.items():
        if target.partition(".")[0] in _KNOWN or not packages:
            continue
        name = target.rpartition(".")[2].lower()
        used = any(isinstance(n.ctx, ast.Load) for n in source.nodes(ast.Name) if n.id == alias)
        if used and _SETS_UP.search(name):
            return True
    return False
