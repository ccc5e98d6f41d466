"""Findings on loaders that depend on options, arguments, data sets and helpers of other files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.findings import Finding
from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

Folder = Callable[..., Path]


def findings_in(folder: Path, name: str, rule: str) -> list[Finding]:
    path = folder / name
    neighbours = Project(sorted(folder.rglob("*.py"))).seen_from(path)
    return list(run_checks(Source(name, path.read_text(), neighbours), all_rules(), frozenset([rule])))


HANDS_ON = """
from torch.utils.data import DataLoader

class Data:
    def __init__(self, opt):
        self.opt = opt

    def load(self, dataset):
        return DataLoader(dataset, batch_size=8, num_workers=int(self.opt.workers), pin_memory=self.opt.pin)
"""
OPTIONS = """
import argparse

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("-j", "--workers", type=int, default=0)
    parser.add_argument("--pin_memory", dest="pin", action="store_true")
    return parser.parse_args()
"""
TRAINS = "import data, options\nloader = data.Data(options.parse()).load(ds)\nfor x in loader:\n    model(x.cuda())"


@pytest.mark.parametrize(
    ("options", "train", "is_told"),
    [
        (OPTIONS, TRAINS, True),
        (OPTIONS.replace("default=0", "default=4"), TRAINS, False),
        (OPTIONS.replace("default=0", "required=True"), TRAINS, False),
        (f"{OPTIONS}\nparser.set_defaults(workers=4)", TRAINS, False),
        (f"{OPTIONS}\nparser.set_defaults(cuda=True)", TRAINS, True),
        (OPTIONS, f"{TRAINS}\nargs.workers = 4", False),
        (OPTIONS, "import data\nfor x in data.Data(args).load(ds):\n    model(x.cuda())", False),  # another program
    ],
)
def test_workers_by_an_option_of_another_file(project: Folder, options: str, train: str, *, is_told: bool) -> None:
    folder = project(**{"data.py": HANDS_ON, "options.py": options, "train.py": train})
    found = findings_in(folder, "data.py", "PA101")
    assert [f.fix.safety for f in found if f.fix] == (["manual"] if is_told else [])
    assert all("which is 0 unless the command line says otherwise" in f.message for f in found)


@pytest.mark.parametrize(("written", "is_told"), [("store_true", True), ("store_false", False)])
def test_pinning_by_a_flag_of_another_file(project: Folder, written: str, *, is_told: bool) -> None:
    options = OPTIONS.replace("default=0", "default=4").replace('"--pin_memory", dest="pin"', '"--pin"')
    data = HANDS_ON.replace("opt.pin)", "opt.pin_memory)")
    options = options.replace('"--pin"', '"--pin_memory"').replace("store_true", written)
    folder = project(**{"data.py": data, "options.py": options, "train.py": TRAINS})
    found = findings_in(folder, "data.py", "PA102")
    assert [f.fix.safety for f in found if f.fix] == (["manual"] if is_told else [])


BUILDS = """
from torch.utils.data import DataLoader

def build(dataset, num_workers=0):
    return DataLoader(dataset, batch_size=8, num_workers=num_workers)
"""
CALLS = """
import argparse
from data import build

class Trainer:
    def __init__(self, dataset, num_workers=0):
        self.num_workers = num_workers
        self.loader = build(dataset, num_workers=self.num_workers)

def main(args):
    for x in Trainer(ds, num_workers=args.num_workers).loader:
        model(x.cuda())

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=0)
    main(parser.parse_args())
"""


@pytest.mark.parametrize(
    ("train", "is_told"),
    [
        (CALLS, True),
        (CALLS.replace("default=0", "default=2"), False),
        (f"{CALLS}\nbuild(ds, 4)", False),  # one of the calls
        (CALLS.replace("args.num_workers", "cores()"), False),
    ],
)
def test_workers_by_an_argument_that_callers_hand_on(project: Folder, train: str, *, is_told: bool) -> None:
    folder = project(**{"data.py": BUILDS, "train.py": train})
    assert bool(findings_in(folder, "data.py", "PA101")) is is_told


@pytest.mark.parametrize(
    ("config", "is_told"),
    [
        ("class Setting:\n    num_workers = 0", True),
        ("class Setting:\n    num_workers = 8", False),
        ("class Setting:\n    if big:\n        num_workers = 8\n    else:\n        num_workers = 0", False),
    ],
)
def test_workers_by_a_class_of_settings(project: Folder, config: str, *, is_told: bool) -> None:
    train = """
