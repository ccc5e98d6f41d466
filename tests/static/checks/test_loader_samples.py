"""What a loader hands over: samples that are looked up, batches that cannot be pinned, functions that cannot be sent."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.checks.dataloader_no_pin_memory.nothing_to_pin import has_nothing_to_pin
from perfaudit.static.checks.dataloader_no_workers.look_ups import only_looks_up
from perfaudit.static.checks.dataloader_no_workers.sent_to_workers import unpicklable
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

HEAD = """import dgl
import json
import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision import transforms
from torchvision.datasets import ImageFolder

"""
SET = """class Samples(Dataset):
    def __init__(self, path, x=None, dataset=None):
        {init}

    def __getitem__(self, i):
        {item}

loader = DataLoader(Samples("a"))
"""


def loader_of(text: str) -> tuple[Source, ast.Call]:
    source = Source("a.py", HEAD + text)
    return source, source.calls("torch.utils.data.DataLoader")[-1]


@pytest.mark.parametrize(
    ("init", "item", "is_looked_up"),
    [
        ("self.x, self.y = torch.load(path)", "return self.x[i], self.y[i]", True),
        ("self.x = np.load(path)", "return torch.from_numpy(self.x[i]).float()", True),
        (
            "self.x = json.load(open(path))",
            'return {"text": self.x[i]["text"], "label": int(self.x[i]["label"])}',
            True,
        ),
        ("self.lines = open(path).read().splitlines()", "return self.lines[i]", True),
        ("self.x = x", "return self.x[i]", True),
        (
            "self.ids = np.load(path)",
            "return torch.tensor(self.ids[i : i + 8]), torch.tensor(self.ids[i + 1 : i + 9])",
            True,
        ),
        ("self.x = np.load(path)", "x = self.x[i]\n        return x, i", True),
        ("self.x = x", "return {key: torch.tensor(values[i]) for key, values in self.x.items()}", True),
        ("self.x = x", "return {key: change(values[i]) for key, values in self.x.items()}", False),
        (
            "self.x = x",
            "row = {key: values[i].clone().detach() for key, values in self.x.items()}\n"
            "        row['labels'] = torch.tensor(self.x['labels'][i])\n        return row",
            True,
        ),
        (
            "self.x = x",
            "row = {key: values[i] for key, values in self.x.items()}\n"
            "        row['picture'] = draw(self.x['paths'][i])\n        return row",
            False,
        ),
        ("self.x = np.load(path)", "x = self.x[i]\n        x = torch.tensor([x])\n        return x", True),
        ("self.x = np.load(path)", "x = self.change(i)\n        x = torch.tensor([x])\n        return x", False),
        ("self.x = np.load(path)", "return torch.transpose(torch.tensor(self.x[i]), 0, 1)", True),
        ("with h5py.File(path) as f:\n            self.x = f['x'][()]", "return self.x[i]", True),
        ("with h5py.File(path) as self.f:\n            self.x = h5py.File(path)['x']", "return self.x[i]", False),
        ("self.x = np.load(path, mmap_mode='r')", "return self.x[i]", False),
        ("self.x = h5py.File(path)['x']", "return self.x[i]", False),
        ("self.dataset = dataset", "return self.dataset[i]", False),  # what it does for a sample is not seen
        ("self.x = np.load(path)", "return self.change(self.x[i])", False),
        ("self.paths = json.load(open(path))", "return Image.open(self.paths[i])", False),
        ("self.x = x", "return [ord(c) for c in self.x[i]]", False),
        ("self.x = x", "return self.x", False),  # not what lies under the index
        ("self.x = x", "return self.x[hash(i)]", False),
        ("pass", "return self.x[i]", False),
    ],
)
def test_samples_that_are_only_looked_up(init: str, item: str, is_looked_up: bool) -> None:
    source, call = loader_of(SET.format(init=init, item=item))
    assert only_looks_up(source, call.args[0]) is is_looked_up
    found = run_checks(source, all_rules(), frozenset(["PA101"]))
    assert bool(found) is not is_looked_up


def test_a_file_that_is_opened_again_for_each_sample() -> None:
    init = "with h5py.File(path) as f:\n            self.x = f['x'][()]"
    item = "with h5py.File(path) as f:\n            return self.x[i], f['y'][i]"
    source, call = loader_of(SET.format(init=init, item=item))
    assert not only_looks_up(source, call.args[0])


def test_what_a_class_is_given_may_be_read_late() -> None:
    text = SET.format(init="self.x = x", item="return self.x[i]").replace(
        'Samples("a")', "Samples(None, h5py.File('a')['x'])"
    )
    source, call = loader_of(text)
    assert not only_looks_up(source, call.args[0])


def test_a_class_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "sets.py").write_text(HEAD + SET.format(init="self.x = torch.load(path)", item="return self.x[i]"))
    script = tmp_path / "train.py"
    script.write_text(
        "from sets import Samples\nfrom torch.utils.data import DataLoader\nloader = DataLoader(Samples('a'))\n"
    )
    source = Source(str(script), script.read_text(), neighbours=Project([*tmp_path.glob("*.py")]).seen_from(script))
    assert only_looks_up(source, source.calls("torch.utils.data.DataLoader")[0].args[0])


TEXTS = SET.format(init="self.lines = [line.strip() for line in open(path)]", item="return self.lines[i], i")
COLLATE = """
class Ragged:
    {method}
    def __init__(self, parts):
        self.parts = parts

