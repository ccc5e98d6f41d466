"""Settings of a whole program, said once at its script: what the files say that it imports, and where that keeps it quiet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.findings import Finding
from perfaudit.rules import all_rules
from perfaudit.static.edit import apply
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 512, 3), nn.ReLU(), nn.Conv2d(512, 512, 3))
"""
ENGINE = """
def train(model, loader, optimizer):
    for x, y in loader:
        loss = model(x.cuda(), y.cuda())
        loss.backward()
        optimizer.step()
"""
# The loop here, the model elsewhere.
LOOP = """
import torch
from net import Net

def main():
    model = Net().cuda()
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""
# Loop and model elsewhere.
START = """
from engine import train
from net import Net

def main():
    train(Net(), loader, optimizer)

if __name__ == "__main__":
    main()
"""


def findings_in(folder: Path, name: str, rules: set[str]) -> list[Finding]:
    text = (folder / name).read_text(encoding="utf-8")
    neighbours = Project(sorted(folder.rglob("*.py"))).seen_from(folder / name)
    return run_checks(Source(name, text, neighbours), all_rules(), frozenset(rules))


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("script", "expected"), [(LOOP, [("PA304", 8), ("PA301", 13)]), (START, [("PA301", 9), ("PA304", 9)])]
)
def test_said_once_at_the_script(tmp_path: Path, script: str, expected: list[tuple[str, int]]) -> None:
    folder = write(tmp_path, {"net.py": NET, "engine.py": ENGINE, "train.py": script})
    found = findings_in(folder, "train.py", {"PA301", "PA304"})
    assert [(f.rule, f.location.line) for f in found if f.location] == expected
    for name in ("net.py", "engine.py"):
        assert findings_in(folder, name, {"PA301", "PA304"}) == []


def test_the_flag_is_set_before_the_script_starts(tmp_path: Path) -> None:
    folder = write(tmp_path, {"net.py": NET, "engine.py": ENGINE, "train.py": START})
    (finding,) = findings_in(folder, "train.py", {"PA301"})
    assert finding.fix is not None
    fixed = apply(START, finding.fix.edits)
    assert 'if __name__ == "__main__":\n    torch.backends.cudnn.benchmark = True\n    main()' in fixed
    assert "\nimport torch\n" in fixed


def test_processes_that_a_script_starts_do_not_run_its_main_block(tmp_path: Path) -> None:
    script = START.replace("    main()\n", "    torch.multiprocessing.spawn(main, nprocs=4)\n")
    folder = write(tmp_path, {"net.py": NET, "engine.py": ENGINE, "train.py": "import torch" + script})
    (finding,) = findings_in(folder, "train.py", {"PA301"})
    assert finding.fix is not None and finding.fix.safety == "manual"


def test_the_call_that_trains_is_pointed_at_not_the_options_before_it(tmp_path: Path) -> None:
    script = START.replace(
        "    main()\n", "    parser = ArgumentParser()\n    args = parser.parse_args()\n    main()\n"
    )
    folder = write(tmp_path, {"net.py": NET, "engine.py": ENGINE, "train.py": script})
    (finding,) = findings_in(folder, "train.py", {"PA304"})
    assert finding.message.startswith("`main()` starts a training in float32")


def test_a_script_without_a_main_guard_starts_where_it_calls_the_training(tmp_path: Path) -> None:
    script = "from engine import train\nfrom net import Net\n\nmodel = Net()\ntrain(model, loader, optimizer)\n"
    folder = write(tmp_path, {"net.py": NET, "engine.py": ENGINE, "train.py": script})
    found = findings_in(folder, "train.py", {"PA301", "PA304"})
    assert [(f.rule, f.location.line) for f in found if f.location] == [("PA301", 5), ("PA304", 5)]


STEPS = """
class Trainer:
    def train_step(self, x):
        self.model(x.cuda()).backward()
        self.optimizer.step()
"""
STEPPING = """
from engine import Trainer
from net import Net

trainer = Trainer(Net())
for x in data:
    trainer.train_step(x)
"""


def test_a_script_without_a_main_guard_starts_with_the_loop_that_calls_steps_of_another_file(tmp_path: Path) -> None:
    folder = write(tmp_path, {"net.py": NET, "engine.py": STEPS, "train.py": STEPPING})
    found = findings_in(folder, "train.py", {"PA301", "PA304"})
    assert [(f.rule, f.location.line) for f in found if f.location] == [("PA301", 6), ("PA304", 6)]


def test_a_word_for_something_else_decides_nothing_of_cudnn(tmp_path: Path) -> None:
    net = f"{NET}\ndef act(self, x, deterministic=False):\n    return self(x)\n"
    folder = write(tmp_path, {"net.py": net, "engine.py": ENGINE, "train.py": START})
    assert len(findings_in(folder, "train.py", {"PA301"})) == 1


PINNED = """
from torch.utils.data import DataLoader
from engine import train

def main():
    train(Net(), DataLoader(dataset, 32, num_workers=4, pin_memory=True), optimizer)
"""
BY_ANOTHER_NAME = PINNED.replace("    train(", "    run = train\n    run(")


def test_the_host_waits_for_the_batches_of_a_loader_in_another_file(tmp_path: Path) -> None:
    folder = write(tmp_path, {"engine.py": ENGINE, "train.py": PINNED})
    (finding,) = findings_in(folder, "engine.py", {"PA104"})
    assert finding.message.startswith("`x.cuda()` and 1 more: the batch is pinned")
    assert finding.fix is not None
    assert "model(x.cuda(non_blocking=True), y.cuda(non_blocking=True))" in apply(ENGINE, finding.fix.edits)


WITH_A_BAR = """
from tqdm import tqdm

def train(model, loader, held_out, optimizer):
    shown = tqdm(loader, desc="training")
    for x, y in shown:
        model(x.cuda(), y.cuda()).backward()
        optimizer.step()
    for x, y in enumerate(held_out):
        print(model(y.cuda()))
    for x, y in held_out:
        print(model(x.cuda()))
"""


def test_the_host_waits_behind_a_progress_bar_and_in_the_evaluation_beside_the_training(tmp_path: Path) -> None:
    folder = write(tmp_path, {"engine.py": WITH_A_BAR, "train.py": PINNED})
    found = findings_in(folder, "engine.py", {"PA104"})
    assert [f.location.line for f in found if f.location] == [7, 10, 12]


def test_a_loader_that_pins_where_the_device_is_no_cpu_pins(tmp_path: Path) -> None:
    script = PINNED.replace("pin_memory=True", "pin_memory=(device != 'cpu')")
    folder = write(tmp_path, {"engine.py": ENGINE, "train.py": script})
    assert len(findings_in(folder, "engine.py", {"PA104"})) == 1


def test_of_what_is_collated_in_another_file_the_copy_is_advice(tmp_path: Path) -> None:
    script = PINNED.replace("32,", "32, collate_fn=join,")
    folder = write(tmp_path, {"engine.py": ENGINE, "train.py": script})
    (finding,) = findings_in(folder, "engine.py", {"PA104"})
    assert finding.fix is not None and finding.fix.safety == "manual"


@pytest.mark.parametrize(
    "script",
    [
        PINNED.replace("pin_memory=True", "pin_memory=False"),
        PINNED.replace("pin_memory=True", "pin_memory=args.pin"),
        PINNED.replace(", pin_memory=True", ""),
        PINNED + "\n    train(Net(), DataLoader(others, 32), optimizer)\n",
        BY_ANOTHER_NAME + "\n    test(Net(), DataLoader(others, 32))\n",  # which of the two it is handed is not known
        PINNED.replace("DataLoader(", "batches("),
    ],
)
def test_silent_where_not_all_loaders_of_the_program_pin(tmp_path: Path, script: str) -> None:
    folder = write(tmp_path, {"engine.py": ENGINE, "train.py": script})
    assert findings_in(folder, "engine.py", {"PA104"}) == []


ROW_OF_LOADERS = """
from torch.utils.data import DataLoader

def loaders_of(folder, size=32):
    train, test = Photos(folder, True), Photos(folder, False)
    train_loader = DataLoader(train, size, num_workers=4, pin_memory=True)
    return train_loader, DataLoader(test, 1)
"""
OWN_LOOP = """
import torch
from files import loaders_of

train_loader, test_loader = loaders_of("photos")
for x, y in train_loader:
    loss = model(x.cuda(), y.cuda())
    loss.backward()
    optimizer.step()
"""
OWN_CLASS = """
import torch

class Trainer:
    def __init__(self, model, loader):
        self.model = model
        self.loader = loader

    def fit(self):
        for x, y in self.loader:
            self.model(x.cuda(), y.cuda()).backward()
            optimizer.step()
"""
OF_CLASS = """
import files
from engine import Trainer

train_loader, test_loader = files.loaders_of("photos")
Trainer(Net(), loader=train_loader).fit()
"""
OF_FUNCTION = """
import files
from engine import train