from torch.utils.data import DataLoader
from config import Setting

def main(config):
    for x in DataLoader(ds, batch_size=8, num_workers=config.num_workers):
        model(x.cuda())

if __name__ == "__main__":
    config = Setting
    main(config)
"""
    folder = project(**{"config.py": config, "train.py": train})
    found = findings_in(folder, "train.py", "PA101")
    assert [f.fix.safety for f in found if f.fix] == (["manual"] if is_told else [])


def test_workers_by_a_constant_of_another_file_are_kept(project: Folder) -> None:
    train = """
from torch.utils.data import DataLoader
from config import num_workers

loader = DataLoader(ds, batch_size=8, num_workers=num_workers)
for epoch in range(90):
    for x in loader:
        model(x.cuda()).backward()
        optimizer.step()
"""
    folder = project(**{"config.py": "num_workers = 4", "train.py": train})
    (finding,) = findings_in(folder, "train.py", "PA103")
    assert finding.fix is not None
    assert [e.text for e in finding.fix.edits] == [", persistent_workers=num_workers > 0"]
    folder = project(**{"config.py": "num_workers = 0", "train.py": train})
    assert findings_in(folder, "train.py", "PA103") == []


@pytest.mark.parametrize(
    ("config", "imported", "workers", "is_told"),
    [
        ("WORKERS = 0", "import config", "config.WORKERS", True),
        ("WORKERS = 4", "import config", "config.WORKERS", False),
        ("WORKERS = 0 if small else 4", "import config", "config.WORKERS", False),
        ("WORKERS = 0", "import config\nconfig.WORKERS = cores()", "config.WORKERS", False),
        ("WORKERS = 0", "from config import *", "WORKERS", True),
        ("WORKERS = 0\nWORKERS = 4", "from config import *", "WORKERS", False),
        ("WORKERS = 0", "from config import WORKERS", "WORKERS", True),
    ],
)
def test_workers_by_a_constant_of_another_file(
    project: Folder, config: str, imported: str, workers: str, *, is_told: bool
) -> None:
    train = f"""
from torch.utils.data import DataLoader
{imported}

loader = DataLoader(ds, batch_size=8, num_workers={workers})
for epoch in range(90):
    for x in loader:
        model(x.cuda()).backward()
        optimizer.step()
"""
    folder = project(**{"config.py": config, "train.py": train})
    assert bool(findings_in(folder, "train.py", "PA101")) is is_told


FILLS = "def frames(data):\n    found = []\n    for part in data:\n        found.append(part[:128])\n    return found\n"


@pytest.mark.parametrize(
    ("makes", "is_told"),
    [
        (FILLS, False),
        (FILLS.replace("[]", "Frames(data)"), True),
        (FILLS.replace("    return found", "    if large:\n        return Frames(data)\n    return found"), True),
    ],
)
def test_a_list_that_a_function_of_another_file_fills(project: Folder, makes: str, *, is_told: bool) -> None:
    train = """
from torch.utils.data import DataLoader
import make

parts = make.frames(data)
for x in DataLoader(parts, batch_size=8):
    model(x.cuda()).backward()
    optimizer.step()
"""
    folder = project(**{"make.py": makes, "train.py": train})
    assert bool(findings_in(folder, "train.py", "PA101")) is is_told


LOADS = """
from torch.utils.data import TensorDataset

def load(mode):
    dataset = TensorDataset(ids, labels)
    return dataset
"""
FITS = """
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self, args, train=None):
        self.train = train

    def fit(self):
        for x, y in DataLoader(self.train, batch_size=16):
            model(x.cuda()).backward()
"""
STARTS = (
    'from load import load\nfrom trainer import Trainer\ndata = load(mode="train")\nTrainer(args, train=data).fit()'
)


@pytest.mark.parametrize(
    ("load", "start", "is_told"),
    [
        (LOADS, STARTS, False),
        (LOADS.replace("TensorDataset(ids, labels)", "Pictures(ids)"), STARTS, True),
        (LOADS, f"{STARTS}\nTrainer(args, Pictures()).fit()", True),
    ],
)
def test_tensors_in_memory_that_another_file_hands_over(
    project: Folder, load: str, start: str, *, is_told: bool
) -> None:
    folder = project(**{"load.py": load, "trainer.py": FITS, "main.py": start})
    assert bool(findings_in(folder, "trainer.py", "PA101")) is is_told


CODES = """
import torch
from torch.autograd import Variable
from torch.utils.data import Dataset

