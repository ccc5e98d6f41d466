"""Training loops, the code of their steps, and loops that number epochs."""

from __future__ import annotations

import pytest

from perfaudit.static.source import Source
from perfaudit.static.understanding.epochs import takes_few_long_steps
from perfaudit.static.understanding.step_code import step_code
from perfaudit.static.understanding.step_loops import step_loops


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
    ("head", "body", "few"),
    [
        ("for x in loader", "print(loss)", False),
        ("for epoch in range(args.epochs)", "print(loss)", False),
        ("for i in range(20_000)", "print(loss)", False),
        ("for epoch in range(20)", "print(loss)", True),
        ("for x in trange(20, desc=f'epoch {epoch}')", "validate(model)", False),
        ("for epoch in range(2000)", "validate(model)", True),
        ("for epoch in range(2000)", "for x in parts: model(x)", True),
        ("for epoch in range(2000)", "for x in (a, b): model(x)", False),
    ],
)
def test_few_long_steps(head: str, body: str, few: bool) -> None:
    source = Source("train.py", f"{head}:\n    loss.backward()\n    {body}\n")
    [step] = step_loops(source)
    assert takes_few_long_steps(source, step) is few
