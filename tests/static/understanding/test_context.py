"""Where code stands: training loops, gradients off, accelerators, and how often a line runs."""

from __future__ import annotations

import ast

import pytest

from perfaudit.static.source import LOOPS, Source
from perfaudit.static.understanding.context import (
    in_no_grad,
    rare_when,
    runs_each_time,
    runs_every_step,
    runs_often,
    runs_rarely,
    step_code,
    step_loops,
    takes_few_long_steps,
)
from perfaudit.static.understanding.devices import uses_accelerator


def marked(source: Source) -> ast.Call:
    """The call of `here()`."""
    return next(c for c in source.nodes(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == "here")


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("for x in loader:\n    loss.backward()", [1]),
        (
            "for epoch in y:\n    for x in loader:\n        loss.backward()\n    scheduler.step()",
            [2],
        ),
        ("while True:\n    for micro in range(4):\n        loss.backward()\n    optimizer.step()", [1]),
        (
            "while True:\n    for _ in y:\n        d_loss.backward()\n        d_opt.step()\n    g_opt.step()",
            [2],
        ),
        ("for x in loader:\n    accelerator.backward(loss)", [1]),
        ("for x in loader:\n    loss_scaler(loss, optimizer, clip_grad=1)", [1]),
        ("def step(x):\n    loss.backward()\nfor x in loader:\n    step(x)", [3]),
        ("def epoch():\n    for x in loader:\n        loss.backward()\nfor _ in range(9):\n    epoch()", [2]),
        ("def closure():\n    loss.backward()\nfor x in loader:\n    optimizer.step(closure)", [3]),
        ("for x in loader:\n    model(x)", []),
        ("for i in y:\n    for name in ('a', 'b'):\n        loss.backward()\n        optimizer.step()", [1]),
        ("for i in y:\n    for n, l in zip(['a', 'b'], z):\n        loss.backward()\n    optimizer.step()", [1]),
        ("for mode in ('a', 'b'):\n    for x in loader:\n        loss.backward()\n        optimizer.step()", [2]),
        ("for mode in ('a', 'b'):\n    loss.backward()", [1]),
        ("def f(x):\n    loss.backward()\ndef g(x):\n    f(x)\nfor x in loader:\n    g(x)", [5]),
        ("def f(x):\n    loss.backward()\ndef g(x):\n    if x % 9 == 0: f(x)\nfor x in loader:\n    g(x)", []),
        ("def f(x):\n    loss.backward()\ndef evaluate(x):\n    f(x)\nfor x in loader:\n    evaluate(x)", []),
        ("def f(x):\n    loss.backward()\ndef epoch():\n    for x in y: f(x)\nfor _ in z:\n    epoch()", [4]),
        (
            "def f():\n    loss.backward()\ndef g():\n    f()\ndef h():\n    g()\nfor x in loader:\n    h()",
            [],  # three calls deep
        ),
        # Gradients are accumulated in a function that updates nothing.
        ("def f(x):\n    for part in x: loss.backward()\nfor x in loader:\n    f(x)\n    optimizer.step()", [3]),
        ("def f(x):\n    for part in x: loss.backward()\nfor x in loader:\n    f(x)\n    scheduler.step()", [2]),
        (
            "def f(x):\n    for part in x:\n        loss.backward()\n        update()\n"
            "def update():\n    optimizer.step()\nfor x in y:\n    f(x)\n    optimizer.step()",
            [2],
        ),
    ],
)
def test_step_loops(body: str, lines: list[int]) -> None:
    assert [step.loop.lineno for step in step_loops(Source("train.py", body))] == lines


def test_step_code_follows_calls_that_run_each_time() -> None:
    source = Source(
        "train.py",
        """
def step(x):
    loss.backward()
def accuracy(x): ...
def report(): ...
def evaluate():
    for x in loader: ...
for i, x in enumerate(loader):
    step(x)
    accuracy(x)
    if i % 100 == 0:
        report()
        evaluate()
""",
    )
    [step] = step_loops(source)
    assert [getattr(code.root, "name", "loop") for code in step_code(source, step)] == ["loop", "step", "accuracy"]


def test_step_code_follows_two_calls() -> None:
    source = Source(
        "train.py",
        """
def step(x):
    loss.backward()
    norm()
    if x % 100 == 0:
        seldom()
    save_weights()
def norm():
    read()
def read(): ...
def seldom(): ...
def save_weights():
    copy()
def copy(): ...
def evaluate():
    accuracy()
def accuracy(): ...
def finish(): ...
def save():
    norm()
    other()
def other(): ...
for x in loader:
    step(x)
    evaluate()
    save()
    if args.stop:
        finish()
        break
""",
    )
    [loop] = step_loops(source)
    found = {getattr(code.root, "name", "loop"): code for code in step_code(source, loop)}
    assert list(found) == ["loop", "step", "evaluate", "save", "norm"]
    assert found["norm"].caller is found["step"]
    assert [call.lineno for call in found["norm"].calls] == [4]
    assert [code.way for code in found.values() if code.way] == [" (in `norm`, which `step` calls)"]


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
    ("text", "expected"),
    [
        ("with torch.no_grad():\n    here()", True),
        ("with torch.inference_mode(), autocast():\n    here()", True),
        ("with torch.inference_mode(False):\n    here()", False),
        ("with torch.set_grad_enabled(False):\n    here()", True),
        ("with torch.autograd.set_grad_enabled(mode=False):\n    here()", True),
        ("with torch.set_grad_enabled(training):\n    here()", False),
        ("@torch.no_grad()\ndef f():\n    here()", True),
        ("@torch.no_grad\ndef f():\n    here()", True),
        ("with torch.enable_grad():\n    here()", False),
        ("here()", False),
    ],
)
def test_in_no_grad(text: str, expected: bool) -> None:
    source = Source("t.py", f"import torch\n{text}\n")
    assert in_no_grad(source, marked(source)) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = x.cuda()", True),
        ("x = x.to('cuda:0')", True),
        ("x = x.to(f'cuda:{rank}')", True),
        ("x = x.to(args.device)", True),
        ("x = torch.zeros(3, device=device)", True),
        ("from accelerate import Accelerator", True),
        ("device = torch.device('cpu')\nx = x.to(device)", False),
        ("device = 'cpu'\nx = x.to(device)", False),
        ("x = x.to(torch.float16)", False),
        ("x = x.mean()", False),
    ],
)
def test_uses_accelerator(text: str, expected: bool) -> None:
    assert uses_accelerator(Source("t.py", f"import torch\n{text}\n")) is expected


@pytest.mark.parametrize(
    ("head", "body", "few"),
    [
        ("for x in loader", "print(loss)", False),
        ("for epoch in range(args.epochs)", "print(loss)", False),
        ("for i in range(20_000)", "print(loss)", False),
        ("for epoch in range(20)", "print(loss)", True),
        ("for epoch in range(2000)", "validate(model)", True),
        ("for epoch in range(2000)", "for x in parts: model(x)", True),
        ("for epoch in range(2000)", "for x in (a, b): model(x)", False),
    ],
)
def test_few_long_steps(head: str, body: str, few: bool) -> None:
    source = Source("train.py", f"{head}:\n    loss.backward()\n    {body}\n")
    [step] = step_loops(source)
    assert takes_few_long_steps(source, step) is few


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