class Codes(Dataset):
    def __init__(self, rows):
        self.codes = torch.FloatTensor(rows)

    def __getitem__(self, index):
        return Variable(self.codes[index])

train_set, test_set = Codes(read("train")), Codes(read("test"))
"""
OF_MODULE = """
import codes
from torch.utils.data import DataLoader

for x in DataLoader(codes.train_set, batch_size=64, shuffle=True):
    model(x.cuda()).backward()
    optimizer.step()
"""
BY_NAME = OF_MODULE.replace("import codes", "from codes import train_set").replace("codes.train_set", "train_set")


@pytest.mark.parametrize(
    ("codes", "train", "is_told"),
    [
        (CODES, OF_MODULE, False),
        (CODES, BY_NAME, False),
        (CODES.replace("Variable(self.codes[index])", "decode(self.codes[index])"), OF_MODULE, True),
        (CODES, OF_MODULE.replace("codes.train_set", "codes.build()"), True),
        (CODES + "train_set = Photos()\n", BY_NAME, True),  # whichever it is
    ],
)
def test_tensors_in_memory_that_a_variable_of_another_file_holds(
    project: Folder, codes: str, train: str, *, is_told: bool
) -> None:
    folder = project(**{"codes.py": codes, "train.py": train})
    assert bool(findings_in(folder, "train.py", "PA101")) is is_told


@pytest.mark.parametrize(
    ("server", "severity"),
    [
        ("from client import Client\nfor user in users:\n    clients.append(Client(user))", "hint"),
        ("from client import Client\nclient = Client(user)", "warning"),
    ],
)
def test_a_loader_of_each_of_many_objects(project: Folder, server: str, severity: str) -> None:
    client = """
from torch.utils.data import DataLoader

class Client:
    def __init__(self, images):
        self.loader = DataLoader(images, batch_size=8)
"""
    folder = project(**{"client.py": client, "server.py": server})
    (finding,) = findings_in(folder, "client.py", "PA101")
    assert finding.severity == severity


HANDS_BATCHES = """
from torch.utils.data import DataLoader
from helpers import prepare

for x, y in DataLoader(ds, batch_size=8, pin_memory=True):
    x, y = prepare(x, y)
    criterion(model(x), y).backward()
    optimizer.step()
