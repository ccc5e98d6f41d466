"""PA301: a training script with convolutions of one size that does not let cuDNN time its algorithms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.checks.cudnn_benchmark_off.batch_sizes import sizes_change, texts_of_options
from perfaudit.static.checks.mixed_precision_missing.small_pictures import trains_on_digits
from perfaudit.static.checks.mixed_precision_missing.trainers_of_lightning import (
    BUILDS,
    TRAINERS,
    fits_on_gpu,
    is_told_cpu,
)
from perfaudit.static.old_torch import imports_what_raises
from perfaudit.static.project.frameworks import running_frameworks
from perfaudit.static.project.program_marks import GIVES_BENCHMARK, SEEDED, without_flags_taken_out
from perfaudit.static.registry import Proposal, Seen, check, hint_if
from perfaudit.static.source import Function, Source
from perfaudit.static.understanding.built_by_settings import classes_built, reads_settings
from perfaudit.static.understanding.called_functions import called_function, callers
from perfaudit.static.understanding.defaults import default
from perfaudit.static.understanding.devices import uses_cuda
from perfaudit.static.understanding.entry import (
    imported_files_say,
    imported_names,
    is_script,
    place_of_setting,
    setting,
    starts_processes,
    training_loops,
)
from perfaudit.static.understanding.model_parts import (
    CONVOLUTIONS,
    WHOLE_MODELS,
    has_small_convolutions_only,
    lends_convolutions,
    whole_models,
)
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.raises_today import never_steps, training_raises
from perfaudit.static.understanding.reached_code import reached_code
from perfaudit.static.understanding.rows_of_layers import (
    may_convolve,
    trained_layers,
    trains_small_rows,
)
from perfaudit.static.understanding.training_starts import starts_training, training_calls
from perfaudit.static.understanding.values import ABSENT, argument, constant, enclosing_function

FLAG = "torch.backends.cudnn.benchmark"
TITLE = "let cuDNN time its algorithms once per input size"
COST = (
    "cuDNN picks convolution algorithms untimed; timing pays while input sizes stay the same, and hurts if they change"
)
_COST_OF_TRAINER = f"has {COST.replace('picks', 'pick')}"
SEEDING = {"seed", "manual_seed", "manual_seed_all", "initial_seed"}  # set no flag of cuDNN; another function may
_DECIDED = regex(
    r"benchmark|determinis|reproducib|cudnn\.(enabled(?!\s*=\s*True\b)|flags)",
    words="benchmark|determinis|reproducib|cudnn.",
)
_WORD = regex(r"[A-Za-z_]\w*")
_OF_GPUS = {
    "not",
    "and",
    "or",
    "args",
    "opt",
    "config",
    "cfg",
    "torch",
    "cuda",
    "is_available",
    "use_cuda",
    "no_cuda",
    "gpu",
    "use_gpu",
}
_FLAGS = regex(r"cudnn|determinis|benchmark|reproducib")
_SETS_FLAGS = regex(
    r"cudnn\.|deterministic_algorithms|set_determin|reproducib"
)  # no import, no `act(x, deterministic=True)`
_SEEDS = regex(r"seed|determinis|reproducib")
_NO_CONVOLUTIONS = regex(r"vit|swin")
_CONVOLVES = regex(r"[Cc]onv(?!olve)\w*[23][dD]")  # of torch's or of another library: `conv_transpose3d`, `MetaConv2d`
_SEEDS_ONLY = {  # and sets no flag of cuDNN
    f"{package}.seed_everything" for package in ("lightning", "lightning.pytorch", "pytorch_lightning")
}
_SET_NO_FLAG = {"flash"}  # a framework that runs no training: it leaves cuDNN as it is


@check("PA301", ast.Module)
def cudnn_benchmark_off(source: Source, module: ast.Module) -> Iterator[Seen]:
    loops = training_loops(source)
    start = starts_training(source)
    if start is None and (not loops or not uses_cuda(source) or not is_script(source, loops)):
        return
    if not _has_convolutions(source) or imported_files_say(source, "cudnn"):
        return
    if sizes_change(source, loops) or _seeds_elsewhere(source) or not _may_reach_convolutions(source):
        return
    is_hint = has_small_convolutions_only(source) or trains_small_rows(source)
    is_hint = is_hint or never_steps(source, loops) or trains_on_digits(source) or _is_kept_on_cpu(source)
    if start is not None:
        is_hint = is_hint or imports_what_raises(source) or training_raises(source, training_calls(source))
    mentions = [match.start() for match in _DECIDED.finditer(source.text) if _counts(source, match)]
    place = start or place_of_setting(source, loops[0])
    if mentions and all(_only_when_seeded(source, offset) for offset in mentions):
        fix = Proposal(f"{TITLE}, where no seed is given")
        yield Seen(place, f"without `{FLAG}` {COST}", fix, severity=hint_if(is_hint))
        return
    if mentions:
        off = _switched_off(source)
        if off is not None and len(mentions) == 1 and not _is_deliberate(source, off):
            fix = Proposal(TITLE, edit.replace(source, off.value, "True"))
            yield Seen(off, f"with `{source.brief(off)}` {COST}", fix, severity=hint_if(is_hint))
        return
    if start is not None and starts_processes(source):
        yield Seen(place, f"without `{FLAG}` {COST}", Proposal(f"{TITLE}, in each process"), severity=hint_if(is_hint))
        return
    fix = Proposal(TITLE, setting(source, place, FLAG, " = True"))
    yield Seen(place, f"without `{FLAG}` {COST}", fix, severity=hint_if(is_hint))


@check("PA301", call=TRAINERS)
def trainer_of_lightning(source: Source, call: ast.Call) -> Iterator[Seen]:
    """Lightning's Trainer, which leaves the flag as it is unless it is told otherwise."""
    told = [argument(source, call, name) for name in ("benchmark", "deterministic")]
    if any(value is not ABSENT for value in told) or not fits_on_gpu(source, call):
        return
    if _trains_on_pictures_of_a_size(source):
        yield Seen(
            call,
            f"`{source.brief(call.func)}` without `benchmark` {_COST_OF_TRAINER}",
            Proposal(f"{TITLE}: give `benchmark=True`"),
            severity=hint_if(has_small_convolutions_only(source) or is_told_cpu(source, call)),
        )


