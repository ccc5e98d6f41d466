"""What a file is there for, as its text says: whether it is run, trains, or evaluates."""

from __future__ import annotations

import re

from perfaudit.expressions import regex
from perfaudit.records import record
from perfaudit.static.name_index import code_of

_TRAINS = regex(
    rb"backward\(|\.fit\(|[Tt]rainer\b|\btrain\w*\(|training_step|torch\.optim|\boptim\.\w|Optimizer\(|\.step\(|deepspeed|"
    rb"TrainingArguments|zero_grad|Lightning(?:Data)?Module|learner\b"
)
_EVALUATES = regex(rb"\.eval\(\)|\bno_grad\b|inference_mode|set_grad_enabled|\.train\(False\)")
_NAMED_EVALUATION = regex(
    r"(?:^|_)(?:test|eval|evaluat\w*|valid\w*|infer\w*|demo|predict\w*|sampl\w*|generat\w*|synthesi\w*|export\w*|convert\w*|"
    r"benchmark\w*|flops|fid|visuali\w*|extract\w*)(?:_|$)"
)
_IS_RUN = regex(rb"__main__|\.parse_args\(|^(?:for|while)\b", re.MULTILINE)


@record(frozen=True, slots=True)
class Purpose:
    """Whether a file is run by itself, says anything of training, and evaluates by its text or by its name."""

    is_run: bool = False
    trains: bool = False
    evaluates: bool = False


def purpose_of(data: bytes, stem: str, is_notebook: bool = False) -> Purpose:
    """What the text of a file of this name is there for."""
    code = code_of(data, is_notebook)
    evaluates = _EVALUATES.search(code) is not None or _NAMED_EVALUATION.search(stem.lower()) is not None
    is_run = is_notebook or _IS_RUN.search(code) is not None or b"__main__" in data
    return Purpose(is_run, _TRAINS.search(code) is not None, evaluates)
