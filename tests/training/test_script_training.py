"""A script in its own loop, run a step at a time: what a step is, what is known of it, and what can be put in its place."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked_programs import run_code

pytest.importorskip("greenlet")

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(4, 3)

    def forward(self, x):
        return self.one(x)

def data(workers=0):
    x = torch.arange(64.0).reshape(16, 4)
    return DataLoader(TensorDataset(x, x[:, :3]), batch_size=4, num_workers=workers)
"""
LOOP = """
def main():
    model, loader = Net(), data()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for epoch in range(5):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()

main()
"""
# Runs in a process of its own: a script changes what belongs to the whole process.
DRIVER = """
import json, sys
from perfaudit.target.names import Target
from perfaudit.target.working_folder import begin
from perfaudit.errors import TargetError
begin()
from perfaudit.training.script_training import ScriptTraining
request = json.loads(sys.argv[1])
def refuse(why):
    import os
    print("\\n" + json.dumps({"refused": why}), flush=True)
    os._exit(0)
try:
    training = ScriptTraining(Target("train.py", {}, tuple(request["arguments"])), refuse=refuse)
    training.synchronize()
except TargetError as error:
    print("\\n" + json.dumps({"error": str(error)}))
    sys.exit()
found = {}
exec(request["work"])
print("\\n" + json.dumps(found), flush=True)
import os
os._exit(0)
"""
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def runner(script: str, work: str = "", arguments: tuple[str, ...] = ()) -> dict[str, Any]:
        (tmp_path / "train.py").write_text(script)
        request = json.dumps({"work": textwrap.dedent(work), "arguments": arguments})
        done = run_code(DRIVER, "driver.py", [request], tmp_path)
        assert done.out.strip(), done.err[-2000:]
        found: dict[str, Any] = json.loads(done.out.splitlines()[-1])
        return found

    return runner


@pytest.mark.slow
def test_a_script_makes_the_steps_that_it_makes_by_itself(run: Run) -> None:
    own = """
seen = []
import atexit, json
keep = torch.Tensor.backward
def backward(self, *args, **kwargs):
    seen.append(float(self))
    return keep(self, *args, **kwargs)
torch.Tensor.backward = backward
"""
    found = run(
        HEAD + "torch.manual_seed(3)\n" + own + LOOP,
        """
        found["losses"], found["samples"] = [float(training.last_loss)], []
        for _ in range(6):
            found["samples"].append(training.whole_step())
            found["losses"].append(float(training.last_loss))
        found["own"] = sys.modules["__main__"].seen
        """,
    )
    assert found["samples"] == [4] * 6
    assert len(found["losses"]) == 7  # building it makes the first step
    assert found["losses"] == found["own"]


@pytest.mark.slow
def test_what_a_script_has_built_is_known_with_its_calls(run: Run) -> None:
    found = run(
        HEAD + LOOP,
        """
        from perfaudit.measure.facts import to_json
        from perfaudit.measure.gather_facts import facts_of
        facts = to_json(facts_of(training))
        found.update(loader=facts["loader"], optimizer=facts["optimizer"], model=facts["model"], script=facts["script"])
        found["functions"] = [each.__qualname__ for each in training.step_functions()]
        found["gradients"] = sorted(training.first_gradients)
        """,
    )
    text = (HEAD + LOOP).splitlines()
    assert text[found["loader"]["site"][1] - 1].strip().startswith("return DataLoader(")
    assert text[found["optimizer"]["site"][1] - 1].strip().startswith("optimizer = torch.optim.SGD(")
    assert (found["loader"]["batch_size"], found["loader"]["epoch_batches"]) == (4, 4)
    assert (found["optimizer"]["name"], found["model"]["parameters"]) == ("SGD", 15)
    script = found["script"]
    (((path, function, first, name, line),),) = (
        [tuple(held.values()) for held in held_by] for held_by in script["models"]
    )
    assert (Path(path).name, function, text[first - 1], name) == ("train.py", "main", "def main():", "model")
    assert text[line - 1].strip() == "optimizer.step()"
    (backward,) = script["backward"]
    assert text[backward["site"][1] - 1].strip() == "loss.backward()"
    assert [text[line - 1].strip() for line in backward["forwards"]] == ["loss = nn.functional.mse_loss(model(x), y)"]
    assert backward["others"] == []
    assert (script["autocasts"], script["autocasts_off"], script["arguments"]) == ([], [], [])
    assert (found["functions"], found["gradients"]) == (["Net.forward"], ["one.bias", "one.weight"])