train_loader, test_loader = files.loaders_of("photos")
train(Net(), train_loader, optimizer)
"""


@pytest.mark.parametrize(
    ("engine", "script", "lines"),
    [
        (OWN_LOOP, "", [7]),
        (OWN_LOOP.replace("in train_loader", "in test_loader"), "", []),
        (OWN_LOOP.replace("train_loader, test_loader =", "train_loader = test_loader ="), "", []),
        (OWN_CLASS, OF_CLASS, [11]),
        (OWN_CLASS, f"{OF_CLASS}\nTrainer(Net(), test_loader)", []),
        (ENGINE, OF_FUNCTION, [4]),
    ],
)
def test_the_loader_that_a_loop_runs_over_pins_beside_one_that_does_not(
    tmp_path: Path, engine: str, script: str, lines: list[int]
) -> None:
    folder = write(tmp_path, {"engine.py": engine, "files.py": ROW_OF_LOADERS, "train.py": script})
    found = findings_in(folder, "engine.py", {"PA104"})
    assert [f.location.line for f in found if f.location] == lines


@pytest.mark.parametrize("collate", ["collate_fn=join", "collate_fn=args.collate"])
def test_silent_where_a_loader_of_another_file_collates_in_its_own_way(tmp_path: Path, collate: str) -> None:
    files = ROW_OF_LOADERS.replace("pin_memory=True", f"pin_memory=True, {collate}")
    folder = write(tmp_path, {"engine.py": OWN_LOOP, "files.py": files})
    assert findings_in(folder, "engine.py", {"PA104"}) == []


CLIPS = """
import librosa
from torch.utils.data import DataLoader, Dataset

class Clips(Dataset):
    def __getitem__(self, n):
        return librosa.load(self.files[n])[0][:16000]
"""


@pytest.mark.parametrize(
    ("start", "clips", "is_found"),
    [
        (START.replace("loader,", "DataLoader(Clips(), 32),"), CLIPS, True),  # it stacks them: they have one length
        (START.replace("loader,", "DataLoader(Clips(), 32, collate_fn=pad),"), CLIPS, False),
        (START.replace("loader,", "DataLoader(Clips(), batch_sampler=by_length),"), CLIPS, False),
        (START.replace("loader,", "clips_of(folder),"), CLIPS.replace("DataLoader, ", ""), False),
    ],
)
def test_clips_that_a_loader_stacks_are_of_one_length(tmp_path: Path, start: str, clips: str, is_found: bool) -> None:
    start = start.replace("from net", "from clips import Clips\nfrom torch.utils.data import DataLoader\nfrom net")
    folder = write(tmp_path, {"net.py": NET, "engine.py": ENGINE, "clips.py": clips, "train.py": start})
    assert bool(findings_in(folder, "train.py", {"PA301"})) == is_found


TRIED_OUT = """
from torch.utils.data import DataLoader, Dataset

class Photos(Dataset):
    pass

if __name__ == "__main__":
    for x, y in DataLoader(Photos(), 4):
        print(x.shape)
"""


@pytest.mark.parametrize(
    ("photos", "lines"),
    [
        (TRIED_OUT, [4]),
        (TRIED_OUT.replace("print(x.shape)", "train(x)"), []),
        (TRIED_OUT.replace('if __name__ == "__main__":', "def show():"), []),
    ],
)
def test_the_loader_with_which_a_module_of_datasets_is_tried_out_is_no_part_of_a_program(
    tmp_path: Path, photos: str, lines: list[int]
) -> None:
    script = BY_ANOTHER_NAME.replace("import train", "import train\nfrom photos import Photos")
    folder = write(tmp_path, {"engine.py": ENGINE, "photos.py": photos, "train.py": script})
    found = findings_in(folder, "engine.py", {"PA104"})
    assert [f.location.line for f in found if f.location] == lines


COLLATING = """
import torch

def join(samples):
    images, names = zip(*samples)
    return torch.stack(images), names
"""
COLLATED_ELSEWHERE = """
from torch.utils.data import DataLoader
from collating import join

for images, names in DataLoader(dataset, 32, collate_fn=join, pin_memory=True):
    model(images.cuda(), names).backward()
"""


@pytest.mark.parametrize(
    ("collating", "lines"),
    [
        (COLLATING, [6]),
        (COLLATING.replace("torch.stack(images)", "Images(images)"), []),  # it may have a `.cuda` of its own
        (f"{COLLATING}\njoin = wrap(join)\n", []),
    ],
)
def test_a_collate_function_of_another_file_may_make_tensors(tmp_path: Path, collating: str, lines: list[int]) -> None:
    folder = write(tmp_path, {"collating.py": collating, "train.py": COLLATED_ELSEWHERE})
    found = findings_in(folder, "train.py", {"PA104"})
    assert [f.location.line for f in found if f.location] == lines


SEVERAL_SIZES = """
def train(model, loader, optimizer):
    for batch in loader:
        for size in SIZES:
            x, y = batch
            x = resize(x.cuda(), size)
            model(x, y.cuda()).backward()
            optimizer.step()
