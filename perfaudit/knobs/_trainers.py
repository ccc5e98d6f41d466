"""Settings that are arguments of a library's trainer, and the user's call that is edited then.

Names and values are those of the libraries' own documentation (docs/trainers.md has the links).
"""

from __future__ import annotations

from collections.abc import Sequence

from perfaudit.knobs._code import Code, Patch, built_at
from perfaudit.knobs._survey import Survey
from perfaudit.static import edit

Argument = tuple[str, str]  # its name, and the text of its value
DEFAULT = "default"  # an update of the optimizer for which torch is given neither foreach nor fused

ALONE = "alone"  # behind the mode of a compiler that would switch TF32 on besides
_FUSED, _TORCHS = ("optim", '"adamw_torch_fused"'), ("optim", '"adamw_torch"')
_COMPILE, _GRAPHS = ("torch_compile", "True"), ("torch_compile_mode", '"reduce-overhead"')

# By library and knob: what is written for a setting, as names and the texts of their values.
_ARGUMENTS: dict[tuple[str, str], dict[str, tuple[Argument, ...]]] = {
    ("transformers", "optimizer"): {"fused": (_FUSED,), DEFAULT: (_TORCHS,)},
    ("transformers", "precision"): {"tf32": (("tf32", "True"),), "bf16": (("bf16", "True"),)},
    ("transformers", "compile"): {
        "default": (_COMPILE,),
        f"default {ALONE}": (_COMPILE, ("tf32", "False")),
        "reduce-overhead": (_GRAPHS,),
        f"reduce-overhead {ALONE}": (_GRAPHS, ("tf32", "False")),
    },
    ("lightning", "precision"): {"bf16": (("precision", '"bf16-mixed"'),)},
    ("lightning", "cudnn"): {"True": (("benchmark", "True"),), "False": (("benchmark", "False"),)},
    ("accelerate", "precision"): {"bf16": (("mixed_precision", '"bf16"'),)},
}
_CALLS = {"transformers": "TrainingArguments", "lightning": "the Trainer", "accelerate": "the Accelerator"}
QUOTE = '"'  # around the text of a value that is a string
_BY_POSITION = 1  # arguments that may stand without a name; behind them comes what is set here


def arguments_of_trainer(survey: Survey, knob: str, setting: str) -> tuple[Argument, ...]:
    """The arguments by which the script's trainer takes a setting; () where it takes none."""
    trainer = survey.facts.trainer
    return _ARGUMENTS.get((trainer.library, knob), {}).get(setting, ()) if trainer is not None else ()


def patch_trainer(code: Code, knob: str, setting: str) -> Patch | None:
    """The call that gives the trainer its arguments, with this setting; None where it cannot be edited without a doubt."""
    given, trainer = arguments_of_trainer(code.survey, knob, setting), code.survey.facts.trainer
    found = code.call(trainer.site) if given and trainer is not None else None
    if found is None:
        return None
    source, call = found
    if len(call.args) > _BY_POSITION or any(keyword.arg is None for keyword in call.keywords):
        return None
    return code.patch(source, call, edit.together(*(edit.set_keyword(source, call, *each) for each in given)))


def words_of_options(survey: Survey, given: Sequence[Argument]) -> str:
    """The options of the command line that set these arguments of the trainer, in words; "" where that sets not all of them."""
    trainer = survey.facts.trainer
    if trainer is None or not given or not {name for name, _ in given} <= set(trainer.options):
        return ""
    options = (f"--{trainer.option_prefix}{name} {value.strip(QUOTE)}" for name, value in given)
    return f"give the script {' '.join(options)}"


def by_options(survey: Survey, *given: Argument) -> str:
    """Why arguments of the trainer are no patch, and what to give the script instead; "" where the command line sets none."""
    words = words_of_options(survey, given)
    return f"the command line sets it, which is no line to patch: {words}" if words else ""


def added_by_hand(survey: Survey, *given: Argument) -> str:
    """How the advice of `words_of_options` is followed; "" where it is none."""
    return (
        "add it to the command that starts the training, whose arguments are no line to patch"
        if words_of_options(survey, given)
        else ""
    )


def no_call_of_trainer(survey: Survey, knob: str, setting: str) -> str:
    """Why no call is edited that gives the trainer its arguments, and what to set; "" where it takes no such argument."""
    given, trainer = arguments_of_trainer(survey, knob, setting), survey.facts.trainer
    if trainer is None or not given:
        return ""
    whose, written = _CALLS[trainer.library], ", ".join(f"{name}={value}" for name, value in given)
    if trainer.site is None:
        return f"no call of yours gives {whose} its arguments: set {written} where they come from, as a configuration"
    return (
        f"the call that gives {whose} its arguments{built_at(trainer.site)} does not name them: add {written} by hand"
    )


def words_of_trainer(survey: Survey, knob: str, setting: str) -> str:
    """What to give the trainer, in words; "" where it takes no such argument."""
    given, trainer = arguments_of_trainer(survey, knob, setting), survey.facts.trainer
    if by_command_line := words_of_options(survey, given):
        return by_command_line
    written = ", ".join(f"{name}={value}" for name, value in given)
    return f"give {_CALLS[trainer.library]} {written}" if given and trainer is not None else ""
