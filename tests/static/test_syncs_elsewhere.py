"""PA601 in functions of other files that a step calls; the file that is scanned is the one with the loop."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

HELPERS = """
    import torch

    def grad_norm(model):
        total = 0.0
        for p in model.parameters():
            if p.grad is not None:
                total += p.grad.data.norm(2).item() ** 2
        return total ** 0.5

    def grad_norm_on_device(model):
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        return torch.nn.utils.get_total_norm(grads)

    def count(model):
        return sum(p.numel() for p in model.parameters() if p.requires_grad)

    def accuracy(output, labels):
        return (output.argmax(1) == labels).float().mean().item()

    def seldom(loss, step):
        if step % 100 == 0:
            print(loss.item())

    def evaluate(model, loader):
        for x in loader:
            print(model(x.cuda()).mean().item())

    def add(first, second):
        return float(first) + second.item()

    def batches(loader):
        for x in loader:
            yield x.cuda().sum().item()

    def choose(policy, x):
        return policy(x).argmax().item()

    def watched(model, is_watched=False):
        if not is_watched:
            return None
        return [p.grad.norm().item() for p in model.parameters()]

    class Balanced:
        def __init__(self, balance=False):
            self.balance = balance

        def __call__(self, x, y):
            loss = (x - y).mean()
            if self.balance:
                self.mean = 0.9 * self.mean + 0.1 * loss.item()
            return loss

    def skips(model):
        for p in model.parameters():
            if not p.requires_grad:
                continue
            if p.grad is None:
                continue
            p.grad.mul_(1 / p.grad.norm().item())

    @wrapped
    def otherwise(loss):
        return loss.item()

    class Loss(torch.nn.Module):
        def forward(self, x, y):
            loss = (x - y).abs().mean()
            if loss > 3:
                loss = loss * 2
            return loss

    class PlainLoss(torch.nn.Module):
        def forward(self, x, y):
            if x.shape != y.shape:
                y = y.view_as(x)
            return (x - y).abs().mean()

    def clip(model):
        torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
        return grad_norm(model)

    def clip_now_and_then(model, step):
        if step % 100 == 0:
            grad_norm(model)

    def three(model):
        return clip(model)

    def with_picture(output, labels):
        save_picture(output, labels)
        validate(output, labels)

    def save_picture(output, labels):
        return accuracy(output, labels)

    def validate(output, labels):
        return accuracy(output, labels)

    from .further import mean_of, evaluated

    def through(loss):
        return mean_of(loss)

    def through_evaluated(loss):
        return evaluated(loss)

    class Stepper:
        def finish(self, loss):
            self.show(loss)
            self.tally(loss)

        def show(self, loss):
            print(loss.item())

        def tally(self, loss):
            self.total += loss.item()

    class Quiet(Stepper):
        def show(self, loss):
            pass

    class Base:
        def note(self, loss):
            self.history.append(loss.item())

        def step(self, loss):
            raise NotImplementedError

    class Trainer(Base):
        def keep(self, loss):
            self.history.append(loss.detach())
"""

FURTHER = """
    def mean_of(loss):
        return loss.mean().item()

    def evaluated(loss):
        model.eval()
        return loss.mean().item()
"""

LOOP = """
    import torch
    import helpers.misc
    from helpers import misc, Trainer, Loss
    from helpers.misc import *
    from helpers.misc import (accuracy, add, batches, choose, count, evaluate, grad_norm, grad_norm_on_device, otherwise,
        seldom, skips, watched, Balanced, PlainLoss, clip, clip_now_and_then, three, with_picture, through,
        through_evaluated, Stepper)

    {before}
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(), y.cuda()
        output = model(x)
        loss = criterion(output, y)
        loss.backward()
        optimizer.step()
        {line}
