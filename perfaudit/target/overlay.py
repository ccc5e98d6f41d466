"""Import the user's code as patched, without touching the disk."""

from __future__ import annotations

import importlib.machinery
import linecache
import os
import sys
import types
from pathlib import Path

_texts: dict[str, str] = {}


class OverlayLoader(importlib.machinery.SourceFileLoader):
    """Loads source files as usual, but takes the text of patched ones from memory and never their byte code."""

    def get_code(self, fullname: str) -> types.CodeType | None:
        path = os.path.realpath(self.get_filename(fullname))
        text = _texts.get(path)
        if text is None:
            return super().get_code(fullname)
        return compile(text, self.get_filename(fullname), "exec", dont_inherit=True)


def install(texts: dict[str, str]) -> None:
    """From now on, files at these paths import with these texts; for a process that has not imported them yet.

    Tracebacks and `inspect.getsource` show the patched text too.
    """
    for path, text in texts.items():
        real = os.path.realpath(path)
        _texts[real] = text
        lines = text.splitlines(keepends=True)
        for name in {real, str(Path(path).absolute())}:
            linecache.cache[name] = (len(text), None, lines, name)
    machinery = importlib.machinery
    hook = machinery.FileFinder.path_hook(
        (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
        (OverlayLoader, machinery.SOURCE_SUFFIXES),
        (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
    )
    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()
