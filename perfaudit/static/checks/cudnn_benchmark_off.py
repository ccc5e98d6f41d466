"""PA301: a training script with convolutions of one size that does not let cuDNN time its algorithms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.findings import Edit
from perfaudit.static import edit
from perfaudit.static.context import StepLoop, called_function, is_main_guard, step_loops, uses_cuda
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.values import enclosing_function

FLAG = "torch.backends.cudnn.benchmark"
CONVOLUTIONS = ("torch.nn.Conv2d", "torch.nn.Conv3d", "torch.nn.ConvTranspose2d", "torch.nn.ConvTranspose3d")
TITLE = "let cuDNN time its algorithms once per input size"
COST = (
    "cuDNN picks convolution algorithms untimed; timing pays while input sizes stay the same, and hurts if they change"
)
SEEDING = {"seed", "manual_seed", "manual_seed_all", "initial_seed"}  # set no flag of cuDNN; another function may
_DECIDED = re.compile(r"benchmark|determinis|reproducib|cudnn\.(enabled|flags)")
_SIZES_CHANGE = re.compile(
    r"multi_?scale|scale_jitter|RandomResize\b|pad_sequence|pack_padded|collate_fn|bucket|progressive|batch_size\s*=\s*1\b",
    re.IGNORECASE,
)
_STARTS_PROCESSES = re.compile(r"spawn|multiprocessing|Process\(")
_AUDIO = {"torchaudio", "librosa"}  # clips differ in length


@check("PA301", ast.Module)
def cudnn_benchmark_off(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not any(source.calls(name) for name in CONVOLUTIONS) or not uses_cuda(source):
        return
    loops = step_loops(source)
    if not loops or not _is_script(source, loops):
        return
    if _sizes_change(source, loops) or _seeds_elsewhere(source):
        return
    mentions = _DECIDED.findall(source.text)
    if mentions:
        off = _switched_off(source)
        if off is not None and len(mentions) == 1 and not _is_deliberate(source, off):
            fix = Proposal(TITLE, edit.replace(source, off.value, "True"))
            yield Seen(off, f"with `{source.brief(off)}` {COST}", fix)
        return
    place = _place(source, loops[0])
    yield Seen(place, f"without `{FLAG}` {COST}", Proposal(TITLE, _edits(source, place)))


def _is_script(source: Source, loops: tuple[StepLoop, ...]) -> bool:
    """Whether this is the file that is run where the model is: no library, no master of remote workers."""
    if any(name.startswith("torch.distributed.rpc") for name in source.aliases.values()):
        return False
    if any(enclosing_function(source, step.loop) is None for step in loops):
        return True
    started = [s.value for s in source.tree.body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)]
    return any(is_main_guard(s) for s in source.tree.body) or any(called_function(source, call) for call in started)


def _switched_off(source: Source) -> ast.Assign | None:
    """The statement that sets the flag to False."""
    for statement in source.nodes(ast.Assign):
        is_flag = len(statement.targets) == 1 and source.qualified(statement.targets[0]) == FLAG
        if is_flag and isinstance(statement.value, ast.Constant) and statement.value.value is False:
            return statement
    return None


def _is_deliberate(source: Source, off: ast.Assign) -> bool:
    """Whether a comment, a condition, or seeding beside it says that somebody wants it off."""
    before, line = source.lines[max(off.lineno - 2, 0)], source.lines[off.lineno - 1]
    if "#" in line or before.lstrip().startswith("#"):
        return True
    if source.enclosing(off, ast.If, ast.ClassDef) is not None:
        return True
    function = enclosing_function(source, off)
    if function is not None and "seed" in function.name.lower():
        return True
    calls = [node for statement in source.block(off) for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return any("seed" in _last_name(call) for call in calls)


def _sizes_change(source: Source, loops: tuple[StepLoop, ...]) -> bool:
    """Whether something shows that batches differ in size: collation, padding, rescaling inside the loop, audio."""
    if _SIZES_CHANGE.search(source.text) or any(n.partition(".")[0] in _AUDIO for n in source.aliases.values()):
        return True
    if any("torchvision.models.detection" in name for name in source.aliases.values()):  # images keep their sizes
        return True
    inside = {id(node) for step in loops for node in (step.loop, *step.helpers)}
    resizes = source.calls("torch.nn.functional.interpolate")
    return any(id(ancestor) in inside for call in resizes for ancestor in source.ancestors(call))


def _seeds_elsewhere(source: Source) -> bool:
    """Whether the script calls a seeding function of another file, which may set cuDNN's flags."""
    for call in source.nodes(ast.Call):
        name = _last_name(call)
        if ("seed" in name or "cudnn" in name) and name not in SEEDING and called_function(source, call) is None:
            return True
    return False


def _last_name(call: ast.Call) -> str:
    return (
        call.func.attr.lower()
        if isinstance(call.func, ast.Attribute)
        else call.func.id.lower()
        if isinstance(call.func, ast.Name)
        else ""
    )


def _place(source: Source, step: StepLoop) -> ast.stmt:
    """The statement before which the flag belongs: the first of the main block, else of the function that trains.

    Where the script starts processes, the main block does not run in them.
    """
    if not _STARTS_PROCESSES.search(source.text):
        for statement in source.tree.body:
            if isinstance(statement, ast.If) and is_main_guard(statement):
                return statement.body[0]
    function = enclosing_function(source, step.loop)
    if function is None:
        top = [step.loop, *source.ancestors(step.loop)][-2]
        return source.statement(top)
    has_docstring = ast.get_docstring(function, clean=False) is not None and len(function.body) > 1
    return function.body[1 if has_docstring else 0]


def _edits(source: Source, place: ast.stmt) -> tuple[Edit, ...] | None:
    """The flag on a line before the statement; None where the statement shares its line, or is compiled."""
    around = [ancestor for ancestor in source.ancestors(place) if isinstance(ancestor, FUNCTIONS)]
    if any("compile" in source.text_of(decorator) for f in around for decorator in f.decorator_list):
        return None
    name, imported = edit.name_for(source, FLAG)
    return edit.together(edit.insert_before(source, place, f"{name} = True"), imported)