"""


def messages(folder: Path, code: str, helpers: str = HELPERS) -> list[str]:
    (folder / "helpers").mkdir()
    (folder / "pyproject.toml").write_text("")
    (folder / "helpers" / "__init__.py").write_text("from .misc import Trainer, Loss as Loss\n")
    (folder / "helpers" / "misc.py").write_text(textwrap.dedent(helpers))
    (folder / "helpers" / "further.py").write_text(textwrap.dedent(FURTHER))
    code = textwrap.dedent(code)
    (folder / "train.py").write_text(code)
    neighbours = Project(sorted(folder.rglob("*.py"))).seen_from(folder / "train.py")
    found = run_checks(Source("train.py", code, neighbours), all_rules(), frozenset(["PA601"]))
    if any("misc.py" in finding.message for finding in found):
        assert str(folder / "helpers" / "misc.py") in neighbours.asked.files  # the cache asks for it
    return [finding.message for finding in found]


@pytest.mark.parametrize(
    ("line", "text", "place"),
    [
        ("grad_norm(model)", "`grad_norm(model)`", "`p.grad.data.norm(2).item()` in `grad_norm`, misc.py line 8"),
        ("misc.grad_norm(model)", "`misc.grad_norm(model)`", "once for each turn of a loop"),
        ("helpers.misc.grad_norm(net)", "`helpers.misc.grad_norm(net)`", "`p.grad.data.norm(2).item()`"),
        ("skips(model)", "`skips(model)`", "`p.grad.norm().item()` in `skips`"),
        ("total = accuracy(output, y)", "`accuracy(output, y)`", "in `accuracy`"),
        ("total = accuracy(labels=y, output=output)", "`accuracy(labels=y", "in `accuracy`"),
        ("add(1, loss)", "`add(1, loss)`", "`second.item()`"),
        ("trainer.note(loss)", "`trainer.note(loss)`", "`loss.item()` in `note`"),  # of the base of its class
        ("clip(model)", "`clip(model)`", "in `grad_norm`, misc.py line 8, which `clip` calls"),
        (
            "through(loss)",
            "`through(loss)`",
            "`loss.mean().item()` in `mean_of`, further.py line 3, which `through` calls",
        ),
        # Another class has a method `show`, so that nobody knows which one it is.
        ("stepper.finish(loss)", "`stepper.finish(loss)`", "`loss.item()` in `tally`, misc.py"),
        ("Loss()(output, y)\n        own(output, y)", "`Loss()(output, y)`", "`loss > 3` in `forward`"),
        ("wrapped(output, y)", "`wrapped(output, y)`", "`loss > 3` in `forward`"),
        ("made(output, y)", "`made(output, y)`", "`loss > 3` in `forward`"),
    ],
)
def test_found(tmp_path: Path, line: str, text: str, place: str) -> None:
    before = (
        "trainer = Trainer(); own = Loss().cuda(); stepper = Stepper(); wrapped = Loss()\n"
        "    wrapped = torch.nn.DataParallel(wrapped)\n    wrapped = wrapped.cuda()\n"
        "    def make(): return Loss().train()\n    made = make() if flag else None"
    )
    (message,) = messages(tmp_path, LOOP.format(before=before, line=line))
    assert message.startswith(text)
    assert "wait for the device on every step" in message
    assert place in message


@pytest.mark.parametrize(
    "line",
    [
        "grad_norm_on_device(model)",
        "count(model)",
        "clip_now_and_then(model, step)",
        "three(model)",
        "with_picture(output, y)",
        "through_evaluated(loss)",
        "seldom(loss, step)",  # now and then, there
        "if step % 100 == 0: grad_norm(model)",  # and here
        "evaluate(model, test_loader)",
        "add(loss.shape[0], batch)",  # nothing is known of what it gets
        "watched(model)",  # it returns before
        "balanced(output, y)",  # a flag that is off
        "batches(loader)",  # runs when it is asked for its values
        "otherwise(loss)",  # a decorator may do anything
        "env.step(choose(model, x))",  # the environment cannot do without the value
        "trainer.keep(loss)",
        "trainer.step(loss)",
        "plain(output, y)",
        "missing(loss)",
        "other.note(loss)",
        "either(output, y)",
        "handed(output, y)",
    ],
)
def test_silent(tmp_path: Path, line: str) -> None:
    before = "trainer = Trainer(); plain = PlainLoss(); other = Trainer(); other = find(); balanced = Balanced()"
    before += "; either = Loss() if flag else PlainLoss(); handed = Loss(); handed = unknown(handed)"
    assert messages(tmp_path, LOOP.format(before=before, line=line)) == []


def test_a_method_of_the_base_class_in_another_file(tmp_path: Path) -> None:
    code = """
        from helpers import Trainer

        class Mine(Trainer):
            def __init__(self):
                self.loss = Trainer()

            def train(self, model, loader, optimizer):
                for x in loader:
                    loss = model(x.cuda()).mean()
                    loss.backward()
                    optimizer.step()
                    self.note(loss)
                    self.loss.note(loss)
    """
    (message,) = messages(tmp_path, "import torch\n" + textwrap.dedent(code))
    assert message.startswith("`self.note(loss)` makes the host wait")


def test_what_is_told_of_this_file_is_not_told_of_the_other(tmp_path: Path) -> None:
    helpers = """
        def to_cpu(x):
            return x.detach().cpu()
    """
    code = LOOP.format(before="from helpers.misc import to_cpu", line="print(to_cpu(loss).item())")
    (message,) = messages(tmp_path, code, helpers)
    assert message.startswith("`to_cpu(loss).item()`")


def test_a_helper_that_does_not_parse(tmp_path: Path) -> None:
    assert messages(tmp_path, LOOP.format(before="", line="grad_norm(model)"), "def grad_norm(") == []


@pytest.mark.parametrize(
    ("test", "is_found"),
    [("p.grad is not None", True), ("p.requires_grad", True), ("p.grad is None", False), ("p in seen", False)],
)
def test_gradient_norms_of_the_same_file(tmp_path: Path, test: str, is_found: bool) -> None:
    code = f"""
        import torch

        def grad_norm(model):
            total = 0.0
            for p in model.parameters():
                if {test}:
                    total += p.grad.norm().item() ** 2
            return total ** 0.5

        for x in loader:
            loss = model(x.cuda()).mean()
            loss.backward()
            optimizer.step()
            grad_norm(model)
    """
    found = messages(tmp_path, code, "")
    assert [message.partition(" in ")[0] for message in found] == ["`p.grad.norm().item()`"] * is_found


UPDATING = """
    def update(optimizer, loss, again=1):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def fit(optimizer, loss):
        for _ in range(3):
            loss.backward()
            optimizer.step()