METHODS = """
class Trainer:
    def __init__(self):
        self.model, self.critic = Net(), Net()
        self.first = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.second = torch.optim.SGD(self.critic.parameters(), lr=1e-4)

    def compute_loss(self, x, y):
        return nn.functional.mse_loss(self.model(x), y)

    def update_critic(self, x, y):
        loss = nn.functional.mse_loss(self.critic(x), y)
        self.second.zero_grad()
        loss.backward()
        self.second.step()

    def fit(self):
        for x, y in data():
            with torch.no_grad(), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
                before = self.model(x)
            out = nn.Softmax(1)(x)
            self.update_critic(x, y)
            loss = self.compute_loss(x, y)
            self.first.zero_grad()
            loss.backward()
            self.first.step()

trainer = Trainer()
for _ in range(9):
    trainer.fit()
"""


@pytest.mark.slow
def test_where_models_run_before_a_backward_pass_is_known_by_line(run: Run) -> None:
    """Also in methods; not what has no gradients, or no parameters. Another backward pass in between is told apart."""
    found = run(
        HEAD + METHODS,
        """
        found["sites"] = [
            [site.line, sorted(lines.forwards), sorted(lines.backwards)] for site, lines in training.backward_sites.items()
        ]
        from perfaudit.measure.gather_facts import facts_of
        found["off"] = [site.line for site in facts_of(training).script.autocasts_off]
        from torch.nn.modules import module
        found["hooks"] = len(module._global_forward_pre_hooks)
        """,
    )
    text = (HEAD + METHODS).splitlines()
    told = [
        [text[line - 1].strip(), *([text[at - 1].strip() for at in each] for each in seen)]
        for line, *seen in found["sites"]
    ]
    assert told == [
        ["loss.backward()", ["loss = nn.functional.mse_loss(self.critic(x), y)"], []],
        ["loss.backward()", ["loss = self.compute_loss(x, y)"], ["self.update_critic(x, y)"]],
    ]
    assert found["hooks"] == 0
    assert ["enabled=False" in text[line - 1] for line in found["off"]] == [True]


TWO = """
model, other, loader = Net(), Net(), data()
first = torch.optim.SGD(model.parameters(), lr=1e-4)
second = torch.optim.SGD(other.parameters(), lr=1e-4)
for _ in range(20):
    for number, (x, y) in enumerate(loader):
        for net, optimizer, times in ((model, first, 1), (other, second, 2)):
            for _ in range(times):
                optimizer.zero_grad()
                nn.functional.mse_loss(net(x), y).backward()
                optimizer.step()
"""


TYPES = """
seen = []
def noted(original):
    def mse_loss(out, y):
        seen.append((str(out.dtype), torch.is_autocast_enabled("cpu"), torch.is_grad_enabled()))
        return original(out, y)
    return mse_loss
nn.functional.mse_loss = noted(nn.functional.mse_loss)
"""


