"""Loops that demonstrate a model: on a screen, which sets their pace, or on a few samples that the program writes out."""

from __future__ import annotations

import ast

from perfaudit.static.source import LOOPS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.loaders import COMPREHENSIONS
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import resolve

# A window that is opened, drawn, or waited at for a key: of OpenCV and Open3D.
_ON_SCREEN = {"waitKey", "waitKeyEx", "create_window", "draw_geometries"}
_REPEATS = (*LOOPS, *COMPREHENSIONS)
_FEW = 16  # samples that are written out one by one


def demonstrates(source: Source, loop: Loop | Function) -> bool:
    """Whether a loop shows each result in a window, or goes through a few samples that are written out: little is to be saved."""
    if any(isinstance(node, ast.Call) and last_name(node.func) in _ON_SCREEN for node in walk(loop)):
        return True
    if not isinstance(loop, ast.For) or not _are_few(source, loop.iter):
        return False
    inner = (node for node in walk(loop) if isinstance(node, _REPEATS) and node is not loop)
    called = (called_function(source, node) for node in walk(loop) if isinstance(node, ast.Call))
    own = [node for function in called if function is not None for node in walk(function) if isinstance(node, _REPEATS)]
    return not own and all(isinstance(one, ast.For) and _is_counted(one.iter) for one in inner)


def _are_few(source: Source, over: ast.expr) -> bool:
    """Whether a loop goes through a list or tuple of a few elements that nothing grows."""
    while isinstance(over, ast.Call) and last_name(over.func) in ("enumerate", "tqdm") and over.args:
        over = over.args[0]
    listed = resolve(source, over)
    if not isinstance(listed, (ast.List, ast.Tuple)) or any(isinstance(e, ast.Starred) for e in listed.elts):
        return False
    grown = (a.value for a in source.nodes(ast.Attribute) if a.attr in ("append", "extend", "insert"))
    is_grown = isinstance(over, ast.Name) and any(isinstance(v, ast.Name) and v.id == over.id for v in grown)
    return 0 < len(listed.elts) <= _FEW and not is_grown


def _is_counted(over: ast.expr) -> bool:
    """`range(5)`, with nothing but numbers."""
    is_range = isinstance(over, ast.Call) and last_name(over.func) == "range"
    return is_range and isinstance(over, ast.Call) and all(isinstance(a, ast.Constant) for a in over.args)