"""
HANDED = """
    import torch
    from helpers.misc import fit, update

    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = criterion(model(x), y)
        {call}
        total += loss.item()
"""


@pytest.mark.parametrize("call", ["update(optimizer, loss)", "update(self.optim, loss=loss, again=2)"])
def test_a_loop_that_hands_its_loss_to_a_backward_pass_of_another_file_makes_steps(tmp_path: Path, call: str) -> None:
    (message,) = messages(tmp_path, HANDED.format(call=call), UPDATING)
    assert message.startswith("`loss.item()` makes the host wait")


@pytest.mark.parametrize(
    "call", ["update(loss, x)", "fit(optimizer, loss)", "update(optimizer)", "torch.save(optimizer)"]
)
def test_other_calls_make_no_step_of_it(tmp_path: Path, call: str) -> None:
    assert messages(tmp_path, HANDED.format(call=call), UPDATING) == []


METERS = """
    import torch

    class Meters:
        def update(self, **values):
            for name, value in values.items():
                if value is None:
                    continue
                if isinstance(value, torch.Tensor):
                    value = value.item()
                self.meters[name].update(value)

    class Meter:
        def update(self, value, n=1):
            if torch.is_tensor(value):
                value = value.item()
            self.sum += value * n
"""


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("meters.update(loss=loss, lr=0.1)", "`value.item()` in `update`, misc.py line 10"),
        ("meters.update(lr=0.1, **losses)", "line 10"),
        ("meter.update(loss, len(x))", "line 16"),
        ("meters.update(lr=0.1)", ""),
        ("meters.update(loss=loss.item())", "`loss.item()`"),
        ("meter.update(find(x), n=len(x))", ""),  # which may be a number
        ("meter.update(3, n=loss)", ""),
    ],
)
def test_a_meter_of_another_file_reads_the_tensors_that_it_is_handed(tmp_path: Path, line: str, place: str) -> None:
    before = "from helpers.misc import Meter, Meters; meters = Meters(); meter = Meter()"
    code = LOOP.format(before=before, line=line).replace("loss = criterion(output, y)", "losses = criterion(output, y)")
    code = code.replace("loss.backward()", "loss = sum(losses.values())\n        loss.backward()")
    found = messages(tmp_path, code, METERS)
    assert len(found) == bool(place)
    assert not found or place in found[0]


def test_a_method_of_a_base_class_in_another_file_may_run_the_backward_pass(tmp_path: Path) -> None:
    helpers = """
        class Agent:
            def take_step(self, optimizer, network, loss, clip=None):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    """
    code = """
        import torch
        from helpers.misc import Agent

        class Mine(Agent):
            def run(self):
                for batch in self.batches:
                    self.learn(batch.cuda())

            def learn(self, batch):
                loss = self.network(batch).mean()
                self.take_step(self.optimizer, self.network, loss, self.clip)
                self.seen.append(loss.item())
    """
    (message,) = messages(tmp_path, textwrap.dedent(code), helpers)
    assert message.startswith("`loss.item()` in `learn`")


@pytest.mark.parametrize(
    ("helpers", "number"),
    [
        ("class Base:\n    def place(self, x):\n        return x.cuda()\n", 1),
        ("class Base:\n    def place(self, x):\n        return x.float()\n", 0),  # nothing says that there is a GPU
    ],
)
def test_the_gpu_may_be_named_only_in_what_a_trainer_is_derived_from(tmp_path: Path, helpers: str, number: int) -> None:
    code = """
        import torch
        from helpers.misc import Base

        class Trainer(Base):
            def run(self):
                for batch in self.batches:
                    loss = self.network(self.place(batch)).mean()
                    loss.backward()
                    self.optimizer.step()
                    self.total += loss.item()
    """
    assert len(messages(tmp_path, textwrap.dedent(code), helpers)) == number


@pytest.mark.parametrize(
    ("helpers", "number"),
    [
        ("class Net:\n    def run_batch(self, x):\n        return {'loss': self.net(x.cuda()).mean()}\n", 1),
        ("class Net:\n    def run_batch(self, x):\n        return {'loss': self.net(x).mean()}\n", 0),
    ],
)
def test_the_gpu_may_be_named_only_in_what_a_script_imports(tmp_path: Path, helpers: str, number: int) -> None:
    code = """
        import torch
        from helpers.misc import Net

        if __name__ == "__main__":
            model, total = Net(), 0.0
            for batch in batches:
                loss = model.run_batch(batch)["loss"]
                loss.backward()
                optimizer.step()
                total += loss.item()
    """
    assert len(messages(tmp_path, textwrap.dedent(code), helpers)) == number


STEPS = """
    import torch

    class Trainer:
        def __init__(self, model):
            self.model = model.cuda()
            self.optimizer = torch.optim.Adam(model.parameters())

        def train(self, x, y):
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            return loss.item()
"""


@pytest.mark.parametrize(
    ("loop", "is_told"),
    [
        ("for x, y in loader:\n    losses.append(engine.train(x, y))", True),
        ("for x, y in loader:\n    losses.append(engine.train(x.cuda(), y=y))", True),
        ("for x, y in loader:\n    engine.train()", False),  # as `model.train()`
        ("for epoch in range(100):\n    engine.train(x, y)", False),  # all the data at once
        ("for n, (x, y) in enumerate(loader):\n    if n % 100 == 0:\n        engine.train(x, y)", False),
        ("for n, (x, y) in enumerate(loader):\n    if n % 4 == 0:\n        engine.train(x, y)", True),
        ("EVERY = 500\nfor n, (x, y) in enumerate(loader):\n    if n % EVERY == 0:\n        engine.train(x, y)", False),
        ("for n, (x, y) in enumerate(loader):\n    if n % args.learn_every == 0:\n        engine.train(x, y)", True),
        (
            "for n, (x, y) in enumerate(loader):\n    if n % args['train_period'] == 0:\n        engine.train(x, y)",
            True,
        ),
        ("for n, (x, y) in enumerate(loader):\n    if n % args.show_every == 0:\n        engine.train(x, y)", False),
        ("for n, (x, y) in enumerate(loader):\n    if n % 4 == 0 and debug:\n        engine.train(x, y)", False),
        ("for x, y in loader:\n    train(x, y)", False),  # no method
        ("engine.train(x, y)", False),
        ("engine.train(x, y)\nforest = Forest()\nfor x, y in folds:\n    forest.train(x, y)", False),
        ("import forests\nforest = forests.Trainer()\nfor x, y in folds:\n    forest.train(x, y)", False),
        ("for x, y in loader:\n    agent.train(x, y)", True),  # nobody else in sight is meant
        ("for n in steps:\n    bar.train(n, 1)\n    if n % 100 == 0:\n        agent.train(x, y)", False),
        ("for n in steps:\n    bar.train(n, 1)\n    engine.train(x, y)", True),
        ("for game in games:\n    while play():\n        keep(game)\n    engine.train(rewards, logs)", False),
    ],
)
def test_a_whole_step_that_another_file_makes_in_its_loop(tmp_path: Path, loop: str, is_told: bool) -> None:
    (tmp_path / "engine.py").write_text(textwrap.dedent(STEPS))
    (tmp_path / "main.py").write_text(f"from engine import Trainer\nengine = Trainer(Net())\n{loop}\n")
    neighbours = Project([tmp_path / "engine.py", tmp_path / "main.py"]).seen_from(tmp_path / "engine.py")
    source = Source("engine.py", textwrap.dedent(STEPS), neighbours)
    found = list(run_checks(source, all_rules(), frozenset(["PA601"])))
    assert [f.location.line for f in found if f.location] == ([14] if is_told else [])


@pytest.mark.parametrize(
    ("imports", "is_told"),
    [
        ("from engine import train", True),
        ("from other import train\nimport engine", False),
        ("def train(x): pass", False),
    ],
)
def test_a_function_that_makes_a_whole_step_is_the_one_that_is_imported(
    tmp_path: Path, imports: str, is_told: bool
) -> None:
    steps = "import torch\n\ndef train(x):\n    loss = model(x.cuda())\n    loss.backward()\n    optimizer.step()\n"
    steps += "    return loss.item()\n"
    (tmp_path / "engine.py").write_text(steps)
    (tmp_path / "other.py").write_text("def train(x):\n    pass\n")
    more = "import engine\n" if imports.startswith("def") else ""
    (tmp_path / "main.py").write_text(f"{more}{imports}\nfor x in loader:\n    train(x)\n")
    files = [tmp_path / name for name in ("engine.py", "main.py", "other.py")]
    source = Source("engine.py", steps, Project(files).seen_from(tmp_path / "engine.py"))
    found = list(run_checks(source, all_rules(), frozenset(["PA601"])))
    assert [f.location.line for f in found if f.location] == ([7] if is_told else [])


AGENT = """
    import torch

    class Agent:
        def __init__(self, network):
            self.network = network.cuda()
            self.optimizer = torch.optim.Adam(network.parameters())

        def observe(self, state, reward):
            self.memory.add(state, reward)
            if len(self.memory) > 64:
                self.seen.append(self.learn(self.memory.sample()))

        def learn(self, batch):
            loss = self.network(batch).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return loss.item()