def collate(samples):
    return {returned}

loader = DataLoader(ImageFolder("x"), collate_fn=collate)
"""


@pytest.mark.parametrize(
    ("text", "has_nothing"),
    [
        ("loader = DataLoader(range(100))", True),
        ("n = list(range(100))\nloader = DataLoader(n)", True),
        ("loader = DataLoader(TensorDataset(torch.arange(100)))", True),
        ("loader = DataLoader(TensorDataset(torch.arange(100), torch.rand(100, 3)))", False),
        ("loader = DataLoader(ImageFolder('x'))", False),
        (TEXTS, True),
        (TEXTS.replace("self.lines[i], i", "self.lines[i], torch.rand(3)"), False),
        (COLLATE.format(method="", returned="Ragged(samples), torch.tensor(1)"), True),
        (COLLATE.format(method="", returned="dgl.batch(samples)"), True),
        (COLLATE.format(method="def pin_memory(self): return self", returned="Ragged(samples)"), False),
        (COLLATE.format(method="", returned="torch.stack(samples)"), False),
        ("loader = DataLoader(ImageFolder('x'), collate_fn=lambda b: dgl.batch(b))", True),
    ],
)
def test_batches_that_have_nothing_to_pin(text: str, has_nothing: bool) -> None:
    assert has_nothing_to_pin(*loader_of(text)) is has_nothing


INSIDE = """
def main():
    def collate(batch):
        return batch

    class Own(Dataset):
        pass

    loader = DataLoader({arguments})
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("ImageFolder('x'), collate_fn=collate", "`collate`"),
        ("ImageFolder('x'), collate_fn=lambda b: b", "the lambda that collates"),
        ("Own()", "`Own`"),
        ("ImageFolder('x', transforms.Lambda(lambda x: x))", "the lambda in its transforms"),
        ("ImageFolder('x'), collate_fn=torch.stack", ""),
        ("ImageFolder('x')", ""),
    ],
)
def test_what_a_spawned_worker_cannot_be_sent(arguments: str, words: str) -> None:
    found = unpicklable(*loader_of(INSIDE.format(arguments=arguments)))
    assert (found.words if found is not None else "") == words


@pytest.mark.parametrize("line", ["import jax", "from jax import numpy as jnp"])
def test_no_workers_beside_jax(line: str) -> None:
    head = "from torch.utils.data import DataLoader\nfrom torchvision.datasets import ImageFolder\n"
    text = f"{head}loader = DataLoader(ImageFolder('x'))\n"
    assert run_checks(Source("a.py", text), all_rules(), frozenset(["PA101"]))
    assert not run_checks(Source("a.py", f"{line}\n{text}"), all_rules(), frozenset(["PA101"]))


