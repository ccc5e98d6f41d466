"""How torch's own optimizers run their update: one parameter after the other, over lists (foreach), or fused."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from perfaudit.findings import Edit
from perfaudit.knobs import Bench, Knob, Setup, Survey, Told
from perfaudit.knobs._bound_again import calls_bound_again
from perfaudit.knobs._code import Code, Patch, built_at
from perfaudit.knobs._handed_on import call_of, edits_of, lost_options, text_of, why_not
from perfaudit.knobs._trainers import (
    DEFAULT,
    added_by_hand,
    arguments_of_trainer,
    by_options,
    no_call_of_trainer,
    patch_trainer,
    words_of_trainer,
)
from perfaudit.measure.facts import Optimizer as OptimizerFacts
from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.static.given_arguments import give, give_if, hands_on_options
from perfaudit.static.picked_class import Picked, picked_class
from perfaudit.static.source import Source
from perfaudit.training import updated_by_hand
from perfaudit.training.optimizer_update import update_with

_ARGUMENTS = {"for-loop": ("foreach", False), "foreach": ("foreach", True), "fused": ("fused", True)}
_TORCHS = "torch.optim."
# Classes of torch that take an argument, as of 2.4, the oldest that has fused updates of all of these on a CPU.
_TAKE = {
    "fused": {_TORCHS + name for name in ("Adam", "AdamW", "SGD")},
    "foreach": {
        _TORCHS + name
        for name in (
            "ASGD",
            "Adadelta",
            "Adagrad",
            "Adam",
            "AdamW",
            "Adamax",
            "NAdam",
            "RAdam",
            "RMSprop",
            "Rprop",
            "SGD",
        )
    },
}
_TRAINERS_OWN = ("adamw_torch", "adamw_torch_fused")  # names by which Hugging Face's Trainer is asked for torch's AdamW
_LISTS_BY_DEFAULT = ("cuda", "xpu", "mtia")  # torch/utils/_foreach_utils.py: devices with kernels over lists


class Optimizer(Knob):
    name = "optimizer"
    title = "the for-loop, foreach and fused update of the optimizer"
    tries = "Try the foreach and fused updates of torch's optimizers."
    usual_gain = 0.4
    way = "setting"
    rules = ("PA402", "PA403")
    phases = ("optimizer",)
    changes_always = ("rounding",)

    def not_applicable(self, survey: Survey) -> str:
        optimizers = _of_a_step(survey)
        for optimizer in optimizers:
            if optimizer.module == updated_by_hand.__name__:
                return "the script updates its parameters itself, without an optimizer of torch.optim"
            if not optimizer.module.startswith("torch.optim."):
                return _of_others(optimizer)
            if not optimizer.takes:
                return f"torch.optim.{optimizer.name} takes neither foreach nor fused"
        if len({(optimizer.takes, _update_of(survey, optimizer)) for optimizer in optimizers}) > 1:
            names = ", ".join(optimizer.name for optimizer in optimizers)
            return f"the optimizers of a step ({names}) do not take the same arguments, or update differently already"
        return ""

    def current(self, survey: Survey) -> Settings:
        return {"update": _update_of(survey, survey.facts.optimizer)}

    def holds(self, survey: Survey, settings: Settings) -> bool:
        return all(_update_of(survey, optimizer) == settings["update"] for optimizer in _of_a_step(survey))

    def candidates(self, bench: Bench) -> list[Settings]:
        """Fused ones where torch has them for this device, and for real parameters only."""
        optimizer = bench.survey.facts.optimizer
        names = ["for-loop", "foreach"] if "foreach" in optimizer.takes else []
        names += ["fused"] if _has_fused(bench.survey) else []
        now = self.current(bench.survey)["update"]
        return [{"update": name} for name in names if name != now]

    def size(self, settings: Settings) -> int:
        """Lists take temporary memory of about the size of the parameters."""
        return int(settings["update"] == "foreach")

    def setup(self, settings: Settings) -> Setup:
        name, value = _ARGUMENTS[str(settings["update"])]
        off = {"fused": False} if name == "foreach" else {"foreach": False}
        return Setup(optimizer_overrides={name: value, **off})

    @contextlib.contextmanager
    def in_place(self, training: Any, settings: Settings) -> Iterator[None]:
        update = str(settings["update"])
        others = [each for each, _ in training.other_optimizers] if training.is_script else []
        with contextlib.ExitStack() as all_of_them:

            def put(each: Any) -> None:
                all_of_them.enter_context(update_with(each, foreach=update == "foreach", fused=update == "fused"))

            for each in (training.optimizer, *others):
                put(each)
            if training.is_script:
                all_of_them.enter_context(training.optimizers_anew.each_put(put))
            yield

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        if (of_trainer := _of_trainer(code.survey, settings)) is not None:
            return patch_trainer(code, self.name, of_trainer)
        update = str(settings["update"])
        source, built = None, dict[tuple[int, int], tuple[ast.Call, list[OptimizerFacts]]]()
        for optimizer in _of_a_step(code.survey):
            handed = optimizer.handed_on if optimizer.site is None else None
            found = code.call(optimizer.site) if handed is None else call_of(code, handed)
            if found is None or (source is not None and found[0].path != source.path):
                return None
            source, call = found
            if (
                handed is None
                and not _names(source, call, optimizer)
                and _class_picker(source, call, optimizer) is None
            ):
                return None
            # One call can build several optimizers.
            built.setdefault((call.lineno, call.col_offset), (call, []))[1].append(optimizer)
        if source is None:
            return None
        calls = list(built.values())
        return code.patch(source, calls[0][0], edit.together(*(_edits(source, *each, update) for each in calls)))

    def by_hand(self, survey: Survey) -> str:
        code, trainer = Code("", survey), survey.facts.trainer
        if not survey.facts.is_script or (trainer is not None and trainer.optimizer):
            faster = "fused" if self.current(survey)["update"] != "fused" and _has_fused(survey) else ""
            return by_options(survey, *arguments_of_trainer(survey, self.name, faster))
        places: dict[str, str] = {}
        for optimizer in _of_a_step(survey):
            found = code.call(optimizer.site)
            if found is None and optimizer.site is None:
                if why := why_not(code, optimizer, {"fused": "True"}):
                    return why
                found = call_of(code, optimizer.handed_on) if optimizer.handed_on is not None else None
                assert found is not None  # else `why_not` has said so
                places.setdefault(found[0].path, f"{optimizer.name} ({found[0].path}:{found[1].lineno})")
                continue
            if found is None:
                return f"no line of your files builds the {optimizer.name}{built_at(optimizer.site)}"
            if not _names(*found, optimizer) and _class_picker(*found, optimizer) is None:
                picks = f"`{ast.unparse(found[1].func)}`{built_at(optimizer.site)} picks the optimizer's class"
                return f"{picks}, and another class may not take the argument"
            places.setdefault(found[0].path, f"{optimizer.name}{built_at(optimizer.site)}")
        if len(places) > 1:
            them = " and ".join(places.values())
            return f"the optimizers of a step are built in several files, {them}, and a patch changes one"
        return ""

    def spoils(self, before: Survey, after: Survey) -> str:
        return lost_options(_of_a_step(before), _of_a_step(after))

    def no_line(self, survey: Survey) -> str:
        other = "for-loop" if self.current(survey)["update"] == "fused" else "fused"
        if (of_trainer := _of_trainer(survey, {"update": other})) is None:
            return ""
        why = no_call_of_trainer(survey, self.name, of_trainer)
        return (
            "the update is fused already, and no call of yours could ask for another"
            if why and other != "fused"
            else why
        )

    def handed_over(self, settings: Settings, survey: Survey) -> str:
        of_trainer = _of_trainer(survey, settings)
        return added_by_hand(survey, *arguments_of_trainer(survey, self.name, of_trainer)) if of_trainer else ""

    def words(self, settings: Settings, survey: Survey) -> str:
        if (of_trainer := _of_trainer(survey, settings)) is not None:
            return words_of_trainer(survey, self.name, of_trainer)
        name, value = _ARGUMENTS[str(settings["update"])]
        optimizers = _of_a_step(survey)
        names = " and ".join(dict.fromkeys(optimizer.name for optimizer in optimizers))
        them = f"the {len(optimizers)} optimizers of a step ({names})" if len(optimizers) > 1 else names
        how = f"build {them} with {name}={value}"
        if (through := _through_library(optimizers, name, repr(value))) != "":
            return through
        if survey.facts.is_script:
            return f"{how}{_built_again(survey)}"
        if "optimizer" in survey.facts.factories:
            return how
        return (
            f"{how}, if that is your optimizer: the target has no build_optimizer, so this was measured with "
            f"perfaudit's {survey.facts.optimizer.name}"
        )

    def remarks(self, told: Told) -> list[str]:
        if told.winner is None or told.winner["update"] != "foreach":
            return []
        return ["the lists of foreach take temporary memory of about the size of the parameters"]


def _through_library(optimizers: Sequence[OptimizerFacts], name: str, value: str) -> str:
    """The advice where libraries build the optimizers and hand this argument on to all of them; "" elsewhere."""
    handed = [each.handed_on for each in optimizers if each.site is None and each.handed_on is not None]
    if len(handed) < len(optimizers):
        return ""
    given = dict.fromkeys(f"give {each.owner} {text_of(each, {name: value})}" for each in handed)
    built = " and ".join(dict.fromkeys(each.name for each in optimizers))
    return f"{' and '.join(given)}, which it hands on to the {built} that it builds"


def _built_again(survey: Survey) -> str:
    """Which lines build one of these optimizers anew later. They stay as they are: no measured step had what they build."""
    code, lines = Code("", survey), dict[str, None]()
    of_a_step = {optimizer.site[:2] for optimizer in _of_a_step(survey) if optimizer.site is not None}
    for optimizer in _of_a_step(survey):
        found = code.call(optimizer.site)
        if found is not None and optimizer.site is not None:
            again = [call.lineno for call in calls_bound_again(*found, _TAKE["foreach"])]
            lines |= dict.fromkeys(
                f"{found[0].path}:{line}" for line in again if (optimizer.site.path, line) not in of_a_step
            )
    if not lines:
        return ""
    verb = "builds" if len(lines) == 1 else "build"
    return f"; {' and '.join(lines)} {verb} another one later, which no step had here and which stays as it is"


def _has_fused(survey: Survey) -> bool:
    """Whether torch has a fused update for this optimizer, device and model."""
    optimizer, is_real = survey.facts.optimizer, all("float" in dtype for dtype in survey.facts.model.dtypes)
    return "fused" in optimizer.takes and survey.facts.device.type in optimizer.fused_devices and is_real


def _of_a_step(survey: Survey) -> tuple[OptimizerFacts, ...]:
    """The optimizers that a step updates."""
    return survey.facts.optimizer, *(survey.facts.script.optimizers if survey.facts.script is not None else ())


def _of_others(optimizer: OptimizerFacts) -> str:
    """Why no argument chooses the update of an optimizer that is not torch's, and whether torch has one of its name."""
    said = f"{optimizer.module}.{optimizer.name} is no optimizer of torch.optim, whose updates can be chosen by an argument"
    named = f"{_TORCHS}{optimizer.name}"
    return f"{said}; {named} has a fused update, and defaults of its own" if named in _TAKE["fused"] else said


