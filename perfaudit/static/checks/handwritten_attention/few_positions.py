"""Whether the positions are few: those of a small window, or of an image that is cut into few patches, by the sizes in sight."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.checks.handwritten_attention.named_numbers import numbers_in, parameters, values_named
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.names import last_name

FEW = 64  # positions, 8 by 8: readers call the windows of 49 and 64 positions of vision transformers hardly worth a change
_WINDOW = regex(r"^(win|window)(_?size)?s?$|^wss?$")
_IMAGE = regex(r"^(image|img|input)_?size$|^(image|img)_?(height|width|h|w)$")
_PATCH = regex(r"^patch(_?size)?$|^patch_?(height|width|h|w)$")
_IMAGE_IN_TEXT = regex(r"(?:image|img|input)[_-]?(?:size|height|width|h\b|w\b)")


def has_few_positions(source: Source, function: Function) -> bool:
    """Whether all sizes of windows or patches in sight make few positions of what a function attends to."""
    return _is_in_small_windows(source, function) or _is_of_few_patches(source)


def _is_of_few_patches(source: Source) -> bool:
    """Whether this file, or else those that import it, cut images into few patches and never into many."""
    if not source.mentions("patch"):
        return False
    if own := _counts_of_patches(source):
        return max(own) <= FEW
    if source.neighbours is None or source.neighbours.some_importer(_cuts_into_many, _may_cut):
        return False
    return bool(source.neighbours.some_importer(_cuts_into_few, _may_cut))


def _may_cut(text: str) -> bool:
    """Whether a text may name the sizes of images and of patches."""
    names = text.lower()
    return "patch" in names and _IMAGE_IN_TEXT.search(names) is not None


def _cuts_into_few(source: Source) -> bool:
    counts = _counts_of_patches(source)
    return bool(counts) and max(counts) <= FEW


def _cuts_into_many(source: Source) -> bool:
    return any(count > FEW for count in _counts_of_patches(source))


@remember
def _counts_of_patches(source: Source) -> tuple[int, ...]:
    """How many patches the largest image that a file names is cut into, by the smallest patch that it names."""
    if not source.mentions("patch"):
        return ()
    images, patches = (
        [n for node in values_named(source, pattern) for n in numbers_in(source, node) if n]
        for pattern in (_IMAGE, _PATCH)
    )
    return ((max(images) // min(patches)) ** 2,) if images and patches else ()


def _is_in_small_windows(source: Source, function: Function) -> bool:
    """Whether a class attends in square windows, as it is built with their size, and all sizes in its file are small.

    Where its file names none, those in the files that import it.
    """
    owner = source.enclosing(function, ast.ClassDef)
    if not isinstance(owner, ast.ClassDef) or not _is_built_with_window(owner):
        return False
    if not any(_is_area(node) for node in walk(owner)):
        return False
    if _window_sizes(source):
        return _has_small_windows(source)
    if source.neighbours is None or source.neighbours.some_importer(_may_have_large_windows, _may_have_windows):
        return False
    return bool(source.neighbours.some_importer(_has_small_windows, _may_have_windows))


def _may_have_windows(text: str) -> bool:
    """Whether a text may name the size of a window."""
    return "win" in text.lower() or "ws" in text


def _has_small_windows(source: Source) -> bool:
    sizes = _window_sizes(source)
    return bool(sizes) and all(size is not None and size * size <= FEW for size in sizes)


def _may_have_large_windows(source: Source) -> bool:
    return any(size is None or size * size > FEW for size in _window_sizes(source))


def _is_built_with_window(owner: ast.ClassDef) -> bool:
    builders = (node for node in owner.body if isinstance(node, FUNCTIONS) and node.name == "__init__")
    return any(_is_window(argument.arg) for builder in builders for argument, _ in parameters(builder))


def _is_window(name: str) -> bool:
    return _WINDOW.match(name.lower()) is not None


def _is_area(node: ast.AST) -> bool:
    """`window[0] * window[1]`, `(2 * window - 1) ** 2`, `x.reshape(b, h, ws, w, ws, c)`: the window has two sides."""
    if isinstance(node, ast.Call) and last_name(node.func) in ("reshape", "view"):
        return sum(_is_window(last_name(size)) for size in node.args) > 1
    if not isinstance(node, ast.BinOp) or not _names_window(node.left):
        return False
    return isinstance(node.op, ast.Pow) or (isinstance(node.op, ast.Mult) and _names_window(node.right))


def _names_window(node: ast.AST) -> bool:
    return any(isinstance(n, (ast.Name, ast.Attribute)) and _is_window(last_name(n)) for n in walk(node))


@remember
def _window_sizes(source: Source) -> tuple[int | None, ...]:
    """The sides of windows that parameters default to and calls give in a file; None for one that is not known.

    What hands a window on, `window_size=self.window_size`, gives none of its own.
    """
    given = values_named(source, _WINDOW)
    return tuple(size for node in given if not _names_window(node) for size in numbers_in(source, node))