@pytest.mark.slow
def test_settings_of_precision_and_batch_size_hold_in_the_scripts_own_steps(run: Run) -> None:
    """Autocast from the call of the model to the backward pass, and not in an evaluation; other batches for the loader's."""
    evaluates = LOOP.replace("optimizer.step()", "optimizer.step()\n            with torch.no_grad(): model(x)")
    found = run(
        HEAD + TYPES + evaluates,
        """
        import torch
        from perfaudit.knobs import knob
        from perfaudit.training.setting_variant import SettingVariant
        precision, sizes = knob("precision"), knob("batch_size")
        training.whole_step()
        seen = sys.modules["__main__"].seen
        seen.clear()
        variant = SettingVariant(lambda: precision.in_place(training, {"precision": "bf16"}))
        variant.enter()
        training.whole_step()
        found["outside"] = torch.is_autocast_enabled("cpu")
        variant.leave()
        training.whole_step()
        found["seen"] = list(seen)
        fit = sizes.answer_real_sizes(training, [4, 8, 16], 1 << 40, 60.0)["fit"]
        found["fit"] = [row[0] for row in fit], [low < high for (_, low, _), (_, high, _) in zip(fit, fit[1:])]
        found["none"] = sizes.answer_real_sizes(training, [4, 8], 1, 60.0)["fit"]
        found["samples"] = training.whole_step()
        """,
    )
    assert found["seen"] == [["torch.bfloat16", True, True], ["torch.float32", False, True]]
    assert (found["outside"], found["fit"], found["samples"]) == (False, [[4, 8, 16], [True, True]], 4)
    assert [row[0] for row in found["none"]] == [4]


@pytest.mark.slow
def test_a_layout_that_a_view_does_not_take_is_told_without_the_end_of_the_script(run: Run) -> None:
    flat = HEAD.replace("self.one(x)", "self.one(self.two(x.view(-1, 2, 2, 1)).view(len(x), -1))").replace(
        "self.one = nn.Linear(4, 3)", "self.one, self.two = nn.Linear(9, 3), nn.Conv2d(2, 3, (2, 1), padding=(1, 0))"
    )
    found = run(
        flat + LOOP,
        """
        import torch
        from perfaudit.knobs import knob
        from perfaudit.target.load import where
        from perfaudit.training.setting_variant import SettingVariant
        layout = knob("memory_format")
        before = torch.Tensor.view
        settings = {"memory_format": "channels_last"}
        variant = SettingVariant(lambda: layout.in_place(training, settings), layout.tried_within)
        variant.enter()
        try:
            variant.parts_not_run(training.whole_step)
        except RuntimeError as error:
            found["said"], found["line"] = str(error), where(error)
        variant.leave()
        found["is_back"] = torch.Tensor.view is before and "view" not in vars(torch.Tensor)
        found["samples"], found["ended"] = training.whole_step(), training.has_ended
        """,
    )
    assert found["said"].startswith("view size is not compatible")
    assert found["line"].endswith(" in forward)")
    assert (found["is_back"], found["samples"], found["ended"]) == (True, 4, False)


@pytest.mark.slow
def test_updates_of_several_optimizers_make_one_step(run: Run) -> None:
    found = run(
        HEAD
        + TWO.replace(
            "nn.functional.mse_loss(net(x), y).backward()",
            "loss = nn.functional.mse_loss(net(x), y)\n                if net is model: loss.backward()\n"
            "                else: loss.backward()",
        ),
        """
        before = training.updates
        training.whole_step()
        found["updates"] = training.updates - before
        found["models"] = len(list(training.model.children()))
        found["optimizers"] = len(training.optimizers)
        from perfaudit.knobs.optimizer import KNOB
        with KNOB.in_place(training, {"update": "fused"}):
            found["fused"] = [each.param_groups[0]["fused"] for each in training.optimizers]
        found["others"] = [site is not None for _, site in training.other_optimizers]
        found["backward"] = len(training.backward_sites)
        """,
    )
    assert found == {"updates": 3, "models": 2, "optimizers": 2, "fused": [True, True], "others": [True], "backward": 2}


ANEW = """
def main():
    model, loader = Net(), data()
    for epoch in range(5):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            made.append(optimizer.param_groups[0]["fused"])
            optimizer.step()

main()
"""


