"""PA501: autograd's anomaly detection left on outside tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.checks.anomaly_detection_enabled.survival import catches_calls, catches_step, may_survive_error
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.demonstrations import is_main_guard
from perfaudit.static.understanding.values import argument

SET, CONTEXT = "torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly"
TRAINERS = (
    "lightning.Trainer",
    "lightning.pytorch.Trainer",
    "pytorch_lightning.Trainer",
    "lightning.pytorch.trainer.Trainer",
    "pytorch_lightning.trainer.Trainer",
)
_LOOKS_FOR_NAN = regex(r"^test|debug|anomal|(^|_)nans?(_|$)")


@check("PA501", call=(SET, CONTEXT, *TRAINERS))
def anomaly_detection_enabled(source: Source, call: ast.Call) -> Iterator[Seen]:
    edits = _edits(source, call)
    if edits is None:
        return
    if _is_chosen(source, call) or _switches_off(source) or catches_step(source):
        return
    is_trainer = source.qualified_name(call.func) in TRAINERS
    what = "detect_anomaly=True" if is_trainer else source.brief(call)
    survives = catches_calls(source) if is_trainer else may_survive_error(source)
    advice = "switch anomaly detection off, unless something waits for the error that it raises"
    yield Seen(
        call,
        f"`{what}` keeps a stack trace of every forward operation and searches every gradient for NaN",
        Proposal(advice) if survives else Proposal("switch anomaly detection off", edits),
    )


def _edits(source: Source, call: ast.Call) -> edit.Edits | None:
    """What switches it off; None if it is not on, or not as a statement or context of its own."""
    name = source.qualified_name(call.func)
    if name in TRAINERS:
        mode = next((k.value for k in call.keywords if k.arg == "detect_anomaly"), None)
        return edit.replace(source, mode, "False") if _is_literal_true(mode) and mode else None
    if not isinstance(source.parent(call), (ast.Expr, ast.withitem)):
        return None
    if name == SET:
        mode_ = argument(source, call, "mode", 0)
        return edit.replace(source, mode_, "False") if isinstance(mode_, ast.expr) and _is_literal_true(mode_) else None
    if not isinstance(source.parent(call), ast.withitem) or "#" in source.text_of(call):
        return None
    off, imported = edit.name_for(source, SET)
    return edit.together(edit.replace(source, call, f"{off}(False)"), imported)


def _is_literal_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_chosen(source: Source, call: ast.Call) -> bool:
    """Whether a condition decides about it, or the function around it is a test or exists to find the NaN."""
    for ancestor in source.ancestors(call):
        if isinstance(ancestor, (ast.If, ast.IfExp)) and not is_main_guard(ancestor):
            return True
        if isinstance(ancestor, (*FUNCTIONS, ast.ClassDef)) and _LOOKS_FOR_NAN.search(ancestor.name.lower()):
            return True
    return False


def _switches_off(source: Source) -> bool:
    """Whether the file sets the mode elsewhere to something else than True: somebody decides where it is on."""
    return any(
        not _is_literal_true(m) for c in source.calls(SET) if isinstance(m := argument(source, c, "mode", 0), ast.expr)
    )
