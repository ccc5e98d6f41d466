"""How often a line runs: rarely, each time, on every step."""

from __future__ import annotations

import ast

import pytest

from perfaudit.static.source import LOOPS, Source
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.how_often import runs_every_step, runs_often
from perfaudit.static.understanding.rarely import rare_when, runs_rarely


def marked(source: Source) -> ast.Call:
    """The call of `here()`."""
    return next(c for c in source.nodes(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == "here")


@pytest.mark.parametrize(
    ("before", "line", "rarely", "each_time"),
    [
        ("", "here()", False, True),
        ("", "if i % 10 == 0: here()", True, False),
        ("", "if not i % 10: here()", True, False),
        ("", "if i % 10: here()", False, False),
        ("", "if i % 10 != 0: pass\n    else: here()", True, False),
        ("", "if i == len(loader) - 1: here()", False, False),
        ("", "if time.time() - t > 10: here()", True, False),
        ("", "if debug: here()", True, False),
        ("", "if torch.isnan(logits).any(): here()", True, False),
        ("", "if not torch.isfinite(logits).all(): here()", True, False),
        ("", "if bool(torch.isnan(logits).any().item()): here()", True, False),
        ("", "if math.isfinite(loss): here()", False, False),
        ("", "if math.isfinite(loss): pass\n    else: here()", True, False),
        ("", "if logits is not None: here()", False, False),  # set inside the loop
        ("", "if x is not None and args.amp: here()", False, True),  # the loader's
        ("", "if x is not None: pass\n    else: here()", False, False),
        ("", "if i % 10 == 0: here(); optimizer.step()", True, True),  # on every step
        ("optimizer.step()", "if i % 10 == 0: here(); d_optimizer.step()", True, False),
        ("if i % 10: continue", "optimizer.step(); here()", True, True),
        ("if x.ready(): optimizer.step()", "if i % 10 == 0: here()", True, False),
        ("", "if rank == 0: here()", False, True),
        ("", "if args.amp and is_main_process(): here()", False, True),
        ("", "if meter.ready(): here()", False, False),
        ("", "if self.global_step > 5: here()", False, True),  # a warm-up
        ("if i % 10 != 0: continue", "here()", True, False),
        ("if x is None: continue", "here()", False, True),
        ("", "i % 10 == 0 and here()", True, False),
        ("", "y = here() if i % 10 == 0 else 0", True, False),
        ("", "try: pass\n    except E: here()", True, False),
        ("", "raise E(here())", True, False),
        ("", "assert x, here()", True, False),
        ("", "assert here()", False, True),
        ("", "with autocast(): here()", False, True),
        ("", "f = lambda: here()", False, False),
        ("", "def f(): here()", False, False),
    ],
)
def test_how_often(before: str, line: str, rarely: bool, each_time: bool) -> None:
    text = f"for i, x in enumerate(loader):\n    logits = model(x)\n    {before}\n    {line}\n"
    source = Source("train.py", text)
    loop = source.nodes(ast.For)[0]
    assert runs_rarely(source, marked(source), loop) is rarely
    assert runs_each_time(source, marked(source), loop) is each_time


@pytest.mark.parametrize(
    ("test", "each_time"),
    [("scaler is not None", True), ("args.amp", True), ("train", False), ("loss > 1", False), ("self.training", True)],
)
def test_conditions_on_parameters(test: str, each_time: bool) -> None:
    source = Source("t.py", f"def step(self, args, scaler, train):\n    loss = 1\n    if {test}:\n        here()\n")
    function = source.nodes(ast.FunctionDef)[0]
    assert runs_each_time(source, marked(source), function) is each_time


def test_iterable_and_else_of_a_loop_run_once() -> None:
    source = Source("t.py", "for x in here():\n    pass\n")
    assert not runs_each_time(source, marked(source), source.nodes(ast.For)[0])
    source = Source("t.py", "while here():\n    pass\n")
    loop = source.nodes(ast.While)[0]
    assert isinstance(loop, LOOPS) and runs_each_time(source, marked(source), loop)


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        ("step % 100 == 0", True),
        ("(step + 1) % n < 2", True),
        ("step % 100", False),
        ("not step % 100", True),
        ("step % 100 != 0", False),
        ("master and step % 100 == 0", True),
        ("should_log(step)", True),
        ("logits.dim() == 2", None),
        ("'%d' % step in seen", None),
        ("x > 0", None),
    ],
)
def test_rare_when(test: str, outcome: bool | None) -> None:
    assert rare_when(ast.parse(test, mode="eval").body) is outcome


@pytest.mark.parametrize(
    ("text", "every_step"),
    [
        ("class A:\n    def forward(self): here()", True),
        ("if __name__ == '__main__':\n    class A:\n        def forward(self): here()", False),
        (
            "if __name__ == '__main__':\n    class A:\n        def forward(self): here()\n"
            "    for x in loader: loss.backward()",
            True,
        ),
    ],
)
def test_demonstrations_run_once(text: str, every_step: bool) -> None:
    source = Source("net.py", text)
    assert runs_every_step(source, marked(source)) is runs_often(source, marked(source)) is every_step
