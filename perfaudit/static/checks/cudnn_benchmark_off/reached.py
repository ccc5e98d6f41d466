"""Whether what a script names, and what that names in turn, may hold a convolution of images or volumes.

A module may define classes with convolutions that the script has no use for: `from models import MLP`, beside a `CNN` there.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.project.neighbours import Neighbours
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import assigned_value

_MOST = 400  # definitions that are looked through; what a larger program reaches is not settled
# By any name of torch's or of another library: `Conv2d`, `conv_transpose3d`, `MetaConv2d`.
_CONVOLVES = regex(r"[Cc]onv(?!olve)\w*[23][dD]")
_LENDS_MODELS = regex(  # libraries of models, most of which convolve
    r"^(torchvision\.models|torch\.hub|timm|segmentation_models\w*|efficientnet\w*|pretrainedmodels|monai|mm\w+|detectron2"
    r"|diffusers|open_clip|clip|ultralytics|facenet_pytorch|lpips|geffnet|pytorchcv|effdet|kornia)\b"
)
# Definitions that are found by a text: what they are is not in sight.
_BY_TEXT = {"eval", "exec", "globals", "__import__", "import_module", "instantiate", "locate", "import_string"}
_REGISTERS = regex(r"regist|entry_?point", re.IGNORECASE)
_BUILTINS = set(dir(builtins)) | {"__file__", "__name__", "__doc__", "__class__"}
_IMPORTS = (ast.Import, ast.ImportFrom)
_DEFINITIONS = (*FUNCTIONS, ast.ClassDef)


def may_reach_convolutions(source: Source) -> bool:
    """Whether a convolution may be among what the script runs; True wherever that is not clear.

    Everything that a function or class names counts as run. Methods that only a subclass has are part of that subclass.
    """
    neighbours = source.neighbours
    if neighbours is None:
        return True
    walk = _Walk(source, neighbours)
    pending: list[Definition] = [
        (source, node) for node in source.tree.body if not isinstance(node, (*_DEFINITIONS, *_IMPORTS))
    ]
    known = {id(node) for _, node in pending}
    for there, node in pending:
        if len(pending) > _MOST + len(source.tree.body):
            return True
        for further in walk.definitions_in(there, node):
            if further is None:
                return True
            if id(further[1]) not in known:
                known.add(id(further[1]))
                pending.append(further)
    return False


Definition = tuple[Source, ast.AST]


class _Walk:
    """From a piece of code to what its names stand for, in a script and the files that it imports."""

    def __init__(self, script: Source, neighbours: Neighbours) -> None:
        self._script = script
        self._neighbours = neighbours

    def definitions_in(self, there: Source, root: ast.AST) -> Iterator[Definition | None]:
        """The definitions that a piece of code names; None where it names a convolution, or what it names is not clear."""
        pending = [root]
        while pending:
            node = pending.pop()
            if isinstance(node, _IMPORTS):
                continue
            if isinstance(node, ast.Call) and (_finds_by_text(node) or self._is_of_filled_table(there, node.func)):
                yield None
            if _asks_for_class(node):
                continue
            if isinstance(node, (ast.Name, ast.Attribute)):
                found = self._targets(there, node)
                if found is not None:
                    yield from found
                    continue
            pending += ast.iter_child_nodes(node)

    def _targets(self, there: Source, node: ast.Name | ast.Attribute) -> list[Definition | None] | None:
        """What a name with its attributes stands for: nothing of note, definitions, or [None]; None where its parts say more."""
        if isinstance(node, ast.Attribute):
            root: ast.expr = node
            while isinstance(root, ast.Attribute):
                root = root.value
            if not isinstance(root, ast.Name) or there.qualified_name(root) is None:
                return None  # of an object: what makes it is looked at by itself
        elif not isinstance(node.ctx, ast.Load):
            return []
        dotted = there.qualified_name(node)
        if dotted is None:
            return self._local(there, node) if isinstance(node, ast.Name) else []
        if _CONVOLVES.search(dotted) or _LENDS_MODELS.search(dotted) or _REGISTERS.search(dotted):
            return [None]
        if dotted.startswith("torch."):
            return []
        return self._import_targets(there, dotted)

    def _local(self, there: Source, name: ast.Name) -> list[Definition | None]:
        """What a name of the same file stands for; a parameter or the target of a loop says nothing by itself."""
        if _REGISTERS.search(name.id):
            return [None]
        bound = there.lookup(name)
        if not bound and name.id not in _BUILTINS:
            return self._from_star(there, name)
        return self._values_of(there, bound)

    def _from_star(self, there: Source, name: ast.Name) -> list[Definition | None]:
        """What a name stands for that only `from module import *` can have bound; [None] for what is called and is nowhere."""
        stars = [s for s in there.nodes(ast.ImportFrom) if s.names[0].name == "*"]
        for star in stars:
            module = "." * star.level + (star.module or "")
            joined = module if module.endswith(".") else module + "."
            if found := self._neighbours.bindings_of(joined + name.id, self._asker(there)):
                return self._values_of(*found)
        user = there.parent(name)
        return [None] if stars or (isinstance(user, ast.Call) and user.func is name) else []

    def _import_targets(self, there: Source, dotted: str) -> list[Definition | None]:
        by = self._asker(there)
        name = dotted
        while name.strip("."):
            if found := self._neighbours.bindings_of(name, by):
                return self._values_of(*found)
            name = name.rpartition(".")[0]
        # Of another library, whose models are known by its name; or of the project, and not found.
        return [None] if dotted.startswith(".") or self._neighbours.is_own_module(dotted, by) else []

    def _values_of(self, there: Source, bindings: list[ast.AST]) -> list[Definition | None]:
        values = [b if isinstance(b, _DEFINITIONS) else assigned_value(there, b) for b in bindings]
        return [(there, value) for value in values if value is not None]

    def _is_of_filled_table(self, there: Source, called: ast.expr) -> bool:
        """Whether what is called is an item of a table that is empty where it is made: others put classes into it."""
        table = called.value if isinstance(called, ast.Subscript) else None
        found = self._targets(there, table) if isinstance(table, (ast.Name, ast.Attribute)) else None
        values = [item[1] for item in found or () if item is not None]
        return any(isinstance(value, ast.Dict) and not value.keys for value in values)

    def _asker(self, there: Source) -> Source | None:
        return None if there is self._script else there


def _finds_by_text(call: ast.Call) -> bool:
    name = last_name(call.func)
    if name == "eval" and isinstance(call.func, ast.Attribute):  # `model.eval()`
        return False
    return name in _BY_TEXT


def _asks_for_class(node: ast.AST) -> bool:
    """Whether code only asks of what class something is: `isinstance(layer, nn.Conv2d)`, `type(layer) in (...)`."""
    asked = node.left if isinstance(node, ast.Compare) else node
    return isinstance(asked, ast.Call) and last_name(asked.func) in (
        ("type",) if asked is not node else ("isinstance", "issubclass")
    )
