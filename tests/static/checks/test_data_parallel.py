"""The patch of DataParallel: what it makes of a script, that ranks train as one process did, and what it leaves alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from forked_programs import run_code, run_on_ranks

from perfaudit.findings import Fix
from perfaudit.rules import all_rules
from perfaudit.static import edit
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

SCRIPT = '''"""Trains a small classifier on all GPUs."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.body(x))


def train(model, device, loader, optimizer, criterion, epoch):
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 1 == 0:
            print("loss", epoch, step, loss.item())


def evaluate(model, device, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    x = torch.randn(160, 16)
    y = (x @ torch.randn(16, 4)).argmax(1)
    train_set, test_set = TensorDataset(x[:128], y[:128]), TensorDataset(x[128:], y[128:])
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=32)
    model = Net()
    model = nn.DataParallel(model).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    best = 0.0
    for epoch in range(args.epochs):
        train(model, device, train_loader, optimizer, criterion, epoch)
        scheduler.step()
        accuracy = evaluate(model, device, test_loader)
        print("accuracy", accuracy)
        if accuracy > best:
            best = accuracy
            torch.save({"model": model.module.state_dict(), "epoch": epoch, "best": best}, "model.pt")
    # the end


if __name__ == "__main__":
    main()
'''


def fix_of(code: str, path: str = "train.py") -> Fix:
    (finding,) = run_checks(Source(path, code), all_rules(), frozenset(["PA701"]))
    assert finding.fix is not None
    return finding.fix


def patched(code: str) -> str:
    fix = fix_of(code)
    assert fix.edits, fix.title
    return edit.apply(code, fix.edits)


def changed(old: str, new: str, code: str = SCRIPT) -> str:
    assert code.count(old) == 1, f"{code.count(old)} times in the script: {old}"
    return code.replace(old, new)


def why_not(code: str, path: str = "train.py") -> str:
    fix = fix_of(code, path)
    assert fix.safety == "manual", "a patch, where there should be none"
    return fix.title.partition("; no patch: ")[2]


# ---- what it makes ---------------------------------------------------------------------------------------------------


def test_what_is_said_with_the_patch() -> None:
    fix = fix_of(SCRIPT)
    assert (fix.safety, fix.changes) == ("unsafe", ("rounding", "rng", "order", "algorithm"))
    assert "`torchrun --nproc-per-node=gpu train.py ...`" in fix.title
    assert "batch norm" not in fix.title
    assert "batch norm" in fix_of(changed("nn.ReLU())\n", "nn.BatchNorm1d(32), nn.ReLU())\n")).title


def test_a_file_that_runs_nothing_is_not_to_be_started(project: Callable[..., Path]) -> None:
    def title(code: str) -> str:
        folder = project(**{"lib.py": code, "train.py": "import torch\nimport lib\n"})
        neighbours = Project([folder / "lib.py", folder / "train.py"]).seen_from(folder / "lib.py")
        (finding,) = run_checks(Source("lib.py", code, neighbours), all_rules(), frozenset(["PA701"]))
        assert finding.fix is not None
        return finding.fix.title

    wrapped = (
        "import warnings\nimport torch\n\nwarnings.simplefilter('ignore')\n\n\n"
        "class Trainer:\n    def __init__(self, net):\n        self.net = torch.nn.DataParallel(net)\n"
    )
    by_script, by_file = "`torchrun --nproc-per-node=gpu`, with the script that imports this file", "=gpu lib.py`"
    assert by_script in title(wrapped)
    assert by_file in title(f"{wrapped}\n\nTrainer(net).fit()\n")
    assert by_file in title(f"{wrapped}\n\ndef main():\n    Trainer(net).fit()\n\n\nstatus = main()\n")
    assert by_file in fix_of(wrapped, "lib.py").title  # which nobody imports


def test_a_patched_script_is_left_alone() -> None:
    findings = run_checks(Source("train.py", patched(SCRIPT)), all_rules(), None)
    assert {finding.rule for finding in findings} & {"PA701", "PA702", "PA703", "PA705", "PA706"} == set()


ALLOWED = {
    "under a test for several GPUs": (
        "    model = nn.DataParallel(model).to(device)\n",
        "    if torch.cuda.device_count() > 1:\n        print(torch.cuda.device_count(), 'GPUs')\n"
        "        model = nn.DataParallel(model)\n    model.to(device)\n",
        "    if WORLD_SIZE > 1 or torch.cuda.device_count() > 1:\n",
    ),
    "on the GPU by .cuda()": (
        "nn.DataParallel(model).to(device)",
        "nn.DataParallel(model.cuda())",
        'model.cuda().to("cuda" if torch.cuda.is_available() else "cpu"),',
    ),
    "in order": (", shuffle=True", "", "num_replicas=WORLD_SIZE, rank=RANK, shuffle=False))"),
    "without the last batch": (
        "shuffle=True",
        "shuffle=True, drop_last=True",
        "DistributedSampler(train_set, num_replicas=WORLD_SIZE, rank=RANK, drop_last=True), drop_last=True)",
    ),
    "with workers": ("shuffle=True", "shuffle=True, num_workers=4, pin_memory=True", "rank=RANK), num_workers=4, pin"),
    "data that are downloaded": (
        "    x = torch.randn(160, 16)\n",
        "    a = dict(download=True)\n    b = dict(download=args.epochs > 1)\n    x = torch.randn(160, 16)\n",
        """    if LOCAL_RANK > 0:  # the data are there then
        torch.distributed.barrier()
    a = dict(download=True)
    if LOCAL_RANK == 0:
        torch.distributed.barrier()
    if LOCAL_RANK > 0:  # the data are there then
        torch.distributed.barrier()
    b = dict(download=args.epochs > 1)
    if LOCAL_RANK == 0:
        torch.distributed.barrier()
    x = torch.randn(160, 16)
""",
    ),
    "a layer that may be none": (
        "        return self.head(self.body(x))",
        "        if self.body is not None:\n            x = self.body(x)\n        return self.head(x)",
        "nn.parallel.DistributedDataParallel(",
    ),
    "labels in order": (
        "    # the end",
        "    print(sorted({'cat', 'dog'}), 'cat' in {'cat'})\n",
        "DistributedDataParallel(",
    ),
    "another head": (
        "    model = nn.DataParallel(model)",
        "    model.head = nn.Linear(model.head.in_features, 4)\n    model = nn.DataParallel(model)",
        "model = nn.parallel.DistributedDataParallel(",
    ),
    "samples that are drawn at random": (
        "class Net(nn.Module):",
        "class Data:\n    def __getitem__(self, index):\n        return self.turned(index)\n\n    def turned(self, index):\n"
        "        return torch.randn(1)\n\n\nclass Net(nn.Module):",
        "model = nn.parallel.DistributedDataParallel(",
    ),
    "lengths that count themselves": (
        "    # the end",
        "    n = 2\n    n = len(range(n))\n    print(1 / n)\n    # the end",
        "destroy_process_group",
    ),
    "a size that is written there": ("batch_size=args.batch_size", "batch_size=16", "batch_size=16 // WORLD_SIZE"),
    "unwrapped where it is wrapped": (
        "    # the end\n",
        "    print(isinstance(model, (nn.DataParallel, nn.Linear)))\n",
        "isinstance(model, (nn.parallel.DistributedDataParallel, nn.Linear))",
    ),
    "a function that saves": (
        '            torch.save({"model": model.module.state_dict(), "epoch": epoch, "best": best}, "model.pt")\n',
        '            save({"model": model.state_dict(), "best": best})\n    # the end\n\n\n'
        'def save(state):\n    torch.save(state, "model.pt")\n\n\nif True:\n    pass\n',
        '    if RANK == 0:\n        torch.save(state, "model.pt")\n',
    ),
}


@pytest.mark.parametrize(("old", "new", "after"), ALLOWED.values(), ids=ALLOWED)
def test_forms_that_get_a_patch(old: str, new: str, after: str) -> None:
    code = changed(old, new)
    text = patched(code)
    assert after in text
    compile(text, "train.py", "exec")
    assert run_checks(Source("train.py", text), all_rules(), frozenset(["PA701"])) == []


WITHOUT_FUNCTIONS = """import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 2))
loader = DataLoader(data, batch_size=16, shuffle=True)
net = nn.DataParallel(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(2):
    for batch in loader:
        x, target = batch
        out = net(x)
        loss = F.mse_loss(out, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
    torch.save(net.state_dict(), f"epoch{epoch}.pt")
"""


# The names of the training loop are those of the validation loop behind it, as in most scripts of one function.
SAME_NAMES = (
    WITHOUT_FUNCTIONS.replace("loader = ", "held_out = DataLoader(data, batch_size=32)\nloader = ", 1)
    + """    with torch.no_grad():
        for batch in held_out:
            x, target = batch
            out = net(x)
            loss = F.mse_loss(out, target)
            print(loss.item())
"""
)
READ_HERE = "        x, target = batch\n        out"  # in the training loop


def test_names_that_the_validation_loop_binds_as_well() -> None:
    """A turn reads what it binds itself, so that the patch is that of a script with other names in the other loop."""
    training, _, validation = SAME_NAMES.partition("    with torch.no_grad")
    others = validation
    for name in ("batch", "x", "target", "out", "loss"):
        others = re.sub(rf"(?<![.\w]){name}\b(?!_size)", f"{name}_2", others)
    mid = "    with torch.no_grad"
    assert patched(SAME_NAMES).partition(mid)[0] == patched(f"{training}{mid}{others}").partition(mid)[0]
    by_head = SAME_NAMES.replace("for batch in", "for x, target in").replace("x, target = batch", "x = x.float()")
    assert "DistributedDataParallel(" in patched(by_head)


@pytest.mark.parametrize(
    "here",
    [
        "        x, target = batch\n        x = x + data.tensors[0][:16]\n        out",
        "        x, target = batch\n        if epoch:\n            x = data.tensors[0][:16]\n        out",
        "        x, target = batch\n        for x in data.tensors:\n            pass\n        out",
        "        if epoch:\n            x, target = batch\n        out",  # a turn of the first epoch reads another loop's
        "        target = batch[1]\n        out",
        "        out",
    ],
)
def test_names_that_a_turn_does_not_surely_bind_to_its_batch(here: str) -> None:
    code = changed(READ_HERE, here, SAME_NAMES.replace("for epoch", "x, target = data.tensors\nfor epoch"))
    assert re.search(r"`net\(x\)` takes more than parts of the batch", why_not(code)), why_not(code)


def test_a_name_that_another_call_may_bind() -> None:
    code = "def other():\n    global x\n    x = data.tensors[0]\n\n\n" + SAME_NAMES
    assert "`net(x)` takes more than parts of the batch" in why_not(code)
    in_function = "def main():\n    global x\n" + "".join(
        f"    {line}\n" for line in SAME_NAMES.partition("torch.manual_seed")[2].splitlines()[1:]
    )
    head = SAME_NAMES.partition("torch.manual_seed")[0] + "torch.manual_seed(0)\n"
    assert "`net(x)` takes more than parts of the batch" in why_not(f"{head}{in_function}\n\nmain()\n")


def test_a_script_without_functions() -> None:
    assert patched(WITHOUT_FUNCTIONS).endswith(
        """    if RANK == 0:
        torch.save(net.state_dict(), f"epoch{epoch}.pt")
torch.distributed.destroy_process_group()
"""
    )


CIFAR = """import time

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.optim as optim
import torchvision
import torchvision.transforms as transforms
from tqdm import tqdm

device = "cuda" if torch.cuda.is_available() else "cpu"
transform = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.ToTensor()])
trainset = torchvision.datasets.CIFAR10(root="./data", train=True, download=True, transform=transform)
trainloader = torch.utils.data.DataLoader(trainset, batch_size=128, shuffle=True, num_workers=2)
testset = torchvision.datasets.CIFAR10(root="./data", train=False, download=True, transform=transforms.ToTensor())
testloader = torch.utils.data.DataLoader(testset, batch_size=100, shuffle=False, num_workers=2)

net = torchvision.models.resnet18(weights="DEFAULT")
net.fc = nn.Linear(net.fc.in_features, 10)
net = net.to(device)
if device == "cuda":
    cudnn.benchmark = True
if torch.cuda.device_count() > 1:
    net = nn.DataParallel(net)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1).to(device)
optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
scaler = torch.amp.GradScaler(device)
best_acc = 0


def train(epoch):
    net.train()
    train_loss, correct, total = 0, 0, 0
    for i, (inputs, targets) in enumerate(tqdm(trainloader)):
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda"):
            outputs = net(inputs)
            loss = criterion(outputs, targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        train_loss += loss.item()
        _, predicted = outputs.max(1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()
        if i % 100 == 99:
            print(f"{epoch} {i}: loss {train_loss / (i + 1):.3f}, {100.0 * correct / total:.1f} %")


@torch.no_grad()
def test(epoch):
    global best_acc
    net.eval()
    correct = 0
    for inputs, targets in testloader:
        outputs = net(inputs.to(device))
        correct += outputs.argmax(1).eq(targets.to(device)).sum().item()
    acc = 100.0 * correct / len(testset)
    if acc > best_acc:
        print("saving")
        torch.save({"net": net.state_dict(), "acc": acc, "epoch": epoch}, "ckpt.pth")
        best_acc = acc


start = time.time()
for epoch in range(200):
    train(epoch)
    test(epoch)
    scheduler.step()
print(time.time() - start)
"""


def test_a_script_of_globals_with_mixed_precision() -> None:
    after = patched(CIFAR)
    assert after.count("torch.distributed.barrier()") == 4
    assert (
        "if WORLD_SIZE > 1 or torch.cuda.device_count() > 1:\n    net = nn.parallel.DistributedDataParallel(\n" in after
    )
    assert "    trainloader.sampler.set_epoch(epoch)\n    train(epoch)\n" in after
    assert '        if RANK == 0:\n            torch.save({"net"' in after
    assert after.index("init_process_group") < after.index("device = ") < after.index("LOCAL_RANK > 0")
    assert "batch norm" in fix_of(CIFAR).title


# ---- what it trains --------------------------------------------------------------------------------------------------

TOLD = "    # the end\n"
WEIGHTS = "    print('weights', *(p.double().sum().item() for p in model.parameters()))\n"


def losses(out: str) -> dict[tuple[str, str], float]:
    """The losses that a process printed, by epoch and step."""
    return {
        (epoch, step): float(value) for epoch, step, value in re.findall(r"^loss (\d+) (\d+) (\S+)$", out, re.MULTILINE)
    }


def weights(out: str) -> str:
    (line,) = re.findall(r"^weights .*$", out, re.MULTILINE)
    return str(line)


@pytest.mark.slow
def test_two_ranks_train_as_one_process_does(tmp_path: Path) -> None:
    """With the variables of torchrun: the same parameters on both ranks, and losses that average to those of whole batches."""
    in_order = changed(", shuffle=True", "")
    before = run_code(changed(TOLD, WEIGHTS, in_order), "train.py", [], tmp_path)
    assert before.code == 0, before.err
    after = changed(TOLD, WEIGHTS, patched(in_order))
    alone = run_code(after, "train.py", [], tmp_path)
    assert alone.code == 0, alone.err
    assert losses(alone.out) == losses(before.out)  # one process, with no launcher
    assert weights(alone.out) == weights(before.out)

    (tmp_path / "model.pt").unlink()
    ranks = run_on_ranks(after, "train.py", [], tmp_path)
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].err + ranks[1].err
    said = [rank.out for rank in ranks]
    assert weights(said[0]) == weights(said[1])
    numbers = [[float(value) for value in weights(text).split()[1:]] for text in (said[0], before.out)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-4, abs=1e-4)
    first, second, whole = (losses(text) for text in (*said, before.out))
    assert len(whole) == 16
    assert first != second
    assert {place: (first[place] + second[place]) / 2 for place in whole} == pytest.approx(whole, rel=1e-5)
    assert re.findall("^accuracy .*", said[0], re.MULTILINE) == re.findall("^accuracy .*", before.out, re.MULTILINE)
    assert (tmp_path / "model.pt").exists()


@pytest.mark.slow
def test_a_batch_that_cannot_be_shared_out_ends_the_program(tmp_path: Path) -> None:
    variables = {"WORLD_SIZE": "3", "RANK": "0", "LOCAL_RANK": "0"}
    text = patched(SCRIPT).replace("torch.distributed.init_process_group(", "str(")  # of three, one is here
    text = re.sub(r"str\(\n.*?\n    \)\n", "pass\n", text, flags=re.DOTALL)
    done = run_code(text, "train.py", [], tmp_path, variables=variables)
    assert done.code == 1
    assert done.err.endswith("ValueError: a batch of 16 cannot be shared out among 3 processes\n")


# ---- what it leaves alone --------------------------------------------------------------------------------------------

WRAP = "nn.DataParallel(model).to(device)"
STEP = "        optimizer.step()\n"
SAVE = 'torch.save({"model": model.module.state_dict(), "epoch": epoch, "best": best}, "model.pt")'
TRAINED = "        train(model, device, train_loader, optimizer, criterion, epoch)\n"
REFUSED = {
    # the model
    "devices": (WRAP, "nn.DataParallel(model, device_ids=[0, 1]).to(device)", "told more than the model"),
    "two models": (
        "    criterion =",
        "    other = Net()\n    torch.optim.SGD(other.parameters(), lr=1)\n    criterion =",
        "exactly one optimizer",
    ),
    "a condition of its own": (
        f"    model = {WRAP}",
        f"    if args.epochs:\n        model = {WRAP}",
        "a condition other than",
    ),
    "more under the condition": (
        f"    model = {WRAP}",
        "    if torch.cuda.device_count() > 1:\n        args.batch_size *= 2\n        model = nn.DataParallel(model)",
        "more happens under",
    ),
    "kept in an object": (f"    model = {WRAP}", f"    args.model = model = {WRAP}", "not simply assigned"),
    "rebuilt": ("    criterion =", "    model = Net()\n    criterion =", "more than one model"),
    "the inner model is run": ("criterion(model(x), y)", "criterion(model.module(x), y)", "goes around what wraps"),
    "run twice": ("criterion(model(x), y)", "criterion(model(x), y) + 0 * model(x).sum()", "exactly once"),
    "run with gradients": ("torch.no_grad()", "torch.autocast('cpu')", "outside of the training loop with gradients"),
    "handed to a library": ("    # the end", "    print(torch.compile(model))", "gets the model"),
    "parameters are changed": (
        STEP,
        STEP + "        for p in model.parameters():\n            p.data.clamp_(-1, 1)\n",
        "takes the parameters",
    ),
    "built elsewhere": ("    model = Net()", "    model = torch.nn.Transformer()", "does not show the layers"),
    "a layer that is not run": (
        "        self.head =",
        "        self.spare = nn.Linear(4, 4)\n        self.head =",
        r"a layer that it does not run: `self\.spare`",
    ),
    "a layer that is run at times": (
        "        return self.head(self.body(x))",
        "        if x.sum() > 0:\n            x = x + self.body(x)\n        return self.head(self.body(x))",
        "runs layers under a condition",
    ),
    "a model that counts": (
        "        return self.head(",
        "        self.steps = 1\n        return self.head(",
        "changes itself as it runs",
    ),
    "frozen as it runs": ("self.head(self.body(x))", "self.head(self.body(x).detach())", "without gradients"),
    # batches and the loss
    "a sum": ("nn.CrossEntropyLoss()", 'nn.CrossEntropyLoss(reduction="sum")', "not known to be the mean"),
    "targets that are left out": ("        loss = ", "        y[0] = -100\n        loss = ", "targets of -100"),
    "weights of classes": ("nn.CrossEntropyLoss()", "nn.CrossEntropyLoss(torch.ones(4))", "not known to be the mean"),
    "a loss of its own": ("criterion(model(x), y)", "(model(x).sum(1) - y).pow(2).mean()", "not known to be the mean"),
    "samples beside each other": ("criterion(model(x), y)", "criterion(model(x) @ model(x).t(), y)", "exactly once"),
    "a product of samples": (
        "        loss = criterion(model(x), y)",
        "        out = model(x)\n        loss = criterion(out @ out.t(), y)",
        "more than the output and a part of the batch",
    ),
    "mixed samples": (
        "        optimizer.zero_grad()",
        "        x = x + x[torch.randperm(16)]\n        optimizer.zero_grad()",
        "more than parts of the batch",
    ),
    "a size in the view": ("model(x), y)", "model(x.view(16, -1)), y)", "more than parts of the batch"),
    "two backward passes": (STEP, STEP + "        model(x).sum().backward()\n", "exactly one training loop"),
    "a graph that is kept": ("loss.backward()", "loss.backward(retain_graph=True)", "more than a backward pass"),
    "a step that a function makes": (
        "        loss.backward()\n",
        "        back(loss)\n",
        "a function that the training loop calls",
    ),
    "another optimizer": ("optim.SGD(model", "optim.LBFGS(model", "takes the parameters"),
    "groups of parameters": (
        "SGD(model.parameters()",
        "SGD([{'params': model.parameters()}]",
        "takes the parameters",
    ),
    # the loader
    "a sampler": ("shuffle=True", "sampler=torch.utils.data.RandomSampler(train_set)", "takes more than samples"),
    "batches that a function makes": ("shuffle=True", "shuffle=True, collate_fn=None", "takes more than samples"),
    "samples without a name": ("DataLoader(train_set,", "DataLoader(TensorDataset(x, y),", "have no name"),
    "a computed size": ("batch_size=args.batch_size", "batch_size=2 * args.batch_size", "have no name"),
    "a switch that is set elsewhere": ("shuffle=True", "shuffle=args.epochs > 0", "not written there"),
    "evaluated on the training data": (
        "evaluate(model, device, test_loader)",
        "evaluate(model, device, train_loader)",
        "reads the training loader",
    ),
    "a first batch": ("    # the end", "    print(next(iter(train_loader))[0].shape)", "reads the training loader"),
    "no epochs": ("    for epoch in range(args.epochs):", "    for epoch in [0, 1]:", "no loop that counts epochs"),
    "several trainings": (TRAINED, TRAINED + TRAINED, "not called exactly once"),
    "folds": (
        "    main()\n",
        "    for fold in range(3):\n        main()\n",
        "inside another block",
    ),
    # decisions
    "an early end": (
        "        if accuracy > best:\n",
        "        if accuracy > 0.99:\n            break\n        if accuracy > best:\n",
        "`break` runs under a condition that processes may answer differently",
    ),
    "a rate that follows the accuracy": (
        "scheduler.step()",
        "scheduler.step(len(range(int(1e3 * best))))",
        "may differ between processes",
    ),
    "a rate that is set by the accuracy": (
        "            best = accuracy\n",
        "            best = accuracy\n            optimizer.param_groups[0]['lr'] = 1 - best\n",
        "keeps what may differ",
    ),
    "a step that is left out": (
        STEP,
        "        if loss < 10:\n            optimizer.step()\n",
        r"`optimizer\.step\(\)` runs under a condition",
    ),
    "an evaluation at times": (
        "        accuracy = evaluate(model, device, test_loader)\n",
        "        accuracy = evaluate(model, device, test_loader) if best < 0.5 else 0\n",
        "runs under a condition that processes may answer differently",
    ),
    "while": (
        "    for epoch in range(args.epochs):",
        "    while args is None:\n        pass\n    for epoch in range(args.epochs):",
        "a `while`",
    ),
    "try": (
        TRAINED,
        f"        try:\n    {TRAINED}        finally:\n            pass\n",
        "the training loop runs under a condition",
    ),
    # files, figures
    "the whole model": (SAVE, 'torch.save(model, "model.pt")', "gets the model"),
    "losses": (
        SAVE,
        'torch.save({"loss": evaluate(model, device, test_loader)}, "model.pt")',
        "runs under a condition",
    ),
    "a log": (TRAINED, TRAINED + '        open("log.txt", "a")\n', "would write to what"),
    "a folder": (
        TRAINED,
        TRAINED + '        import os; os.mkdir("x")\n',
        r"`os\.mkdir\(\"x\"\)` would run in every process",
    ),
    "a picture": ("    # the end", '    plot.savefig("x.png")', "would write, or show something"),
    "a checkpoint that is read": (
        "    # the end",
        '    print(torch.load("model.pt"))',
        "may read what another process is writing",
    ),
    "a download at times": (
        "    # the end",
        "    if best > 0.5:\n        print(dict(download=True))",
        "would do so at the same time|under a condition",
    ),
    "a download that is imported": (
        "class Net(nn.Module):",
        "data = dict(download=True)\n\n\nclass Net(nn.Module):",
        "may download, and every process would do so at the same time",
    ),
    "another library": (
        "import argparse\n",
        "import argparse\n\nimport wandb\n",
        "what `wandb` does in several processes is not known",
    ),
    "a mean over all samples": (
        '        if step % 1 == 0:\n            print("loss", epoch, step, loss.item())\n',
        "        total += loss.item()\n    print(total / len(loader.dataset))\n",
        "divided by a number of all samples",
    ),
    "labels in the order of a set": (
        "    # the end",
        "    print(list({'cat', 'dog'}))",
        "has another order in each process",
    ),
    "labels by hash": ("    # the end", "    print(hash('cat'))", "has another order in each process"),
    "a seed that may differ": (
        "    torch.manual_seed(0)\n",
        "    torch.manual_seed(0)\n    import time\n    torch.manual_seed(int(time.time()))\n",
        r"`torch\.randn` draws before `torch\.manual_seed`",
    ),
    "an early return of the model": (
        "        return self.head(self.body(x))",
        "        if self.training:\n            return x\n        return self.head(self.body(x))",
        "runs layers under a condition",
    ),
    "a layer by a flag": (
        "        return self.head(self.body(x))",
        "        x = self.body(x) if self.deep else x\n        return self.head(x)",
        "runs layers under a condition",
    ),
    # devices
    "another GPU": ('"cuda:0"', '"cuda:1"', 'the device "cuda:1" is named'),
    "a GPU by number": (
        "x.to(device), y.to(device)\n        opt",
        "x.cuda(0), y.cuda(0)\n        opt",
        "may name another device",
    ),
    "a GPU by option": (
        'torch.device("cuda:0" if torch.cuda.is_available() else "cpu")',
        "torch.device(args.device)",
        "may name another device",
    ),
    "a GPU by option, handed on": (
        "x.to(device), y.to(device)\n        opt",
        "x.to(criterion.device), y.to(criterion.device)\n        opt",
        "may name another device",
    ),
    "counted GPUs": ("batch_size=32", "batch_size=32 * torch.cuda.device_count()", "counts the GPUs"),
    "chosen GPUs": (
        "    torch.manual_seed(0)\n",
        '    torch.manual_seed(0)\n    print("CUDA_VISIBLE_DEVICES")\n',
        "chooses its GPUs",
    ),
    "a device that is set": (
        "    torch.manual_seed(0)\n",
        "    torch.manual_seed(0)\n    torch.cuda.set_device(0)\n",
        "chooses a device",
    ),
    # random numbers, and what is there already
    "no seed": ("    torch.manual_seed(0)\n", "", r"`torch\.randn` draws before `torch\.manual_seed`"),
    "a seed that comes late": (
        "    torch.manual_seed(0)\n    device",
        "    torch.randn(1)\n    torch.manual_seed(0)\n    device",
        r"`torch\.randn` draws before `torch\.manual_seed`",
    ),
    "the seed of another library": (
        "    x = torch.randn(160, 16)\n",
        "    import random; random.shuffle([1])\n    x = torch.randn(160, 16)\n",
        r"`random\.shuffle` draws before `random\.seed`",
    ),
    "a tensor that is filled without a seed": (
        "    torch.manual_seed(0)\n    device",
        "    start = torch.zeros(4).normal_()\n    torch.manual_seed(0)\n    device",
        r"normal_` draws before `torch\.manual_seed`",
    ),
    "a dataset that is mixed": (
        "class Net(nn.Module):",
        "class Data:\n    def __init__(self):\n        import random; random.shuffle([1])\n\n\nclass Net(nn.Module):",
        r"`random\.shuffle` draws before `random\.seed`",
    ),
    "a name that is taken": ("    # the end", "    RANK = 0", "a variable `RANK`"),
    "several processes": (
        "    # the end",
        "    print(torch.distributed.is_available())",
        "knows of several processes already",
    ),
    "everything by *": ("from torch import nn\n", "from torch import nn\nfrom math import *\n", r"imported by `\*`"),
    "a main block that is shared": (
        "    main()\n",
        "    main()\nelse:\n    pass\n",
        "does something else where it is imported",
    ),
}


@pytest.mark.parametrize(("old", "new", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_gets_no_patch_and_why(old: str, new: str, reason: str) -> None:
    if "back(loss)" in new:
        new_script = changed("class Net", "def back(loss):\n    loss.backward()\n\n\nclass Net", changed(old, new))
    else:
        new_script = changed(old, new)
    compile(new_script, "train.py", "exec")
    assert re.search(reason, why_not(new_script)), why_not(new_script)


def test_a_mean_over_the_batch_is_one_of_a_share() -> None:
    told = 'print("loss", epoch, step, loss.item())'
    code = changed(told, "print((y == 1).sum().item() / 16)", changed("batch_size=args.batch_size", "batch_size=16"))
    code = changed("criterion(model(x), y)", "criterion(model(x), y)\n        hits = y.sum().item()", code)
    assert why_not(code.replace("(y == 1).sum().item() / 16", "hits / 16")).startswith(
        "a figure of the training is divided by"
    )


def test_a_notebook_gets_none() -> None:
    assert "notebook" in why_not(SCRIPT, "train.ipynb")
