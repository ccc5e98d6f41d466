"""The numbers that matmuls and convolutions are computed in: float32, TF32, bfloat16 or float16 under autocast."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from perfaudit.knobs import Bench, Knob, Refused, Reply, Setup, Survey, Told, Unanswered
from perfaudit.knobs._code import Code, Patch
from perfaudit.knobs._script_code import forward_under
from perfaudit.knobs._trainers import (
    added_by_hand,
    arguments_of_trainer,
    by_options,
    no_call_of_trainer,
    patch_trainer,
    words_of_trainer,
)
from perfaudit.measurements import Settings
from perfaudit.target.flags import flags_set
from perfaudit.target.working_folder import shown_path
from perfaudit.training.trainer_precision import computing_in_bf16

_TENSOR_CORES = (8, 0)  # compute capability from which on TF32 and bfloat16 run in hardware (Ampere)
_MATMUL = "torch.set_float32_matmul_precision"
_TYPES = {"bf16": "bfloat16", "fp16": "float16"}

_SCALED = (
    'make scaler = torch.amp.GradScaler("{0}") once, then in each step: '
    'with torch.autocast("{0}", dtype=torch.float16): loss = ...; '
    "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()"
)


class Precision(Knob):
    name = "precision"
    title = "float32, TF32, bfloat16 and float16 in matmuls and convolutions"
    tries = "Try TF32, bfloat16 and float16 in matmuls and convolutions."
    usual_gain = 0.3
    way = "setting"
    rules = ("PA303", "PA304")

    def not_applicable(self, survey: Survey) -> str:
        device = survey.facts.device.type
        if device not in ("cpu", "cuda"):
            return f"it is searched on CPUs and CUDA devices, and this training runs on {device}"
        dtypes = survey.facts.model.dtypes
        if half := [name for name in dtypes if name in _TYPES.values()]:
            return f"the model's parameters are {' and '.join(half)} already"
        if "float32" not in dtypes:
            return f"the model's parameters are {' and '.join(dtypes) or 'none'}, which autocast leaves alone"
        if survey.facts.trainer is not None and survey.facts.trainer.precision not in ("float32", "tf32"):
            return f"the trainer computes in {survey.facts.trainer.precision} already"
        return ""

    def share(self, survey: Survey) -> float:
        """All of the step but what it waits for its batch. The phases of a device are not told apart finer by the host."""
        whole = survey.step_seconds
        return 1.0 - survey.profile.get("loading", 0.0) / whole if whole else 1.0

    def current(self, survey: Survey) -> Settings:
        """What the process is set to; autocast where a decorator of the step factory, or a script, enters it."""
        if (trainer := survey.facts.trainer) is not None and trainer.precision != "float32":
            return {"precision": trainer.precision}
        script, names = survey.facts.script, {dtype: name for name, dtype in _TYPES.items()}
        around = names.get(" ".join(script.autocasts) if script is not None else survey.facts.step_autocast)
        is_tf32 = survey.facts.device.type == "cuda" and survey.facts.flags["matmul_precision"] in ("high", "medium")
        return {"precision": around or ("tf32" if is_tf32 else "float32")}

    def candidates(self, bench: Bench) -> list[Settings]:
        """What the device has hardware for; nothing where the user's own step runs under autocast."""
        survey = bench.survey
        now = self.current(survey)
        if inside := _own_autocast(bench, now):
            bench.kept["autocast"] = inside
            return []
        on_cuda = survey.facts.device.type == "cuda"
        ampere = on_cuda and (survey.facts.device.capability or (0, 0)) >= _TENSOR_CORES
        is_highest = survey.facts.flags["matmul_precision"] == "highest" and now["precision"] != "tf32"
        names = ["tf32"] if ampere and is_highest else []
        if survey.facts.trainer is not None and survey.facts.trainer.refuses_bf16:
            raise Refused(survey.facts.trainer.refuses_bf16)
        names += ["bf16"] if ampere or not on_cuda else []
        names += ["fp16"] if on_cuda and not survey.facts.is_script else []  # a scale belongs into the script's loop
        return [{"precision": name} for name in names]

    def answer_autocast(self, training: Any) -> Reply:
        """The type that the user's own step computes in under autocast, "" without; seen by its model's layers."""
        import torch

        device, seen = training.device.type, set()

        def look(module: Any, inputs: Any) -> None:
            if torch.is_autocast_enabled(device):
                seen.add(str(torch.get_autocast_dtype(device)).removeprefix("torch."))

        hooks = [module.register_forward_pre_hook(look) for module in training.model.modules()]
        try:
            training.loss(training.fixed_batch())
        finally:
            for hook in hooks:
                hook.remove()
        return {"dtype": " and ".join(sorted(seen))}

    def size(self, settings: Settings) -> int:
        """Fewer things to write and to think of first."""
        return ["float32", "tf32", "bf16", "fp16"].index(str(settings["precision"]))

    def setup(self, settings: Settings) -> Setup:
        return Setup(applied=lambda training: _apply(training, str(settings["precision"])))

    def by_hand(self, survey: Survey) -> str:
        trainer = survey.facts.trainer
        if trainer is not None and trainer.options and not trainer.refuses_bf16:
            why = by_options(survey, *arguments_of_trainer(survey, self.name, "bf16"))
            return why and f"{why}, which changes precision"
        return ""

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        """The switch of TF32, or a decorator for the step; in a script, a context around the forward pass and the loss.

        A loss scale belongs into a loop that nobody here has read.
        """
        from perfaudit.static import edit
        from perfaudit.static.process_settings import set_or_replace_call
        from perfaudit.static.rewrite import decorate

        if arguments_of_trainer(code.survey, self.name, str(settings["precision"])):
            return patch_trainer(code, self.name, str(settings["precision"]))
        if settings["precision"] == "tf32":
            source = code.entry()
            return code.patch(source, None, set_or_replace_call(source, _MATMUL, '"high"')) if source else None
        if settings["precision"] != "bf16":
            return None
        if code.survey.facts.is_script:
            context = f'{{0}}("{code.survey.facts.device.type}", dtype={{1}})'
            return forward_under(code, context, ("torch.autocast", "torch.bfloat16"))
        found = code.factory("step")
        if found is None:
            return None
        source, function = found
        autocast, imported = edit.name_for(source, "torch.autocast")
        dtype, also = edit.name_for(source, "torch.bfloat16")
        decorated = decorate(source, function, f'@{autocast}("{code.survey.facts.device.type}", dtype={dtype})')
        imports = tuple(dict.fromkeys((*imported, *also)))
        return code.patch(source, function, (*imports, *decorated)) if decorated else None

    def changes(self, settings: Settings) -> tuple[str, ...]:
        """With a loss scale, a step whose gradients overflow is left out, as the first ones often are."""
        return ("precision", "algorithm") if settings["precision"] == "fp16" else ("precision",)

    def words(self, settings: Settings, survey: Survey) -> str:
        device = survey.facts.device.type
        if by_trainer := words_of_trainer(survey, self.name, str(settings["precision"])):
            return by_trainer
        if settings["precision"] == "tf32":
            return f'round the inputs of float32 matmuls to TF32: {_MATMUL}("high") once before training'
        if settings["precision"] == "float32":
            return "compute in float32"
        if settings["precision"] == "fp16":
            return f"compute the loss in float16 with a loss scale: {_SCALED.format(device)}"
        context = f'torch.autocast("{device}", dtype=torch.bfloat16)'
        name = survey.facts.factories.get("step")
        how = f"@{context} above {name}" if name else f"with {context}: around the forward pass and the loss"
        return f"compute the loss in bfloat16: {how}"

    def handed_over(self, settings: Settings, survey: Survey) -> str:
        return added_by_hand(survey, *arguments_of_trainer(survey, self.name, str(settings["precision"])))

    def no_line(self, survey: Survey) -> str:
        script = survey.facts.script
        if script is None or survey.facts.trainer is not None:
            has_step = survey.facts.trainer is not None or survey.facts.factories.get("step")
            missing = "" if has_step else "its patch is a decorator of `training_step`, and your target has none"
            return missing or no_call_of_trainer(survey, self.name, "bf16")
        if script.autocasts:
            return f"your step computes in {' and '.join(script.autocasts)} under autocast already"
        files = {each.site.path for each in script.backward}  # elsewhere a layer may be kept from it on purpose
        if off := " and ".join(f"{shown_path(s.path)}:{s.line}" for s in script.autocasts_off if s.path in files):
            return f"your step switches autocast off at {off}: switch it on there"
        if not script.backward:
            return "`backward` is called by a library, and autocast must end before that"
        places = sorted({(each.site.path, each.site.line) for each in script.backward})
        *others, last = (f"{shown_path(path)}:{line}" for path, line in places)
        of_each = f", at {', '.join(others)} and {last} each," if others else ""
        what = f"the model's call, the loss and `backward`{of_each}"
        return f"{what} are not lines of one block of yours that could stand under autocast"

    def kept_words(self, told: Told) -> str:
        inside = told.kept.get("autocast")
        return f"keep what you have: your step computes in {inside} under autocast already" if inside else ""

    def remarks(self, told: Told) -> list[str]:
        if told.winner is None or told.winner["precision"] not in _TYPES:
            return []
        stays = "weights, gradients and checkpoints stay float32, so old checkpoints load"
        if told.winner["precision"] == "fp16":
            return [
                f"{stays}; save scaler.state_dict() with them, and unscale_ the optimizer before clipping gradients"
            ]
        name = told.survey.facts.factories.get("step")
        return [
            f"{stays}; whatever else calls {name}, such as an evaluation, computes in bfloat16 too" if name else stays
        ]