net.cuda()
"""
TAKES_BATCHES = """batches = iter(DataLoader(ds, batch_size=8, pin_memory=True))
for step in range(1000):
    x, y = next(batches)"""


@pytest.mark.parametrize(
    ("helpers", "said"),
    [
        ("def prepare(x, y):\n    return x.cuda(), y", ["helpers.py line 2"]),
        ("def prepare(*parts):\n    return [part.cuda() for part in parts]", []),
        ("def prepare(x, y):\n    x = x.view(-1)\n    return x.to('cuda'), y", ["helpers.py line 3"]),
        ("def prepare(x, y):\n    return x.cuda(non_blocking=True), y", []),
        ("def prepare(x, y):\n    return x, other.cuda()", []),
        ("def prepare(x, y):\n    return (x * 2).cuda(), y", []),
        ("def prepare(x, y):\n    return {k: v.cuda() for k, v in x.items()}, y", ["helpers.py line 2"]),
    ],
)
def test_a_helper_of_another_file_copies_the_batch(project: Folder, helpers: str, said: list[str]) -> None:
    folder = project(**{"helpers.py": helpers, "train.py": HANDS_BATCHES})
    found = findings_in(folder, "train.py", "PA104")
    assert [(f.location.line, f.fix.safety) for f in found if f.location and f.fix] == [(5, "manual")] * len(said)
    assert all(place in f.message for place, f in zip(said, found, strict=True))
    taken = HANDS_BATCHES.replace("for x, y in DataLoader(ds, batch_size=8, pin_memory=True):", TAKES_BATCHES)
    found = findings_in(project(**{"helpers.py": helpers, "train.py": taken}), "train.py", "PA104")
    assert [(f.location.line, f.fix.safety) for f in found if f.location and f.fix] == [(7, "manual")] * len(said)
    pageable = HANDS_BATCHES.replace(", pin_memory=True", "")
    assert findings_in(project(**{"helpers.py": helpers, "train.py": pageable}), "train.py", "PA104") == []


def test_workers_start_anew_where_another_file_begins_a_pass_on_each_step(project: Folder) -> None:
    """Advice, no patch: `next(iter(loader))` would start them on every step."""
    loop = "for step in range(1000):\n    x, y = {taken}\n    loss = model(x.cuda(), y)\n    loss.backward()\n"
    data = (
        "import os\nfrom torch.utils.data import DataLoader\nloader = DataLoader(Images(os.getcwd()), batch_size=8)\n"
    )
    for taken, has_patch in (("next(iter(loader))", False), ("next(batches)", True)):
        head = "import torch\nfrom data import loader\ndef main():\n    batches = iter(loader)\n    "
        text = head + loop.format(taken=taken).replace("\n", "\n    ") + "\nif __name__ == '__main__':\n    main()\n"
        folder = project(**{"data.py": data, "main.py": text})
        found = findings_in(folder, "data.py", "PA101")
        assert [bool(finding.fix and finding.fix.edits) for finding in found] == [has_patch]


def test_batches_taken_one_by_one_of_what_another_file_makes(project: Folder) -> None:
    data = "from torch.utils.data import DataLoader\ndef batches():\n    return walk(DataLoader(ds, 8, pin_memory={pinned}))\n"
    train = (
        "from data import batches\nclass Trainer:\n    def __init__(self):\n        self.batches = {made}\n"
        "    def train(self):\n        for step in range(1000):\n            x, y = next(self.batches)\n"
        "            x, y = x.cuda(), y.cuda()\n            loss = self.model(x, y)\n            loss.backward()\n"
    )
    for pinned, made, is_told in (
        ("True", "batches()", True),
        ("False", "batches()", False),
        ("True", "self.own()", False),
    ):
        folder = project(**{"data.py": data.format(pinned=pinned), "train.py": train.format(made=made)})
        assert bool(findings_in(folder, "train.py", "PA104")) is is_told


FETCHES = """
import torch
from munch import Munch

class Fetcher:
    def __init__(self, loader, args):
        self.loader = loader
        self.device = torch.device(args.device)

    def __next__(self):
        try:
            x, y = next(self.batches)
        except (AttributeError, StopIteration):
            self.batches = iter(self.loader)
            x, y = next(self.batches)
        inputs = Munch(x=x, y=y, z=torch.randn(8, 16))
        return Munch({name: value.to(self.device) for name, value in inputs.items()})
"""


@pytest.mark.parametrize(
    ("fetcher", "pinned", "is_told"),
    [
        (FETCHES, "True", True),
        (FETCHES.replace("Munch(x", "dict(x"), "True", True),
        (FETCHES.replace("Munch(x=x, y=y, z=torch.randn(8, 16))", "{'x': x, 'y': y}"), "True", True),
        (FETCHES, "False", False),
        (FETCHES.replace("Munch(x=x", "Munch(x=prepare(x)"), "True", False),
        (FETCHES.replace("Munch(x", "Batch(x"), "True", False),
        (FETCHES.replace("Munch(x", "Munch(more, x"), "True", False),
        (FETCHES.replace("__next__", "sample"), "True", False),
        (FETCHES.replace("iter(self.loader)", "self.own()"), "True", False),
        (FETCHES.replace(".to(self.device)", ".to(self.device, non_blocking=True)"), "True", False),
    ],
)
def test_batches_that_an_iterator_of_the_project_copies(
    project: Folder, fetcher: str, pinned: str, *, is_told: bool
) -> None:
    """Advice: what the steps do with them is not in sight."""
    train = (
        "from torch.utils.data import DataLoader\nfrom fetcher import Fetcher\n"
        f"fetcher = Fetcher(DataLoader(images, batch_size=8, pin_memory={pinned}), args)\nmodel.cuda()\n"
        "for step in range(1000):\n    batch = next(fetcher)\n    criterion(model(batch.x), batch.y).backward()\n"
    )
    folder = project(**{"fetcher.py": fetcher, "train.py": train})
    found = findings_in(folder, "fetcher.py", "PA104")
    assert [finding.fix.safety for finding in found if finding.fix] == ["manual"] * is_told


MAKES_EPISODE = """
from torch.utils.data import DataLoader

def make_loader(task, classes):
    return DataLoader(Images(task), batch_size=5 * classes, sampler=Balanced(classes))
