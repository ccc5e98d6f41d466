"""What a script does besides training, where it matters that several processes do it: files, devices, random numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.checks.data_parallel.program import Program, Refused, function_called, guard_of
from perfaudit.static.checks.data_parallel.steady import Steady
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.entry import imported_packages
from perfaudit.static.understanding.model_parts import module_classes
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import argument, assigned_value

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")  # variables of the patch, and of the environment that torchrun sets
_KNOWN = {  # packages that neither write files nor start processes unless a call says so
    *("torch", "torchvision", "numpy", "tqdm", "PIL", "math", "random", "time", "datetime", "os", "sys", "argparse"),
    *("collections", "copy", "dataclasses", "enum", "functools", "itertools", "json", "operator", "pathlib", "re"),
    *("statistics", "string", "typing", "warnings", "__future__", "abc", "contextlib", "glob", "sklearn"),
}
_LAUNCHES = regex(r"\bdistributed\b|DistributedDataParallel|DistributedSampler|multiprocessing|MASTER_(ADDR|PORT)")
_WRITES = regex(
    r"^(save\w*|dump\w*|write\w*|to_(csv|json|pickle|excel|parquet|hdf|feather)|tofile|im(save|write)|export\w*|mkdir"
    r"|touch|unlink|rmdir|symlink_to|hardlink_to|SummaryWriter|FileHandler|\w+FileHandler|show|memmap)$"
)
_ASKS = {"input", "exec", "eval", "__import__", "breakpoint", "globals", "exit", "quit"}
_OF_OS = (
    "os.path.",
    "os.environ.get",
    "os.getenv",
    "os.cpu_count",
    "os.listdir",
    "os.getcwd",
    "os.makedirs",
    "os.walk",
)
_OF_CUDA = {
    *("is_available", "device_count", "manual_seed", "manual_seed_all", "empty_cache", "synchronize", "amp"),
    *("get_device_name", "max_memory_allocated", "memory_allocated", "FloatTensor", "LongTensor", "GradScaler"),
}
_RANDOM = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "random_split"}
_RANDOM |= {"rand_like", "randn_like", "randint_like", "SubsetRandomSampler", "WeightedRandomSampler"}
_WITHOUT_ORDER = {"sorted", "len", "min", "max", "sum"}
_FILLED = {"normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_", "cauchy_", "log_normal_"}
_SPLITS = {
    "train_test_split",
    "KFold",
    "StratifiedKFold",
    "ShuffleSplit",
    "StratifiedShuffleSplit",
    "shuffle",
    "resample",
}
_OF_SAMPLE = {"__getitem__", "__call__", "forward"}
_SEEDS = {"torch": "torch.manual_seed", "numpy": "numpy.random.seed", "random": "random.seed"}


def refuse_surroundings(program: Program) -> None:
    """Raises Refused where processes would write the same file, meet at a device, or draw different numbers in set-up code."""
    source = program.source
    if _LAUNCHES.search(source.code) or any(item.value in NAMES for item in source.nodes(ast.Constant)):
        raise Refused("the script knows of several processes already")
    if taken := [name for name in NAMES if name in source.assigned_names | source.aliases.keys()]:
        raise Refused(f"the script has a variable `{taken[0]}`, which the patch needs")
    if unknown := sorted(imported_packages(source) - _KNOWN):
        raise Refused(f"what `{unknown[0] or 'a file beside it'}` does in several processes is not known")
    if source.star_modules or any(n.names[0].name == "*" for n in source.nodes(ast.ImportFrom)):
        raise Refused("names are imported by `*`")
    for call in source.nodes(ast.Call):
        _refuse_call(source, call)
    _refuse_devices(program)
    _refuse_random(program)
    _refuse_sets(source)


def is_in_class(source: Source, node: ast.AST) -> bool:
    return source.enclosing(node, ast.ClassDef) is not None


# ---- files -----------------------------------------------------------------------------------------------------------


def _refuse_call(source: Source, call: ast.Call) -> None:
    name, said = source.qualified_name(call.func) or "", f"`{source.brief(call, 40)}`"
    last = last_name(call.func)
    if isinstance(call.func, ast.Name) and not source.lookup(call.func) and call.func.id in _ASKS:
        raise Refused(f"{said} would run in every process")
    if last == "open" and (isinstance(call.func, ast.Name) or name == "io.open") and not _reads(source, call):
        raise Refused(f"every process would write to what {said} opens")
    if last == "open" and isinstance(call.func, ast.Attribute) and name not in ("PIL.Image.open", "io.open"):
        raise Refused(f"{said} may write, in every process")
    if name.startswith("os.") and not name.startswith(_OF_OS):
        raise Refused(f"{said} would run in every process")
    if name == "os.makedirs" or last == "mkdir":
        exist_ok = argument(source, call, "exist_ok", None)
        if not (isinstance(exist_ok, ast.Constant) and exist_ok.value is True):
            raise Refused(f"of {said} only one process can succeed, without `exist_ok=True`")
    elif function_called(source, call) is not None:  # what it does stands in this file
        return
    elif _WRITES.search(last) and name not in ("torch.save", "tqdm.tqdm.write") and not name.startswith("sys."):
        raise Refused(f"{said} would write, or show something, in every process")
    if name.startswith(("torch.hub.", "torch.jit.", "torch.onnx.", "torch.export.", "torch.utils.tensorboard")):
        raise Refused(f"{said} would run in every process")
    if name == "torch.load" or last == "load_state_dict":
        raise Refused(f"{said} may read what another process is writing")


def downloads(program: Program) -> list[ast.stmt]:
    """The statements that may download data, which one process has to do before the others.

    Raises Refused where that is not a plain statement that all processes reach, after they have joined.
    """
    source, steady = program.source, Steady(program.source)
    found: dict[int, ast.stmt] = {}
    for call in source.nodes(ast.Call):
        download = next((k.value for k in call.keywords if k.arg == "download"), None)
        if download is None or (isinstance(download, ast.Constant) and download.value is False):
            continue
        statement, guard = source.statement(call), guard_of(source)
        is_plain = (
            isinstance(statement, (ast.Assign, ast.Expr)) and source.enclosing(call, *LOOPS, ast.ClassDef) is None
        )
        is_late = guard is None or source.enclosing(call, *FUNCTIONS) is not None or _is_in(source, call, guard)
        if not is_plain or not is_late or not steady.is_reached_steadily(call) or not steady.is_steady(download):
            raise Refused(f"`{source.brief(call, 40)}` may download, and every process would do so at the same time")
        found[id(statement)] = statement
    return sorted(found.values(), key=lambda statement: statement.lineno)


def _reads(source: Source, call: ast.Call) -> bool:
    mode = argument(source, call, "mode", 1)
    if not isinstance(mode, ast.expr):
        return mode.value == "absent"
    return isinstance(mode, ast.Constant) and mode.value in ("r", "rb", "rt")


# ---- devices ---------------------------------------------------------------------------------------------------------


def first_devices(source: Source) -> list[ast.Constant]:
    """The texts `"cuda:0"` of a file, which the patch makes the process' own device."""
    return [item for item in source.nodes(ast.Constant) if item.value == "cuda:0"]


