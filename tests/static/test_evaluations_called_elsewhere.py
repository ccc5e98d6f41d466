"""PA801 and who calls an evaluation from another file: with gradients, or where they are off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.static.test_programs_of_several_files import findings_in, write

EVALUATION = """
import torch

def validate(model, loader):
    model.eval()
    for x, y in loader:
        print((model(x).argmax(1) == y).sum().item())
"""
TRAINER = """
class Trainer:
    def run_epoch(self, phase, loader):
        if phase == "train":
            self.model.train()
        else:
            self.model.eval()
        for x, y in loader:
            loss = criterion(self.model(x), y)
            if phase == "train":
                loss.backward()

    def train(self, loader):
        self.run_epoch("train", loader)

    def val(self, loader):
        self.run_epoch("val", loader)
"""
CALL = "import torch\nfrom evaluation import validate\n\n"


@pytest.mark.parametrize(
    "script",
    [
        CALL + "with torch.no_grad():\n    validate(model, loader)\n",
        CALL + "@torch.inference_mode()\ndef main():\n    validate(model, loader)\n",
        CALL + "torch.set_grad_enabled(False)\nvalidate(model, loader)\n",
        CALL + "with ema.average_parameters():\n    validate(model, loader)\n",  # who knows
        CALL + "def run():\n    validate(model, loader)\n\nwith torch.no_grad():\n    run()\n",
        "import evaluation\nimport torch\n\nwith torch.no_grad():\n    evaluation.validate(model, loader)\n",
        "import torch\nfrom evaluation import *\n\nwith torch.no_grad():\n    validate(model, loader)\n",
    ],
)
def test_silent_where_every_call_runs_without_gradients(tmp_path: Path, script: str) -> None:
    folder = write(tmp_path, {"evaluation.py": EVALUATION, "train.py": script})
    assert findings_in(folder, "evaluation.py", {"PA801"}) == []


@pytest.mark.parametrize(
    "script",
    [
        CALL + "validate(model, loader)\n",
        CALL + "with torch.no_grad():\n    print(model(x))\nvalidate(model, loader)\n",
        "import evaluation\n\ndef validate():\n    pass\n\nwith torch.no_grad():\n    validate()\n",
    ],
)
def test_found_where_no_call_switches_gradients_off(tmp_path: Path, script: str) -> None:
    folder = write(tmp_path, {"evaluation.py": EVALUATION, "train.py": script})
    (finding,) = findings_in(folder, "evaluation.py", {"PA801"})
    assert finding.message.endswith("which no backward pass uses")


def test_of_two_calls_the_one_with_gradients_is_named(tmp_path: Path) -> None:
    inside = CALL + "with torch.no_grad():\n    validate(model, loader)\n"
    folder = write(tmp_path, {"evaluation.py": EVALUATION, "train.py": inside, "test.py": CALL + "validate(a, b)\n"})
    (finding,) = findings_in(folder, "evaluation.py", {"PA801"})
    assert finding.message.endswith("which no backward pass uses, where test.py calls it outside of `no_grad`")


def test_training_through_the_same_method_is_no_evaluation_with_gradients(tmp_path: Path) -> None:
    script = "import torch\nimport trainer\n\nrun.train(loader)\nwith torch.no_grad():\n    run.val(loader)\n"
    folder = write(tmp_path, {"trainer.py": "import torch\n" + TRAINER, "train.py": script})
    assert findings_in(folder, "trainer.py", {"PA801"}) == []
    (folder / "train.py").write_text(script + "if args.test:\n    run.val(loader)\n", encoding="utf-8")
    (finding,) = findings_in(folder, "trainer.py", {"PA801"})
    assert finding.message.endswith("where train.py calls it outside of `no_grad`")


ENGINE = """
import torch

class Engine:
    def __init__(self, model):
        self.model = model

    def train(self, x, y):
        self.model.train()
        loss = criterion(self.model(x), y)
        loss.backward()
        return loss.item()

    def validate(self, x, y):
        self.model.eval()
        output = self.model(x)
        loss = criterion(output, y)
        return loss.item(), accuracy(output, y).item()