"""
ENOUGH = "if len(self.memory) > 64:"
LEAVES = "if {}:\n                return\n            if len(self.memory) > 64:"
PLAYS = "for state, reward in world:\n    agent.observe(state, reward)"


@pytest.mark.parametrize(
    ("steps", "loop", "is_told"),
    [
        (AGENT, PLAYS, True),
        (AGENT, "agent.observe(state, reward)", False),
        (AGENT, PLAYS.replace("agent.", "if done: agent."), False),
        (AGENT, PLAYS.replace("agent.", "if not done: agent."), True),
        (AGENT, "for epoch in range(100):\n    agent.observe(state, reward)", False),
        (AGENT.replace("if len(self.memory) > 64", "if self.turns % 1000 == 0"), PLAYS, False),
        (
            AGENT.replace("def learn", "def end(self):\n            self.learn(self.rest)\n\n        def learn"),
            PLAYS,
            False,
        ),
        (AGENT.replace("self.learn(self.m", "other.learn(self.m"), PLAYS, False),
        (AGENT.replace(ENOUGH, "if self.memory.size >= 64:"), PLAYS, True),
        (AGENT.replace(ENOUGH, "if len(self.memory) > 64 and not len(self.rest):"), PLAYS, True),
        (AGENT.replace(ENOUGH, LEAVES.format("len(self.memory) < 64")), PLAYS, True),
        (AGENT.replace(ENOUGH, "if self.steps_done > 64:"), PLAYS, True),
        (
            AGENT.replace(ENOUGH, "self.turn = (self.turn + 1) % self.pause\n            if self.turn == 0:"),
            PLAYS,
            True,
        ),
        (AGENT.replace(ENOUGH, "if not self.optimizer:"), PLAYS, True),  # which only the constructor sets
        (AGENT.replace(ENOUGH, "self.optimizer = reward\n            if self.optimizer:"), PLAYS, False),
        # The end of an episode is no step.
        (AGENT.replace(ENOUGH, "if done:"), PLAYS, False),
        (AGENT.replace(ENOUGH, "if state.is_terminal():"), PLAYS, False),
        (AGENT.replace(ENOUGH, "if self.full:"), PLAYS, False),
        (AGENT.replace(ENOUGH, "if done and len(self.memory) > 64:"), PLAYS, False),
        (AGENT.replace(ENOUGH, "if self.episodes_done > 64:"), PLAYS, False),
        (AGENT.replace(ENOUGH, LEAVES.format("not done")), PLAYS, False),
        (
            AGENT.replace("self.seen.append(self.learn(self.memory.sample()))", "done and self.learn(self.rest)"),
            PLAYS,
            False,
        ),
    ],
)
def test_a_whole_step_that_a_method_makes_for_the_loop_of_another_file(
    tmp_path: Path, steps: str, loop: str, is_told: bool
) -> None:
    (tmp_path / "agent.py").write_text(textwrap.dedent(steps))
    (tmp_path / "main.py").write_text(f"from agent import Agent\nagent = Agent(Net())\n{loop}\n")
    neighbours = Project([tmp_path / "agent.py", tmp_path / "main.py"]).seen_from(tmp_path / "agent.py")
    source = Source("agent.py", textwrap.dedent(steps), neighbours)
    found = list(run_checks(source, all_rules(), frozenset(["PA601"])))
    assert ["return loss.item()" in source.text.splitlines()[f.location.line - 1] for f in found if f.location] == (
        [True] if is_told else []
    )


@pytest.mark.parametrize(("imports", "is_told"), [("import torch\n", True), ("import mxnet\n", False)])
def test_a_trainer_that_is_handed_all_it_uses_is_of_torch_where_its_importer_is(
    tmp_path: Path, imports: str, is_told: bool
) -> None:
    code = """
        class Trainer:  # on a device of its caller
            def run(self, batches, device):
                for batch in batches:
                    loss = self.network(batch.to(device)).mean()
                    loss.backward()
                    self.optimizer.step()
                    self.total += loss.item()
    """
    (tmp_path / "trainer.py").write_text(textwrap.dedent(code))
    (tmp_path / "main.py").write_text(f"{imports}from trainer import Trainer\nTrainer().run(batches, device)\n")
    neighbours = Project([tmp_path / "trainer.py", tmp_path / "main.py"]).seen_from(tmp_path / "trainer.py")
    source = Source("trainer.py", textwrap.dedent(code), neighbours)
    assert bool(list(run_checks(source, all_rules(), frozenset(["PA601"])))) == is_told


@pytest.mark.parametrize(
    ("step", "place"),
    [
        ("loss, parts = losses_of(batch)", "line 4"),
        ("parts, loss = losses_of(batch)", ""),  # what is read is the other one, and may be a number
        ("loss, parts = losses_of(batch)\n            loss = loss * 2", "line 4"),
        ("pair = losses_of(batch)\n            loss = pair[0]", ""),
    ],
)
def test_what_another_file_returns_for_the_backward_pass_is_on_the_device(
    tmp_path: Path, step: str, place: str
) -> None:
    helpers = """\
    def losses_of(batch):
        real = score(batch)
        loss = criterion(real)
        return loss, {"real": loss.item()}
    """
    code = f"""
        import torch
        from helpers.misc import losses_of

        for batch in loader:
            {step}
            loss.backward()
            optimizer.step()
    """
    found = messages(tmp_path, f"{textwrap.dedent(code)}    model.to('cuda')\n", helpers)
    assert [place in message for message in found] == ([True] if place else [])


@pytest.mark.parametrize(
    ("device", "number"),
    [
        ("x.to(options['device'])", 1),
        ("x.to(options.device)", 1),
        ("x.to('cpu')", 0),
        ("x.to(torch.float64)", 0),
    ],
)
def test_a_copy_to_the_host_beside_one_to_a_device_of_another_file(tmp_path: Path, device: str, number: int) -> None:
    code = f"""
        import torch
        from helpers.misc import options

        for x in loader:
            loss = criterion(model({device}))
            loss.backward()
            optimizer.step()
            total += loss.item()
            shown = x.to("cpu")
    """
    helpers = "    options = {'device': 'cuda'}\n"
    assert len(messages(tmp_path, textwrap.dedent(code), helpers)) == number


MODELS = """
    import torch
    from base import Base

    class Model(Base):
        def feed(self, batch):
            self.batch = batch.to(self.device)

        def optimize_parameters(self):
            loss = self.network(self.batch).mean()
            loss.backward()
            self.optimizer.step()
            self.log["loss"] = loss.item()
