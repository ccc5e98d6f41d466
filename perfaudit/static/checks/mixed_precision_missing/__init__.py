"""PA304: a training loop on CUDA whose large matmuls and convolutions run in float32."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.checks.mixed_precision_missing.decided import decides_precision
from perfaudit.static.checks.mixed_precision_missing.small_pictures import trains_on_digits
from perfaudit.static.checks.mixed_precision_missing.trainers_of_lightning import (
    BUILDS,
    TRAINERS,
    fits_on_gpu,
    is_told_cpu,
)
from perfaudit.static.model_width import LAYERS, NARROW, WIDTH, marks_of_width
from perfaudit.static.old_torch import lacks_autocast
from perfaudit.static.project.precision_marks import FEWER_BITS, TF32_ON
from perfaudit.static.project.program_marks import GIVES_PRECISION
from perfaudit.static.registry import Proposal, Seen, check, hint_if
from perfaudit.static.source import Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.built_by_settings import classes_built, reads_settings
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.entry import ARGUMENTS_OF_TRAINER, imported_files_say, is_whole, script_loops
from perfaudit.static.understanding.losses import backward_operand
from perfaudit.static.understanding.model_parts import (
    WHOLE_MODELS,
    has_large_convolutions,
    has_large_matmuls,
    has_transformer_of_library,
    has_wide_convolutions_1d,
    lends_convolutions,
    whole_models,
)
from perfaudit.static.understanding.models import is_visible
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.raises_today import never_steps, training_raises
from perfaudit.static.understanding.rows_of_layers import trains_small_rows
from perfaudit.static.understanding.step_loops import StepLoop
from perfaudit.static.understanding.training_starts import (
    shown_start,
    starts_training,
    training_call,
    training_calls,
)
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, Argument, argument, constant, resolve

TITLE = "run the forward pass and the loss under autocast in bfloat16 (GPUs from Ampere on)"
# In the file that gives the arguments: also weights that are loaded in fewer bits.
_DECIDED_FOR_TRAINER = regex(
    r"bf16|fp16|float16|half\(|dtype|autocast|mixed.?precision|load_in_[48]bit|BitsAndBytes|quanti[sz]|gptq|awq|deepspeed"
    r"|fsdp|xla|\btpu|accelerate\.Accelerator",
    re.IGNORECASE,
)
# No CUDA device, a configuration elsewhere, or matmuls on the tensor cores all the same.
_SAYS_OTHERWISE = ("use_cpu", "no_cuda", "deepspeed", "fsdp", "use_mps_device", "tf32")
_PLUGINS = "plugins"
_OF_PRECISION = ("precision", _PLUGINS, "amp_backend", "amp_level")  # arguments of Lightning's Trainer
_FLOAT32 = (32, "32", "32-true")  # what `precision` is by default
_PLAIN_STRATEGIES = ("ddp", "auto", "dp")
# Autocast runs these in float32.
_SAFE_LOSSES = {"CrossEntropy", "NLL", "MSE", "L1", "SmoothL1", "BCEWithLogits", "Huber"}
_SAFE_FUNCTIONS = {
    f"torch.nn.functional.{name}"
    for name in (
        "cross_entropy",
        "nll_loss",
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "binary_cross_entropy_with_logits",
        "huber_loss",
    )
}
_SAFE_CLASSES = {f"torch.nn.{name}Loss" for name in _SAFE_LOSSES}
_PLUGIN_OF_RANKS = regex(
    r"^(DDP(Spawn)?Plugin|\w+Environment)$"
)  # how ranks are started; others may decide the precision
_TROUBLE = regex(
    r"linalg|scatter|index_(put|add|copy|fill)|grid_sample|quantile|histc|\binverse\b|Unpool|spectral_norm|Function\)"
    r"|binary_cross_entropy\(|BCELoss|LBFGS|\bclosure\b|register_(forward|full_backward|backward)|numpy_function|einops"
)


@check("PA304", ast.Module)
def mixed_precision_missing(source: Source, module: ast.Module) -> Iterator[Seen]:
    loops = script_loops(source)
    start = starts_training(source)
    if (
        (not loops and start is None)
        or decides_precision(source)
        or source.says(FEWER_BITS)
        or imported_files_say(source, "precision")
        or source.says(TF32_ON)
        or imported_files_say(source, "tf32 on")
    ):
        return
    if not _has_large_model(source) or lacks_autocast(source) or _is_imported_with_tf32(source):
        return
    if start is not None:
        start = shown_start(source, start)
        is_import = isinstance(start, (ast.Import, ast.ImportFrom))
        shown = "this script" if is_import else f"`{source.brief(_first_line(training_call(source, start)))}`"
        message = f"{shown} starts a training in float32, off most of the tensor cores: no file of it uses autocast"
        is_hint = _is_exercise_or_on_cpu(source) or training_raises(source, training_calls(source))
        yield Seen(start, message, Proposal(TITLE), severity=hint_if(is_hint))
        return
    step = loops[0]
    together = _forward_and_loss(source, step)
    plain = together is not None and _can_be_cast(source, together)
    if together is not None and plain:
        name, imported = edit.name_for(source, "torch.autocast")
        dtype, more = edit.name_for(source, "torch.bfloat16")
        header = f'with {name}(device_type="cuda", dtype={dtype}):'
        edits = edit.together(edit.wrap_block(source, list(together), header), imported, more)
        place: ast.AST = together[0]
    else:
        edits, place = None, _loss_statement(source, step)
    shown = source.brief(_first_line(place))
    other = "the forward pass before it" if ".backward(" in shown else "its backward pass"
    message = f"`{shown}` and {other} run in float32, off most of the tensor cores"
    is_hint = never_steps(source, loops) or _is_exercise_or_on_cpu(source)
    yield Seen(place, message, Proposal(TITLE, edits), hot=True, severity=hint_if(is_hint))


def _is_exercise_or_on_cpu(source: Source) -> bool:
    """Whether a training is an exercise, or its settings files keep it on the CPU."""
    if trains_on_digits(source) or not reads_settings(source):
        return trains_on_digits(source)
    from perfaudit.static.understanding.configured_trainers import is_kept_on_cpu  # few projects read settings

    return is_kept_on_cpu(source)


def _is_imported_with_tf32(source: Source) -> bool:
    """Whether a file that imports the training, the one that is run, turns TF32 on."""
    neighbours = source.neighbours
    return neighbours is not None and bool(neighbours.some_importer(_turns_tf32_on, _may_turn_tf32_on))


def _turns_tf32_on(source: Source) -> bool:
    return source.says(TF32_ON)


def _may_turn_tf32_on(text: str) -> bool:
    return TF32_ON.search(text) is not None


def _has_large_model(source: Source, is_framework_known: bool = False) -> bool:
    """Whether the model is wide enough for tensor cores, as far as this file and those that it imports say.

    is_framework_known: whether the caller knows the framework that runs the training; else one in an imported file silences.
    """
    if trains_small_rows(source):
        return False
    if has_large_convolutions(source) or has_wide_convolutions_1d(source):
        return True
    if has_large_matmuls(source) or has_transformer_of_library(source) or lends_convolutions(source, wide=True):
        return True
    built = classes_built(source)
    if any(WHOLE_MODELS.match(name) or name == "timm.create_model" for name in built):
        return True
    # Imported here: many scripts hold their model.
    from perfaudit.static.checks.mixed_precision_missing.reached_width import (
        ENVIRONMENT,
        may_reach_layers,
        may_reach_width,
    )

    if imported_files_say(source, "framework") and not is_framework_known:
        return False
    if source.neighbours and source.neighbours.picked_carry(NARROW):
        return False  # of several models that an option picks from, none may be small
    is_narrow = bool(built) and _width_of_settings(source) == NARROW  # what settings give holds as well
    has_wide = imported_files_say(source, "wide convolutions") or imported_files_say(source, "library model")
    if has_wide and may_reach_width(source):
        return not is_narrow
    own = marks_of_width(source.text.encode("utf-8", "replace"))
    if source.says(ENVIRONMENT):
        return False
    if NARROW in own:  # what the script gives holds, whatever the defaults of its model are
        return False
    if LAYERS not in own and not imported_files_say(source, LAYERS):
        return False
    if (WIDTH in own or imported_files_say(source, WIDTH)) and may_reach_width(source):
        return not is_narrow
    return may_reach_layers(source) and _width_of_settings(source) == WIDTH


def _width_of_settings(source: Source) -> str:
    """See `widths_of_settings`, imported here: the text of most scripts says how wide their model is."""
    from perfaudit.static.checks.mixed_precision_missing.widths_of_settings import width_of_settings

    return width_of_settings(source)


@check("PA304", call=ARGUMENTS_OF_TRAINER)
def trainer_in_float32(source: Source, call: ast.Call) -> Iterator[Seen]:
    """Hugging Face's Trainer, which computes in float32 unless it is told otherwise."""
    if source.says(_DECIDED_FOR_TRAINER) or imported_files_say(source, "precision"):
        return
    if any(argument(source, call, name) is UNKNOWN for name in ("bf16", "fp16")) or not source.calls(".train"):
        return
    told = [argument(source, call, name) for name in _SAYS_OTHERWISE]
    if any(value is not ABSENT for value in told) or is_test(source, call):
        return
    yield Seen(
        call,
        f"`{source.brief(call.func)}` without `bf16` or `fp16` has the Trainer compute in float32, off most of the tensor cores",
        Proposal(
            "give `bf16=True` (GPUs from Ampere on; before, `fp16=True`), or `tf32=True`, which rounds only what matmuls read"
        ),
    )