def _refuse_devices(program: Program) -> None:
    source = program.source
    if "CUDA_VISIBLE_DEVICES" in source.code:
        raise Refused("the script chooses its GPUs by CUDA_VISIBLE_DEVICES itself")
    for item in source.nodes(ast.Constant):
        if isinstance(item.value, str) and item.value.startswith("cuda:") and item.value != "cuda:0":
            raise Refused(f'the device "{item.value}" is named')
    if any(_is_device(part) for test in source.nodes(ast.Compare) for part in ast.walk(test)) and first_devices(source):
        raise Refused("devices are compared")
    for attribute in source.nodes(ast.Attribute):
        name = source.qualified_name(attribute) or ""
        if name.startswith("torch.cuda.") and name.split(".")[2] not in _OF_CUDA:
            raise Refused(f"`{source.brief(attribute, 40)}` chooses a device, or asks about one")
    counts = [call for call in source.calls("torch.cuda.device_count") if not _is_in(source, call, program.test)]
    if any(not _is_printed(source, call) for call in counts):
        raise Refused("the script counts the GPUs for more than to wrap the model")
    steady = Steady(source)
    for call in (*source.calls(".cuda"), *source.calls(".to")):
        if not all(_is_own_device(source, steady, value) for value in _devices_given(call)):
            raise Refused(f"`{source.brief(call, 40)}` may name another device than the process' own")
    for call in source.calls("torch.device"):
        if len(call.args) != 1 or call.keywords or not _is_own_device(source, steady, call.args[0]):
            raise Refused(f"`{source.brief(call, 40)}` may name another device than the process' own")
    for call in source.nodes(ast.Call):
        device = next((k.value for k in call.keywords if k.arg == "device"), None)
        if device is not None and not _is_own_device(source, steady, device):
            raise Refused(f"`{source.brief(call, 40)}` may name another device than the process' own")
    _refuse_early_cuda(source)