"""


@pytest.mark.parametrize(
    ("name", "loop", "is_told"),
    [
        ("optimize_parameters", "for batch in loader:\n    model.feed(batch)\n    model.optimize_parameters()", True),
        ("optimize_parameters", "model.optimize_parameters()", False),
        ("train", "for batch in loader:\n    model.feed(batch)\n    model.train()", True),
        # Anything may have a `train()`, above all where the loop trains by itself.
        ("train", "for batch in loader:\n    model.train()\n    model(batch).mean().backward()", False),
        ("train", "for batch in loader:\n    bar.train()", False),
        (
            "optimize_parameters",
            "for n, batch in enumerate(loader):\n    model.optimize_parameters()\n    if n % 500 == 0:\n"
            "        for x in held_out:\n            model.test(x)",
            True,
        ),
        (
            "optimize_parameters",
            "for game in games:\n    for move in game:\n        keep(move)\n    model.optimize_parameters()",
            False,
        ),
        ("optimize_parameters", "for batch in loader:\n    model.optimize_parameters(batch)", False),  # another one
    ],
)
def test_a_whole_step_of_a_model_that_takes_nothing_and_is_placed_by_its_base(
    tmp_path: Path, name: str, loop: str, is_told: bool
) -> None:
    steps = textwrap.dedent(MODELS).replace("optimize_parameters", name)
    (tmp_path / "model.py").write_text(steps)
    (tmp_path / "base.py").write_text("import torch\n\nclass Base:\n    device = torch.device('cuda')\n")
    (tmp_path / "models.py").write_text("def make(options):\n    from model import Model\n    return Model(options)\n")
    (tmp_path / "main.py").write_text(f"import torch\nfrom models import make\nmodel = make(options)\n{loop}\n")
    neighbours = Project(sorted(tmp_path.glob("*.py"))).seen_from(tmp_path / "model.py")
    found = list(run_checks(Source("model.py", steps, neighbours), all_rules(), frozenset(["PA601"])))
    assert [f.location.line for f in found if f.location] == ([13] if is_told else [])


CRITERIA = """
    import torch

    class Loss(torch.nn.Module):
        def of(self, output, y):
            loss = (output - y).pow(2).mean()
            return loss, [loss.item()]