@check("PA304", call=TRAINERS)
def trainer_of_lightning_in_float32(source: Source, call: ast.Call) -> Iterator[Seen]:
    """Lightning's Trainer, which computes in float32 unless it is told otherwise."""
    told = [argument(source, call, name) for name in _OF_PRECISION if name != _PLUGINS]
    if any(value is not ABSENT for value in told) or "precision" in source.text_of(call):  # in a comment: it was tried
        return
    if not _starts_ranks_only(source, argument(source, call, _PLUGINS)):
        return
    if not fits_on_gpu(source, call):
        return
    strategy = argument(source, call, "strategy")
    if strategy is not ABSENT and not str(constant(source, strategy)).startswith(_PLAIN_STRATEGIES):
        return  # one that decides the precision elsewhere, as that of deepspeed
    if _computes_in_float32(source):
        yield Seen(
            call,
            f"`{source.brief(call.func)}` without `precision` computes in float32, off most of the tensor cores",
            Proposal('give `precision="bf16-mixed"` (GPUs from Ampere on; before, `"16-mixed"`)'),
            severity=hint_if(is_told_cpu(source, call)),
        )


@check("PA304", call=(*TRAINERS, *BUILDS))
def trainer_of_settings_in_float32(source: Source, call: ast.Call) -> Iterator[Seen]:
    """The same of a trainer whose settings stand in files, none of which gives it another precision than float32."""
    from perfaudit.static.checks.mixed_precision_missing.trainers_of_settings import settings_of_trainer  # few have one

    trainer = settings_of_trainer(source, call)
    if trainer is None or "precision" in source.code or not trainer.leaves("precision", *_FLOAT32):
        return
    if not all(trainer.leaves(name) for name in _OF_PRECISION if name != "precision"):
        return
    strategies = trainer.settings_by("strategy")
    if strategies is None or not all(
        str(each.setting.value or "auto").startswith(_PLAIN_STRATEGIES) for each in strategies
    ):
        return
    if imported_files_say(source, GIVES_PRECISION) or not _computes_in_float32(source):
        return
    said = next((each for each in trainer.settings_by("precision") or () if each.setting.value is not None), None)
    says = f"with `precision: {said.setting.value}` (`{said.place}`)" if said else "without `precision` in its settings"
    yield Seen(
        call,
        f"the trainer of `{trainer.part_text}`, {says}, computes in float32, off most of the tensor cores",
        Proposal("set `precision: bf16-mixed` for it (GPUs from Ampere on; before, `16-mixed`)"),
    )