def _own_autocast(bench: Bench, now: Settings) -> str:
    """The type that the user's own step computes in under autocast, "" without."""
    if bench.survey.facts.trainer is not None:  # which says itself what it computes in
        return ""
    script = bench.survey.facts.script
    if script is not None:
        return " and ".join(script.autocasts)
    try:
        return str(bench.ask(now, "autocast")["dtype"])
    except Unanswered:
        return ""


@contextlib.contextmanager
def _apply(training: Any, precision: str) -> Iterator[None]:
    import torch

    device = training.device.type
    if training.is_script:
        with contextlib.ExitStack() as inside:
            if precision == "tf32":
                inside.enter_context(flags_set({"matmul_precision": "high"}))
            elif precision in _TYPES and training.trainer is not None:
                inside.enter_context(computing_in_bf16(training.trainer, device))
            elif precision in _TYPES:
                dtype = getattr(torch, _TYPES[precision])
                inside.enter_context(training.around_forward.made_by(lambda: torch.autocast(device, dtype=dtype)))
            yield
        return
    before = training.around_loss, training.scaler
    if precision in _TYPES:
        dtype = getattr(torch, _TYPES[precision])
        training.around_loss = lambda: torch.autocast(device, dtype=dtype)
        training.scaler = torch.amp.GradScaler(device) if precision == "fp16" else None
    try:
        with flags_set({"matmul_precision": "high"} if precision == "tf32" else {}):
            yield
    finally:
        training.around_loss, training.scaler = before


KNOB = Precision()