def _refuse_early_cuda(source: Source) -> None:
    """Raises Refused where something runs on a GPU before the main block, in which a process chooses its own."""
    guard = guard_of(source)
    if guard is None:
        return
    for call in (*source.calls(".cuda"), *source.calls(".to")):
        if source.enclosing(call, *FUNCTIONS, ast.Lambda) is None and not any(
            a is guard for a in source.ancestors(call)
        ):
            raise Refused(f"`{source.brief(call, 40)}` runs before the main block")


def _is_device(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "device"


def _is_in(source: Source, node: ast.AST, around: ast.AST | None) -> bool:
    return around is not None and any(a is around for a in (node, *source.ancestors(node)))


def _is_printed(source: Source, call: ast.Call) -> bool:
    calls = (a for a in source.ancestors(call) if isinstance(a, ast.Call))
    return any(isinstance(a.func, ast.Name) and a.func.id == "print" for a in calls)


def _devices_given(call: ast.Call) -> Iterator[ast.expr]:
    if call.args:
        yield call.args[0]
    yield from (
        k.value for k in call.keywords if k.arg not in ("non_blocking", "memory_format", "dtype", "copy", "device")
    )


def _is_own_device(source: Source, steady: Steady, node: ast.expr, depth: int = 6) -> bool:
    """Whether a device is the CPU or the current GPU, or the expression is a type: `"cuda"`, `x.device`, `torch.float32`."""
    if not depth:
        return False
    match node:
        case ast.Constant(value=str() as text):
            return text in ("cuda", "cpu", "cuda:0")
        case ast.IfExp():
            return all(_is_own_device(source, steady, part, depth - 1) for part in (node.body, node.orelse))
        case ast.Attribute():
            is_torchs = (source.qualified_name(node) or "").startswith("torch.")
            return is_torchs or node.attr == "dtype" or (node.attr == "device" and _is_tensor(source, node.value))
        case ast.Call():
            if source.qualified_name(node.func) != "torch.device" or len(node.args) != 1:
                return False
            return _is_own_device(source, steady, node.args[0], depth - 1)
        case ast.Name():
            return _is_own_device_name(source, steady, node, depth)
    return False


def _is_own_device_name(source: Source, steady: Steady, name: ast.Name, depth: int) -> bool:
    bound = source.lookup(name)
    for binding in bound:
        if isinstance(binding, ast.arg):
            passed = steady.arguments_for(binding)
            if not passed or not all(_is_own_device(source, steady, value, depth - 1) for value in passed):
                return False
        else:
            value = assigned_value(source, binding)
            if value is None or not _is_own_device(source, steady, value, depth - 1):
                return False
    return bool(bound)


def _is_tensor(source: Source, node: ast.expr) -> bool:
    """Whether something is a tensor and no set of options: of a batch, made by torch, or an argument of `forward`."""
    bound = source.lookup(node) if isinstance(node, ast.Name) else []
    for binding in bound:
        value = assigned_value(source, binding)
        function = source.enclosing(binding, *FUNCTIONS)
        if isinstance(binding, ast.arg):
            is_input = isinstance(function, FUNCTIONS) and function.name == "forward" and binding.arg != "self"
        else:
            is_made = isinstance(value, ast.Call) and (source.qualified_name(value.func) or "").startswith("torch.")
            is_input = is_made or isinstance(source.statement(binding), ast.For)
        if not is_input:
            return False
    return bool(bound)


# ---- random numbers --------------------------------------------------------------------------------------------------


def _refuse_random(program: Program) -> None:
    """Raises Refused where set-up code draws numbers without a seed: each process would have other data."""
    source, steady = program.source, Steady(program.source)
    for call in source.nodes(ast.Call):
        family = _family(source, call)
        if not family or _is_of_steps(program, call) or not _is_set_up(source, call) or _has_generator(call):
            continue
        seeds = source.calls(_SEEDS[family])
        if not all(_is_sure(source, steady, seed) for seed in seeds):  # one of them may differ between processes
            seeds = []
        here, orders = _order(source, call), [order for seed in seeds if (order := _order(source, seed)) is not None]
        if not any(here is None or order < here for order in orders):
            drawn = source.brief(call.func, 40)
            raise Refused(f"`{drawn}` draws before `{_SEEDS[family]}`, so each process would draw something else")


def _refuse_sets(source: Source) -> None:
    """Raises Refused where the order of a set may decide, which is another one in each process: labels would differ."""
    calls = [call for name in ("set", "frozenset", "hash") for call in source.calls_named(regex(rf"^{name}$"))]
    sets: list[ast.expr] = [call for call in calls if isinstance(call.func, ast.Name)]
    for node in (*sets, *source.nodes(ast.Set), *source.nodes(ast.SetComp)):
        parent = source.parent(node)
        is_ordered = (
            isinstance(parent, ast.Call) and parent.func is not node and last_name(parent.func) in _WITHOUT_ORDER
        )
        if not is_ordered and not isinstance(parent, ast.Compare):
            raise Refused(f"`{source.brief(node, 40)}` has another order in each process")


def _family(source: Source, call: ast.Call) -> str:
    """Which generator a call draws from: torch's, NumPy's or Python's; "" for none."""
    name = source.qualified_name(call.func) or ""
    if name in _SEEDS.values():
        return ""
    is_filled = last_name(call.func) in _FILLED and not name.startswith("torch.nn.init.")
    if is_filled or name.startswith("torch.distributions."):
        return "torch"
    if name.startswith("torch.") and name.rpartition(".")[2] in _RANDOM:
        return "torch"
    last = name.rpartition(".")[2]
    if name.startswith("numpy.random.") or (
        name.startswith("sklearn.") and (last in _SPLITS or last.startswith("make_"))
    ):
        return "numpy"
    return "random" if name.startswith("random.") else ""


def _is_of_steps(program: Program, node: ast.AST) -> bool:
    return any(around is program.steps for around in program.source.ancestors(node))


def _is_set_up(source: Source, call: ast.Call) -> bool:
    """Whether a call is of set-up code: not of a module, nor of what makes one sample of a dataset."""
    owner = source.enclosing(call, ast.ClassDef)
    if owner is None:
        return True
    function = source.enclosing(call, *FUNCTIONS)
    if any(owner is module for module in module_classes(source)):
        return False
    if not isinstance(function, FUNCTIONS) or function.name in _OF_SAMPLE:
        return not isinstance(function, FUNCTIONS)
    around = [source.enclosing(caller, *FUNCTIONS) for caller in callers(source, function)]
    return not around or any(not isinstance(f, FUNCTIONS) or f.name not in _OF_SAMPLE for f in around)


def _has_generator(call: ast.Call) -> bool:
    """Whether a call draws from a generator of its own with a seed that is written there."""
    generator = next((k.value for k in call.keywords if k.arg in ("generator", "random_state")), None)
    seeded = isinstance(generator, ast.Call) and last_name(generator.func) == "manual_seed" and generator.args
    value = generator.args[0] if seeded and isinstance(generator, ast.Call) else generator
    return isinstance(value, ast.Constant) and isinstance(value.value, int)


def _is_sure(source: Source, steady: Steady, seed: ast.Call) -> bool:
    """Whether a seed is the same in every process, and set in any case."""
    sets = all(steady.is_steady(value) for value in seed.args) and bool(seed.args)
    guard = guard_of(source)
    blocks = (a for a in source.ancestors(seed) if isinstance(a, (ast.If, *LOOPS, ast.Try)))
    return sets and all(block is guard for block in blocks)


def _order(source: Source, node: ast.AST, depth: int = 4) -> tuple[int, ...] | None:
    """When a place runs first: the line at the top of the file, that in the function called there, and so on inwards.

    None where nothing in sight runs it.
    """
    function = source.enclosing(node, *FUNCTIONS)
    line: int = getattr(node, "lineno", 0)
    if not isinstance(function, FUNCTIONS):
        return (line,)
    owner = source.parent(function)
    calls: list[ast.AST] = [*callers(source, function)]
    if isinstance(owner, ast.ClassDef) and function.name == "__init__":
        uses = source.uses_of(owner, owner.name)
        calls = [call for use in uses if isinstance(call := source.parent(use), ast.Call) and call.func is use]
    outer = [order for call in calls if depth and (order := _order(source, call, depth - 1)) is not None]
    return (*min(outer), line) if outer else None