"""
EPISODES = """
import tasks

for episode in range(10000):
    images, labels = iter(tasks.make_loader(draw(), 5)).next()
    optimizer.zero_grad()
    criterion(model(images.cuda()), labels.cuda()).backward()
    optimizer.step()
"""
EPOCHS = """
import tasks

for epoch in range(100):
    for images, labels in tasks.make_loader(draw(), 5):
        optimizer.zero_grad()
        criterion(model(images.cuda()), labels.cuda()).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("train", "is_told"),
    [
        (EPISODES, False),
        (EPISODES.replace("    images, labels =", "    if episode % 100 == 0:\n        images, labels ="), True),
        (EPOCHS, True),
        (EPISODES.replace("import tasks", "from tasks import make_loader").replace("tasks.make", "make"), False),
        (EPISODES.replace("import tasks", "from handed import make_loader").replace("tasks.make", "make"), False),
        (EPISODES.replace("tasks.make", "mine.make"), True),  # another one's
        (EPISODES.replace("import tasks", "import mine, tasks").replace("tasks.make", "mine.make"), True),
        (EPISODES.replace("import tasks", "import library, tasks").replace("tasks.make", "library.make"), True),
        (
            EPISODES.replace("import tasks", "import tasks\nfrom mine import held").replace("tasks.make", "held.make"),
            True,
        ),
    ],
)
@pytest.mark.parametrize("rule", ["PA101", "PA102"])
def test_loader_that_a_training_makes_for_every_step(project: Folder, train: str, rule: str, *, is_told: bool) -> None:
    others = {"mine.py": "def make_loader(task, classes):\n    pass\n", "handed.py": "from tasks import make_loader\n"}
    folder = project(**{"tasks.py": MAKES_EPISODE, "train.py": train, **others})
    found = findings_in(folder, "tasks.py", rule)
    assert [finding.severity != "hint" for finding in found] == [is_told]


FED = """
import torch

class Model:
    def feed_data(self, data, is_whole=True):
        self.x = data["x"].to(self.device)
        self.y = data["y"].cuda()

    def optimize_parameters(self):
        loss = self.net(self.x, self.y)
        loss.backward()
        self.optimizer.step()
"""
CHOOSES = "def make(options):\n    from fed import Model\n    return Model(options)\n"
FEEDS = """
from choice import make
from torch.utils.data import DataLoader

def main(options):
    for phase in options.phases:
        if phase == "train":
            loader = DataLoader(train_set, batch_size=8, num_workers=4, pin_memory=True)
        else:
            held_out = DataLoader(test_set, batch_size=1, pin_memory=True)
    model = make(options)
    for step, batch in enumerate(loader):
        model.feed_data(batch)
        model.optimize_parameters()
        if step % 1000 == 0:
            for batch in held_out:
                model.feed_data(batch, False)
"""


@pytest.mark.parametrize(
    ("fed", "train", "is_told"),
    [
        (FED, FEEDS, True),
        (FED, FEEDS.replace("8, num_workers=4, pin_memory=True", "8"), False),
        (FED, FEEDS.replace("1, pin_memory=True", "1"), False),  # some of what it is handed
        (FED, FEEDS.replace("feed_data(batch)", "feed_data(changed(batch))"), False),
        (FED, FEEDS.replace("def main", "def evaluate"), False),
        (FED.replace("loss.backward()", "print(loss)"), FEEDS, False),
        (FED.replace('data["x"]', 'crop(data["x"])').replace('data["y"]', "self.names"), FEEDS, False),
        (FED.replace("cuda()", "float()").replace("self.device", '"cpu"'), FEEDS, False),
        (FED.replace("feed_data", "update"), FEEDS.replace("feed_data", "update"), False),  # anything has one
        (FED, FEEDS.replace("in enumerate(loader)", "in enumerate(options.batches)"), False),
    ],
)
def test_batches_that_a_method_of_another_file_is_fed(project: Folder, fed: str, train: str, *, is_told: bool) -> None:
    base = project(**{"fed.py": fed, "choice.py": CHOOSES, "train.py": train})
    found = findings_in(base, "fed.py", "PA104")
    assert [f.location.line for f in found if f.location] == ([5] if is_told else [])
    assert all(f.fix is not None and not f.fix.edits for f in found)


