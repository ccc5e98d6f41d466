"""How torch's own optimizers run their update: one parameter after the other, over lists (foreach), or fused."""

from __future__ import annotations

import ast
import contextlib
from typing import Any

from perfaudit.findings import Edit
from perfaudit.knobs import Bench, Knob, Setup, Survey, Told
from perfaudit.knobs._code import Code, Patch
from perfaudit.knobs._trainers import DEFAULT, arguments_of_trainer, patch_trainer, words_of_trainer
from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.static.source import Source
from perfaudit.training.optimizer_update import update_with

_ARGUMENTS = {"for-loop": ("foreach", False), "foreach": ("foreach", True), "fused": ("fused", True)}
_TRAINERS_OWN = ("adamw_torch", "adamw_torch_fused")  # names by which Hugging Face's Trainer is asked for torch's AdamW
_LISTS_BY_DEFAULT = ("cuda", "xpu", "mtia")  # torch/utils/_foreach_utils.py: devices with kernels over lists


class Optimizer(Knob):
    name = "optimizer"
    title = "the for-loop, foreach and fused update of the optimizer"
    way = "setting"
    rules = ("PA402", "PA403")
    phases = ("optimizer",)
    changes_always = ("rounding",)

    def not_applicable(self, survey: Survey) -> str:
        optimizer = survey.facts.optimizer
        if not optimizer.module.startswith("torch.optim."):
            return f"{optimizer.name} is no optimizer of torch.optim, whose updates can be chosen by an argument"
        if not optimizer.takes:
            return f"torch.optim.{optimizer.name} takes neither foreach nor fused"
        return ""

    def current(self, survey: Survey) -> Settings:
        """What the arguments say; without any, lists where the device has kernels for them."""
        optimizer = survey.facts.optimizer
        if optimizer.fused:
            return {"update": "fused"}
        if optimizer.foreach is None:
            return {"update": _by_default(survey)}
        return {"update": "foreach" if optimizer.foreach else "for-loop"}

    def candidates(self, bench: Bench) -> list[Settings]:
        """Fused ones where torch has them for this device, and for real parameters only."""
        optimizer = bench.survey.facts.optimizer
        is_real = all("float" in dtype for dtype in bench.survey.facts.model.dtypes)
        fused = "fused" in optimizer.takes and bench.survey.facts.device.type in optimizer.fused_devices and is_real
        names = ["for-loop", "foreach"] if "foreach" in optimizer.takes else []
        names += ["fused"] if fused else []
        now = self.current(bench.survey)["update"]
        return [{"update": name} for name in names if name != now]

    def size(self, settings: Settings) -> int:
        """Lists take temporary memory of about the size of the parameters."""
        return int(settings["update"] == "foreach")

    def setup(self, settings: Settings) -> Setup:
        name, value = _ARGUMENTS[str(settings["update"])]
        off = {"fused": False} if name == "foreach" else {"foreach": False}
        return Setup(optimizer_overrides={name: value, **off})

    def in_place(self, training: Any, settings: Settings) -> contextlib.AbstractContextManager[None]:
        update = str(settings["update"])
        return update_with(training.optimizer, foreach=update == "foreach", fused=update == "fused")

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        if (of_trainer := _of_trainer(code.survey, settings)) is not None:
            return patch_trainer(code, self.name, of_trainer)
        found = code.call(code.survey.facts.optimizer.site)
        if found is None:
            return None
        source, call = found
        name = code.survey.facts.optimizer.name
        written = source.qualified(call.func) or ast.unparse(call.func)
        if written.rpartition(".")[2] != name:  # some function that picks the class: it may not pass an argument on
            return None
        return code.patch(source, call, _edits(source, call, str(settings["update"])))

    def words(self, settings: Settings, survey: Survey) -> str:
        if (of_trainer := _of_trainer(survey, settings)) is not None:
            return words_of_trainer(survey, self.name, of_trainer)
        name, value = _ARGUMENTS[str(settings["update"])]
        how = f"build {survey.facts.optimizer.name} with {name}={value}"
        if "optimizer" in survey.facts.factories or survey.facts.is_script:
            return how
        return (
            f"{how}, if that is your optimizer: the target has no build_optimizer, so this was measured with "
            f"perfaudit's {survey.facts.optimizer.name}"
        )

    def remarks(self, told: Told) -> list[str]:
        if told.winner is None or told.winner["update"] != "foreach":
            return []
        return ["the lists of foreach take temporary memory of about the size of the parameters"]


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
    if bool(optimizer.fused) != (
        trainer.optimizer == "adamw_torch_fused"
    ):  # it was handed one that a library has built
        return None
    setting = DEFAULT if settings["update"] == _by_default(survey) else str(settings["update"])
    return setting if arguments_of_trainer(survey, "optimizer", setting) else None


def _edits(source: Source, call: ast.Call, update: str) -> tuple[Edit, ...] | None:
    """The call with the argument that asks for this update, in the place of the other one where it stands there."""
    name, value = _ARGUMENTS[update]
    other = "fused" if name == "foreach" else "foreach"
    if any(keyword.arg is None for keyword in call.keywords):  # `**options` may hold it
        return None
    standing = edit.keyword(call, other)
    if standing is None:
        return edit.set_keyword(source, call, name, repr(value))
    if edit.keyword(call, name) is None:
        return edit.replace(source, standing, f"{name}={value!r}")
    return edit.together(
        edit.set_keyword(source, call, name, repr(value)), edit.replace(source, standing.value, "False")
    )


KNOB = Optimizer()