def _names(source: Source, call: ast.Call, optimizer: OptimizerFacts) -> bool:
    """Whether a call names the optimizer's class."""
    written = source.qualified_name(call.func) or ast.unparse(call.func)
    return written.rpartition(".")[2] == optimizer.name


def _class_picker(source: Source, call: ast.Call, optimizer: OptimizerFacts) -> Picked | None:
    """What picks the class of a call that does not name it; what else builds one may not pass an argument on."""
    return picked_class(source, call, f"{_TORCHS}{optimizer.name}")


def _update_of(survey: Survey, optimizer: OptimizerFacts) -> str:
    """What its arguments say; without any, lists where the device has kernels for them."""
    if optimizer.fused:
        return "fused"
    if optimizer.foreach is None:
        return _by_default(survey)
    return "foreach" if optimizer.foreach else "for-loop"


def _by_default(survey: Survey) -> str:
    """The update that torch picks where it is given neither foreach nor fused."""
    return "foreach" if survey.facts.device.type in _LISTS_BY_DEFAULT else "for-loop"


def _of_trainer(survey: Survey, settings: Settings) -> str | None:
    """The setting as one of the trainer that builds the AdamW itself; None where the script builds it, or where it has none."""
    trainer, optimizer = survey.facts.trainer, survey.facts.optimizer
    if (
        trainer is None
        or trainer.optimizer not in _TRAINERS_OWN
        or optimizer.name != "AdamW"
        or optimizer.site is not None
    ):
        return None
    # Where the two differ, the trainer was handed an optimizer that a library has built.
    if bool(optimizer.fused) != (trainer.optimizer == "adamw_torch_fused"):
        return None
    setting = DEFAULT if settings["update"] == _by_default(survey) else str(settings["update"])
    return setting if arguments_of_trainer(survey, "optimizer", setting) else None