"""


def test_a_loop_over_batches_may_go_round_several_steps_of_each(tmp_path: Path) -> None:
    folder = write(tmp_path, {"engine.py": SEVERAL_SIZES, "train.py": PINNED})
    found = findings_in(folder, "engine.py", {"PA104"})
    assert [f.location.line for f in found if f.location] == [6]
    no_batches = SEVERAL_SIZES.replace("in loader", "in models").replace(", loader", ", models")
    write(folder, {"engine.py": no_batches})
    assert findings_in(folder, "engine.py", {"PA104"}) == []


def change(old: str, new: str) -> Callable[[str], str]:
    def changed(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return changed


@pytest.mark.parametrize("script", [LOOP, START])
@pytest.mark.parametrize(
    ("rules", "name", "line"),
    [
        ({"PA301"}, "net.py", "torch.backends.cudnn.benchmark = True"),
        ({"PA301"}, "net.py", "torch.use_deterministic_algorithms(True)"),
        ({"PA301"}, "net.py", "collate_fn = pad"),
        ({"PA301"}, "net.py", "import torchaudio"),
        ({"PA304"}, "net.py", "scaler = torch.amp.GradScaler()"),
        ({"PA304"}, "net.py", "parser.add_argument('--fp16')"),
        ({"PA304"}, "net.py", "torch.set_float32_matmul_precision('high')"),
        ({"PA304"}, "net.py", "torch.backends.cuda.matmul.allow_tf32 = True"),
        ({"PA304"}, "train.py", "torch.set_float32_matmul_precision('high')"),
        ({"PA301", "PA304"}, "net.py", "import pytorch_lightning as pl"),
        ({"PA301", "PA304"}, "net.py", "from accelerate import Accelerator"),
        ({"PA301", "PA304"}, "train.py", "from ignite.engine import Engine"),
        ({"PA301"}, "train.py", "torch.backends.cudnn.benchmark = args.benchmark"),
        ({"PA304"}, "train.py", "with torch.autocast('cuda'): ..."),
    ],
)
def test_silent_where_a_file_of_the_program_says_it(
    tmp_path: Path, script: str, rules: set[str], name: str, line: str
) -> None:
    files = {"net.py": NET, "engine.py": ENGINE, "train.py": script}
    folder = write(tmp_path, files | {name: f"{line}\n{files[name]}"})
    assert findings_in(folder, "train.py", rules) == []


@pytest.mark.parametrize(("value", "number"), [("high", 0), ("highest", 1)])
def test_the_file_that_is_run_may_turn_tf32_on_for_a_training_that_it_imports(
    tmp_path: Path, value: str, number: int
) -> None:
    run = f"import torch\nimport train\n\ntorch.set_float32_matmul_precision('{value}')\ntrain.main()\n"
    folder = write(tmp_path, {"net.py": NET, "train.py": LOOP, "run.py": run})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


@pytest.mark.parametrize(
    ("name", "line", "number"),
    [
        ("net.py", "import torch.backends.cudnn as cudnn", 1),
        ("net.py", "from torch.backends import cudnn", 1),
        ("net.py", "import torch.backends.cudnn as cudnn; cudnn.benchmark = True", 0),
        ("net.py", "import torch.backends.cudnn as cudnn\ncudnn.enabled = flag", 0),
        ("evaluate_net.py", "def evaluate():\n    torch.backends.cudnn.benchmark = True", 1),
        ("evaluate_net.py", "torch.backends.cudnn.benchmark = True", 0),
        ("options.py", "def read():\n    torch.backends.cudnn.benchmark = True", 0),
        ("options.py", "def read():\n    # torch.backends.cudnn.benchmark = False\n    pass", 1),
        ("options.py", "def read():\n    # cudnn.deterministic = True\n    # cudnn.benchmark = False\n    pass", 1),
        ("options.py", "def read():\n    # torch.backends.cudnn.benchmark = True\n    pass", 0),
        ("options.py", "def read():\n    # torch.backends.cudnn.benchmark = False: crops differ in size\n    pass", 0),
        ("options.py", "def read():\n    # seeds, for reproducible results\n    pass", 1),
        ("options.py", "def read():\n    # crops differ in size\n    # cudnn.benchmark = False\n    pass", 0),
        ("options.py", "def read():\n    # cudnn.benchmark was tried here: crops differ in size\n    pass", 0),
    ],
)
def test_a_file_decides_on_cudnn_where_it_says_so_and_the_training_runs_it(
    tmp_path: Path, name: str, line: str, number: int
) -> None:
    files = {"net.py": NET, "engine.py": ENGINE, "train.py": f"import {name.removesuffix('.py')}\n{START}"}
    folder = write(tmp_path, files | {name: f"{line}\n{files.get(name, '')}"})
    assert len(findings_in(folder, "train.py", {"PA301"})) == number


def test_cutting_an_image_into_patches_is_no_convolution_to_time(tmp_path: Path) -> None:
    net = NET.replace(
        "nn.Conv2d(3, 512, 3), nn.ReLU(), nn.Conv2d(512, 512, 3)", "nn.Conv2d(3, embed_dim, 16, stride=16)"
    )
    folder = write(tmp_path, {"net.py": net, "engine.py": ENGINE, "train.py": START})
    assert findings_in(folder, "train.py", {"PA301"}) == []


def test_a_batch_that_the_loop_scales_has_no_size_to_time(tmp_path: Path) -> None:
    script = LOOP.replace(
        "    for x, y in loader:\n", "    for x, y in loader:\n        x = F.upsample(x, size=size)\n"
    )
    script = script.replace("import torch\n", "import torch\nimport torch.nn.functional as F\n")
    folder = write(tmp_path, {"net.py": NET, "train.py": script})
    assert findings_in(folder, "train.py", {"PA301"}) == []


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("train.py", "from net import Net", "from net import Net\nfrom apex.optimizers import LARC"),
        ("engine.py", "def train", "from transformers import AdamW\n\nclass Trainer: ...\n\ndef train"),
        ("train.py", "train(Net()", "trainers['plain'](Net()"),
        ("train.py", "train(Net()", "trainer_plain(Net()"),
    ],
)
def test_what_lends_a_part_or_is_named_in_a_table_is_no_framework(
    tmp_path: Path, name: str, before: str, after: str
) -> None:
    files = {"net.py": NET, "engine.py": ENGINE, "train.py": START}
    folder = write(tmp_path, files | {name: files[name].replace(before, after)})
    assert [f.rule for f in findings_in(folder, "train.py", {"PA304"})] == ["PA304"]


def test_a_training_deeper_in_the_main_block_is_pointed_at(tmp_path: Path) -> None:
    inside = "    for topic in topics:\n        train(Net(), topic, optimizer)\n    save(topics)\n"
    script = START[: START.index("def main")] + f'if __name__ == "__main__":\n{inside}'
    folder = write(tmp_path, {"net.py": NET, "engine.py": ENGINE, "train.py": script})
    (finding,) = findings_in(folder, "train.py", {"PA304"})
    assert finding.message.startswith("`train(Net(), topic, optimizer)` starts a training")


@pytest.mark.parametrize("name", ["Trainer", "AdamW, TrainingArguments"])
def test_a_trainer_of_a_library_decides_by_itself(tmp_path: Path, name: str) -> None:
    engine = f"from transformers import {name}\n{ENGINE}"
    folder = write(tmp_path, {"net.py": NET, "engine.py": engine, "train.py": START})
    assert findings_in(folder, "train.py", {"PA304"}) == []


@pytest.mark.parametrize(
    ("net", "number"),
    [
        ("from transformers import BertPreTrainedModel\n\nclass Net(BertPreTrainedModel): ...\n", 1),
        ("from torch import nn\n\nclass Net(nn.Module): ...\n", 0),
    ],
)
def test_a_model_derived_from_one_of_transformers_is_wide(tmp_path: Path, net: str, number: int) -> None:
    folder = write(tmp_path, {"net.py": net, "train.py": LOOP})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


@pytest.mark.parametrize(
    ("model", "number"),
    [
        ("models.__dict__[args.arch]", 1),
        ("models.resnet50", 1),
        ("resnet50", 1),
        ("eval(args.arch)", 1),
        ("build(args.arch)", 0),
    ],
)
def test_a_model_of_torchvision_that_is_handed_on_is_wide(tmp_path: Path, model: str, number: int) -> None:
    imported = "import torch\nfrom torchvision import models\nfrom torchvision.models import resnet18, resnet50\n"
    script = LOOP.replace("Net()", f"Net({model})").replace("import torch\n", imported)
    folder = write(tmp_path, {"net.py": "class Net: ...\n", "train.py": script})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


@pytest.mark.parametrize(
    ("build", "rules"),
    [
        ("models.densenet121(pretrained=True)", ["PA301", "PA304"]),
        ("models.__dict__[name](num_classes=10)", ["PA301", "PA304"]),
        ("Rows(datasets.MNIST(folder), models)", []),
    ],
)
def test_a_model_of_torchvision_that_another_file_builds_convolves(
    tmp_path: Path, build: str, rules: list[str]
) -> None:
    net = f"from torchvision import datasets, models\n\ndef build(name):\n    return {build}\n"
    script = LOOP.replace("import Net", "import build").replace("Net()", "build(name)")
    folder = write(tmp_path, {"net.py": net, "train.py": script})
    assert sorted(f.rule for f in findings_in(folder, "train.py", {"PA301", "PA304"})) == rules


@pytest.mark.parametrize("name", ["net.py", "train.py"])
def test_noise_on_images_is_no_precision_of_a_model(tmp_path: Path, name: str) -> None:
    files = {"net.py": NET, "engine.py": ENGINE, "train.py": LOOP}
    folder = write(tmp_path, files | {name: f"if config.uniform_dequantization: ...\n{files[name]}"})
    assert [f.rule for f in findings_in(folder, "train.py", {"PA304"})] == ["PA304"]


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("engine.py", change(".cuda()", "")),  # on the CPU
        ("net.py", change("Conv2d", "Linear")),  # no convolutions, and nothing that shows how wide it is
        ("engine.py", change("loss.backward()", "print(loss)")),  # nothing is trained
        ("engine.py", lambda text: f"{text}\nif __name__ == '__main__':\n    train(*load())\n"),  # a script of its own
        ("train.py", change("train(", "evaluate(")),
        ("train.py", change('if __name__ == "__main__":\n    main()', "")),  # whoever imports it decides
    ],
)
def test_silent_where_it_is_not_clear_what_is_trained(tmp_path: Path, name: str, changed: Callable[[str], str]) -> None:
    files = {"net.py": NET, "engine.py": ENGINE, "train.py": START}
    folder = write(tmp_path, files | {name: changed(files[name])})
    assert findings_in(folder, "train.py", {"PA301", "PA304"}) == []


PICKING = """
from importlib import import_module
from engine import train

def main():
    net = import_module(NAME).Net()
    train(net, loader, optimizer)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ('"models." + args.net', 1),
        ('f"models.{args.net}"', 1),
        ('"models.{}".format(args.net)', 1),
        ('"models.%s" % args.net', 1),
        ('"others." + args.net', 0),  # no package of the project
        ("args.net", 0),
    ],
)
def test_a_model_may_be_in_any_module_of_a_package_that_is_imported_by_a_name(
    tmp_path: Path, name: str, number: int
) -> None:
    files = {"models/wide.py": NET, "engine.py": ENGINE, "train.py": PICKING.replace("NAME", name)}
    folder = write(tmp_path, files)
    assert len(findings_in(folder, "train.py", {"PA304"})) == number
    write(folder, {"models/small.py": NET.replace("512", "64")})  # it may be this one that runs
    assert findings_in(folder, "train.py", {"PA304"}) == []


@pytest.mark.parametrize(
    ("call", "number"),
    [("launch(config, func=train)", 1), ("launch(train, config)", 1), ("launch(config, func=main)", 0)],
)
def test_a_training_that_is_handed_on_is_started(tmp_path: Path, call: str, number: int) -> None:
    start = START.replace("train(Net(), loader, optimizer)", call)
    folder = write(tmp_path, {"net.py": NET, "engine.py": ENGINE, "train.py": start})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


EXECUTION = """
class Execution:
    def __init__(self, net):
        self.net = net.cuda()

    def run(self, mode):
        if mode == "train":
            self.train(self.net)

    def train(self, net):
        for x, y in self.loader:
            loss = net(x.cuda(), y.cuda())
            loss.backward()
            self.optimizer.step()

def show(net):
    print(net)
"""


@pytest.mark.parametrize(
    ("name", "call", "number"),
    [
        ("main.py", "execution = Execution(Net())\n    execution.run(mode)", 1),
        ("main.py", "Execution(Net()).run(mode)", 1),
        ("main.py", "execution = Execution(Net())\n    execution.describe(mode)", 0),
        ("main.py", "show(Net())", 0),
        ("test.py", "execution = Execution(Net())\n    execution.run(mode)", 0),
    ],
)
def test_an_object_that_trains_is_run(tmp_path: Path, name: str, call: str, number: int) -> None:
    start = START.replace("engine import train", "engine import Execution, show")
    start = start.replace("train(Net(), loader, optimizer)", call)
    folder = write(tmp_path, {"net.py": NET, "engine.py": EXECUTION, name: start})
    assert len(findings_in(folder, name, {"PA304"})) == number