"""
TURNS = "import torch\nfrom engine import Engine\n\nengine = Engine(model)\n"


def test_a_step_of_an_evaluation_is_a_method_that_a_loop_elsewhere_calls(tmp_path: Path) -> None:
    script = TURNS + "for x, y in loader:\n    print(engine.validate(x, y))\n"
    folder = write(tmp_path, {"engine.py": ENGINE, "train.py": script})
    (finding,) = findings_in(folder, "engine.py", {"PA801"})
    assert finding.location is not None and finding.location.line == 16
    assert finding.fix is not None and finding.fix.title == "decorate `validate` with `@torch.no_grad()`"


@pytest.mark.parametrize(
    ("engine", "script"),
    [
        (ENGINE, TURNS + "print(engine.validate(x, y))\n"),  # once
        (ENGINE, TURNS + "with torch.no_grad():\n    for x, y in loader:\n        engine.validate(x, y)\n"),
        (
            ENGINE.replace("return loss.item(), ", "return loss, "),
            TURNS + "for x in loader:\n    engine.validate(x, x)\n",
        ),
        (
            ENGINE.replace("output = self.model(x)", "self.output = output = self.model(x)"),
            TURNS + "for x in loader:\n    engine.validate(x, x)\n",
        ),
        (
            ENGINE.replace("output = self.model(x)", "output = self.model(x)\n        output.sum().backward()"),
            TURNS + "for x in loader:\n    engine.validate(x, x)\n",
        ),
    ],
)
def test_silent_where_a_step_may_need_its_graph_or_is_no_loop(tmp_path: Path, engine: str, script: str) -> None:
    folder = write(tmp_path, {"engine.py": engine, "train.py": script})
    assert findings_in(folder, "engine.py", {"PA801"}) == []


METRICS = """
import numpy as np
import torch

def metrics(model, loader, k):
    hits = []
    for user, item in loader:
        scores = model(user.cuda(), item.cuda())
        hits.append(torch.topk(scores, k)[1].cpu().numpy())
    return np.mean(hits)
"""
HANDED = (
    "import torch\nimport metrics\n\nfor epoch in range(9):\n    model.train()\n    train()\n    model.eval()\n    {}\n"
)


def test_the_loop_is_in_another_file_that_is_handed_the_model(tmp_path: Path) -> None:
    folder = write(
        tmp_path, {"metrics.py": METRICS, "train.py": HANDED.format("hit = metrics.metrics(model, loader, 10)")}
    )
    (finding,) = findings_in(folder, "train.py", {"PA801"})
    assert finding.location is not None and finding.location.line == 8
    assert "`model(user.cuda(), item.cuda())`, metrics.py line 8" in finding.message
    assert finding.fix is not None and finding.fix.title == "call it under `torch.no_grad()`"
    assert findings_in(folder, "metrics.py", {"PA801"}) == []


@pytest.mark.parametrize(
    ("metrics", "call"),
    [
        (METRICS, "with torch.no_grad():\n        hit = metrics.metrics(model, loader, 10)"),
        (METRICS, "model.train()\n    hit = metrics.metrics(model, loader, 10)"),
        (METRICS, "hit = metrics.metrics(other, loader, 10)"),
        (METRICS, "hit = metrics.metrics(model, loader, 10) if epoch else 0\n    torch.set_grad_enabled(False)"),
        (METRICS.replace("def metrics", "@torch.no_grad()\ndef metrics"), "metrics.metrics(model, loader, 10)"),
        (METRICS.replace("[1].cpu().numpy()", "[0]"), "metrics.metrics(model, loader, 10)"),  # it keeps the graphs
        (
            METRICS.replace("hits = []", "model.eval()\n    hits = []"),
            "metrics.metrics(model, loader, 10)",
        ),  # said there
        (
            METRICS.replace("        hits", "        scores.sum().backward()\n        hits"),
            "metrics.metrics(model, loader, 10)",
        ),
        (
            METRICS.replace("        hits", "        attack(model, user)\n        hits"),
            "metrics.metrics(model, loader, 10)",
        ),
        (METRICS.replace("    return", "    yield"), "list(metrics.metrics(model, loader, 10))"),
    ],
)
def test_silent_where_the_other_file_may_need_graphs_or_makes_none(tmp_path: Path, metrics: str, call: str) -> None:
    folder = write(tmp_path, {"metrics.py": metrics, "train.py": HANDED.format(call)})
    assert findings_in(folder, "train.py", {"PA801"}) == []


NETWORK = """
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.items = torch.nn.Embedding(9, 4)

    def forward(self, users, items):
        return self.items(items)

    def features(self, items):
        return self.items(items)

    def predict(self, items):
        return self.features(items).sum(1)
"""
BY_STAR = """
import torch

def evaluate(model, data):
    total = 0
    for items in data:
        total += model.predict(items).argsort()[0].item()
    return total
"""
SCRIPT = """
import torch
from network import Network
from utils import *

