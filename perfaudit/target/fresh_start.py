"""Whether a program's processes must be started afresh: whether torch, imported beforehand, would make it another program.

It would where the program sets variables that libraries read when they are imported, such as OMP_NUM_THREADS, and where it has
modules of its own that are named as those that torch brings along. The text alone is read: that of the file, and of the program's
own files that its imports lead to.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from perfaudit.reading import MAX_FILE_BYTES, read_bytes

MOST_FILES = 300  # that are read of a program; one with more is taken to set some

# Packages that torch or a library that is imported beforehand (`measure.nursery`) imports with it, where they are there.
_BROUGHT_ALONG = """
    torch torchgen functorch numpy scipy sklearn pandas PIL torchvision sympy mpmath networkx jinja2 markupsafe fsspec
    filelock packaging setuptools pkg_resources typing_extensions yaml psutil tqdm optree triton joblib threadpoolctl
    dateutil pytz six requests urllib3 certifi idna expecttest
"""
BROUGHT_ALONG = frozenset(_BROUGHT_ALONG.split())

_CHANGES = re.compile(rb"\b(environ|putenv)\b")  # by the variable's name, or in a loop over names
_VARIABLE = re.compile(
    rb"\b(OMP|MKL|KMP|GOMP|OPENBLAS|BLIS|VECLIB|NUMEXPR|TORCH|TORCHDYNAMO|TORCHINDUCTOR|PYTORCH|CUDA|ATEN|DNNL|ONEDNN)_[A-Z]"
)
_IMPORT = re.compile(rb"^[ \t]*import[ \t]+([\w., \t]+)", re.MULTILINE)
_FROM = re.compile(rb"^[ \t]*from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
_COMMENT = re.compile(rb"#[^\n]*")
_NAME = re.compile(r"[\w.]+")
_FOLDER = re.compile(rb"""sys\.path\.(?:append\(|insert\([^,]*,)[ \t]*["']([^"']+)["']""")


def must_start_afresh(file: str) -> bool:
    """Whether this program does either, by its own text; a file that cannot be read does neither."""
    roots = _roots(Path(file))
    seen, waiting = {Path(file)}, [Path(file)]
    while waiting:
        here = waiting.pop()
        try:
            text = read_bytes(here, MAX_FILE_BYTES)
        except OSError:
            continue
        if _may_set(text) or len(seen) > MOST_FILES:
            return True
        roots += [folder for folder in _folders(text, roots[0]) if folder not in roots]
        found = set()
        for name in _imported_names(text):
            files = set(_files_of(name, here, roots))
            if files and (name.partition(".")[0] in BROUGHT_ALONG or name.partition(".")[0] in sys.stdlib_module_names):
                return True
            found |= files
        waiting += found - seen
        seen |= found
    return False


def _may_set(text: bytes) -> bool:
    """Whether a text names such a variable and changes the environment somewhere, or reads it from a file that names them."""
    return b"load_dotenv" in text or bool(_CHANGES.search(text) and _VARIABLE.search(text))


def _roots(file: Path) -> list[Path]:
    """Folders in which a program finds its own modules: that of its file, of its outermost package, and the working directory."""
    top = file.parent
    while (top / "__init__.py").is_file() and top != top.parent:
        top = top.parent
    return list(dict.fromkeys([file.parent, top, Path()]))


def _folders(text: bytes, folder: Path) -> Iterator[Path]:
    """Folders that a text puts on `sys.path` by name, as seen from the program's own and from the working directory."""
    for name in _FOLDER.findall(text):
        where = name.decode(errors="replace")
        yield from (folder / where, Path(where))


def _imported_names(text: bytes) -> Iterator[str]:
    """Names that may be modules: of `from a import b` both "a" and "a.b"."""
    for names in _IMPORT.findall(text):
        for item in names.decode(errors="replace").split(","):
            yield from _NAME.findall(item)[:1]
    for module, names in _FROM.findall(text):
        package = module.decode(errors="replace")
        yield package
        for item in _COMMENT.sub(b"", names).decode(errors="replace").strip("() \t\r\n").split(","):
            for name in _NAME.findall(item)[:1]:
                yield f"{package}{'' if package.endswith('.') else '.'}{name}"


def _files_of(name: str, importer: Path, roots: list[Path]) -> Iterator[Path]:
    """The files of a module and of the packages around it, where they are the program's own."""
    dots = len(name) - len(name.lstrip("."))
    parts = [part for part in name.split(".") if part]
    for root in [importer.parents[min(dots, len(importer.parents)) - 1]] if dots else roots:
        for at in range(1, len(parts) + 1):
            base = root.joinpath(*parts[:at])
            yield from (path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file())
