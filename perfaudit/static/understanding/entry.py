"""The script that is run: whether a file is it, where a setting for the whole program goes, and who else may decide it."""

from __future__ import annotations

import ast
import functools
import sys

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.project.frameworks import has_trainer, running_frameworks
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.defaults import default
from perfaudit.static.understanding.demonstrations import is_main_guard
from perfaudit.static.understanding.devices import uses_cuda
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.step_loops import StepLoop, step_loops
from perfaudit.static.understanding.updates import looks_for_gradients
from perfaudit.static.understanding.values import UNKNOWN, Argument, argument, constant, enclosing_function, resolve

CONVOLUTIONS = tuple(f"torch.nn.{name}{n}d" for name in ("Conv", "ConvTranspose") for n in (2, 3))
ALL_CONVOLUTIONS = (*CONVOLUTIONS, "torch.nn.Conv1d", "torch.nn.ConvTranspose1d")
ATTENTION = (
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.MultiheadAttention",
    "torch.nn.TransformerEncoderLayer",
    "torch.nn.TransformerDecoderLayer",
)
# Limits by judgement, not measured: what is narrower is taken for too small to gain. A timing of both forms would settle them.
WIDE_LINEAR = 2048  # features in and out, where each sample is one vector
WIDE_ATTENTION = 512  # features, where each sample is a sequence of vectors
WIDE_CONVOLUTION = 256  # channels
FEW_CHANNELS = 128  # with no more in any layer, as for MNIST, the choice of an algorithm saves little
FEW_TURNS = 10  # of a loop over no data: it shows that a module runs
_WHOLE_MODELS = regex(
    r"torchvision\.models\.([a-z0-9]+\.)?"
    r"(get_model|vgg|resnet|resnext|wide_resnet|densenet|efficientnet|convnext|regnet|inception|googlenet|vit|swin)_?\w*$"
)
_BUILT = ("from_pretrained", "from_config")  # methods that build a model of a library
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
_STARTS_PROCESSES = regex(r"spawn|multiprocessing|Process\(")


@functools.lru_cache(maxsize=4)  # several rules ask for the same file
def script_loops(source: Source) -> tuple[StepLoop, ...]:
    """The training loops of a script that trains on CUDA, none where another file or a framework runs the training.

    The device may be named by a file alone that the script imports.
    """
    loops = training_loops(source)
    if not loops or not is_script(source, loops) or is_run_by_framework(source):
        return ()
    return loops if uses_cuda(source) or imported_files_say(source, "accelerator") else ()


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
    """Whether a file of the project that this one imports, directly or not, says something (see `Project.said_to_program`)."""
    return source.neighbours is not None and source.neighbours.imports_carry(mark)


@functools.lru_cache(maxsize=4)  # several rules ask for the same file
def is_script(source: Source, loops: tuple[StepLoop, ...]) -> bool:
    """Whether this is the file that is run where the model is: no library, no master of remote workers."""
    if any(name.startswith("torch.distributed.rpc") for name in source.aliases.values()):
        return False
    if any(enclosing_function(source, step.loop) is None for step in loops):
        return True
    if any(is_main_guard(statement) and not _only_shows(source, statement) for statement in source.tree.body):
        return True
    training = {id(enclosing_function(source, step.loop)) for step in loops}
    for call in source.nodes(ast.Call):  # also `for epoch in range(100): train(epoch)`
        parent = source.parent(call)
        if isinstance(parent, (ast.Expr, ast.Assign)) and _is_at_top(source, call):
            function = called_function(source, call)
            if function and (isinstance(parent, ast.Expr) or id(function) in training):  # `loss = train(epoch)`
                return True
    return False


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
    return any(STARTS.search(last_name(call.func)) for call in calls) or any(
        isinstance(node, LOOPS) for function in called for node in ast.walk(function)
    )


def _is_at_top(source: Source, node: ast.AST) -> bool:
    """Whether the node stands outside every function and class."""
    return source.scope(node) is source.tree


# ---- what the model is made of -------------------------------------------------------------------------------------


def whole_models(source: Source) -> list[ast.Call]:
    """Calls that build a model of torchvision: `resnet50()`, `models.get_model(name)`, `models.__dict__[name]()`."""
    if "torchvision" not in imported_packages(source):
        return []
    found = []
    for call in source.nodes(ast.Call):
        func = call.func
        if isinstance(func, ast.Subscript):
            if source.qualified_name(func.value) == "torchvision.models.__dict__":
                found.append(call)
        elif _WHOLE_MODELS.match(source.qualified_name(func) or ""):
            found.append(call)
    return found


def _hands_on_whole_model(source: Source) -> bool:
    """Whether a model of torchvision is named as an argument, for another one that builds it: `Net(models.resnet50)`."""
    if "torchvision" not in imported_packages(source):
        return False
    for call in source.nodes(ast.Call):
        for given in (*call.args, *(keyword.value for keyword in call.keywords)):
            if isinstance(given, ast.Subscript) and source.qualified_name(given.value) == "torchvision.models.__dict__":
                return True
            if isinstance(given, ast.Attribute) and _WHOLE_MODELS.match(source.qualified_name(given) or ""):
                return True
    return False


def behind_moves(made: ast.expr | None) -> ast.expr | None:
    """`Net()` of `Net().to(device).cuda()`."""
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in ("to", "cuda"):
        made = made.func.value
    return made


