"""PA601 where a loop of one file makes its steps by a call: of a method every few turns, of a closure, of a helper."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source


def told(folder: Path, files: dict[str, str], name: str) -> list[str]:
    """The lines of PA601's findings in one of these files, and what their messages say behind that."""
    for file, text in files.items():
        (folder / file).write_text(textwrap.dedent(text))
    source = Source(name, textwrap.dedent(files[name]), Project(sorted(folder.glob("*.py"))).seen_from(folder / name))
    found = run_checks(source, all_rules(), frozenset(["PA601"]))
    return [source.lines[f.location.line - 1].strip() for f in found if f.location]


NORMS = """
    from math import inf

    def norm_of(parameters, norm_type=2):
        parameters = list(filter(lambda p: p.grad is not None, parameters))
        if norm_type == inf:
            return max(p.grad.abs().max() for p in parameters)
        total = 0
        for p in parameters:
            total += p.grad.data.norm(norm_type).item() ** norm_type
        return total ** (1 / norm_type)
"""


@pytest.mark.parametrize(
    ("call", "is_told"), [("norm_of(model.parameters())", True), ("norm_of(model.parameters(), inf)", False)]
)
def test_a_norm_is_that_of_the_number_which_a_call_leaves_as_it_is(tmp_path: Path, call: str, is_told: bool) -> None:
    loop = f"""
        import torch
        from norms import norm_of, inf

        for x in loader:
            loss = model(x.cuda()).mean()
            loss.backward()
            {call}
            optimizer.step()
    """
    assert told(tmp_path, {"norms.py": NORMS, "loop.py": loop}, "loop.py") == ([call] if is_told else [])


FREQUENT = """
    import torch

    class Dqn:
        def learn(self):
            for step in range(100000):
                self.act()
                if step > self.args.learning_starts and step % self.args.train_freq == 0:
                    kept = self.update_network(self.buffer.sample())

        def update_network(self, batch):
            loss = self.net(batch.cuda()).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return loss.item()
"""


@pytest.mark.parametrize(
    ("loop", "is_told"),
    [
        (FREQUENT, True),
        (FREQUENT.replace("kept = ", "self.note()\n                    kept = "), True),
        (  # what stands under another condition runs on few of the steps
            FREQUENT.replace("return loss.item()", "return loss").replace(
                "self.act()", "self.act()\n                if step % 1000 == 0:\n                    print(kept.item())"
            ),
            False,
        ),
    ],
)
def test_a_loop_that_learns_every_few_turns_by_a_method(tmp_path: Path, loop: str, is_told: bool) -> None:
    assert told(tmp_path, {"loop.py": loop}, "loop.py") == (["return loss.item()"] if is_told else [])


CLOSURE = """
    import torch

    def make_step(model, optimizer):
        def step(image):
            loss = model(image).mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    def transfer(model, image):
        optimizer = torch.optim.Adam((image.cuda(),))
        step = make_step(model, optimizer)
        for turn in range(3000):
            loss = step(image)
            print(turn, loss.item())
"""


@pytest.mark.parametrize(
    ("closure", "is_told"),
    [
        (CLOSURE, True),
        (CLOSURE.replace("        return step\n", "        return step if fast else slow\n"), False),
        (CLOSURE.replace("    def make_step", "    @cached\n    def make_step"), False),
        (CLOSURE.replace("print(turn, loss.item())", "losses.append(loss.detach())"), False),
    ],
)
def test_a_step_that_a_function_has_made(tmp_path: Path, closure: str, is_told: bool) -> None:
    assert told(tmp_path, {"closure.py": closure}, "closure.py") == (["print(turn, loss.item())"] if is_told else [])


DECORATED = """
    import torch

    def timed(name):
        return lambda function: function

    def compute(x):
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    {decorator}
    def train():
        for x in loader:
            compute(x)

    {decorator}
    def evaluate():
        compute(None)
"""


@pytest.mark.parametrize("decorator", ["", "@timed('x')"])
def test_a_call_is_found_by_its_line_though_a_decorator_stands_behind_its_function_in_the_tree(
    tmp_path: Path, decorator: str
) -> None:
    text = DECORATED.replace("{decorator}", decorator)
    assert told(tmp_path, {"loop.py": text}, "loop.py") == ["losses.append(loss.item())"]
