"""The script that is run: whether a file is it, where a setting for the whole program goes, and who else may decide it."""

from __future__ import annotations

import ast
import sys

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.project.frameworks import has_trainer, running_frameworks
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.built_by_settings import built_files_say
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.demonstrations import is_main_guard
from perfaudit.static.understanding.devices import is_on_cpu, uses_cuda
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import StepLoop, step_loops
from perfaudit.static.understanding.updates import looks_for_gradients
from perfaudit.static.understanding.values import UNKNOWN, constant, enclosing_function, resolve

FEW_TURNS = 10  # of a loop over no data: it shows that a module runs
# What takes the arguments of the Trainer of Hugging Face, which builds loader, optimizer and precision from them.
ARGUMENTS_OF_TRAINER = tuple(
    f"transformers.{module}{name}"
    for name, module in (
        *((name, "") for name in ("TrainingArguments", "Seq2SeqTrainingArguments")),
        *(("TrainingArguments", "training_args."), ("Seq2SeqTrainingArguments", "training_args_seq2seq.")),
    )
)
_HARMLESS = {
    "PIL", "cv2", "imageio", "matplotlib", "numpy", "pandas", "scipy", "skimage", "sklearn", "tensorboard", "tensorboardX",
    "torch", "torchvision", "tqdm", "visdom", "wandb",
}  # fmt: skip
STARTS = regex(r"^(main|run|fit|train\w*)$")  # what a script calls to begin: `trainer.fit(model, loader)`
_LOOKS = {  # calls in a main block that train nothing
    *(
        "print",
        "len",
        "range",
        "sum",
        "str",
        "format",
        "cuda",
        "to",
        "cpu",
        "eval",
        "float",
        "size",
        "numel",
        "parameters",
    ),
    *("state_dict", "backward", "fill_", "zero_grad", "items", "keys"),
}
_STARTS_PROCESSES = regex(r"spawn|multiprocessing|Process\(", words="spawn|multiprocessing|Process(")


@remember  # several rules ask for the same file
def script_loops(source: Source) -> tuple[StepLoop, ...]:
    """The training loops of a script that trains on CUDA, none where another file or a framework runs the training.

    The device may be named by a file alone that the script imports.
    """
    loops = training_loops(source)
    if not loops or not is_script(source, loops) or is_run_by_framework(source):
        return ()
    if uses_cuda(source):
        return loops
    return loops if imported_files_say(source, "accelerator") and not is_on_cpu(source) else ()


def training_loops(source: Source) -> tuple[StepLoop, ...]:
    """The training loops of a file but those that try a module out: a few turns, counted under the main guard itself.

    And but those that only look for a gradient, as an attack or the search for a bound does.
    """
    return tuple(
        step for step in step_loops(source) if not looks_for_gradients(step) and not _tries_out(source, step.loop)
    )


def _tries_out(source: Source, loop: ast.AST) -> bool:
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call) or last_name(loop.iter.func) != "range":
        return False
    turns = constant(source, loop.iter.args[0]) if len(loop.iter.args) == 1 else UNKNOWN
    is_in_guard = enclosing_function(source, loop) is None and any(is_main_guard(a) for a in source.ancestors(loop))
    return isinstance(turns, int) and turns <= FEW_TURNS and is_in_guard


def is_run_by_framework(source: Source) -> bool:
    """Whether the file imports what runs a training; transformers does so only as its Trainer, else it lends the model."""
    frameworks = running_frameworks(imported_names(source))
    return bool(frameworks - {"transformers"} or (frameworks and has_trainer(source.aliases.values(), source.text)))


def imported_files_say(source: Source, mark: str) -> bool:
    """Whether a file of the project that this one imports, directly or not, says something (see `Project.says_to_program`).

    So does one whose classes settings files have this one build.
    """
    neighbours = source.neighbours
    return neighbours is not None and (neighbours.imports_carry(mark) or built_files_say(source, mark))


@remember  # several rules ask for the same file
def is_script(source: Source, loops: tuple[StepLoop, ...]) -> bool:
    """Whether this is the file that is run where the model is: no library, no master of remote workers."""
    if any(name.startswith("torch.distributed.rpc") for name in source.aliases.values()):
        return False
    if any(enclosing_function(source, step.loop) is None for step in loops):
        return True
    if any(is_main_guard(statement) and not _only_shows(source, statement) for statement in source.tree.body):
        return True
    if is_started_by_fire(source):
        return True
    training = {id(enclosing_function(source, step.loop)) for step in loops}
    for call in source.nodes(ast.Call):  # also `for epoch in range(100): train(epoch)`
        parent = source.parent(call)
        if isinstance(parent, (ast.Expr, ast.Assign)) and _is_at_top(source, call):
            function = called_function(source, call)
            if function and (isinstance(parent, ast.Expr) or id(function) in training):  # `loss = train(epoch)`
                return True
    return False