def test_workers_are_spawned_where_an_importer_uses_jax(tmp_path: Path) -> None:
    data = tmp_path / "data.py"
    data.write_text("from torch.utils.data import DataLoader\n\ndef loader(photos):\n    return DataLoader(photos)\n")
    for script, has_edit in (("import data\n", True), ("import jax\nimport data\n", False)):
        (tmp_path / "train.py").write_text(script)
        source = Source("data.py", data.read_text(), neighbours=Project(sorted(tmp_path.glob("*.py"))).seen_from(data))
        (found,) = run_checks(source, all_rules(), frozenset(["PA101"]))
        assert found.fix is not None
        assert (bool(found.fix.edits), '"spawn"' in found.fix.title) == (has_edit, not has_edit)


def test_no_pinning_on_a_tpu() -> None:
    text = """
device = xm.xla_device()
loader = torch.utils.data.DataLoader(data, num_workers=2)
for x in loader:
    loss = model(x.to(device))
    loss.backward()
    optimizer.step()
"""
    on_gpu = "import torch\n" + text.replace("xm.xla_device()", "torch.device('cuda')")
    assert run_checks(Source("a.py", on_gpu), all_rules(), frozenset(["PA102"]))
    on_tpu = "import torch\nimport torch_xla.core.xla_model as xm\n" + text
    assert not run_checks(Source("a.py", on_tpu), all_rules(), frozenset(["PA102"]))


def test_what_a_notebook_defines_is_moved_to_a_file_first() -> None:
    """A spawned worker has no notebook to import its functions and classes from."""
    functions = "def join(samples):\n    return read(samples)\n\ndef fit():\n    train(loader)\n"
    text = f"{HEAD}{functions}\nloader = DataLoader(paths, collate_fn=join)\n"
    (of_file,) = run_checks(Source("a.py", text), all_rules(), frozenset(["PA101"]))
    (of_notebook,) = run_checks(Source("a.ipynb", text), all_rules(), frozenset(["PA101"]))
    assert of_file.fix is not None and of_file.fix.edits
    assert of_notebook.fix is not None and not of_notebook.fix.edits
    assert of_notebook.fix.title.startswith("move `join` to a file that the notebook imports, then load with 2 workers")


STREAM = """from torch.utils.data import IterableDataset, get_worker_info

class Shards(IterableDataset):
    def __iter__(self):
        yield from read(self.paths[get_worker_info().id])
"""


def test_a_stream_of_another_file_is_not_patched(tmp_path: Path) -> None:
    """How many workers share the files decides which samples are seen."""
    loader = "from data import Shards\nfrom torch.utils.data import DataLoader\n\nloader = DataLoader(Shards(), 64)\n"
    for name, text in (("data.py", STREAM), ("train.py", loader)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    neighbours = Project(sorted(tmp_path.glob("*.py"))).seen_from(tmp_path / "train.py")
    (finding,) = run_checks(Source("train.py", loader, neighbours), all_rules(), frozenset(["PA101"]))
    assert finding.fix is not None and not finding.fix.edits
    assert "may depend on how many there are: `Shards` or a part of it shares its samples out" in finding.fix.title


SESSIONS = """class Sessions(Dataset):
    def __init__(self, sessions):
        self.sessions = sessions

    def __getitem__(self, index):
        return self.sessions[index]

    def __len__(self):
        return len(self.sessions)

def join(batch):
    places = []
    for session in batch:
        nodes = np.sort(session)
        places.append([np.where(nodes == item)[0][0] for item in session])
    return torch.tensor(places)

for x in DataLoader(Sessions(sessions), batch_size=256, collate_fn=join):
    train(model, x.cuda())
"""


@pytest.mark.parametrize(
    ("text", "is_hint"),
    [
        (SESSIONS, False),
        (SESSIONS.replace("np.where(nodes == item)[0][0]", "item + 1"), True),
        (SESSIONS.replace("[np.where(nodes == item)[0][0] for item in session]", "np.where(nodes > 3)[0]"), True),
    ],
)
def test_a_collate_function_that_searches_each_sample_does_work(text: str, is_hint: bool) -> None:
    (found,) = run_checks(Source("a.py", HEAD + text), all_rules(), frozenset(["PA101"]))
    assert (found.severity == "hint") is is_hint


SCRIPT = """for epoch in range(9):
    for x in DataLoader(ImageFolder("a", transforms.ToTensor()), batch_size=16):
        gan.train()
        gan.learn(x.cuda())
    gan.eval()
    show(gan)
"""


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        (SCRIPT, "warning"),
        (SCRIPT.replace("gan.train()", "gan.train(False)"), "info"),
        (SCRIPT.replace("        gan.train()\n", "") + "gan.train()\n", "info"),
    ],
)
def test_a_script_that_puts_what_it_evaluates_back_into_train_mode_trains(text: str, severity: str) -> None:
    (found,) = run_checks(Source("a.py", HEAD + text), all_rules(), frozenset(["PA101"]))
    assert found.severity == severity