model = Network().to("cpu")
if only_test:
    model.eval()
    print(evaluate(model, data))
"""


def test_a_model_is_run_by_a_method_of_its_class_in_a_function_that_a_star_brings(tmp_path: Path) -> None:
    folder = write(tmp_path, {"network.py": NETWORK, "utils.py": BY_STAR, "main.py": SCRIPT})
    (finding,) = findings_in(folder, "main.py", {"PA801"})
    assert finding.location is not None and finding.location.line == 9
    assert "`model.predict(items)`, utils.py line 7" in finding.message


@pytest.mark.parametrize(
    ("network", "script"),
    [
        (NETWORK.replace("    def features", "    @torch.no_grad()\n    def features"), SCRIPT),
        (NETWORK.replace("self.items(items)\n\n    def predict", "self.names\n\n    def predict"), SCRIPT),
        (NETWORK, SCRIPT.replace("print(evaluate(model, data))", "with torch.no_grad(): print(evaluate(model, data))")),
        (NETWORK, SCRIPT.replace("import *", "import *\nfrom installed import *")),  # which may have one too
    ],
)
def test_silent_where_the_method_records_nothing_or_the_function_is_not_clear(
    tmp_path: Path, network: str, script: str
) -> None:
    files = {"network.py": network, "utils.py": BY_STAR, "main.py": script}
    assert findings_in(write(tmp_path, files), "main.py", {"PA801"}) == []


def test_a_step_returns_lists_that_are_sorted_together(tmp_path: Path) -> None:
    model = """
import torch

class Model:
    def predict(self, batch):
        inputs, labels = batch[:2]
        self.model.eval()
        logits, _ = self.model(inputs)
        loss = self.criterion(logits, labels)
        found = logits.data.cpu().numpy().tolist()
        _, found = [list(t) for t in zip(*sorted(zip(batch[2], found)))]
        return found, loss.item()
"""
    script = "from model import Model\n\nmodel = Model()\nfor batch in batches:\n    print(model.predict(batch))\n"
    (finding,) = findings_in(write(tmp_path, {"model.py": model, "eval.py": script}), "model.py", {"PA801"})
    assert finding.fix is not None and finding.fix.title == "decorate `predict` with `@torch.no_grad()`"
    kept = model.replace("return found, loss.item()", "return found, loss")
    assert findings_in(write(tmp_path, {"model.py": kept, "eval.py": script}), "model.py", {"PA801"}) == []


FEATURES = """
import torch
from arrays import to_torch

def extract_one(model, x):
    model.eval()
    x = to_torch(x).cuda()
    out = model(x)
    out = out.data.cpu()
    return out

def extract_all(model, loader):
    model.eval()
    features = {}
    for x, names in loader:
        out = extract_one(model, x)
        for name, row in zip(names, out):
            features[name] = row
    return features
"""
ARRAYS = """
import torch

def to_torch(array):
    if not torch.is_tensor(array):
        raise ValueError("no tensor {}".format(type(array)))
    return array
"""


@pytest.mark.parametrize(
    ("features", "arrays", "number"),
    [
        (FEATURES, ARRAYS, 1),
        (FEATURES.replace("out = out.data.cpu()", "out = out.cpu()"), ARRAYS, 0),  # what is kept carries the graph
        (FEATURES.replace("return out", "return out if raw else model(x)"), ARRAYS, 0),
    ],
)
def test_features_that_a_helper_takes_from_a_model(tmp_path: Path, features: str, arrays: str, number: int) -> None:
    folder = write(tmp_path, {"features.py": features, "arrays.py": arrays})
    assert len(findings_in(folder, "features.py", {"PA801"})) == number


SCORES = """
import torch
from arrays import to_torch

def score(model, loader):
    model.eval()
    right = 0
    for x, y in loader:
        right += (model(to_torch(x)).argmax(1) == y).sum().item()
    return right
"""


@pytest.mark.parametrize(
    ("arrays", "safety"),
    [
        (ARRAYS, "unsafe"),
        (ARRAYS.replace("    return array", "    return perturb(array)"), "manual"),  # who knows what that does
        (ARRAYS.replace("    return array", "    return array + array.grad"), "manual"),
    ],
)
def test_a_plain_function_of_another_file_differentiates_nothing(tmp_path: Path, arrays: str, safety: str) -> None:
    folder = write(tmp_path, {"scores.py": SCORES, "arrays.py": arrays})
    (finding,) = findings_in(folder, "scores.py", {"PA801"})
    assert finding.fix is not None and finding.fix.safety == safety


BASE = """
class Base:
    def validate(self, loader):
        self._validate(loader)
