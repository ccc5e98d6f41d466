"""What a file is there for, as its text says: whether it is run, trains, or evaluates."""

from __future__ import annotations

from perfaudit.expressions import regex
from perfaudit.records import record
from perfaudit.static.name_index import code_of, finds, is_script

_TRAINING_WORDS = (
    *(b"backward(", b".fit(", b"training_step", b"torch.optim", b"Optimizer(", b".step(", b"deepspeed"),
    *(b"TrainingArguments", b"zero_grad", b"LightningModule", b"LightningDataModule"),
)
# Each begins with letters that stand for themselves, as in `name_index`.
_TRAINS = tuple(
    map(
        regex,
        (rb"rainer\b(?<=[Tt]rainer)", rb"train(?<=\btrain)\w*\(", rb"optim\.(?<=\boptim\.)\w", rb"learner\b"),
    )
)
_EVALUATING_WORDS = (b".eval()", b"inference_mode", b"set_grad_enabled", b".train(False)")
_EVALUATES = regex(rb"no_grad\b(?<=\bno_grad)")
_NAMED_EVALUATION = regex(
    r"(?:^|_)(?:test|eval|evaluat\w*|valid\w*|infer\w*|demo|predict\w*|sampl\w*|generat\w*|synthesi\w*|export\w*|convert\w*|"
    r"benchmark\w*|flops|fid|visuali\w*|extract\w*)(?:_|$)"
)


@record(frozen=True, slots=True)
class Purpose:
    """Whether a file is run by itself, says anything of training, and evaluates by its text or by its name."""

    is_run: bool = False
    trains: bool = False
    evaluates: bool = False


def purpose_of(data: bytes, stem: str, is_notebook: bool = False) -> Purpose:
    """What the text of a file of this name is there for."""
    code = code_of(data, is_notebook)
    evaluates = any(word in code for word in _EVALUATING_WORDS) or _EVALUATES.search(code) is not None
    evaluates = evaluates or _NAMED_EVALUATION.search(stem.lower()) is not None
    trains = any(word in code for word in _TRAINING_WORDS) or finds(_TRAINS, code)
    return Purpose(is_notebook or is_script(data, code), trains, evaluates)
