"""A first look at the bytes of a file: what it imports, and that no text takes it for long."""

from __future__ import annotations

import pytest

from perfaudit import forked_work as workers
from perfaudit.forked_work import in_children
from perfaudit.static.project.first_look import MAX_GLANCED, glance


@pytest.mark.parametrize(
    ("text", "imports"),
    [
        (b"import a.b, c as d\n", ("a.b", "c", "d")),
        (b"from .x import (\n    y,\n    z as w,\n)\n", (".x", ".x.y", ".x.z", ".x.w")),
        (b"from . import y  # z\n", (".", ".y")),
        (b"def f():\n    from p import *\n", ("p", "p.*")),
        (b"x = 'import y'\nfromage = 1\n", ()),
        (b"from x import y,\\\n    z, \\\n  w as v\nu = 1\n", ("x", "x.y", "x.z", "x.w", "x.v")),
        (b"import a, \\\r\n  b\r\nc = 1\r\n", ("a", "b")),
    ],
)
def test_glance_at_imports(text: bytes, imports: tuple[str, ...]) -> None:
    assert glance(text).imports == imports


@pytest.mark.parametrize(
    ("name", "packages"),
    [
        ('"models." + name', ("models",)),
        ('f"a.models.{args.net}"', ("a.models",)),
        ('"models.{}".format(name)', ("models",)),
        ('"models.%s" % name', ("models",)),
        ('"data/models." + name', ()),
        ('"models"', ()),
        ("name", ()),
    ],
)
def test_glance_at_packages_of_which_a_module_is_imported_by_a_name(name: str, packages: tuple[str, ...]) -> None:
    assert glance(f"net = import_module({name})\n".encode()).picked == packages
    assert glance(f"net = open({name})\n".encode()).picked == ()


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        (b"Trainer(gpus=2).fit(model)", True),
        (b"Trainer(\n    gpus=args.gpus,\n)", True),
        (b"Trainer(gpus=0)", False),
        (b"Trainer(num_gpus=2)", False),
        (b"# Trainer(gpus=2)", False),
        (b"Trainer(devices=1)  # gpus=2", False),
        (b'"""python train.py --gpus=2"""', False),
    ],
)
def test_glance_at_a_trainer_that_is_given_gpus(text: bytes, is_told: bool) -> None:
    assert ("accelerator" in glance(text + b"\n").marks) is is_told


SIZE = 400_000  # bytes; a first look at 80 kB of dots took five minutes, at as much of `.to(` one
HOSTILE = {
    "dots": b"from " + b"." * SIZE + b"!import",
    "spaces": b"from" + b" " * SIZE + b"!import",
    "brackets": b"from a import (\n" * (SIZE // 16),
    "one bracket in the end": b"from a import (\n" * (SIZE // 16) + b")",
    "continued imports": b"from a import b,\\\n" * (SIZE // 18),
    "casts": b"half\n" + b".to(" * (SIZE // 4),
    "names in texts": b"import_module(" + b"'a.b.c.d.e.f" * (SIZE // 12),
    "trainers in one line": b"gpus=0;" * (SIZE // 7),
    "one line": b"x = 1; " + b"import " * (10 * SIZE // 7),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_text_takes_a_first_look_for_long(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan itself takes it, not a child of it that has limits."""
    monkeypatch.setattr(workers, "CPU_SECONDS", 5)
    ((_, seen),) = in_children(glance, [text])
    assert not isinstance(seen, workers.Lost)


def test_a_first_look_sees_so_much_and_no_more() -> None:
    """A prefix of a megabyte before each of as many names would be a terabyte."""
    names = b", ".join(b"a%d" % number for number in range(MAX_GLANCED + 10))
    seen = glance(b"from " + b"m" * 250 + b" import " + names)
    assert len(seen.imports) == MAX_GLANCED
    assert glance(b"from " + b"m" * 251 + b" import a").imports == ()
    assert len(glance(b"".join(b"class a%d(b):\n" % n for n in range(MAX_GLANCED + 10))).subclasses) == MAX_GLANCED