"""
FILLS_IN = """
import torch
from base import Base

class Plain(Base):
    def _validate(self, loader):
        self.model.eval()
        for x, y in loader:
            print((self.model(x).argmax(1) == y).sum().item())
"""
PROXY = (
    "import torch\nfrom plain import Plain\n\nrunner = Plain()\nwith torch.no_grad():\n    runner.validate(loader)\n"
)


@pytest.mark.parametrize(
    ("base", "script", "number"),
    [
        (BASE, PROXY, 0),
        (BASE, PROXY.replace("with torch.no_grad():", "if ready:"), 1),
        (BASE.replace("self._validate(loader)", "print(loader)"), PROXY, 1),
    ],
)
def test_a_method_that_a_base_class_calls_runs_as_that_is_called(
    tmp_path: Path, base: str, script: str, number: int
) -> None:
    folder = write(tmp_path, {"base.py": base, "plain.py": FILLS_IN, "proxy.py": script})
    assert len(findings_in(folder, "plain.py", {"PA801"})) == number


INFERENCE = """
import torch
{}

class Inference:
    def __init__(self, model, data):
        self.model = model
        self.data = data

    def labels(self):
        self.model.eval()
        found = []
        for batch in self.data:
            out = self.model(batch)
            found.append(largest(out.view(-1, 9)))
        return found
"""
LARGEST = "def largest(out):\n    return [row.index(max(row)) for row in out.data.tolist()]\n"


@pytest.mark.parametrize(
    ("imported", "tools", "is_told"),
    [
        ("from tools import *", LARGEST, True),
        ("from tools import largest", LARGEST, True),
        (
            "from tools import *",
            LARGEST.replace("[row.index(max(row)) for row in out.data.tolist()]", "out * 2"),
            False,
        ),
        ("from others import *\nfrom tools import *", LARGEST, True),  # the last one
        ("from tools import *\nfrom others import *", LARGEST, False),
        ("from tools import *\nfrom installed import *", LARGEST, False),  # which may have one too
    ],
)
def test_what_a_star_brings_makes_labels_of_what_carries_a_graph(
    tmp_path: Path, imported: str, tools: str, *, is_told: bool
) -> None:
    others = LARGEST.replace("[row.index(max(row)) for row in out.data.tolist()]", "out * 2")
    files = {"tools.py": tools, "others.py": others, "infer.py": INFERENCE.format(imported)}
    assert bool(findings_in(write(tmp_path, files), "infer.py", {"PA801"})) is is_told


TRANSLATION = """
import torch

class Translation:
    def initialize(self, net):
        self.net = net
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def forward(self):
        self.fake = self.net(self.real)

    def test(self):
        self.forward()

    def optimize(self):
        self.forward()
        self.criterion(self.fake, self.real).backward()
        self.optimizer.step()
"""
TESTING = "from translation import Translation\n\nmodel = Translation()\nfor data in batches:\n    model.test()\n"
PICKS = "from translation import Translation\n\ndef pick():\n    return Translation()\n\ndef no():\n    pass\n"


@pytest.mark.parametrize(
    ("model", "script", "is_told"),
    [
        (TRANSLATION, TESTING, True),
        (TRANSLATION, TESTING.replace("    model", "    with torch.no_grad(): model"), False),
        (TRANSLATION, TESTING.replace("for data in batches:\n    ", ""), False),
        (
            TRANSLATION.replace("def test(self):\n", "def test(self):\n        with torch.no_grad():\n    "),
            TESTING,
            False,
        ),
        (TRANSLATION.replace("    def test", "    @torch.no_grad()\n    def test"), TESTING, False),
        (
            TRANSLATION.replace("def test(self):\n        self.forward()", "def test(self):\n        self.show()"),
            TESTING,
            False,
        ),
        (
            TRANSLATION.replace(
                "def optimize(self):", "def set(self):\n        self.net.eval()\n\n    def optimize(self):"
            ),
            TESTING,
            False,
        ),
        (
            TRANSLATION,
            TESTING.replace("    model.test()\n", "    model.test()\n    l1(model.fake, y).backward()\n"),
            False,
        ),
        (TRANSLATION, TESTING.replace("    model.test()\n", "    model.test()\n    optimizer.step(model)\n"), False),
        (TRANSLATION, "import translation\n\nfor case in cases:\n    case.test()\n", False),  # any object
        (TRANSLATION, TESTING.replace("model = Translation()", "model = pick(Translation())"), False),
        (
            TRANSLATION,
            TESTING.replace("= Translation()", "= pick()").replace("\n\n", "\nfrom picks import pick\n\n"),
            True,
        ),
        (
            TRANSLATION,
            TESTING.replace("= Translation()", "= no()").replace("\n\n", "\nfrom picks import no\n\n"),
            False,
        ),
        (TRANSLATION + "\n    def step(self):\n        self.test()\n", TESTING, False),
        (TRANSLATION, TESTING + "\nclass Sharp(Translation):\n    def step(self):\n        self.test()\n", False),
    ],
)
def test_the_method_of_an_object_that_tests_once(tmp_path: Path, model: str, script: str, *, is_told: bool) -> None:
    folder = write(tmp_path, {"translation.py": model, "testing.py": script, "picks.py": PICKS})
    found = findings_in(folder, "translation.py", {"PA801"})
    assert [finding.location.line for finding in found if finding.location] == ([13] if is_told else [])
    assert not any("eval mode" in finding.fix.title for finding in found if finding.fix)


DRIVERS = """
import torch