def is_started_by_fire(source: Source) -> bool:
    """Whether the file calls `fire.Fire(...)` outside of its functions: the command line says which of them is run."""
    return any(is_fire(source, call) and enclosing_function(source, call) is None for call in source.nodes(ast.Call))


def is_fire(source: Source, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and source.qualified_name(node.func) == "fire.Fire"


def _only_shows(source: Source, guard: ast.stmt) -> bool:
    """Whether a main block only builds objects, looks at them and prints: no function or method in it may train."""
    for call in (node for node in ast.walk(guard) if isinstance(node, ast.Call)):
        name, qualified = last_name(call.func), source.qualified_name(call.func) or ""
        is_of_torch = qualified.startswith("torch.") and not qualified.startswith(("torch.multi", "torch.distrib"))
        if any(isinstance(value, ast.Name) and called_function(source, ast.Call(value, [], [])) for value in call.args):
            return False  # `Fire(main)` calls what it is given
        if not (name[:1].isupper() or name in _LOOKS or is_of_torch or _is_object(source, call.func)):
            return False
    return True


def _is_object(source: Source, called: ast.expr) -> bool:
    """Whether a name stands for an object that the file builds: `net` of `net = Net().cuda()`, which `net(x)` runs once."""
    made = behind_moves(resolve(source, called)) if isinstance(called, ast.Name) else None
    return isinstance(made, ast.Call) and last_name(made.func)[:1].isupper()


def imported_packages(source: Source) -> set[str]:
    """The first part of every import: "torchvision"; "" for a relative one."""
    return {name.partition(".")[0] for name in imported_names(source)}


def imported_names(source: Source) -> set[str]:
    """What the imports of a file name in full: "torchvision.models" of either form; "" for a relative one."""
    names = {alias.name for statement in source.nodes(ast.Import) for alias in statement.names}
    for statement in source.nodes(ast.ImportFrom):
        names |= {"" if statement.level else f"{statement.module}.{alias.name}" for alias in statement.names}
    return names


def is_whole(source: Source) -> bool:
    """Whether nothing but torch, well-known libraries and the standard library works beside this file."""
    return imported_packages(source) <= _HARMLESS | sys.stdlib_module_names


def place_of_setting(source: Source, step: StepLoop) -> ast.stmt:
    """The statement before which a setting belongs: the first of the main block, else of the function that trains.

    Where the script starts processes, the main block does not run in them.
    """
    if not starts_processes(source):
        for statement in source.tree.body:
            if isinstance(statement, ast.If) and is_main_guard(statement):
                return statement.body[0]
    function = enclosing_function(source, step.loop)
    if function is None:
        top = [step.loop, *source.ancestors(step.loop)][-2]
        return source.statement(top)
    has_docstring = ast.get_docstring(function, clean=False) is not None and len(function.body) > 1
    return function.body[1 if has_docstring else 0]


def starts_processes(source: Source) -> bool:
    """Whether the script starts processes that train, in which its main block does not run."""
    return _STARTS_PROCESSES.search(source.text) is not None


def setting(source: Source, place: ast.stmt, dotted: str, rest: str) -> edit.Edits | None:
    """A line such as `torch.x.y = True` before the statement; None where it shares its line, or is compiled.

    dotted: the name of torch; rest: what stands behind it.
    """
    around = [ancestor for ancestor in source.ancestors(place) if isinstance(ancestor, FUNCTIONS)]
    if any("compile" in source.text_of(decorator) for f in around for decorator in f.decorator_list):
        return None
    name, imported = edit.name_for(source, dotted)
    return edit.together(edit.insert_before(source, place, f"{name}{rest}"), imported)


@remember  # asked for each loader
def runs_unguarded(source: Source) -> bool:
    """Whether the file runs a program as it is imported: loops, or functions of its own with loops, and no main guard.

    A process that is spawned, as workers are on Windows, macOS and from Python 3.14 on Linux, imports the script again,
    and all of this runs once more in it. Not a notebook, which has no file to import, nor a test, which pytest imports.
    """
    if source.path.endswith(".ipynb") or any(is_main_guard(statement) for statement in source.tree.body):
        return False
    name = source.path.rpartition("/")[2]
    if name == "conftest.py" or name.startswith("test_") or name.endswith("_test.py"):
        return False
    if any(_is_at_top(source, loop) for loop in source.nodes(*LOOPS)):
        return True
    calls = [call for call in source.nodes(ast.Call) if _is_at_top(source, call)]
    called = [function for call in calls if (function := called_function(source, call)) is not None]
    return any(STARTS.search(last_name(call.func)) or is_fire(source, call) for call in calls) or any(
        isinstance(node, LOOPS) for function in called for node in ast.walk(function)
    )


def _is_at_top(source: Source, node: ast.AST) -> bool:
    """Whether the node stands outside every function and class."""
    return source.scope(node) is source.tree


# ---- what the model is made of -------------------------------------------------------------------------------------


def behind_moves(made: ast.expr | None) -> ast.expr | None:
    """`Net()` of `Net().to(device).cuda()`."""
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in ("to", "cuda"):
        made = made.func.value
    return made