def _computes_in_float32(source: Source) -> bool:
    """Whether the model of Lightning's trainer is large, and neither the script nor what it imports says another precision."""
    if decides_precision(source) or source.says(FEWER_BITS) or imported_files_say(source, "precision"):
        return False
    if "matmul_precision" in source.text or imported_files_say(source, "tf32"):  # matmuls are on the tensor cores
        return False
    return _has_large_model(source, is_framework_known=True) and not lacks_autocast(source)


def _starts_ranks_only(source: Source, plugins: Argument) -> bool:
    """Whether a trainer's plugins are those that start ranks, or none: `plugins=DDPPlugin(find_unused_parameters=False)`."""
    if plugins is ABSENT:
        return True
    if not isinstance(plugins, ast.expr):
        return False
    given = resolve(source, plugins)
    parts = given.elts if isinstance(given, (ast.List, ast.Tuple)) else [given]
    return all(isinstance(part, ast.Call) and _PLUGIN_OF_RANKS.search(last_name(part.func)) for part in parts)


def _first_line(place: ast.AST) -> ast.AST:
    """What to show of a statement: of a loop its header."""
    return place.iter if isinstance(place, ast.For) else place.test if isinstance(place, ast.While) else place


def _loss_statement(source: Source, step: StepLoop) -> ast.AST:
    """The statement that computes the loss, where it stands in plain sight; else the one that calls `backward`."""
    for root in (step.loop, *step.helpers):
        for call in backward_calls(source):
            if any(ancestor is root for ancestor in source.ancestors(call)):
                statement = source.statement(call)
                found = _made_before(source, statement, dotted_name(backward_operand(source, call)))
                return found or statement
    return step.loop


