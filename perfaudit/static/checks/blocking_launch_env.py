"""PA504: an environment variable for debugging, set in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.demonstrations import is_main_guard
from perfaudit.static.understanding.devices import asks_for_gpu

COSTS = {
    "CUDA_LAUNCH_BLOCKING": "the host waits for every kernel to end",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "every tensor is allocated and freed by the CUDA driver, which waits for the device",
    "TORCH_DISTRIBUTED_DEBUG": "every collective is preceded by a check that all ranks make the same call",
}
SLOW = {  # values that switch it on
    "CUDA_LAUNCH_BLOCKING": regex(r"[1-9]\d*$"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": regex(r""),  # only looked for, never read: "0" switches it on as well
    "TORCH_DISTRIBUTED_DEBUG": regex(r"detail$", re.IGNORECASE),
}
_STARTS = (
    "subprocess",
    "multiprocessing",
    "torch.multiprocessing",
    "concurrent",
    "sh",
    "joblib",
    "ray",
    "submitit",
    "pexpect",
)
_STARTING = regex(r"^(system|popen|fork|forkpty|startfile|(posix_)?spawn\w*|exec[lv]\w*)$|launch|(^|_)spawn(_|$)")
_WHOLE = {"copy", "clear", "items", "keys", "values"}
_IS_DEBUGGING = regex(r"^test|debug|profil")


@check("PA504", ast.Module)
def blocking_launch_env(source: Source, _: ast.Module) -> Iterator[Seen]:
    if not any(target.partition(".")[0] == "os" for target in source.aliases.values()):
        return
    names = [name for name in COSTS if name in source.text]
    if not names or _hides_gpus(source) or _keeps_environment(source):
        return
    settings = [each for name in names for each in _settings(source, name)]
    inherited = _starts_processes(source)
    for statement, name in settings:
        yield Seen(
            statement,
            f"`{source.brief(statement)}` is for debugging: {COSTS[name]}",
            Proposal("do not set it here, unless a process started here needs it")
            if inherited
            else Proposal("do not set it here", edit.delete_statement(source, statement, [one for one, _ in settings])),
        )


def _settings(source: Source, name: str) -> list[tuple[ast.stmt, str]]:
    """The statements that switch a variable on, each with its name; none where the file reads or unsets it: somebody decides."""
    mentions = [constant for constant in source.nodes(ast.Constant) if constant.value == name]
    found = [_setting(source, mention, name) for mention in mentions]
    statements = [statement for statement in found if statement is not None]
    if len(statements) < len(found):
        return []
    return [(statement, name) for statement in statements if not _is_chosen(source, statement)]


def _setting(source: Source, name_text: ast.Constant, name: str) -> ast.stmt | None:
    """The statement that does nothing but switch the variable on; None for any other place that names it."""
    parent = source.parent(name_text)
    if isinstance(parent, ast.Subscript) and source.qualified_name(parent.value) == "os.environ":
        statement = source.parent(parent)
        is_plain = isinstance(statement, ast.Assign) and len(statement.targets) == 1
        if not isinstance(statement, ast.Assign) or not is_plain or statement.targets[0] is not parent:
            return None
        value: ast.expr | None = statement.value
    elif isinstance(parent, ast.Call) and source.qualified_name(parent.func) in ("os.environ.setdefault", "os.putenv"):
        statement = source.parent(parent)
        if not isinstance(statement, ast.Expr) or len(parent.args) != 2 or parent.args[0] is not name_text:
            return None
        value = parent.args[1]
    else:
        return None
    is_on = isinstance(value, ast.Constant) and isinstance(value.value, str) and SLOW[name].match(value.value)
    return statement if is_on else None


def _hides_gpus(source: Source) -> bool:
    """Whether the program runs on the CPU: `os.environ["CUDA_VISIBLE_DEVICES"] = ""`."""
    texts = [c for c in source.nodes(ast.Constant) if c.value == "CUDA_VISIBLE_DEVICES"]
    statements = [source.parent(parent) for text in texts if isinstance(parent := source.parent(text), ast.Subscript)]
    values = [s.value for s in statements if isinstance(s, ast.Assign)]
    return any(isinstance(value, ast.Constant) and value.value in ("", "-1") for value in values)


def _keeps_environment(source: Source) -> bool:
    """Whether the file takes or restores the whole environment: `dict(os.environ)`, `os.environ.copy()`, `**os.environ`."""
    for node in (*source.nodes(ast.Attribute), *source.nodes(ast.Name)):
        if source.qualified_name(node) != "os.environ":
            continue
        parent = source.parent(node)
        if not isinstance(parent, (ast.Subscript, ast.Compare, ast.Attribute)):
            return True
        if isinstance(parent, ast.Attribute) and parent.attr in _WHOLE:
            return True
    return False


def _starts_processes(source: Source) -> bool:
    """Whether the file may start a process, which would inherit the variable."""
    modules = {f"{target}." for target in source.aliases.values()}
    if any(module.startswith(f"{name}.") for module in modules for name in _STARTS):
        return True
    called = (call for call in source.calls_named(_STARTING))
    return any(True for _ in called) or "torch.multiprocessing" in source.text


def _is_chosen(source: Source, statement: ast.stmt) -> bool:
    """Whether a condition decides about it, or the function around it is a test or is there for debugging."""
    for ancestor in source.ancestors(statement):
        if isinstance(ancestor, ast.If) and (is_main_guard(ancestor) or asks_for_gpu(source, ancestor.test)):
            continue
        if isinstance(ancestor, (ast.If, ast.Match, ast.ExceptHandler)):
            return True
        if isinstance(ancestor, (*FUNCTIONS, ast.ClassDef)) and _IS_DEBUGGING.search(ancestor.name.lower()):
            return True
    return False
