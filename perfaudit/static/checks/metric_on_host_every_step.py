"""PA606: metrics that scikit-learn computes from the outputs of the model in every training step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import LOOPS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.devices import uses_accelerator
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.epochs import takes_few_long_steps
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.step_code import evaluates, step_code
from perfaudit.static.understanding.step_loops import step_loops

_LIBRARIES = {"sklearn", "scipy", "skimage", "seqeval", "nltk"}
_METRICS = regex(
    r"^(sklearn\.metrics|scipy\.stats|skimage\.metrics|seqeval\.metrics|nltk\.translate)\.\w+(\.\w+)?$",
    words=".metrics.|scipy.stats|nltk.translate",
)


@check("PA606", ast.Module)
def metric_on_host_every_step(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not any(name.partition(".")[0] in _LIBRARIES for name in source.aliases.values()) or not step_loops(source):
        return
    if not source.imports_torch or not uses_accelerator(source):
        return
    for step in step_loops(source):
        if takes_few_long_steps(source, step):
            continue
        for part in step_code(source, step):
            if evaluates(step, part.root):
                continue
            for call in (node for node in walk(part.root) if isinstance(node, ast.Call)):
                if not _METRICS.match(source.qualified_name(call.func) or "") or is_test(source, call):
                    continue
                inner = source.enclosing(call, *LOOPS, within=part.root)
                if in_no_grad(source, call) and inner is not None:
                    continue  # an evaluation of its own
                if runs_each_time(source, call, part.root):
                    yield Seen(
                        call,
                        f"`{source.brief(call)}` computes a metric on the host on every step{part.way}: the device is "
                        "waited for, and has nothing to do meanwhile",
                        Proposal(
                            "keep predictions and targets (`.detach()`), and compute it once an epoch or every so many "
                            "steps; or count on the device, with torch or torchmetrics"
                        ),
                        hot=True,
                    )
