"""What a script names, and what that names in turn: the functions, classes and tables that it can run, in all its files.

A module may define classes that the script has no use for: `from models import MLP`, beside a `CNN` there.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import sys
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.records import NamedTuple
from perfaudit.static.project.neighbours import Neighbours
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.entry import is_started_by_fire
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import assigned_value

_MOST = 400  # definitions that are looked through; what a larger program reaches is not settled
_LENDS_MODELS = regex(  # libraries of models
    r"^(torchvision\.models|torch\.hub|timm|transformers|segmentation_models\w*|efficientnet\w*|pretrainedmodels|monai|mm\w+"
    r"|detectron2|diffusers|open_clip|clip|ultralytics|facenet_pytorch|lpips|geffnet|pytorchcv|effdet|kornia)\b"
    r"|^(\w+_)?(\w*net|vit|\w*former|yolo\w*)s?(_\w+)?\."  # by the name of the library: `vit_pytorch.ViT`
    r"|^(?!torch_geometric|dgl)\w+\.(\w+\.)*(models?|nets?|networks?|backbones?|archs?|architectures?|model_zoo)\.",
    words="model|net|torch.hub|timm|former|monai|mm|detectron2|diffusers|clip|ultralytics|lpips|pytorchcv|effdet|kornia|vit|yolo"
    "|backbone|arch",
)
_LAYERS_BY_TEXT = regex(r"^torch(\.nn(\..*)?)?$")  # `getattr(nn, kind)`; `getattr(torch.optim, kind)` gives no layer
# Definitions that are found by a text: what they are is not in sight.
_BY_TEXT = {"eval", "exec", "globals", "__import__", "import_module", "instantiate", "locate", "import_string"}
_REGISTERS = regex(r"regist|entry_?point", re.IGNORECASE, words="regist|entry")
_BUILTINS = set(dir(builtins)) | {"__file__", "__name__", "__doc__", "__class__"}
_MAKES_EMPTY = {"dict", "list", "set", "OrderedDict", "defaultdict"}
_CHANGES = {"append", "extend", "insert", "add", "update", "setdefault"}
_TABLES = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
_IMPORTS = (ast.Import, ast.ImportFrom)
_DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
Definition = tuple[Source, ast.AST]


class ReachedCode(NamedTuple):
    """code: what the script itself runs, and the definitions that are reached, each with its file; a variable by its statement.

    names: what they name of libraries, as "torch.nn.Conv2d".
    """

    code: tuple[Definition, ...]
    names: frozenset[str]

    @property
    def borrows_models(self) -> bool:
        """Whether a library of models lends one."""
        return any(_LENDS_MODELS.search(name) for name in self.names)


@functools.lru_cache(maxsize=4)  # several rules ask for the same file
def reached_code(source: Source) -> ReachedCode | None:
    """All that a script reaches by its names; None wherever that is not clear.

    Everything that a function or class names counts as run. Methods that only a subclass has are part of that subclass.
    """
    neighbours = source.neighbours
    if neighbours is None:
        return None
    walk = _Walk(source, neighbours)
    runs_any = is_started_by_fire(source)  # of its functions the command line names one
    pending: list[Definition] = [(source, node) for node in source.tree.body if runs_any or _runs_by_itself(node)]
    if runs_any:  # imported ones, too
        pending += [found for name in source.aliases.values() if (found := neighbours.definition_of(name)) is not None]
    most = _MOST + len(pending)
    known = {id(node) for _, node in pending}
    for there, node in pending:
        for further in walk.definitions_in(there, node):
            if further is None or len(pending) > most:
                return None
            if id(further[1]) not in known:
                known.add(id(further[1]))
                pending.append(further)
    return ReachedCode(tuple(pending), frozenset(walk.names))


class _Walk:
    """From a piece of code to what its names stand for, in a script and the files that it imports."""

    def __init__(self, script: Source, neighbours: Neighbours) -> None:
        self._script = script
        self._neighbours = neighbours
        self.names: set[str] = set()

    def definitions_in(self, there: Source, root: ast.AST) -> Iterator[Definition | None]:
        """The definitions that a piece of code names; None where what it names is not clear."""
        pending = [root]
        while pending:
            node = pending.pop()
            if isinstance(node, _IMPORTS) or _asks_for_class(node):
                continue
            if isinstance(node, ast.Call) and (
                _finds_by_text(node) or self._is_of_filled_table(there, node.func) or self._gets_layer(there, node)
            ):
                yield None
            if isinstance(node, ast.Attribute) and node.attr == "__subclasses__":
                yield None
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
        if _REGISTERS.search(dotted):
            return [None]
        if dotted.startswith("torch."):
            self.names.add(dotted)
            return []
        return self._import_targets(there, dotted)

    def _local(self, there: Source, name: ast.Name) -> list[Definition | None]:
        """What a name of the same file stands for; a parameter or the target of a loop says nothing by itself."""
        if _REGISTERS.search(name.id):
            return [None]
        bound = there.lookup(name)
        if not bound and name.id not in _BUILTINS:
            return self._from_star(there, name)
        return self._definitions_bound(there, bound)

    def _from_star(self, there: Source, name: ast.Name) -> list[Definition | None]:
        """What a name stands for that only `from module import *` can have bound; [None] for what is called and is nowhere,
        and for one of two modules that are imported under one name.
        """
        stars = [s for s in there.nodes(ast.ImportFrom) if s.names[0].name == "*"]
        for star in stars:
            module = "." * star.level + (star.module or "")
            joined = module if module.endswith(".") else module + "."
            if found := self._neighbours.bindings_of(joined + name.id, self._asker(there)):
                return self._definitions_bound(*found)
        user = there.parent(name)
        is_called = isinstance(user, ast.Call) and user.func is name
        return [None] if stars or is_called or self._is_imported(there, name.id) else []

    def _is_imported(self, there: Source, name: str) -> bool:
        """Whether a module of the project is imported under a name that stands for no one thing: each branch imports another."""
        imports = [("", item) for node in there.nodes(ast.Import) for item in node.names]
        for node in there.nodes(ast.ImportFrom):
            imports += [(f"{'.' * node.level}{node.module or ''}.", item) for item in node.names]
        named = [prefix + item.name for prefix, item in imports if (item.asname or item.name.partition(".")[0]) == name]
        return any(self._neighbours.is_own_module(dotted, self._asker(there)) for dotted in named)

    def _import_targets(self, there: Source, dotted: str) -> list[Definition | None]:
        by = self._asker(there)
        name = dotted
        while name.strip("."):
            if found := self._neighbours.bindings_of(name, by):
                return self._definitions_bound(*found)
            name = name.rpartition(".")[0]
        if dotted.startswith(".") or self._neighbours.is_own_module(dotted, by):
            return [None]
        self.names.add(dotted)
        return []

    def _definitions_bound(self, there: Source, bindings: list[ast.AST]) -> list[Definition | None]:
        """The functions and classes among what binds a name, and of a variable of the module the statements that give it a value.

        [None] for a table of another file that is changed: what its module puts into it is not run here.
        """
        found: list[Definition | None] = []
        for binding in bindings:
            if isinstance(binding, _DEFINITIONS):
                found.append((there, binding))
            elif there.scope(binding) is there.tree and (value := assigned_value(there, binding)) is not None:
                if there is not self._script and (_is_empty(value) or _is_changed(there, binding, value)):
                    return [None]
                found.append((there, there.statement(binding)))
            elif there.scope(binding) is there.tree and isinstance(there.statement(binding), ast.AugAssign):
                found.append((there, there.statement(binding)))
        return found

    def _is_of_filled_table(self, there: Source, called: ast.expr) -> bool:
        """Whether what is called is an item of a table that is empty where it is made: others put classes into it."""
        table = called.value if isinstance(called, ast.Subscript) else None
        if isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute) and called.func.attr == "get":
            table = called.func.value
        found = self._targets(there, table) if isinstance(table, (ast.Name, ast.Attribute)) else None
        statements = [item[1] for item in found or () if item is not None]
        values = [statement.value for statement in statements if isinstance(statement, (ast.Assign, ast.AnnAssign))]
        return any(value is not None and _is_empty(value) for value in values)

    def _gets_layer(self, there: Source, call: ast.Call) -> bool:
        """Whether a call may take a layer, or a class of a library, by a text: `getattr(nn, "Conv2d")`; a known name is noted."""
        if not isinstance(call.func, ast.Name) or call.func.id != "getattr" or len(call.args) < 2:
            return False
        dotted = there.qualified_name(call.args[0])
        if dotted is None or dotted.partition(".")[0] in sys.stdlib_module_names:
            return False
        text = call.args[1].value if isinstance(call.args[1], ast.Constant) else None
        if isinstance(text, str) and dotted != "torch.nn":
            self.names.add(f"{dotted}.{text}")
            return False
        return _LAYERS_BY_TEXT.search(dotted) is not None or _LENDS_MODELS.search(dotted + ".") is not None

    def _asker(self, there: Source) -> Source | None:
        return None if there is self._script else there


def _is_empty(value: ast.expr) -> bool:
    """`{}`, `[]`, `dict()`."""
    match value:
        case ast.Dict(keys=[]) | ast.List(elts=[]) | ast.Call(func=ast.Name(id="defaultdict")):
            return True
        case ast.Call(args=[], keywords=[]):
            return last_name(value.func) in _MAKES_EMPTY
    return False


def _is_changed(there: Source, binding: ast.AST, value: ast.expr) -> bool:
    """Whether the file of a table puts something into it: `ALL.append(CNN)`, `MODELS["cnn"] = CNN`."""
    is_made = isinstance(value, ast.Call) and last_name(value.func) in _MAKES_EMPTY
    if not is_made and not isinstance(value, _TABLES):
        return False
    uses = there.uses_of(binding, binding.id) if isinstance(binding, ast.Name) else []
    for parent in map(there.parent, uses):
        if isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store):
            return True
        if isinstance(parent, ast.Attribute) and parent.attr in _CHANGES:
            return True
    return False


def _runs_by_itself(statement: ast.stmt) -> bool:
    """Whether a statement of the script is run or, being decorated, may be what a library runs: `@hydra.main(...)`."""
    if isinstance(statement, _DEFINITIONS):
        return bool(statement.decorator_list)
    return not isinstance(statement, _IMPORTS)


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