@pytest.mark.parametrize(("steps", "number"), [("optimizer.step()", 1), ("seen.append(x)", 0)])
def test_a_function_that_trains_may_have_any_name(tmp_path: Path, steps: str, number: int) -> None:
    script = "from engine import learn_all\nfrom net import Net\n\nmodel = Net()\nlosses = learn_all(model, loader)\n"
    engine = ENGINE.replace("def train", "def learn_all").replace("optimizer.step()", steps)
    folder = write(tmp_path, {"net.py": NET, "engine.py": engine, "main.py": script})
    found = findings_in(folder, "main.py", {"PA304"})
    assert [f.location.line for f in found if f.location] == [5][:number]


def test_of_a_choice_what_trains_is_shown_not_what_is_printed_before_it(tmp_path: Path) -> None:
    start = START.replace("engine import train", "engine import learn_all")
    start = start.replace(
        "    main()", "    print(options)\n    if options.all:\n        learn_all(Net(), loader, optimizer)"
    )
    engine = ENGINE.replace("def train", "def learn_all")
    folder = write(tmp_path, {"net.py": NET, "engine.py": engine, "main.py": start})
    (finding,) = findings_in(folder, "main.py", {"PA304"})
    assert finding.message.startswith("`learn_all(Net(), loader, optimizer)` starts a training")


@pytest.mark.parametrize(("default", "number"), [("default=2020", 0), ("default=None", 1), ("required=True", 1)])
def test_an_option_of_another_file_may_seed_by_default(tmp_path: Path, default: str, number: int) -> None:
    options = f"def options(parser):\n    parser.add_argument('--seed', type=int, {default})\n    return parser.parse_args()\n"
    script = LOOP.replace("import torch\n", "import torch\nfrom options import options\n", 1).replace(
        "    model = Net()",
        "    args = options()\n    if args.seed is not None:\n        seed_all(args.seed)\n    model = Net()",
    )
    script = script.replace(
        "def main():", "def seed_all(seed):\n    torch.backends.cudnn.benchmark = False\n\ndef main():", 1
    )
    folder = write(tmp_path, {"net.py": NET, "options.py": options, "train.py": script})
    assert len(findings_in(folder, "train.py", {"PA301"})) == number


def test_a_batch_of_one_in_an_inference_says_nothing_of_the_training(tmp_path: Path) -> None:
    inference = "def infer(data):\n    return DataLoader(data, batch_size=1)\n\ndef main():"
    for name, number in (("infer", 1), ("validation_loader", 0)):
        script = LOOP.replace("def main():", inference.replace("infer", name))
        folder = write(tmp_path, {"net.py": NET, "train.py": script})
        assert len(findings_in(folder, "train.py", {"PA301"})) == number


@pytest.mark.parametrize(
    ("loader", "number"),
    [
        ("test_loader = DataLoader(held_out, batch_size=1)", 1),
        ("self.val_batches = torch.utils.data.DataLoader(held_out, batch_size=1)", 1),
        ("loader = DataLoader(held_out, batch_size=1)", 0),
        ("latest = DataLoader(held_out, batch_size=1)", 0),
    ],
)
def test_a_batch_of_one_in_a_test_says_nothing_of_the_training(tmp_path: Path, loader: str, number: int) -> None:
    script = LOOP.replace("import torch\n", "import torch\nfrom torch.utils.data import DataLoader\n", 1)
    script = script.replace("    model = Net()", f"    {loader}\n    model = Net()")
    folder = write(tmp_path, {"net.py": NET, "train.py": script})
    assert len(findings_in(folder, "train.py", {"PA301"})) == number


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("dataset.rand_resize()", 0),
        ("augment = transforms.random_resize(images)", 0),
        ("config['RandResize']", 0),
        ("augment = transforms.resize(images, 224)", 1),
        ("augment = transforms.RandomResizedCrop(224)", 1),
    ],
)
def test_images_that_are_resized_at_random_have_no_size_to_time(tmp_path: Path, line: str, number: int) -> None:
    folder = write(
        tmp_path, {"net.py": NET, "train.py": LOOP.replace("    model = Net()", f"    {line}\n    model = Net()")}
    )
    assert len(findings_in(folder, "train.py", {"PA301"})) == number


@pytest.mark.parametrize(("name", "number"), [("test.py", 1), ("sweep.py", 0)])
def test_a_test_that_imports_from_the_script_starts_no_training(tmp_path: Path, name: str, number: int) -> None:
    files = {"net.py": NET, "engine.py": ENGINE, "train.py": START, name: "from train import main\n"}
    assert len(findings_in(write(tmp_path, files), "train.py", {"PA304"})) == number


def test_of_a_loop_that_starts_steps_the_call_is_shown(tmp_path: Path) -> None:
    script = "from engine import train_step\nfrom net import Net\n\nmodel = Net()\nwhile True:\n    for x in loader:\n"
    script += "        loss = train_step(model, x)\n        print(loss)\n"
    engine = ENGINE.replace("def train(model", "def train_step(model")
    folder = write(tmp_path, {"net.py": NET, "engine.py": engine, "train.py": script})
    (found,) = findings_in(folder, "train.py", {"PA304"})
    assert found.message.startswith("`train_step(model, x)` starts a training in float32")


def test_features_on_several_scales_are_of_one_batch(tmp_path: Path) -> None:
    joined = (
        "\n    def forward(self, x):\n        multi_scale = torch.cat([self[0](x), x], 1)\n        return multi_scale\n"
    )
    folder = write(tmp_path, {"net.py": NET + joined, "train.py": LOOP})
    assert [f.rule for f in findings_in(folder, "train.py", {"PA301"})] == ["PA301"]


def test_silent_in_a_script_that_others_import_and_in_one_that_tests(tmp_path: Path) -> None:
    files = {"net.py": NET, "engine.py": ENGINE, "train.py": START, "sweep.py": "import train", "test.py": START}
    folder = write(tmp_path, files)
    assert findings_in(folder, "train.py", {"PA301", "PA304"}) == []
    assert findings_in(folder, "test.py", {"PA301", "PA304"}) == []


def test_the_words_fit_what_is_shown(tmp_path: Path) -> None:
    script = LOOP.replace(
        "loss = criterion(model(x.cuda()), y.cuda())", "loss, parts = criterion(model(x.cuda()), y.cuda())"
    )
    folder = write(tmp_path, {"net.py": NET, "train.py": script})
    (finding,) = findings_in(folder, "train.py", {"PA304"})
    assert finding.message.startswith("`loss.backward()` and the forward pass before it run in float32")


@pytest.mark.parametrize(
    ("imported", "is_old"),
    [
        ("from torch._six import inf\n", True),
        ("try:\n    from torch._six import inf\nexcept ImportError: pass\n", False),
    ],
)
def test_a_patch_writes_nothing_that_the_torch_of_the_program_lacks(
    tmp_path: Path, imported: str, is_old: bool
) -> None:
    script = "import misc\nimport torch\n\noptimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)\n"
    folder = write(tmp_path, {"misc.py": imported, "train.py": script})
    assert (findings_in(folder, "train.py", {"PA402"}) == []) == is_old


def test_a_cure_that_an_old_torch_lacks_is_advice() -> None:
    step = "import torch\nfrom torch.nn import functional as F\n\ndef forward(x):\n    return x * torch.tanh(F.softplus(x))\n"
    (finding,) = run_checks(Source("a.py", step), all_rules(), frozenset({"PA205"}))
    assert finding.fix is not None and "F.mish(x)" in apply(step, finding.fix.edits)
    old = "from torchtext.legacy import data\n" + step
    (finding,) = run_checks(Source("a.py", old), all_rules(), frozenset({"PA205"}))
    assert finding.fix is not None and (finding.fix.safety, finding.fix.edits) == ("manual", ())


def test_ddp_gradients_that_another_file_detaches_in_place_are_left_alone(tmp_path: Path) -> None:
    script = "from torch.nn.parallel import DistributedDataParallel as DDP\nimport clear\n\nmodel = DDP(model)\n"
    helper = "def zero_grad(parameters):\n    for p in parameters:\n        p.grad.detach_()\n        p.grad.zero_()\n"
    folder = write(tmp_path, {"train.py": script, "clear.py": helper})
    assert findings_in(folder, "train.py", {"PA704"}) == []
    (folder / "clear.py").write_text(helper.replace("        p.grad.detach_()\n", ""), encoding="utf-8")
    assert [f.rule for f in findings_in(folder, "train.py", {"PA704"})] == ["PA704"]


ACCUMULATING = """
from torch.nn.parallel import DistributedDataParallel as DDP
from sync import only_at

model = DDP(model)
while True:
    for micro_step in range(accumulate):
        with only_at(micro_step == accumulate - 1):
            criterion(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(("entered", "lines"), [("MODEL.no_sync()", []), ("timer()", [9])])
def test_a_context_of_another_file_that_enters_no_sync(tmp_path: Path, entered: str, lines: list[int]) -> None:
    helper = f"""
from contextlib import contextmanager

@contextmanager
def only_at(is_last):
    with {entered}:
        yield