@pytest.mark.slow
def test_an_update_holds_for_optimizers_that_are_built_anew(run: Run) -> None:
    """Four steps make an epoch, and each has an Adam of its own, which the patched call would build with the argument."""
    found = run(
        HEAD + "made = []\n" + ANEW,
        """
        from perfaudit.knobs.optimizer import KNOB
        training.whole_step()
        with KNOB.in_place(training, {"update": "fused"}):
            for _ in range(4):  # from the third step of the first epoch to the second one of the next
                training.whole_step()
        for _ in range(2):
            training.whole_step()
        with KNOB.in_place(training, {"update": "fused"}):
            for _ in range(2):
                training.whole_step()
        training.whole_step()
        found["fused"] = sys.modules["__main__"].made
        """,
    )
    assert found["fused"] == [None] * 2 + [True] * 4 + [None] * 2 + [True] * 2 + [None]


@pytest.mark.slow
def test_another_loader_takes_the_place_of_the_scripts(run: Run) -> None:
    """Its batches come from there, and the script's own goes on where it stopped."""
    seen = LOOP.replace("optimizer.zero_grad()", "rows.append(float(x[0, 0])); optimizer.zero_grad()")
    found = run(
        HEAD + "rows = []\n" + seen,
        """
        from perfaudit.training.loader_variant import LoaderVariant
        variant = LoaderVariant(training, {"batch_size": 8})
        found["samples"] = [training.whole_step()]
        variant.enter()
        found["samples"] += [training.whole_step() for _ in range(3)]
        variant.leave()
        found["samples"] += [training.whole_step() for _ in range(2)]
        found["rows"] = sys.modules["__main__"].rows
        found["restarts"] = len(training.restart_seconds)
        """,
    )
    assert found["samples"] == [4, 8, 8, 8, 4, 4]
    # Four batches make a pass of the script's, whoever gives them; of the other loader two make an epoch.
    assert found["rows"] == [0.0, 16.0, 0.0, 32.0, 0.0, 0.0, 16.0]
    assert found["restarts"] == 0  # those of the script's own epochs are in its steps


@pytest.mark.slow
def test_a_loader_that_is_built_anew_for_each_epoch_is_exchanged_in_all_of_them(run: Run) -> None:
    """Also one of a class of its own, which gives its batches as torch's does."""
    anew = LOOP.replace("model, loader = Net(), data()", "model = Net()").replace("in loader", "in data()")
    own = "\nclass Own(DataLoader):\n    def rest(self):\n        return []\n"
    found = run(
        HEAD.replace("return DataLoader(", "return Own(") + own + anew,
        """
        from perfaudit.training.loader_variant import LoaderVariant
        for _ in range(6):
            training.whole_step()
        LoaderVariant(training, {"batch_size": 8}).enter()
        found["samples"] = [training.whole_step() for _ in range(4)]
        """,
    )
    assert found["samples"] == [8] * 4


@pytest.mark.slow
@pytest.mark.parametrize("stays", [True, False])
def test_a_loader_with_workers_begins_epochs_while_another_is_in_its_place(stays: bool, run: Run) -> None:
    """Its workers stand still then. Those of a loader that nobody exchanges do not."""
    workers = LOOP.replace("data()", "data(1)").replace("x, y in loader", "_, (x, y) in zip(second, loader)")
    found = run(
        HEAD.replace("num_workers=workers", f"num_workers=workers, persistent_workers={stays}")
        + "second = iter(DataLoader(range(100000), num_workers=1))\n"
        + workers,
        """
        from perfaudit.training.loader_variant import LoaderVariant
        from perfaudit.training.workers import Workers
        workers = Workers("", training.loader_workers)
        training.around_own_epochs = lambda: workers.going_on("")
        variant = LoaderVariant(training, {"batch_size": 8})
        for is_own in (False, True, False, False, False, False, True, True, True, True, False, True):
            workers.give_turn_to("" if is_own else "other")
            variant.leave() if is_own else variant.enter()
            found.setdefault("is_own", []).append(training.whole_step() < 8)
        """,
    )
    assert found["is_own"] == [False, True, False, False, False, False, True, True, True, True, False, True]