@check("PA301", call=(*TRAINERS, *BUILDS))
def trainer_of_settings(source: Source, call: ast.Call) -> Iterator[Seen]:
    """The same of a trainer whose settings stand in files, none of which gives it one of these."""
    from perfaudit.static.checks.mixed_precision_missing.trainers_of_settings import settings_of_trainer  # few have one

    trainer = settings_of_trainer(source, call)
    if trainer is None or not trainer.leaves("benchmark") or not trainer.leaves("deterministic", False):
        return
    if _trains_on_pictures_of_a_size(source) and not imported_files_say(source, GIVES_BENCHMARK):
        yield Seen(
            call,
            f"the trainer of `{trainer.part_text}`, without `benchmark` in its settings, {_COST_OF_TRAINER}",
            Proposal(f"{TITLE}: set `benchmark: true` for it"),
            severity=hint_if(has_small_convolutions_only(source)),
        )


def _trains_on_pictures_of_a_size(source: Source) -> bool:
    """Whether a script of Lightning's convolves batches of one size, as far as is known, and nobody has decided on the flag."""
    built = any(source.calls(name) for name in CONVOLUTIONS) or bool(whole_models(source)) or lends_convolutions(source)
    built = built or any(WHOLE_MODELS.match(name) for name in classes_built(source))
    if not (built or imported_files_say(source, "convolutions")) or imported_files_say(source, "cudnn"):
        return False
    if sizes_change(source, ()) or _seeds_elsewhere(source) or not _may_reach_convolutions(source):
        return False
    return not any(_counts(source, match) for match in _DECIDED.finditer(source.text))


def _counts(source: Source, mention: re.Match[str]) -> bool:
    """Whether a word says that somebody decided: in a comment only of the flag itself, which was tried, it seems.

    One that would turn it off, with no word beside it, is none that was tried.
    """
    if any(source.span(text).start <= mention.start() < source.span(text).end for text in texts_of_options(source)):
        return False
    is_flag = source.text[: mention.start()].endswith("cudnn.") and mention[0] == "benchmark"
    is_flag = is_flag and without_flags_taken_out(source.text)[mention.start()] != " "
    return is_flag or source.code[mention.start() : mention.end()] == mention[0]


def _is_kept_on_cpu(source: Source) -> bool:
    if not reads_settings(source):
        return False
    from perfaudit.static.understanding.configured_trainers import is_kept_on_cpu  # few projects read settings

    return is_kept_on_cpu(source)


def _has_convolutions(source: Source) -> bool:
    """Whether the file builds convolutions, or a file that it imports does in a program that no framework runs."""
    if any(source.calls(name) for name in CONVOLUTIONS):
        return True
    if (layers := trained_layers(source)) and not any(may_convolve(there, layer) for there, layer in layers):
        return False
    if running_frameworks(imported_names(source)) - _SET_NO_FLAG or imported_files_say(source, "framework"):
        return False
    built = (source.text_of(call.func) for call in whole_models(source))
    is_built = any(not _NO_CONVOLUTIONS.search(name) for name in built) or lends_convolutions(source)
    return is_built or imported_files_say(source, "convolutions")


def _may_reach_convolutions(source: Source) -> bool:
    """Whether a convolution may be among what the script runs, and not only beside it in a file that it imports."""
    reached = reached_code(source)
    return reached is None or reached.borrows_models or any(_CONVOLVES.search(name) for name in reached.names)


def _switched_off(source: Source) -> ast.Assign | None:
    """The statement that sets the flag to False."""
    for statement in source.nodes(ast.Assign):
        is_flag = len(statement.targets) == 1 and source.qualified_name(statement.targets[0]) == FLAG
        if is_flag and isinstance(statement.value, ast.Constant) and statement.value.value is False:
            return statement
    return None