"""
    folder = write(tmp_path, {"sync.py": helper, "train.py": ACCUMULATING})
    found = findings_in(folder, "train.py", {"PA703"})
    assert [f.location.line for f in found if f.location] == lines


@pytest.mark.parametrize(
    ("helper", "message"),
    [
        ("def clean():\n    torch.cuda.empty_cache()\n", "in `clean`, memory.py line 4"),
        (
            "def clean():\n    drop()\n\ndef drop():\n    gc.collect()\n",
            "in `drop`, memory.py line 7, which `clean` calls",
        ),
        ("def clean():\n    if free() < 1:\n        torch.cuda.empty_cache()\n", ""),
        ("def clean():\n    torch.cuda.synchronize()\n    laps.append(time.perf_counter())\n", ""),
        ("gc.disable()\n\ndef clean():\n    gc.collect()\n", ""),
        ("def clean():\n    save_weights()\n\ndef save_weights():\n    drop()\n\ndef drop():\n    gc.collect()\n", ""),
    ],
)
def test_caches_emptied_in_functions_of_other_files(tmp_path: Path, helper: str, message: str) -> None:
    script = """
import torch
from memory import clean

def step(x):
    model(x.cuda()).mean().backward()
    optimizer.step()

for x in loader:
    step(x)
    clean()
"""
    folder = write(tmp_path, {"memory.py": f"import gc, torch\n\n{helper}", "train.py": script})
    found = findings_in(folder, "train.py", {"PA602"})
    assert [finding.location.line for finding in found if finding.location] == ([11] if message else [])
    assert all(message in finding.message for finding in found)


WIDTH_FROM_OUTSIDE = """
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.encode = nn.TransformerEncoderLayer(width, 8)
"""


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        ("parser.add_argument('--d_model', type=int, default=512)", [9]),
        ("config = {'hidden_size': 768}", [9]),
        ("Net(512)", []),  # what an argument is named is not looked up
        ("parser.add_argument('--image_dim', type=int, default=512)", []),
        ("parser.add_argument('--d_model', type=int, default=64)", []),
        ("# d_model = 512", []),
        ("Net(emb_size=512)", [9]),
        ("Net(emb_size=64)", []),
        ("hidden_size: int = field(default=512)", [9]),
        ("hidden_size: int = attr.ib(default=512)", [9]),
        ("hidden_size: int = field(default=64)", []),
        ("hidden_size: int = len(512)", []),
    ],
)
def test_the_width_of_a_model_may_be_an_option(tmp_path: Path, width: str, lines: list[int]) -> None:
    script = LOOP.replace("import torch\n", f"import torch\n{width}\n")
    folder = write(tmp_path, {"net.py": WIDTH_FROM_OUTSIDE, "train.py": script})
    found = findings_in(folder, "train.py", {"PA304"})
    assert [f.location.line for f in found if f.location] == lines


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("config = {'channel': 128, 'channel_mult': [1, 2, 3, 4]}", 1),
        ("config = {'channel': 32, 'channel_mult': [1, 2, 3, 4]}", 0),
        ("Unet(dim=64, dim_mults=(1, 2, 4, 8), channels=3)", 1),
        ("Unet(dim=64, dim_mults=(1, 2), channels=3)", 0),
        ("Unet(dim=size, dim_mults=(1, 2, 4, 8), channels=3)", 0),
        ("stages = [64, 128 * self.widen_factor, 256 * self.widen_factor]", 1),
        ("def wide(widen_factor=10):\n    return [16, 16 * widen_factor, 64 * widen_factor]", 1),
        ("def wide(widen_factor=2):\n    return [16, 16 * widen_factor, 64 * widen_factor]", 0),
        ("stages = [16, 32 * self.widen_factor, 64 * self.widen_factor]", 0),
        ("self.layer4 = self._make_layer(block, counts[3], 640, stride=2)", 1),
        ("self.layer4 = self._make_layer(block, counts[3], 64, stride=2)", 0),
        ("self.layer4 = self._pool(block, counts[3], 640, stride=2)", 0),
        ("feat_dim = 256\nrows = nn.Conv2d(3, 64, 7), nn.Conv2d(64, feat_dim, 3)", 1),
        ("feat_dim = 256\nrows = nn.Conv2d(3, 64, 7), nn.Conv2d(64, feat_dim // 4, 3)", 0),
        ("feat_dim = 256\nrows = nn.Conv2d(3, 64, 7), nn.Linear(64, feat_dim)", 0),  # that of the head
        ("feat_dim = 256\nfeat_dim = 64\nrows = nn.Conv2d(3, 64, 7), nn.Conv2d(64, feat_dim, 3)", 0),
    ],
)
def test_the_widths_of_the_levels_of_a_model(tmp_path: Path, text: str, number: int) -> None:
    folder = write(tmp_path, {"net.py": WIDTH_FROM_OUTSIDE + text + "\n", "train.py": LOOP})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


def test_what_the_script_gives_holds_whatever_the_default_of_its_model_is(tmp_path: Path) -> None:
    net = WIDTH_FROM_OUTSIDE.replace("width)", "hidden=768)", 1).replace("width,", "hidden,")
    script = LOOP.replace("Net()", "Net(hidden=64)")
    folder = write(tmp_path, {"net.py": net, "train.py": LOOP, "small.py": script})
    assert len(findings_in(folder, "train.py", {"PA304"})) == 1
    assert findings_in(folder, "small.py", {"PA304"}) == []


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("scores = np.array(scores, dtype=np.int8)", 1),
        ("mask = binarize(mask)", 1),
        ("# works with apex.fp16_utils as well", 1),
        ('"""Adapted for fp16."""', 1),
        ("betas = torch.linspace(0, 1, 1000, dtype=torch.float64)", 1),
        ("betas = torch.linspace(first, last, 1000).double()", 1),
        ("accuracy = corrects.double() / len(data)", 1),
        ("weights = self.distances.double().log1p_()", 1),
        ("rotation = torch.zeros(angles.size(0), 3, 3).double()", 1),
        ("from torch.cuda.amp import GradScaler, autocast", 1),  # and nothing uses them
        ("from torch.cuda.amp import autocast as cast\nforward = cast(forward)", 0),
        ("from torch.cuda import amp\nscaler = amp.GradScaler()", 0),
        ("from apex.normalization import FusedLayerNorm", 1),
        ("from apex import parallel, amp\nmodel = amp.initialize(model)", 0),
        ("mask = mask.astype('int8')", 1),
        ("from mmcv import Config", 1),
        ("from mmcv.runner import EpochBasedRunner", 0),
        ("x = x.double()", 0),
        ("model = BinaryConv2d(3, 8)", 0),
        ("weight = weight.to(torch.int8)", 0),
        ("model.double()", 0),
        ("BYTES = {torch.float32: 4, torch.float16: 2,\n    torch.bfloat16: 2, torch.float64: 8, torch.int8: 1}", 1),
        ("if dtype == torch.bfloat16:\n    model.to(dtype)", 0),
        ("if dtype == torch.float64:\n    model.to(dtype)", 0),
        ("if dtype == torch.int8:\n    model.to(dtype)", 0),
        ("torch.set_default_dtype(torch.float64)", 0),
    ],
)
def test_not_every_word_of_a_type_decides_the_precision(tmp_path: Path, line: str, number: int) -> None:
    folder = write(tmp_path, {"net.py": NET + line + "\n", "train.py": LOOP})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


@pytest.mark.parametrize(
    ("device", "number"), [("'cpu'", 1), ("torch.device('cpu')", 1), ("HOST", 1), ("'cuda'", 0), ("device", 0)]
)
def test_the_type_of_a_copy_on_the_host_decides_no_precision(tmp_path: Path, device: str, number: int) -> None:
    script = LOOP.replace("import torch\n", "import torch\nHOST = torch.device('cpu')\n", 1)
    script = script.replace(
        "        loss.backward()", f"        kept = x.to({device}, torch.float64)\n        loss.backward()"
    )
    folder = write(tmp_path, {"net.py": NET, "train.py": script})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


@pytest.mark.parametrize(("name", "number"), [("generation", 1), ("evaluate", 1), ("losses", 0)])
def test_what_only_evaluates_by_its_name_decides_no_precision(tmp_path: Path, name: str, number: int) -> None:
    script = LOOP.replace("import torch\n", f"import torch\nfrom {name} import refine\n", 1)
    other = "def refine(x):\n    return torch.autograd.grad(x.sum(), x, create_graph=True)\n"
    folder = write(tmp_path, {"net.py": NET, f"{name}.py": other, "train.py": script})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


def test_a_model_of_darknet_is_wide(tmp_path: Path) -> None:
    net = "from torch import nn\n\nclass Darknet(nn.Module):\n    def __init__(self, blocks):\n"
    net += "        super().__init__()\n        for block in blocks:\n"
    net += "            self.layers.append(nn.Conv2d(before, int(block['filters']), 3))\n"
    folder = write(tmp_path, {"net.py": net, "train.py": LOOP.replace("Net", "Darknet")})
    assert [f.rule for f in findings_in(folder, "train.py", {"PA304"})] == ["PA304"]


SETTINGS = "PIN_MEMORY = True\n"
MADE_ELSEWHERE = """
from torch.utils.data import DataLoader
import settings

def make(dataset):
    return DataLoader(dataset, 32, pin_memory=settings.PIN_MEMORY), DataLoader(dataset, 8, pin_memory=settings.PIN_MEMORY)
"""
BY_SETTING = """
import torch
from loading import make