def _edits(source: Source, call: ast.Call, built: Sequence[OptimizerFacts], update: str) -> tuple[Edit, ...] | None:
    """The call with the argument that asks for this update, in the place of the other one where it stands there.

    built: all that the call has built, of which options that it hands on may give the other one to some. Where the call picks a
    class as it runs, and may pick one that does not take the argument, it is given to this class alone.
    """
    name, value = _ARGUMENTS[update]
    other = "fused" if name == "foreach" else "foreach"
    if built[0].site is None and (handed := built[0].handed_on) is not None:
        is_other = any(each.fused if other == "fused" else each.foreach for each in built)
        return edits_of(source, call, handed, {name: repr(value), **({other: "False"} if is_other else {})})
    standing = edit.keyword(call, other)
    picked = None if _names(source, call, built[0]) else _class_picker(source, call, built[0])
    if picked is not None and not {*(picked.classes or ("",))} <= _TAKE[name]:
        if standing is not None:
            return None
        off = {other: "False"} if any(each.fused if other == "fused" else each.foreach for each in built) else {}
        return edit.together(picked.imports, give_if(source, call, {name: repr(value), **off}, picked.test))
    if hands_on_options(call):
        is_other = any(each.fused if other == "fused" else each.foreach for each in built)
        off = {other: "False"} if standing is not None or is_other else {}
        return give(source, call, {name: repr(value), **off})
    if standing is None:
        return edit.set_keyword(source, call, name, repr(value))
    if edit.keyword(call, name) is None:
        return edit.replace(source, standing, f"{name}={value!r}")
    return edit.together(
        edit.set_keyword(source, call, name, repr(value)), edit.replace(source, standing.value, "False")
    )


KNOB = Optimizer()