def builds_of_library(source: Source, call: ast.Call) -> bool:
    """Whether a call builds a model of timm or of transformers: not a tokenizer, nor a configuration."""
    if source.qualified_name(call.func) in ("timm.create_model", "torch.hub.load"):
        return True
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _BUILT:
        return False
    name = last_name(call.func.value)
    return "Model" in name or "For" in name or name.startswith("UNet")


def has_transformer_of_library(source: Source) -> bool:
    """Whether the file builds a model of transformers: `BertModel.from_pretrained(name)`, or derives one from it.

    They are 768 wide or wider.
    """
    if "transformers" not in imported_packages(source):
        return False
    if any(last_name(base).endswith("PreTrainedModel") for made in source.nodes(ast.ClassDef) for base in made.bases):
        return True
    return any(builds_of_library(source, call) for method in _BUILT for call in source.calls(f".{method}"))


def has_large_matmuls(source: Source) -> bool:
    """Whether the file builds attention of a known width, or a linear layer, that keeps a GPU busy."""
    if source.calls("torch.nn.Transformer"):  # 512 wide unless it says otherwise
        return True
    if any(
        c.args and _at_least(source, c.args[0], WIDE_ATTENTION) for name in ATTENTION[1:] for c in source.calls(name)
    ):
        return True
    limit = WIDE_ATTENTION if source.calls(ATTENTION[0]) else WIDE_LINEAR
    linear = source.calls("torch.nn.Linear")
    return any(len(c.args) > 1 and all(_at_least(source, a, limit) for a in c.args[:2]) for c in linear)


def has_large_convolutions(source: Source) -> bool:
    """Whether the file builds a convolution with many channels, or a model of torchvision, or hands on what builds one."""
    if whole_models(source) or _hands_on_whole_model(source):
        return True
    convolutions = [call for name in CONVOLUTIONS for call in source.calls(name)]
    if not convolutions:
        return False
    # For example `Block(64, 256)` inside a model.
    blocks = [
        call
        for call in source.nodes(ast.Call)
        if isinstance(call.func, ast.Name)
        and is_module_class(source, call.func)
        and source.enclosing(call, ast.ClassDef) is not None
        and any(source.lookup(call.func)[0] is around for c in convolutions for around in source.ancestors(c))
    ]
    return any(_at_least(source, a, WIDE_CONVOLUTION) for call in (*convolutions, *blocks) for a in call.args[:2])


def has_wide_convolutions_1d(source: Source) -> bool:
    """Whether the file builds a convolution along one axis, of a sequence or of points, with many channels."""
    calls = [call for name in ("torch.nn.Conv1d", "torch.nn.ConvTranspose1d") for call in source.calls(name)]
    return any(_at_least(source, a, WIDE_ATTENTION) for call in calls for a in call.args[:2])


def has_small_convolutions_only(source: Source) -> bool:
    """Whether the file builds its convolutions itself, writes the channels of all, and none is wide."""
    calls = [call for name in ALL_CONVOLUTIONS for call in source.calls(name)]
    if not calls or whole_models(source):
        return False
    channels = [
        argument(source, call, name, n) for call in calls for n, name in enumerate(("in_channels", "out_channels"))
    ]
    known = [_value_or_default(source, node) for node in channels]
    return all(isinstance(value, int) and value <= FEW_CHANNELS for value in known)


def _value_or_default(source: Source, node: Argument) -> object:
    """What an argument is worth, of an option its default."""
    value = constant(source, node)
    return value if value is not UNKNOWN or (option := default(source, node)) is None else option.value


def module_classes(source: Source) -> list[ast.ClassDef]:
    """The classes of this file that derive from `torch.nn.Module`, as far as the file shows."""
    return [definition for definition in source.nodes(ast.ClassDef) if _is_module(source, definition)]


def is_module_class(source: Source, name: ast.Name) -> bool:
    """Whether a name is a class of this file that derives from `torch.nn.Module`."""
    bindings = source.lookup(name)
    return len(bindings) == 1 and isinstance(bindings[0], ast.ClassDef) and _is_module(source, bindings[0])


def _is_module(source: Source, definition: ast.ClassDef, depth: int = 4) -> bool:
    for base in definition.bases:
        if (source.qualified_name(base) or "").startswith("torch.nn."):
            return True
        bindings = source.lookup(base) if isinstance(base, ast.Name) and depth else []
        if any(isinstance(b, ast.ClassDef) and _is_module(source, b, depth - 1) for b in bindings):
            return True
    return False


def parts_of(source: Source, definition: ast.ClassDef) -> list[ast.ClassDef]:
    """A module class and the classes of this file that it builds its layers from, each once."""
    found = [definition]
    for item in found:
        for node in ast.walk(item):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and is_module_class(source, node):
                inner = source.lookup(node)[0]
                if isinstance(inner, ast.ClassDef) and not any(known is inner for known in found):
                    found.append(inner)
    return found


def own_layer(node: ast.AST) -> str:
    """`conv` of `self.conv`; "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) and dotted_name(node.value) == "self" else ""


def _at_least(source: Source, node: Argument, limit: int) -> bool:
    value = constant(source, node)
    return isinstance(value, (int, float)) and value >= limit