def _made_before(source: Source, statement: ast.stmt, name: str) -> ast.Assign | None:
    """The last plain assignment of a name before a statement in its block."""
    found = None
    for earlier in source.block(statement):
        if earlier is statement:
            return found
        if (
            isinstance(earlier, ast.Assign)
            and len(earlier.targets) == 1
            and dotted_name(earlier.targets[0]) == name != ""
            and not isinstance(earlier.value, ast.Constant)  # `loss = 0`, to which others are added
        ):
            found = earlier
    return None


def _forward_and_loss(source: Source, step: StepLoop) -> tuple[ast.Assign, ...] | None:
    """`out = model(x)` and `loss = criterion(out, y)` one after the other, or both in one statement."""
    if len(backward_calls(source)) > 1:  # several losses share parts of a forward pass
        return None
    loss = _loss_statement(source, step)
    if (
        not isinstance(loss, ast.Assign)
        or not isinstance(loss.value, ast.Call)
        or not _is_safe_loss(source, loss.value)
    ):
        return None
    block = source.block(loss)
    first = loss.value.args[0] if loss.value.args else None
    if isinstance(first, ast.Call) and _model(source, first) is not None:
        return (loss,)
    position = next(n for n, statement in enumerate(block) if statement is loss)
    before = block[position - 1] if position else None
    if not isinstance(before, ast.Assign) or len(before.targets) != 1 or not isinstance(before.targets[0], ast.Name):
        return None
    if not isinstance(first, ast.Name) or first.id != before.targets[0].id:
        return None
    if not isinstance(before.value, ast.Call) or _model(source, before.value) is None:
        return None
    return (before, loss)


def _is_safe_loss(source: Source, call: ast.Call) -> bool:
    """Whether a call is a criterion of torch that autocast runs in float32."""
    if source.qualified_name(call.func) in _SAFE_FUNCTIONS:
        return True
    made = _call_behind_moves(source, call.func)
    return isinstance(made, ast.Call) and source.qualified_name(made.func) in _SAFE_CLASSES


def _model(source: Source, call: ast.Call) -> ast.Name | None:
    """The name of the model that a call runs, where every layer of it is known."""
    if (
        not isinstance(call.func, ast.Name)
        or len(call.args) != 1
        or call.keywords
        or not isinstance(call.args[0], ast.Name)
    ):
        return None
    made = _call_behind_moves(source, call.func)
    if any(made is built for built in whole_models(source)):
        return call.func
    return call.func if is_visible(source, call.func) else None


def _call_behind_moves(source: Source, name: ast.expr) -> ast.expr | None:
    """The call that a name stands for, behind `.to(...)` and `.cuda()`."""
    made = resolve(source, name)
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in ("to", "cuda"):
        made = made.func.value
    return made


def _can_be_cast(source: Source, statements: tuple[ast.Assign, ...]) -> bool:
    """Whether nothing in the file is known to refuse bfloat16: in the model, or in what is done with its outputs."""
    if _TROUBLE.search(source.text) or not is_whole(source):
        return False
    if any(
        isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        for d in source.nodes(ast.ClassDef)
        for node in ast.walk(d)
    ):
        return False
    if len(statements) == 1:
        return True
    output = statements[0].targets[0]
    if not isinstance(output, ast.Name) or len(source.lookup(output)) != 1:
        return False
    return all(_only_picks(source, use, statements) for use in source.uses_of(output, output.id))


def _only_picks(source: Source, use: ast.expr, statements: tuple[ast.Assign, ...]) -> bool:
    """Whether a use of the output only asks which class is largest."""
    if any(ancestor is statement for statement in statements for ancestor in source.ancestors(use)):
        return True
    node: ast.expr = use
    while isinstance(parent := source.parent(node), ast.Attribute):
        call = source.parent(parent)
        called = isinstance(call, ast.Call) and call.func is parent
        if parent.attr == "data" and not called:
            node = parent
        elif parent.attr == "detach" and isinstance(call, ast.Call) and called:
            node = call
        else:
            picks = isinstance(call, ast.Call) and called
            return picks and (
                parent.attr == "argmax" or (parent.attr in ("max", "topk") and _drops_values(source, call))
            )
    if not isinstance(parent, ast.Call) or node not in parent.args:
        return False
    name = source.qualified_name(parent.func)
    return name == "torch.argmax" or (name in ("torch.max", "torch.topk") and _drops_values(source, parent))


def _drops_values(source: Source, call: ast.AST | None) -> bool:
    """Whether of (values, indices) only the indices are kept: `_, predicted = torch.max(output, 1)`."""
    parent = source.parent(call) if call is not None else None
    if isinstance(parent, ast.Attribute):
        return parent.attr == "indices"
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.slice, ast.Constant) and parent.slice.value == 1
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    values = target.elts[0] if isinstance(target, ast.Tuple) else None
    return isinstance(values, ast.Name) and not source.uses_of(values, values.id)