def step(x, y):
    x, y = x.cuda(), y.cuda()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()

def main(dataset):
    loader, held_out = make(dataset)
    for x, y in loader:
        step(x, y)
"""


@pytest.mark.parametrize(
    ("settings", "loading", "script", "lines"),
    [
        (SETTINGS, MADE_ELSEWHERE, BY_SETTING, [6]),
        ("add_argument('--pin_memory', type=bool, default=True)\n", MADE_ELSEWHERE, BY_SETTING, [6]),
        (SETTINGS, MADE_ELSEWHERE, BY_SETTING.replace("make(dataset)", "(yield)"), []),  # nobody knows who gives it
        (SETTINGS.replace("True", "False"), MADE_ELSEWHERE, BY_SETTING, []),
        (SETTINGS.replace("True", "chosen"), MADE_ELSEWHERE, BY_SETTING, []),
        (SETTINGS, MADE_ELSEWHERE.replace("8, pin_memory=settings.PIN_MEMORY", "8"), BY_SETTING, []),
        (
            SETTINGS,
            MADE_ELSEWHERE,
            BY_SETTING.replace("    x, y = x.cuda()", "    x = x + 1\n    x, y = x.cuda()"),
            [7],
        ),
    ],
)
def test_a_setting_may_pin_the_batches_that_another_file_loads(
    tmp_path: Path, settings: str, loading: str, script: str, lines: list[int]
) -> None:
    folder = write(tmp_path, {"settings.py": settings, "loading.py": loading, "train.py": script})
    found = findings_in(folder, "train.py", {"PA104"})
    assert [f.location.line for f in found if f.location] == lines
    assert all(f.fix is not None and f.fix.safety == "manual" for f in found)


OWN_SETTING = """
import torch
from torch.utils.data import DataLoader
from settings import Config

def main(dataset, config):
    loader = DataLoader(dataset, 32, num_workers=8, pin_memory=config.PIN_MEM)
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        ("self.PIN_MEM = True", 1),
        ("self.PIN_MEM = False", 0),
        ("self.PIN_MEM = given", 0),
        ("self.PIN_MEM = True\n        self.PIN_MEM = False", 0),
    ],
)
def test_a_class_of_settings_may_pin_the_batches_of_a_loader(tmp_path: Path, settings: str, number: int) -> None:
    config = f"class Config:\n    def __init__(self):\n        {settings}\n"
    folder = write(tmp_path, {"settings.py": config, "train.py": OWN_SETTING})
    assert len(findings_in(folder, "train.py", {"PA104"})) == number


LOADER_CLASS = """
from torch.utils.data import DataLoader

class BaseDataLoader(DataLoader):
    def __init__(self, dataset, **options):
        super().__init__(dataset, **options)
"""


@pytest.mark.parametrize(
    ("more", "number"), [("", 1), ("loader = BaseDataLoader(dataset)\n", 0), ("loader = DataLoader(dataset)\n", 0)]
)
def test_a_class_of_loaders_is_no_loader_that_leaves_its_batches_pageable(
    tmp_path: Path, more: str, number: int
) -> None:
    files = {"base.py": LOADER_CLASS + more, "engine.py": ENGINE, "train.py": f"import base\n{BY_ANOTHER_NAME}"}
    assert len(findings_in(write(tmp_path, files), "engine.py", {"PA104"})) == number


WRAPPED = """
import torch
from engine import train, validate
from net import Net

{before}
model = torch.nn.DataParallel(Net())
model.load_state_dict(torch.load("best.pth"))
{after}
"""


@pytest.mark.parametrize(
    ("before", "after", "number"),
    [
        ("", "print(model(torch.rand(10, 128)).shape)", 0),  # a script that shows what a checkpoint gives
        ("train(Net(), data)", "stats = validate(model, data)", 0),  # the best model of the training
        ("", "train(model, data)", 1),
        ("", "start = model", 1),
    ],
)
def test_a_model_that_is_wrapped_for_its_checkpoint_is_not_trained(
    tmp_path: Path, before: str, after: str, number: int
) -> None:
    script = WRAPPED.format(before=before, after=after)
    train = "train(Net(), data)\n" if after.startswith("start") else ""
    folder = write(tmp_path, {"net.py": NET, "engine.py": ENGINE, "shown.py": train + script})
    assert len(findings_in(folder, "shown.py", {"PA701"})) == number
    write(folder, {"other.py": "from shown import model\n"})  # what others import may be trained there
    assert len(findings_in(folder, "shown.py", {"PA701"})) == 1


@pytest.mark.parametrize(
    ("net", "number"),
    [
        ("def __init__(self, n_filters=16):\n        self.deep = Block(n_filters * 8, n_filters * 16)", 1),
        (
            "def __init__(self):\n        n1 = 64\n        self.deep = Block([n1, n1 * 2, n1 * 4, n1 * 8])",
            1,
        ),
        (
            "def __init__(self):\n        n1 = 16\n        self.deep = Block([n1, n1 * 2, n1 * 4, n1 * 8])",
            0,
        ),
        ("def __init__(self, n_filters: int = 64):\n        self.deep = Block(n_filters * 2, n_filters*4)", 1),
        ("def __init__(self, n_filters=8):\n        self.deep = Block(n_filters * 8, n_filters * 16)", 0),
        ("def __init__(self, base=64):\n        self.deep = Block(base * 2, base * 4)", 1),
        ("def __init__(self, base=16):\n        self.deep = Block(base * 2, base * 4)", 0),
        ("def __init__(self, ch: int = 64):\n        self.deep = Block(ch * 4, self.ch * 8)", 1),
        ("def __init__(self, ch=64):\n        self.deep = Block(batch * 4, patch * 8)", 0),
        ("def __init__(self):\n        self.deep = math.log(base * 64, base=10)", 0),
        ("def __init__(self, hid_S=16, hid_T=256):\n        self.deep = Block(hid_S, hid_T)", 1),
        ("def __init__(self, hid_S=16, hid_T=128):\n        self.deep = Block(hid_S, hid_T)", 0),
        ("def __init__(self, features_g: int = 64):\n        self.deep = Block(8 * features_g, 4*features_g)", 1),
        ("def __init__(self, features_g: int = 16):\n        self.deep = Block(8 * features_g, 4*features_g)", 0),
        ("def __init__(self, features=32):\n        self.deep = Block(width(3),\n            n=8 * features)", 1),
        ("def __init__(self, features=32):\n        self.bytes_per_row = 8 * features\n        Block(features)", 0),
        ("def __init__(self, features=32):\n        print(8 * features)\n        Block(features)", 0),
        ("def __init__(self, n_filters):\n        self.deep = Block(n_filters * 8, n_filters * 16)", 0),  # who knows
        ("def __init__(self, seq_dim=64):\n        self.deep = Block(seq_dim * 8, seq_dim * 16)", 0),  # no width
        (
            "def __init__(self, init_features=32):\n        features = init_features\n        Block(features * 8, features * 16)",
            1,
        ),
        (
            "def __init__(self, init_features=8):\n        features = init_features\n        Block(features * 8, features * 16)",
            0,
        ),
        ("def __init__(self, dim=48):\n        Block(int(dim*2**2), int(dim*2**3)); softmax(x, dim=1)", 1),
        ("def __init__(self, dim=16):\n        Block(int(dim*2**2), int(dim*2**3))", 0),
        ("def __init__(self, start_filts=64):\n        [Block(1, start_filts*(2**i)) for i in range(5)]", 1),
        ("def __init__(self, start_filts=16):\n        [Block(1, start_filts*(2**i)) for i in range(5)]", 0),
        (
            "def __init__(self, embed_dim=96):\n        self.deep = Block(1, int(embed_dim * 2 ** (self.num_layers - 1)))",
            1,
        ),
    ],
)
def test_a_width_may_be_a_multiple_of_a_default(tmp_path: Path, net: str, number: int) -> None:
    block = """class Block(nn.Conv3d):
    def __init__(self, a, b):
        super().__init__(a, b, 3)
        nn.Conv3d(a, b, 3)
"""
    text = f"from torch import nn\n\n{block}\nclass Net(nn.Module):\n    {net}\n"
    folder = write(tmp_path, {"net.py": text, "train.py": LOOP})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


STACKS = """
import torch

def collate(batch):
    images, boxes = zip(*batch)
    return torch.stack(images), torch.cat(boxes)
"""
PADS = STACKS.replace("torch.stack(images)", "torch.stack([pad(i) for i in images])")
COLLATED = LOOP.replace(
    "def main():", "from data import collate\n\nloader = DataLoader(dataset, 16, collate_fn=collate)\n\ndef main():"
)


HANDS_ON_COLLATION = """
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import default_collate

class BaseLoader(DataLoader):
    def __init__(self, dataset, batch_size, collate_fn=default_collate):
        options = {"dataset": dataset, "batch_size": batch_size, "collate_fn": collate_fn}
        super().__init__(**options)
"""