@pytest.mark.slow
def test_a_step_is_an_update_however_many_batches_it_has(run: Run) -> None:
    several = """
import itertools
model, loader = Net(), data()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for count, (x, y) in enumerate(itertools.chain(*[loader] * 5), start=1):
    nn.functional.mse_loss(model(x), y).backward()
    if count % 2 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
    found = run(
        HEAD + several,
        """
        found["samples"] = [training.whole_step() for _ in range(2)]
        found["updates"] = training.updates
        """,
    )
    assert found == {"samples": [8, 8], "updates": 3}


@pytest.mark.slow
@pytest.mark.parametrize(("times", "kept"), [(1, ["one.bias", "one.weight"]), (2, [])])
def test_gradients_that_the_update_makes_itself_are_kept_if_it_makes_them_once(
    times: int, kept: list[str], run: Run
) -> None:
    closure = """
model, loader = Net(), data()
optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-4, max_iter=TIMES)
for x, y in list(loader) * 10:
    def again():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss
    optimizer.step(again)
"""
    found = run(
        HEAD + closure.replace("TIMES", str(times)),
        """
        training.whole_step()
        found["gradients"], found["updates"] = sorted(training.first_gradients), training.updates
        """,
    )
    assert found == {"gradients": kept, "updates": 2}


@pytest.mark.slow
def test_what_there_is_to_train_is_known_from_the_first_update_that_is_made(run: Run) -> None:
    """A GradScaler skips an update whose gradients overflow; the optimizer is not called then."""
    skips = LOOP.replace("loss.backward()", "scaler.scale(loss * (1e38 if not step else 1)).backward(); step += 1")
    skips = skips.replace("optimizer.step()", "scaler.step(optimizer); scaler.update()")
    skips = skips.replace("for epoch", "scaler = torch.amp.GradScaler('cpu'); step = 0\n    for epoch")
    found = run(
        HEAD + skips,
        """
        found["updates"], found["gradients"] = training.updates, sorted(training.first_gradients)
        training.whole_step()
        """,
    )
    assert found == {"updates": 2, "gradients": ["one.bias", "one.weight"]}


@pytest.mark.slow
def test_a_backward_pass_within_another_is_no_loss(run: Run) -> None:
    nested = LOOP.replace(
        "model(x)", "torch.utils.checkpoint.checkpoint(model, x.requires_grad_(), use_reentrant=True)"
    )
    found = run(
        HEAD + "import torch.utils.checkpoint\n" + nested,
        """
        training.whole_step()
        found["loss"] = list(training.last_loss.shape)
        """,
    )
    assert found == {"loss": []}


@pytest.mark.slow
def test_a_functions_code_is_swapped_between_two_steps(run: Run) -> None:
    found = run(
        HEAD + LOOP,
        """
        from perfaudit.training.code_change import NotSwappable, code_change
        from perfaudit.training.code_variant import prepare
        text = open("train.py").read()
        half = code_change("train.py", text, text.replace("return self.one(x)", "return self.one(x) * 0"))
        variant = prepare([half])
        training.whole_step()
        variant.enter()
        found["missing"] = variant.parts_not_run(training.whole_step)
        inside = float(training.last_loss)
        variant.leave()
        training.whole_step()
        found["loss of zeros"] = inside > 0 and inside != float(training.last_loss)
        other = code_change("train.py", text, text.replace("lr=1e-4", "lr=1e-3"))
        try:
            prepare([other])
        except NotSwappable as why:
            found["loop"] = str(why)
        """,
    )
    assert found == {
        "missing": [],
        "loss of zeros": True,
        "loop": "main is running: its frame keeps the code that it began with",
    }


NOTHING = "before its first step; there were 0 batches of a DataLoader, and no backward pass"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "1 / 0\n",
            "train.py: it raised ZeroDivisionError: division by zero (train.py:1 in <module>), before its first step",
        ),
        ("pass\n", f"train.py: the script ended {NOTHING}"),
        ("import sys\nsys.exit('set DATA')\n", "train.py: the script left with code 1 before its first step: set DATA"),
        ("import os\nos._exit(3)\n", f"train.py: the script left by os._exit with code 3 {NOTHING}"),
        ("import sys\nsys.exit(3)\n", f"train.py: the script left with code 3 {NOTHING}"),
        (
            "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'pass'])\n",
            f"train.py: the script ended {NOTHING}; it started other processes (python), and did not train in this one",
        ),
    ],
)
def test_a_script_that_makes_no_step_says_what_was_seen(script: str, said: str, run: Run) -> None:
    found = run(script)
    assert found.get("error", "") == said


@pytest.mark.slow
def test_a_script_that_trains_in_another_thread_is_refused_at_once(run: Run) -> None:
    begin = "import threading\nthread = threading.Thread(target=main)\nthread.start()\nthread.join()\n"
    found = run(HEAD + LOOP.replace("range(5)", "range(10**9)").removesuffix("main()\n") + begin)
    assert found["refused"].startswith("train.py: it trains in a thread that it starts")


BY_HAND = """
model = Net()
for epoch in range(5):
    for x, y in data():
        nn.functional.mse_loss(model(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 1e-4 * parameter.grad
                parameter.grad = None
"""


@pytest.mark.slow
def test_without_an_optimizer_a_step_ends_with_a_backward_pass(run: Run) -> None:
    found = run(
        HEAD + BY_HAND,
        """
        from perfaudit.measure.facts import to_json
        from perfaudit.measure.gather_facts import facts_of
        found["samples"] = [training.whole_step() for _ in range(6)]
        facts = to_json(facts_of(training))
        found["facts"] = facts["optimizer"]["name"], facts["model"]["parameters"], facts["loader"]["batch_size"]
        found["gradients"] = sorted(training.first_gradients)
        found["functions"] = [each.__qualname__ for each in training.step_functions()]
        """,
    )
    assert found == {
        "samples": [4] * 6,
        "facts": ["UpdatedByHand", 15, 4],
        "gradients": ["one.bias", "one.weight"],
        "functions": ["Net.forward"],
    }


@pytest.mark.slow
def test_a_script_that_catches_everything_is_left_and_not_ended(run: Run) -> None:
    catches = """
optimizers = [torch.optim.SGD(Net().parameters(), lr=0.1) for _ in range(3)]
import random
order = random.Random(0)
while True:
    try:
        optimizers[order.randrange(3)].step()
    except BaseException as error:
        open("caught", "w").write(repr(error))
        raise SystemExit
"""
    assert "does not repeat" in run(HEAD + catches)["error"]
    assert "caught" not in run("import os\nraise SystemExit(os.listdir())")["error"]


GUARDED = """try:
    main()
finally:
    open("finally", "w").close()
    raise RuntimeError("this runs")
"""


@pytest.mark.slow
def test_a_script_that_ends_or_raises_later_says_so(run: Run) -> None:
    work = """
    try:
        for number in range(100):
            training.whole_step()
    except Exception as error:
        found["steps"], found["said"], found["ended"] = number, f"{type(error).__name__}: {error}", training.has_ended
    """
    assert run(HEAD + LOOP, work) == {
        "steps": 19,
        "said": "NoBatches: train.py: the script ended after 20 updates of its optimizers",
        "ended": True,
    }
    raising = LOOP.replace("optimizer.step()", "optimizer.step()\n            if epoch: raise ValueError('no')")
    assert run(HEAD + raising, work) == {"steps": 4, "said": "ValueError: no", "ended": True}
    # Neither `finally` nor `except` of the script runs, and it is asked for no further step.
    at_once = raising.replace("raise ValueError('no')", "leave(epoch - 1)").replace("main()\n", GUARDED)
    asked_again = work + "\n    found['again'] = training.has_ended"
    found = run("from os import _exit as leave\n" + HEAD + at_once, asked_again)
    assert found.pop("again") is True
    assert found == {
        "steps": 4,
        "said": "NoBatches: train.py: the script left by os._exit with code 0 after 5 updates of its optimizers",
        "ended": True,
    }
    assert run("import os\n" + HEAD + at_once.replace("leave(epoch - 1)", "os._exit(9)"), work)["said"] == (
        "TargetError: train.py: the script left by os._exit with code 9 after 5 updates of its optimizers"
    )
    leaving = raising.replace("raise ValueError('no')", "raise SystemExit(3)")
    again = work + "\n    found['again'] = type(training._end_error()).__name__"
    assert run(HEAD + leaving, again) == {
        "steps": 4,
        "said": "TargetError: train.py: the script left with code 3 after 5 updates of its optimizers",
        "ended": True,
        "again": "TargetError",
    }
    leaving = leaving.replace("SystemExit(3)", "SystemExit")
    assert run(HEAD + leaving, work)["said"].startswith(
        "NoBatches: train.py: the script left with code 0 after 5 updates"
    )


@pytest.mark.slow
def test_lines_of_a_script_are_traced_as_long_as_somebody_asks(run: Run) -> None:
    found = run(
        HEAD + LOOP,
        """
        lines = set()
        def note(frame, event, argument):
            if frame.f_code.co_filename.endswith("/train.py"):
                lines.add(frame.f_lineno)
            return note
        sys.settrace(note)
        training.whole_step()
        sys.settrace(None)
        found["traced"] = sorted(lines)
        training.whole_step()
        found["after"] = len(lines) - len(found["traced"])
        """,
    )
    forward = (HEAD + LOOP).splitlines().index("        return self.one(x)") + 1
    assert forward in found["traced"]
    assert found["after"] == 0


@pytest.mark.slow
def test_a_script_has_its_arguments(run: Run) -> None:
    script = HEAD + "import sys\nassert sys.argv == ['train.py', '--epochs', '3'], sys.argv\n" + LOOP
    assert run(script, "found['name'] = str(training.target)", ("--epochs", "3")) == {"name": "train.py --epochs 3"}


def test_a_script_that_imports_from_its_package_is_to_be_named_as_a_module() -> None:
    from perfaudit.target.load import as_module

    relative = ImportError("attempted relative import with no known parent package")
    assert as_module(relative, "pkg/train.py") == "pkg.train"
    assert as_module(relative, "train.py") == as_module(relative, "my-pkg/train.py") == ""
    assert as_module(ValueError("x"), "pkg/train.py") == ""


@pytest.mark.parametrize(
    ("order", "updates"),
    [
        ([0, 1, 2, 3], 0),  # four optimizers in their first round
        ([0, 1, 2, 3] * 2, 4),
        (list(range(64)), 1),  # a new one for each task
        ([0] * 20 + [1] * 20, 0),  # one behind the other, or a round of a GAN
        (([0] * 20 + [1] * 20) * 2, 40),
        ([0] * 20 + [1] * 65, 1),  # longer than a round: layer by layer
        ([0] * 60 + [1] * 60 + [2] * 8, 1),
        ([0] * 63, 0),
        ([0] * 64, 1),
    ],
)
def test_a_round_of_many_optimizers_is_a_step(order: list[int], updates: int) -> None:
    from perfaudit.training.step_rhythm import StepRhythm

    known = StepRhythm()
    known.updates = order
    assert known.find(len(order), "train.py") is bool(updates)
    assert known.per_step == updates