"""
WITH_CRITERIA = """
    import torch
    {imported}

    class Trainer:
        def __init__(self, model, loader):
            self.model, self.loader = model, loader
            self.criterion = Loss()

        def train(self):
            for x, y in self.loader:
                loss, parts = self.criterion.of(self.model(x.cuda()), y.cuda())
                loss.backward()
                self.optimizer.step()
"""


@pytest.mark.parametrize(
    ("imported", "is_told"),
    [
        ("from criteria import Loss", True),
        ("from criteria import *", True),
        ("from plain import *\n    from criteria import *", True),  # the last one binds the name
        ("from criteria import *\n    from plain import *", False),
        ("from criteria import *\n    from installed import *", False),  # which may have one too
        ("from losses import Loss", True),  # a package that takes it by a star
        ("from losses import *", True),
    ],
)
def test_a_method_of_a_class_that_a_star_brings(tmp_path: Path, imported: str, *, is_told: bool) -> None:
    plain = CRITERIA.replace("[loss.item()]", "[loss.detach()]")
    files = {"criteria": CRITERIA, "plain": plain, "train": WITH_CRITERIA.format(imported=imported)}
    files |= {"losses/__init__": "from .plain import *\nfrom .good import *", "losses/good": CRITERIA}
    files["losses/plain"] = plain
    (tmp_path / "losses").mkdir()
    for name, code in files.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
    neighbours = Project(sorted(tmp_path.rglob("*.py"))).seen_from(tmp_path / "train.py")
    source = Source("train.py", (tmp_path / "train.py").read_text(), neighbours)
    found = run_checks(source, all_rules(), frozenset(["PA601"]))
    assert ["`loss.item()` in `of`" in each.message for each in found] == [True] * is_told
