"""Whether a condition that tells the last pass behind it tells it in front of it as well."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_choices import ACCUMULATING, BACKWARD, CONDITION, choice, of, patched_line


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_condition_of_what_is_counted_up_behind_the_pass_is_asked_for_the_count_it_will_have() -> None:
    """`step += 1` between the pass and `if step % 4 == 0`: as three trainings of microsoft/CodeBERT have it."""
    text = ACCUMULATING.replace("(i + 1) % 4 == 0", "steps % args.passes == 0 or steps == last")
    found = choice(text.replace("    loss.backward()\n", "    steps += 1\n    loss.backward()\n"))
    said = "(steps + 1) % args.passes == 0 or steps + 1 == last"
    assert patched_line(found) == f"with contextlib.nullcontext() if {said} else model.no_sync():"


@pytest.mark.parametrize(
    ("condition", "behind", "before", "is_tried"),
    [
        ("state.step % 4 == 0", "state.step += 1", "", False),
        ("state['step'] % 4 == 0", "state['step'] += 1", "", False),
        ("state.step % 4 == 0", "state.count()", "", False),
        ("bar.n % 4 == 0", "bar.update(1)", "", False),  # of a library, which no file of the project sets
        ("len(losses) % 4 == 0", "losses.append(1)", "", False),
        ("len(losses) % 4 == 0", "record(losses)", "", False),
        ("steps % 4 == 0", "steps.add_(1)", "", False),  # a tensor
        ("steps % 4 == 0", "count()", "def count():\n    global steps\n    steps += 1\n", False),
        ("(i := i + 1) % 4 == 0", "", "", False),
        ("(i + 1) % args.passes == 0", "args.passes = 2", "", False),
        # what sets it runs in the pass
        ("(i + 1) % args.passes == 0", "grow(args)", "def grow(it):\n    it.passes *= 2\n", False),
        (
            "(i + 1) % args.passes == 0",
            "deeper()",
            "def deeper():\n    grow(args)\ndef grow(it):\n    it.passes = 2\n",
            False,
        ),
        ("(i + 1) % args.passes == 0", "grow(args)", "def grow(it):\n    setattr(it, key, 2)\n", False),
        (
            "(i + 1) % args.passes == 0",
            "args.more",
            "class A:\n    @property\n    def more(self):\n        self.passes = 2\n",
            False,
        ),
        ("(i + 1) % args.passes == 0", "", "class A:\n    def forward(self, x):\n        args.passes = 2\n", False),
        (
            "(i + 1) % args.passes == 0",
            "",
            "def hook(*_):\n    args.passes = 2\nmodel.register_forward_hook(hook)\n",
            False,
        ),
        ("(i + 1) % args.passes == 0", "A()", "class A:\n    def __init__(self):\n        args.passes = 2\n", False),
        ("(i + 1) % cfg['passes'] == 0", "grow()", "def grow():\n    cfg['passes'] = 2\n", False),
        ("(i + 1) % cfg['passes'] == 0", "cfg.update(x)", "", False),
        # what sets it runs before, or never
        ("(i + 1) % args.passes == 0", "", "def grow(it):\n    it.passes *= 2\n", True),
        ("(i + 1) % args.passes == 0", "", "def grow(it):\n    it.passes *= 2\ngrow(args)\n", True),
        ("(i + 1) % args.passes == 0", "", "args.passes = max(1, args.passes)\nsetattr(args, key, 2)\n", True),
        ("(i + 1) % args.passes == 0", "", "class A:\n    def __init__(self):\n        args.passes = 2\nA()\n", True),
        ("(i + 1) % cfg['passes'] == 0", "", "cfg['passes'] = 2\n", True),
        ("(i + 1) % config.train.passes == 0", "", "", True),
        ("(i + 1) % trainer.passes == 0", "", "", False),
        ("(i + 1) % args.passes == 0", "print(i)", "", True),
        ("(i + 1) % cfg['passes'] == 0", "", "", True),
        ("(i + 1) % opts.passes == 0", "", "", True),
        ("(i + 1) % opt.passes == 0", "", "opt = parser.parse_args()\n", True),
        ("(i + 1) % opt.passes == 0", "", "opt, _ = parser.parse_known_args()\n", True),
        ("(i + 1) % opt.passes == 0", "", "opt = parser.parse_args()\nopt, schedule = make(opt)\n", False),
        ("(i + 1) % opt.passes == 0", "", "opt = Trainer(4)\n", False),  # an optimizer, for all that its name says
        ("(i + 1) % opt.passes == 0", "", "opt = parser.parse_args()\nopt = Trainer(opt)\n", False),
        ("(i + 1) % opt.passes == 0", "", "", False),
        ("(i + 1) % 4 == 0 or i + 1 == len(loader)", "print(i)", "", True),
    ],
)
def test_the_condition_must_say_the_same_in_front_of_the_pass(
    condition: str, behind: str, before: str, is_tried: bool
) -> None:
    text = ACCUMULATING.replace(CONDITION, f"if {condition}:").replace(BACKWARD, f"{BACKWARD}    {behind}\n")
    found = choice(before + text)
    assert (of(found, "no_sync=True") is not None) == is_tried, found.left
    assert is_tried or any("no_sync is not tried: the condition of train.py:" in each for each in found.left)


@pytest.mark.parametrize(
    ("name", "parser", "is_tried"),
    [
        ("opts", "argparse.ArgumentParser().parse_args()", True),
        ("opt", "argparse.ArgumentParser().parse_args()", True),
        ("opt", "torch.optim.SGD([torch.ones(1)], lr=0.1)", False),
        ("kit", "argparse.ArgumentParser().parse_args()", False),
    ],
)
def test_options_that_a_constructor_keeps_stay(name: str, parser: str, is_tried: bool) -> None:
    start = f"class Trainer:\n    def __init__(self, {name}):\n        self.{name} = {name}\n"
    body = ACCUMULATING.replace("% 4", f"% self.{name}.accum")
    fit = "    def fit(self, loader):\n" + "".join(f"        {line}\n" for line in body.splitlines())
    found = choice(f"import argparse\n{start}{fit}{name} = {parser}\nTrainer({name}).fit(loader)\n")
    assert (of(found, "no_sync=True") is not None) == is_tried, found.left


@pytest.mark.parametrize(
    ("behind", "is_tried"),
    [("pass", True), ("self.more()", False), ("run(self.more)", False), ("self.passes = 2", False)],
)
def test_what_the_object_itself_sets_stays_where_nothing_in_the_pass_does(behind: str, is_tried: bool) -> None:
    start = "class Trainer:\n    def __init__(self):\n        self.passes = 4\n    def more(self):\n        self.passes += 1\n"
    body = ACCUMULATING.replace("% 4", "% self.passes").replace(BACKWARD, f"{BACKWARD}    {behind}\n")
    fit = "    def fit(self, loader):\n" + "".join(f"        {line}\n" for line in body.splitlines())
    found = choice(start + fit)
    assert (of(found, "no_sync=True") is not None) == is_tried, found.left


def test_a_count_of_the_object_is_asked_for_what_it_will_be() -> None:
    start = "class Trainer:\n    def __init__(self):\n        self.steps = 0\n"
    body = ACCUMULATING.replace("(i + 1) % 4", "self.steps % 4").replace(BACKWARD, f"{BACKWARD}    self.steps += 1\n")
    fit = "    def fit(self, loader):\n" + "".join(f"        {line}\n" for line in body.splitlines())
    assert "nullcontext() if (self.steps + 1) % 4 == 0 else" in patched_line(choice(start + fit))
    twice = choice(start + fit.replace("self.steps += 1", "self.steps += 1\n            other.steps = 0"))
    assert of(twice, "no_sync=True") is None


@pytest.mark.parametrize(
    ("bases", "body", "is_tried"),
    [
        ("", "self.passes = 3", True),  # another object
        ("", "setattr(self, name, 3)", True),
        ("(Trainer)", "self.passes = 3", False),
        ("(Middle)", "setattr(self, name, 3)", False),
        ("", "other.passes = 3", False),
        ("", "setattr(other, name, 3)", False),
    ],
)
def test_what_another_class_sets_of_itself_is_of_another_object(bases: str, body: str, is_tried: bool) -> None:
    start = "class Trainer:\n    def __init__(self):\n        self.passes = 4\n"
    loop = ACCUMULATING.replace("% 4", "% self.passes").replace(BACKWARD, f"{BACKWARD}    meter.update(1)\n")
    fit = "    def fit(self, loader):\n" + "".join(f"        {line}\n" for line in loop.splitlines())
    others = f"class Middle(Trainer):\n    pass\nclass Meter{bases}:\n    def update(self, name):\n        {body}\n"
    found = choice(start + fit + others)
    assert (of(found, "no_sync=True") is not None) == is_tried, found.left


@pytest.mark.parametrize(("base", "is_tried"), [("nn.Module", True), ("object", False)])
def test_a_module_is_no_options(base: str, is_tried: bool) -> None:
    other = f"class Other({base}):\n    def update(self, name):\n        setattr(self, name, 3)\n"
    loop = ACCUMULATING.replace("% 4", "% args.passes").replace(BACKWARD, f"{BACKWARD}    meter.update(1)\n")
    assert (of(choice(other + loop), "no_sync=True") is not None) == is_tried