SUBCLASS = """
from torch.utils.data import DataLoader

class Loader(DataLoader):
    def __init__(self, dataset, batch_size=8, **options):
        super().__init__(dataset, batch_size=batch_size, **options)
"""


@pytest.mark.parametrize(
    ("tail", "file", "text", "is_told"),
    [
        ("", "train.py", "from loaders import Loader\nloader = Loader(ds, 16)", True),
        ("", "train.py", "import loaders\nloader = loaders.Loader(ds, num_workers=4)", False),
        ("", "train.py", "import loaders\nloader = loaders.Loader(ds, **options)", False),
        ("", "train.py", "import loaders\nloader = getattr(loaders, name)(ds)", False),
        ("", "test_loaders.py", "from loaders import Loader\nfor x in Loader(ds):\n    print(x)", False),
        ("if __name__ == '__main__':\n    for x in Loader(ds):\n        print(x)", "other.py", "import loaders", False),
        ("if __name__ == '__main__':\n    for x in Loader(ds):\n        model(x).backward()", "other.py", "", True),
    ],
)
def test_a_loader_of_ones_own_that_hands_its_options_on(
    project: Folder, tail: str, file: str, text: str, *, is_told: bool
) -> None:
    folder = project(**{"loaders.py": SUBCLASS + tail, file: text})
    assert bool(findings_in(folder, "loaders.py", "PA101")) is is_told


MADE = """
from torch.utils.data import DataLoader

def batches(path, size=64, **kwargs):
    return DataLoader(Photos(path), batch_size=size, num_workers=4, **kwargs)

def main(model):
    for images in batches("train", size=32, shuffle=True):
        step(model, images.cuda())
"""


@pytest.mark.parametrize(
    ("script", "is_told"),
    [
        ("import data\nfor x in data.batches('train'):\n    step(model, x.cuda())", True),
        ("from functools import partial\nimport data\nmake = partial(data.batches, pin_memory=True)", False),
        ("from data import batches\nkinds = {'train': batches}\nkinds['train']('train', pin_memory=True)", False),
        ("from data import batches as made\nfor x in made('train', pin_memory=True):\n    print(x)", False),
    ],
)
def test_options_that_another_file_may_give_without_a_call_by_name(
    project: Folder, script: str, *, is_told: bool
) -> None:
    folder = project(**{"data.py": MADE, "train.py": script})
    assert bool(findings_in(folder, "data.py", "PA102")) is is_told


TRAINER = """
import torch

class Trainer:
    def __init__(self, model, train_loader, valid_loader, names):
        self.model, self.names = model.cuda(), names
        self.train_loader = train_loader
        self.valid_loader = valid_loader

    def train(self):
        for x, y in self.train_loader:
            loss = criterion(self.model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()

    def validate(self):
        total = 0
        with torch.no_grad():
            for x, y in self.valid_loader:
                total += criterion(self.model(x.cuda()), y.cuda())
        return total / len(self.valid_loader)
"""
MAKES = """
from torch.utils.data import DataLoader
from trainer import Trainer

train, valid = (DataLoader(images, 8, num_workers=4, pin_memory=True) for images in (a, b))
Trainer(model, train, valid, names).train()
"""


@pytest.mark.parametrize(
    ("trainer", "makes", "severities"),
    [
        (TRAINER, MAKES, ["warning", "warning"]),
        (
            TRAINER.replace("+= criterion(self.model(x.cuda()), y.cuda())", "+= self.model(x.cuda()).item()"),
            MAKES,
            ["warning", "hint"],
        ),
        (
            TRAINER.replace("+= criterion(self.model(x.cuda()), y.cuda())", "+= to_np(self.model(x.cuda()))")
            .replace("to_np(", "tools.to_np(")
            .replace("def validate(self):", "def show(self):\n        self.model.eval()"),
            MAKES,
            ["warning", "hint"],
        ),
        (TRAINER.replace("in self.valid_loader:", "in self.names:"), MAKES, ["warning"]),
        (TRAINER.replace("loss.backward()", "pass"), MAKES, []),
        (TRAINER, MAKES.replace(", pin_memory=True", ""), []),
    ],
)
def test_an_evaluation_beside_a_training_of_what_other_files_hand_in(
    project: Folder, trainer: str, makes: str, severities: list[str]
) -> None:
    folder = project(**{"trainer.py": trainer, "main.py": makes})
    assert [f.severity for f in findings_in(folder, "trainer.py", "PA104")] == severities