ON_GPU = """
from functools import partial
import torch
from torch.utils.data import DataLoader

def collate(samples, size):
    if torch.cuda.is_available():
        return torch.cuda.{kind}(samples)
    return torch.{kind}(samples)

def train():
    loader = DataLoader(Patches("x"), {workers}, collate_fn=partial(collate, size=8))
    for batch in loader:
        model(batch.cuda()).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("kind", "is_told"), [("FloatTensor", False), ("stack", True)])
@pytest.mark.parametrize(("rule", "workers"), [("PA101", "num_workers=0"), ("PA102", "num_workers=4")])
def test_batches_that_are_made_on_the_gpu(kind: str, rule: str, workers: str, *, is_told: bool) -> None:
    source = Source("a.py", ON_GPU.format(kind=kind, workers=workers))
    assert bool(list(run_checks(source, all_rules(), frozenset([rule])))) == is_told


SAMPLES_OF_ANOTHER_FILE = """
import torch
from torch.utils.data import Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

class Pairs(Dataset):
    def __init__(self, path):
        self.lines = open(path).readlines()

    def encode(self, line):
        return torch.tensor(tokenizer.encode(line)){move}

class Sentences(Pairs):
    def __getitem__(self, i):
        return self.encode(self.lines[i])
"""


@pytest.mark.parametrize(("move", "is_told"), [(".to(device)", False), ("", True)])
@pytest.mark.parametrize(("rule", "workers"), [("PA101", "num_workers=0"), ("PA102", "num_workers=4")])
def test_samples_that_another_file_makes_on_the_gpu(
    tmp_path: Path, move: str, rule: str, workers: str, *, is_told: bool
) -> None:
    (tmp_path / "sets.py").write_text(SAMPLES_OF_ANOTHER_FILE.format(move=move))
    text = ON_GPU.format(kind="stack", workers=workers).replace(", collate_fn=partial(collate, size=8)", "")
    script = tmp_path / "train.py"
    script.write_text("from sets import Sentences\n" + text.replace('Patches("x")', 'Sentences("x")'))
    source = Source("train.py", script.read_text(), Project([*tmp_path.glob("*.py")]).seen_from(script))
    assert bool(list(run_checks(source, all_rules(), frozenset([rule])))) == is_told


MODEL = """
class Model(Module):
    def __init__(self, words):
        self.words = words

    def convert(self, samples):
        rows = torch.stack(samples)
        return rows{move}
"""
WITH_MODEL = """
import torch
from torch.utils.data import DataLoader
from models import Model

def train(is_restored):
    model = torch.load("a.pt") if is_restored else None
    if not is_restored:
        model = Model(words)
    collate = model.convert
    loader = DataLoader(Sentences("x"), batch_size=8, num_workers={workers}, collate_fn=collate)
    for rows in loader:
        model(rows.cuda()).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("move", "is_told"), [(".cuda()", False), ("", True)])
@pytest.mark.parametrize(("rule", "workers"), [("PA101", 0), ("PA102", 4)])
def test_a_method_of_the_model_that_collates_on_the_gpu(
    tmp_path: Path, move: str, rule: str, workers: int, *, is_told: bool
) -> None:
    (tmp_path / "models.py").write_text(MODEL.format(move=move))
    script = tmp_path / "train.py"
    script.write_text(WITH_MODEL.format(workers=workers))
    source = Source(str(script), script.read_text(), neighbours=Project([*tmp_path.glob("*.py")]).seen_from(script))
    assert bool(list(run_checks(source, all_rules(), frozenset([rule])))) == is_told
