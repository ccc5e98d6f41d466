"""Settings that are arguments of a library's trainer, and the user's call that is edited then.

Names and values are those of the libraries' own documentation (docs/trainers.md has the links).
"""

from __future__ import annotations

from perfaudit.knobs._code import Code, Patch
from perfaudit.knobs._survey import Survey
from perfaudit.static import edit

DEFAULT = "default"  # an update of the optimizer for which torch is given neither foreach nor fused

# By library and knob: what is written for a setting, as a name and the text of its value.
_ARGUMENTS = {
    ("transformers", "optimizer"): {
        "fused": ("optim", '"adamw_torch_fused"'),
        DEFAULT: ("optim", '"adamw_torch"'),
    },
    ("transformers", "precision"): {"tf32": ("tf32", "True"), "bf16": ("bf16", "True")},
    ("lightning", "precision"): {"bf16": ("precision", '"bf16-mixed"')},
    ("lightning", "cudnn"): {"True": ("benchmark", "True"), "False": ("benchmark", "False")},
    ("accelerate", "precision"): {"bf16": ("mixed_precision", '"bf16"')},
}
_CALLS = {"transformers": "TrainingArguments", "lightning": "the Trainer", "accelerate": "the Accelerator"}
_BY_POSITION = 1  # arguments that may stand without a name; behind them comes what is set here


def argument_of_trainer(survey: Survey, knob: str, setting: str) -> tuple[str, str] | None:
    """The name and the text of the argument by which the script's trainer takes a setting; None where it takes none."""
    trainer = survey.facts.trainer
    return _ARGUMENTS.get((trainer.library, knob), {}).get(setting) if trainer is not None else None


def patch_trainer(code: Code, knob: str, setting: str) -> Patch | None:
    """The call that gives the trainer its arguments, with this setting; None where it cannot be edited without a doubt."""
    given, trainer = argument_of_trainer(code.survey, knob, setting), code.survey.facts.trainer
    found = code.call(trainer.site) if given is not None and trainer is not None else None
    if given is None or found is None:
        return None
    source, call = found
    if len(call.args) > _BY_POSITION or any(keyword.arg is None for keyword in call.keywords):
        return None
    return code.patch(source, call, edit.set_keyword(source, call, *given))


def words_of_trainer(survey: Survey, knob: str, setting: str) -> str:
    """What to give the trainer, in words; "" where it takes no such argument."""
    given, trainer = argument_of_trainer(survey, knob, setting), survey.facts.trainer
    return f"give {_CALLS[trainer.library]} {given[0]}={given[1]}" if given is not None and trainer is not None else ""
