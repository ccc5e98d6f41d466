"""PA201: a convolution with a bias that the norm behind it subtracts again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.checks.conv_bias_before_norm.redundant_bias import biases_before_norm
from perfaudit.static.registry import Seen, check
from perfaudit.static.source import Source

BIAS = 7  # position of the parameter in every convolution, plain or transposed, of every torch since 1.0

CONVOLUTIONS = {f"torch.nn.Conv{t}{n}d": n for t in ("", "Transpose") for n in (1, 2, 3)}
NORMS: dict[str, int | None] = {f"torch.nn.{kind}Norm{n}d": n for kind in ("Batch", "Instance") for n in (1, 2, 3)}
NORMS["torch.nn.SyncBatchNorm"] = None  # takes any number of dimensions


@check("PA201", ast.Module)
def conv_bias_before_norm(source: Source, module: ast.Module) -> Iterator[Seen]:
    if source.mentions("Conv") and source.mentions("Norm") and source.imports_torch:  # most files are passed by
        yield from biases_before_norm(source, dict.fromkeys(CONVOLUTIONS, BIAS), _fits)


def _fits(kind: str, convolution: ast.Call, norm_kind: str, norm: ast.Call) -> bool:
    return NORMS.get(norm_kind, 0) in (CONVOLUTIONS[kind], None)