def train_epoch(model, loader, optimizer):
    model.train()
    for x, y in loader:
        (model(x) - y).pow(2).mean().backward()
        optimizer.step()

def test(model, loader):
    model.eval()
    for x, y in loader:
        print((model(x) - y).abs().max().item())

def train(model, loader, test_loader, optimizer):
    for _ in range(9):
        train_epoch(model, loader, optimizer)
    test(model, test_loader)
"""
PRUNING = """
import torch
from drivers import train

def prune(model, loader, test_loader, optimizer):
    model.eval()
    print(model(torch.zeros(1, 8)).shape)
    train(model, loader, test_loader, optimizer)
"""


def test_a_training_of_another_file_that_evaluates_as_well_is_no_evaluation(tmp_path: Path) -> None:
    folder = write(tmp_path, {"drivers.py": DRIVERS, "pruning.py": PRUNING})
    assert findings_in(folder, "pruning.py", {"PA801"}) == []
    (finding,) = findings_in(folder, "drivers.py", {"PA801"})
    assert finding.location is not None and finding.location.line == 13


MIDDLE = """
import torch

def score(model, loader):
    for x, y in loader:
        print((model(x) - y).abs().max().item())

def test(model, loader):
    model.eval()
    score(model, loader)

def run(model, loader):
    {call}(model, loader)
"""
HANDS_OVER = """
import torch
from middle import run

def main(model, loader):
    model.eval()
    run(model, loader)
"""


@pytest.mark.parametrize(("call", "told_here"), [("test", []), ("score", [7])])
def test_a_function_on_the_way_that_sets_the_mode_is_told_in_its_own_file(
    tmp_path: Path, call: str, told_here: list[int]
) -> None:
    folder = write(tmp_path, {"middle.py": MIDDLE.format(call=call), "main.py": HANDS_OVER})
    found = findings_in(folder, "main.py", {"PA801"})
    assert [finding.location.line for finding in found if finding.location] == told_here
    (finding,) = findings_in(folder, "middle.py", {"PA801"})
    assert finding.location is not None and finding.location.line == 6


def test_a_function_on_the_way_that_sets_no_mode_is_told_where_it_is_called(tmp_path: Path) -> None:
    middle = MIDDLE.format(call="score").replace("    model.eval()\n", "")
    folder = write(tmp_path, {"middle.py": middle, "main.py": HANDS_OVER})
    (finding,) = findings_in(folder, "main.py", {"PA801"})
    assert finding.location is not None and finding.location.line == 7


PREDICTION = """
import torch

def predict(model, text):
    model.eval()
    return model(torch.tensor(text)).argmax(1).item()
"""
OVER_LINES = """
import prediction

def main(model, lines):
    {around}
        print(prediction.predict(model, line))
"""


@pytest.mark.parametrize(
    ("around", "found"),
    [
        ("for line in lines:", 1),
        ("for line in range(9):", 0),  # a few samples
        ("while line := input():", 0),
        ("with torch.no_grad():", 0),
        ("if line := lines[0]:", 0),
    ],
)
def test_a_function_that_sets_the_mode_is_told_where_another_file_runs_it_for_each_item(
    tmp_path: Path, around: str, found: int
) -> None:
    folder = write(tmp_path, {"prediction.py": PREDICTION, "main.py": OVER_LINES.format(around=around)})
    assert len(findings_in(folder, "prediction.py", {"PA801"})) == found