@pytest.mark.parametrize(
    ("more", "number"), [("", 1), ("\ndef join_and_collate(batch):\n    return default_collate(pad(batch))\n", 0)]
)
def test_the_collation_of_torch_that_a_class_hands_on_is_as_usual(tmp_path: Path, more: str, number: int) -> None:
    script = LOOP.replace(
        "def main():", "from data import BaseLoader\n\nloader = BaseLoader(dataset, 16)\n\ndef main():"
    )
    folder = write(tmp_path, {"net.py": NET, "data.py": HANDS_ON_COLLATION + more, "train.py": script})
    assert len(findings_in(folder, "train.py", {"PA301"})) == number


PADS_BOXES = STACKS.replace("torch.cat(boxes)", "pad_boxes(boxes)")
SKIPS = "def collate(batch):\n    return default_collate([sample for sample in batch if sample is not None])\n"


@pytest.mark.parametrize(
    ("data", "number"),
    [(STACKS, 1), (PADS, 0), (SKIPS, 1), (PADS_BOXES, 1), ("collate = functools.partial(join)\n", 0)],
)
def test_what_another_file_only_stacks_is_of_one_size(tmp_path: Path, data: str, number: int) -> None:
    folder = write(tmp_path, {"net.py": NET, "data.py": data, "train.py": COLLATED})
    assert len(findings_in(folder, "train.py", {"PA301"})) == number


@pytest.mark.parametrize(
    ("option", "number"),
    [("--v1_multiscale", 1), ("--multiscale_loss_weight", 1), ("--multi-scale", 0), ("--multiscale_training", 0)],
)
def test_an_option_of_several_scales_may_be_one_of_the_loss(tmp_path: Path, option: str, number: int) -> None:
    options = f"def options(parser):\n    parser.add_argument({option!r}, action='store_true')\n"
    script = LOOP.replace("import torch\n", "import torch\nfrom options import options\n", 1)
    folder = write(tmp_path, {"net.py": NET, "options.py": options, "train.py": script})
    assert len(findings_in(folder, "train.py", {"PA301"})) == number


def test_a_volatile_variable_only_draws_a_warning(tmp_path: Path) -> None:
    script = LOOP.replace("def main():", "def validate():\n    net(Variable(x, volatile=True))\n\ndef main():")
    folder = write(tmp_path, {"net.py": NET, "train.py": script})
    assert [f.rule for f in findings_in(folder, "train.py", {"PA304"})] == ["PA304"]


@pytest.mark.parametrize(
    "other",
    [
        "from torchtext import data\n\nTEXT = data.Field(lower=True)\n",
        "def forward_loss(self, x):\n    loss = criterion(x)\n    self.logger.update(loss.data[0])\n",
    ],
)
def test_what_an_imported_file_uses_may_need_an_old_torch(tmp_path: Path, other: str) -> None:
    script = LOOP.replace("import torch\n", "import torch\nimport other\n", 1)
    folder = write(tmp_path, {"net.py": NET, "other.py": other, "train.py": script})
    assert findings_in(folder, "train.py", {"PA304"}) == []


def test_a_training_that_reads_its_loss_as_today_is_not_old_by_a_loss_that_it_imports(tmp_path: Path) -> None:
    other = "def forward(self, x):\n    loss = criterion(x)\n    print(loss.data[0])\n"
    script = LOOP.replace("import torch\n", "import torch\nimport other\n", 1)
    script = script.replace("        optimizer.step()\n", "        optimizer.step()\n        total += loss.item()\n")
    folder = write(tmp_path, {"net.py": NET, "other.py": other, "train.py": script})
    assert [f.rule for f in findings_in(folder, "train.py", {"PA304"})] == ["PA304"]


@pytest.mark.parametrize(
    ("other", "number"),
    [
        ("from torch._six import string_classes\n", 1),  # went with torch 2.0, and autocast in bfloat16 came with 1.10
        ("from torch._six import string_classes\nfrom torchtext.legacy import data\n", 0),
        ("def rows(n):\n    return [n for n in xrange(n)]\n", 0),  # Python 2
        ("from six.moves import xrange\n\ndef rows(n):\n    return [n for n in xrange(n)]\n", 1),
    ],
)
def test_autocast_is_older_than_what_torch_2_lacks(tmp_path: Path, other: str, number: int) -> None:
    script = LOOP.replace("import torch\n", "import torch\nimport other\n", 1)
    folder = write(tmp_path, {"net.py": NET, "other.py": other, "train.py": script})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number
    (folder / "train.py").write_text(other + LOOP)
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("from torchvision import ops", 1),
        ("import torch, torchvision", 1),
        ("# https://github.com/pytorch/vision/blob/main/torchvision/models/resnet.py", 0),
        ("# arXiv:1512.03385", 0),
        ("# 512 channels", 1),
    ],
)
def test_a_link_to_torchvision_says_nothing_of_widths(tmp_path: Path, line: str, number: int) -> None:
    net = f"{line}\nfrom torch import nn\n\nclass Net(nn.Module):\n    def __init__(self, planes=16):\n"
    net += "        self.conv = nn.Conv2d(16, planes, 3)\n"
    folder = write(tmp_path, {"net.py": net, "train.py": LOOP})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


@pytest.mark.parametrize(
    ("option", "number"),
    [
        ('parser.add_argument("--widen-factor", default=10, type=int)', 1),
        ("parser.add_argument('--widen_factor', type=int, default=8)", 1),
        ('parser.add_argument("--widen-factor", type=int, default=4, help="8 is wide")', 0),
        ('parser.add_argument("--widen-factor", type=int, help="8 is wide")', 0),
    ],
)
def test_a_residual_network_is_wide_by_its_factor(tmp_path: Path, option: str, number: int) -> None:
    net = "from torch import nn\n\nclass Net(nn.Module):\n    def __init__(self, widen_factor=1):\n"
    net += "        self.conv = nn.Conv2d(16 * widen_factor, 32 * widen_factor, 3)\n"
    script = LOOP.replace("import torch\n", f"import torch\n{option}\n", 1)
    folder = write(tmp_path, {"net.py": net, "train.py": script})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


@pytest.mark.parametrize(
    ("called", "number"), [("simclr_train", 1), ("train_simclr", 1), ("set_train", 0), ("load_train", 0)]
)
def test_a_training_may_be_named_after_what_it_trains(tmp_path: Path, called: str, number: int) -> None:
    engine, start = f"{ENGINE}\ndef {called}(*given):\n    begin(train, given)\n", START.replace("train", called)
    folder = write(tmp_path, {"net.py": NET, "engine.py": engine, "run.py": start})
    assert len(findings_in(folder, "run.py", {"PA304"})) == number


@pytest.mark.parametrize(("moves", "number"), [("self.net.cuda()", 1), ("self.net.float()", 0)])
def test_a_file_that_a_script_imports_may_name_the_device(tmp_path: Path, moves: str, number: int) -> None:
    wrapped = (
        f"from net import Net\n\nclass Model:\n    def __init__(self):\n        self.net = Net()\n        {moves}\n"
    )
    script = "from wrapped import Model\n\ndef main():\n    model = Model()\n    for batch in batches:\n"
    script += "        loss = model.run(batch)\n        optimizer.zero_grad()\n        loss.backward()\n"
    script += "        optimizer.step()\n\n"
    script += 'if __name__ == "__main__":\n    main()\n'
    folder = write(tmp_path, {"net.py": NET, "wrapped.py": wrapped, "run.py": script})
    assert len(findings_in(folder, "run.py", {"PA304"})) == number


@pytest.mark.parametrize(("step", "number"), [("env.step(action)", 0), ("env.observe(action)", 1)])
def test_a_recurrent_policy_is_not_worth_another_precision(tmp_path: Path, step: str, number: int) -> None:
    net = "from torch import nn\n\nclass Net(nn.Module):\n    def __init__(self, size, hidden_dim=512):\n"
    net += "        self.memory = nn.LSTM(size, hidden_dim)\n"
    script = LOOP.replace("    for x, y in loader:", f"    {step}\n    for x, y in loader:")
    folder = write(tmp_path, {"net.py": net, "train.py": script})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


@pytest.mark.parametrize(
    ("name", "built", "number"),
    [
        ("NOISE_DIM", "Generator", 1),
        ("latent_dim", "nets.BigDecoder", 1),
        ("latent_dim", "Perceiver", 0),
        ("latent_dim", "print", 0),
        ("noise_channels", "Denoiser", 0),
        ("HIDDEN_DIM", "Generator", 0),
        ("hidden_dim", "Generator", 0),
    ],
)
def test_a_generator_is_as_wide_as_its_layers_whatever_noise_it_gets(
    tmp_path: Path, name: str, built: str, number: int
) -> None:
    net = "from torch import nn\n\nclass Net(nn.Module):\n    def __init__(self, size, features=64):\n"
    net += "        self.deep = nn.ConvTranspose2d(8 * features, 4 * features, 4)\n"
    script = LOOP.replace("    for x, y in loader:", f"    {name} = 100\n    {built}({name})\n    for x, y in loader:")
    folder = write(tmp_path, {"net.py": net, "train.py": script})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