def _is_deliberate(source: Source, off: ast.Assign) -> bool:
    """Whether a comment, a condition, or seeding beside it says that somebody wants it off."""
    before, line = source.lines[max(off.lineno - 2, 0)], source.lines[off.lineno - 1]
    if "#" in line or before.lstrip().startswith("#"):
        return True
    around = source.enclosing(off, ast.If, ast.ClassDef)
    if around is not None and not (isinstance(around, ast.If) and _asks_for_gpu(source, around.test)):
        return True
    function = enclosing_function(source, off)
    if function is not None and "seed" in function.name.lower():
        return True
    calls = [node for statement in source.block(off) for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return any("seed" in _last_name(call) for call in calls)


def _asks_for_gpu(source: Source, test: ast.expr) -> bool:
    """Whether a condition asks only whether there is a GPU and the user wants it: it decides nothing about cuDNN."""
    return set(_WORD.findall(source.text_of(test))) <= _OF_GPUS


def _only_when_seeded(source: Source, offset: int) -> bool:
    """Whether a place of the text is reached only where the user asks for a seed, which by default nobody does.

    In a branch of `if args.seed is not None`, or in a function by the name of seeding that is called in such branches alone.
    """
    around: list[ast.If | Function] = [*source.nodes(ast.If), *source.nodes(ast.FunctionDef)]
    inside = [node for node in around if source.span(node).start <= offset < source.span(node).end]
    return any(
        _is_asked(source, node.test) and source.span(node.test).end <= offset and not node.orelse
        if isinstance(node, ast.If)
        else _SEEDS.search(node.name.lower()) is not None and _is_called_when_seeded(source, node)
        for node in inside
    )


def _is_called_when_seeded(source: Source, function: Function) -> bool:
    calls = callers(source, function)
    conditions = [[a.test for a in source.ancestors(call) if isinstance(a, ast.If)] for call in calls]
    return bool(calls) and all(any(_is_asked(source, test) for test in tests) for tests in conditions)


def _is_asked(source: Source, test: ast.expr) -> bool:
    """Whether a condition asks for an option of seeding that is off as far as the file says: `args.seed is not None`."""
    asked = test.left if isinstance(test, ast.Compare) else test
    if not _SEEDS.search(last_name(asked).lower()):
        return False
    option = default(source, asked)
    if option is None:
        return isinstance(asked, ast.Attribute) and _is_off_if_left_out(source, asked)
    if isinstance(test, ast.Compare):
        compared = constant(source, test.comparators[0])
        return isinstance(test.ops[0], (ast.IsNot, ast.NotEq, ast.GtE, ast.Gt)) and option.value in (compared, -1, None)
    return not option.value


def _is_off_if_left_out(source: Source, asked: ast.Attribute) -> bool:
    """Whether an option without a default is declared in this file, or comes from a configuration that is not in sight."""
    flags = {f"--{asked.attr}", f"--{asked.attr.replace('_', '-')}"}
    declared = [c for c in source.calls(".add_argument") if any(constant(source, a) in flags for a in c.args)]
    stores = [n for n in source.nodes(ast.Attribute) if n.attr == asked.attr and isinstance(n.ctx, ast.Store)]
    if not declared and imported_files_say(source, SEEDED):
        return False
    given = [keyword for call in declared for keyword in call.keywords if keyword.arg in ("default", "action")]
    return not stores and all(constant(source, keyword.value) == "store_true" for keyword in given)


def _seeds_elsewhere(source: Source) -> bool:
    """Whether the script calls a seeding function of another file, which may set cuDNN's flags."""
    for call in source.nodes(ast.Call):
        name = _last_name(call)
        if ("seed" not in name and "cudnn" not in name) or name in SEEDING or called_function(source, call) is not None:
            continue
        if not _only_seeds(source, call.func) and source.qualified_name(call.func) not in _SEEDS_ONLY:
            return True
    return False


def _only_seeds(source: Source, called: ast.expr) -> bool:
    """Whether a name stands for functions that set no flag: one that does not speak of cuDNN, in a file of the program where
    no other function sets a flag either; or each of a row, `for set_seed in (random.seed, torch.manual_seed)`.
    """
    dotted = source.qualified_name(called)
    found = source.neighbours.definition_of(dotted) if source.neighbours is not None and dotted else None
    if found is not None:
        there, function = found
        inner = [_last_name(call) for call in ast.walk(function) if isinstance(call, ast.Call)]
        span, said = there.span(function), without_flags_taken_out(there.text)
        if _FLAGS.search(said[span.start : span.end]) or _SETS_FLAGS.search(said):
            return False
        return all(name in SEEDING or "seed" not in name for name in inner)
    bindings = source.lookup(called) if isinstance(called, ast.Name) else []
    row = source.parent(bindings[0]) if len(bindings) == 1 else None
    parts = row.iter.elts if isinstance(row, ast.For) and isinstance(row.iter, (ast.List, ast.Tuple)) else []
    return bool(parts) and all(last_name(part) in SEEDING for part in parts)


def _last_name(call: ast.Call) -> str:
    return (
        call.func.attr.lower()
        if isinstance(call.func, ast.Attribute)
        else call.func.id.lower()
        if isinstance(call.func, ast.Name)
        else ""
    )