@pytest.mark.parametrize(("step", "number"), [("env.step(action)", 0), ("env.observe(action)", 1)])
def test_nor_is_one_that_acts_in_another_file(tmp_path: Path, step: str, number: int) -> None:
    net = "from torch import nn\n\nclass Net(nn.Module):\n    def __init__(self, size, hidden_dim=512):\n"
    net += "        self.memory = nn.LSTM(size, hidden_dim)\n"
    engine = ENGINE.replace("    for x, y in loader:", f"    {step}\n    for x, y in loader:")
    folder = write(tmp_path, {"net.py": net, "engine.py": engine, "train.py": START})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number


OWN_DEVICE = """
import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

def train(config):
    device = torch.device(config["device"])
    loader = DataLoader(images, batch_size=8, pin_memory=True)
    model = net.to(device)
    with tqdm(loader) as batches:
        for x, _ in batches:
            loss = model(x.to(device)).mean()
            loss.backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ('from training import train\n\ntrain({"device": "cuda:0"})\n', [(12, "safe")]),
        ('from training import train\n\ntrain({"device": "cpu"})\n', []),
        ('from training import train\n\ntrain({"device": "mps" if mac else "cuda"})\n', [(12, "manual")]),
        ('print("cuda")\n', []),  # it does not run together with that file
    ],
)
def test_the_device_of_a_copy_may_be_named_by_the_script(
    tmp_path: Path, script: str, told: list[tuple[int, str]]
) -> None:
    folder = write(tmp_path, {"training.py": OWN_DEVICE, "main.py": script})
    found = findings_in(folder, "training.py", {"PA104"})
    assert [(f.location.line, f.fix.safety) for f in found if f.location and f.fix] == told


EPOCH = """
from tqdm import tqdm

def run(model, loader):
    if shown:
        loader = tqdm(loader)
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        criterion(model(x), y).backward()
        optimizer.step()

def load(path):
    x = read(path)
    return x["model"]
"""


@pytest.mark.parametrize(
    ("epoch", "copies"),
    [
        (EPOCH, ["`x.cuda()` and 1 more"]),
        (EPOCH.replace("loader = tqdm(loader)", "loader = first(loader)"), []),  # it may hand out anything
        (EPOCH.replace("loader = tqdm(loader)", "loader = tqdm(others)"), []),
        (EPOCH.replace("optimizer.step()", "print(x['name'])"), ["`y.cuda()`"]),  # `x` may copy in a way of its own
        (EPOCH.replace("load(path):\n    x = read(path)", "load(x):"), ["`y.cuda()`"]),  # it may be handed there
    ],
)
def test_a_progress_bar_around_what_is_handed_in(tmp_path: Path, epoch: str, copies: list[str]) -> None:
    script = (
        "import epoch\nfrom torch.utils.data import DataLoader\n\n"
        "epoch.run(model, DataLoader(data, batch_size=8, pin_memory=True))\n"
    )
    folder = write(tmp_path, {"epoch.py": epoch, "main.py": script})
    assert [f.message.partition(":")[0] for f in findings_in(folder, "epoch.py", {"PA104"})] == copies


@pytest.mark.parametrize(
    ("name", "is_told"), [("train_generator.py", True), ("train_sampler.py", True), ("generator.py", False)]
)
def test_a_training_whose_file_is_named_after_what_it_trains(tmp_path: Path, name: str, *, is_told: bool) -> None:
    folder = write(tmp_path, {"net.py": NET, "engine.py": ENGINE, name: START})
    assert [f.rule for f in findings_in(folder, name, {"PA301", "PA304"})] == (["PA301", "PA304"] if is_told else [])


TRIED = """
{engine}

def look(model):
    print(model)

if __name__ == "__main__":
    look(3)
    {more}
"""


@pytest.mark.parametrize(
    ("more", "imported", "is_told"),
    [
        ("pass", "from engine import train", True),
        ("pass", "from engine import *", True),
        ("train(3, 4, 5)", "from engine import train", False),  # then that file is the script
        ("pass", "from engine import look as train", False),
    ],
)
def test_a_training_in_a_file_that_only_tries_something_else_out(
    tmp_path: Path, more: str, imported: str, *, is_told: bool
) -> None:
    script = START.replace("from engine import train", imported)
    assert imported in script
    files = {"net.py": NET, "engine.py": TRIED.format(engine=ENGINE, more=more), "main.py": script}
    found = [f.rule for f in findings_in(write(tmp_path, files), "main.py", {"PA301", "PA304"})]
    assert found == (["PA301", "PA304"] if is_told else [])


HANDS_ON = """
from engine import train
from net import Net

def main(settings):
    {call}
"""
HANDED = """
import {module}

if __name__ == "__main__":
    {module}.main(settings)
"""


@pytest.mark.parametrize(
    ("module", "call", "is_told"),
    [
        ("run_training", "train(Net(), loader, optimizer)", True),
        ("train", "train(Net(), loader, optimizer)", True),
        ("show", "train(Net(), loader, optimizer)", False),
        ("train", "print(Net())", False),
    ],
)
def test_a_module_of_training_that_hands_on_to_a_third_file(
    tmp_path: Path, module: str, call: str, *, is_told: bool
) -> None:
    hands_on, script = HANDS_ON.format(call=call), HANDED.format(module=module)
    folder = write(tmp_path, {"net.py": NET, "engine.py": ENGINE, f"{module}.py": hands_on, "main.py": script})
    found = [f.rule for f in findings_in(folder, "main.py", {"PA301", "PA304"})]
    assert found == (["PA301", "PA304"] if is_told else [])


SOLVER = """
from net import Net

class Solver:
    def __init__(self):
        self.model = Net().cuda()

    def solve(self):
        for x, y in loader:
            loss = self.model(x.cuda()).mean()
            loss.backward()
            optimizer.step()

    def step(self):
        self.model(x).mean().backward()
        optimizer.step()

    def show(self):
        print(self.model)
"""


@pytest.mark.parametrize(("method", "is_told"), [("solve", True), ("step", False), ("show", False)])
def test_a_training_by_a_method_of_any_name(tmp_path: Path, method: str, *, is_told: bool) -> None:
    script = f"from solver import Solver\n\nif __name__ == '__main__':\n    solver = Solver()\n    solver.{method}()\n"
    folder = write(tmp_path, {"net.py": NET, "solver.py": SOLVER, "main.py": script})
    found = [f.rule for f in findings_in(folder, "main.py", {"PA301", "PA304"})]
    assert found == (["PA301", "PA304"] if is_told else [])


@pytest.mark.parametrize(
    ("chosen", "is_told"),
    [("train", True), ("train if again else show", True), ("show", False), ("train.__name__", False)],
)
def test_a_training_that_is_called_by_another_name(tmp_path: Path, chosen: str, *, is_told: bool) -> None:
    script = START.replace("import train", "import show, train").replace(
        "    train(", f"    start = {chosen}\n    start("
    )
    folder = write(tmp_path, {"net.py": NET, "engine.py": ENGINE, "main.py": script})
    found = [f.rule for f in findings_in(folder, "main.py", {"PA301", "PA304"})]
    assert found == (["PA301", "PA304"] if is_told else [])


AUDIO = """
from torch import nn
from torchaudio.pipelines import {bundle}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = {bundle}.get_model()

    def forward(self, x):
        return self.body(x)[0]
"""


@pytest.mark.parametrize(("bundle", "is_told"), [("WAV2VEC2_BASE", True), ("HUBERT_LARGE", True), ("OTHER", False)])
def test_a_transformer_of_torchaudio_is_wide(tmp_path: Path, bundle: str, *, is_told: bool) -> None:
    folder = write(tmp_path, {"net.py": AUDIO.format(bundle=bundle), "train.py": LOOP})
    assert [f.rule for f in findings_in(folder, "train.py", {"PA304"})] == (["PA304"] if is_told else [])


LENT = """
from torch import nn
import {library}

class Net(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.body = {built}

    def forward(self, x):
        return self.body(x)
"""


@pytest.mark.parametrize(
    ("library", "built", "rules"),
    [
        ("timm", 'timm.create_model("convnext_tiny")', ["PA301", "PA304"]),
        ("timm", 'timm.create_model("swin_tiny_patch4_window7_224")', ["PA304"]),
        ("timm", "timm.create_model(name)", ["PA304"]),
        ("timm", "nn.Identity()  # timm.create_model('resnet50')", []),
        ("segmentation_models_pytorch as smp", 'smp.FPN("resnet34")', ["PA301", "PA304"]),
        ("segmentation_models_pytorch as smp", "smp.losses.DiceLoss()", []),
        ("torch", 'torch.hub.load("pytorch/vision:v0.10.0", "resnet50")', ["PA301", "PA304"]),
        ("torch", 'torch.hub.load("snakers4/silero-vad", "silero_vad")', []),
        ("efficientnet_pytorch", "efficientnet_pytorch.EfficientNet.from_name(name)", ["PA301", "PA304"]),
        ("monai.networks.nets", "monai.networks.nets.UNet(3, 1, 2, (16, 32), (2,))", ["PA301", "PA304"]),
    ],
)
def test_models_that_other_libraries_lend(tmp_path: Path, library: str, built: str, rules: list[str]) -> None:
    folder = write(
        tmp_path, {"net.py": LENT.format(library=library, built=built), "engine.py": ENGINE, "train.py": START}
    )
    assert [f.rule for f in findings_in(folder, "train.py", {"PA301", "PA304"})] == rules
