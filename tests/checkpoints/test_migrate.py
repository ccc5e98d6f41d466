"""`perfaudit migrate-checkpoint` as a user types it: old checkpoints load, evaluate and train on as before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from old_models import (
    ADAM_IN_GROUPS,
    BIASES,
    MODEL,
    SGD,
    names_of,
    outputs,
    prefixed,
    step,
    trained,
)

Run = Callable[..., Any]
Project = Callable[..., Path]


def migrated(perfaudit: Run, saved: Any, *options: str) -> Any:
    """The checkpoint after the command, loaded."""
    import torch

    torch.save(saved, "old.pt")
    done = perfaudit("migrate-checkpoint", "old.pt", "new.pt", "--target", "model.py", *options)
    assert (done.code, done.err) == (0, "")
    return torch.load("new.pt", weights_only=True)


def relative_gap(one: Any, other: Any) -> float:
    return float((one - other).abs().max() / one.abs().max())


def test_every_copy_in_a_file_evaluates_as_before(project: Project, perfaudit: Run) -> None:
    import torch

    project(**{"model.py": MODEL})
    old, _ = trained(MODEL)
    averaged = torch.optim.swa_utils.AveragedModel(old, use_buffers=True)
    later, _ = trained(MODEL, steps=6)
    copied_buffers = torch.optim.swa_utils.AveragedModel(old)
    for model in (old, later):
        averaged.update_parameters(model)
        copied_buffers.update_parameters(model)
    saved = {
        "epoch": 3,
        "net": old.state_dict(),
        "same": {"again": old.state_dict()},
        "ddp": prefixed(old.state_dict(), "module."),
        "compiled": prefixed(old.state_dict(), "_orig_mod."),
        "both": prefixed(old.state_dict(), "module._orig_mod."),
        "lightning": {**prefixed(old.state_dict(), "model."), **prefixed(later.state_dict(), "ema_model.")},
        "averages": [averaged.state_dict(), copied_buffers.state_dict()],
        "rng": torch.get_rng_state(),
    }
    saved["same"]["once_more"] = saved["net"]
    new = migrated(perfaudit, saved)
    expected = {
        ("net", ""): old,
        ("ddp", "module."): old,
        ("compiled", "_orig_mod."): old,
        ("both", "module._orig_mod."): old,
        ("lightning", "model."): old,
        ("lightning", "ema_model."): later,
    }
    for (place, prefix), model in expected.items():
        assert evaluates_as(model, {k[len(prefix) :]: v for k, v in new[place].items() if k.startswith(prefix)})
    for average, state in zip((averaged, copied_buffers), new["averages"], strict=True):
        assert evaluates_as(average.module, {k.removeprefix("module."): v for k, v in state.items() if "." in k})
        assert int(state["n_averaged"]) == 2
    assert evaluates_as(old, new["same"]["again"]) and evaluates_as(old, new["same"]["once_more"])
    assert (new["epoch"], torch.equal(new["rng"], saved["rng"])) == (3, True)
    assert new["net"]._metadata == saved["net"]._metadata


def evaluates_as(old: Any, state: dict[str, Any]) -> bool:
    """The new model loads a state strictly and gives what the old one gave; without folding it would not."""
    model = names_of(MODEL, bias=False)["build_model"]()
    model.load_state_dict({key: value for key, value in old.state_dict().items() if key not in BIASES}, strict=True)
    assert relative_gap(outputs(old), outputs(model)) > 0.05
    model.load_state_dict(state, strict=True)
    assert relative_gap(outputs(old), outputs(model)) < 1e-6
    return True


@pytest.mark.parametrize("optimizer", [SGD, ADAM_IN_GROUPS, ""], ids=["sgd", "adamw in groups", "no factory"])
def test_training_goes_on_as_it_would_have(project: Project, perfaudit: Run, optimizer: str) -> None:
    text = MODEL + optimizer
    project(**{"model.py": text})
    old, old_optimizer = trained(text)
    saved = {"state_dict": old.state_dict(), "optimizer": old_optimizer.state_dict()}
    new = migrated(perfaudit, saved)
    import torch

    names = names_of(text, bias=False)
    model = names["build_model"]()
    model.load_state_dict(new["state_dict"], strict=True)
    factory = names.get("build_optimizer", lambda m: torch.optim.Adam(m.parameters(), lr=1e-3))
    resumed = factory(model)
    resumed.load_state_dict(new["optimizer"])
    batch = next(iter(names["build_dataloader"]()))
    for trains, steps in ((model, resumed), (old, old_optimizer)):
        step(trains, steps, batch)
    kept = dict(old.named_parameters())
    for key, parameter in model.named_parameters():
        assert torch.allclose(parameter, kept[key], rtol=1e-5, atol=2e-6), key
    groups = zip(new["optimizer"]["param_groups"], old_optimizer.state_dict()["param_groups"], strict=True)
    for now, before in groups:
        assert {k: v for k, v in now.items() if k != "params"} == {k: v for k, v in before.items() if k != "params"}


def test_a_plain_state_dict_and_what_is_said(project: Project, perfaudit: Run) -> None:
    import torch

    project(**{"model.py": MODEL})
    torch.save(trained(MODEL)[0].state_dict(), "old.pt")
    before = Path("old.pt").read_bytes()
    done = perfaudit("migrate-checkpoint", "old.pt", "new.pt", "--target", "model.py", "--check")
    assert (done.code, done.err, Path("new.pt").exists()) == (0, "", False)
    *lines, checked, written = done.out.splitlines()
    assert lines == [
        "old.pt: 4 biases with 22 values",
        "  stem.0 -> stem.1 (BatchNorm2d)",
        "  up -> up_norm (InstanceNorm2d)",
        "  mix -> mix_norm (BatchNorm2d): dropped, the norm keeps no running mean and subtracts the bias itself",
        "  hidden -> hidden_norm (BatchNorm1d)",
        "folded in 1 place: the whole file",
    ]
    assert checked.startswith("checked on one batch in evaluation mode: loads strictly; outputs lie within ")
    assert written == "new.pt: not written (--check)"
    done = perfaudit("migrate-checkpoint", "old.pt", "new.pt", "--target", "model.py", "--format", "json")
    told = json.loads(done.out)
    assert [fold["folded"] for fold in told["folds"]] == [True, True, False, True]
    assert told["gap"] < 1e-6 < 0.05 < told["gap_without_folding"]
    assert told["size"] == Path("new.pt").stat().st_size
    assert Path("old.pt").read_bytes() == before
    assert sorted(path.name for path in Path().iterdir()) == ["model.py", "new.pt", "old.pt"]


REFUSED_PLACES = {
    "is taken": (["old.pt", "model.py"], "model.py exists; a migrated checkpoint goes to a new file"),
    "is the old one": (["old.pt", "old.pt"], "old.pt is the old checkpoint itself"),
    "is a link to the old one": (["old.pt", "link.pt"], "link.pt is the old checkpoint itself"),
    "is a link to nothing": (["old.pt", "dangling.pt"], "dangling.pt exists"),
    "has no folder": (["old.pt", "nowhere/new.pt"], "nowhere/new.pt: no such folder: "),
    "nothing there": (["gone.pt", "new.pt"], "gone.pt: no such file"),
    "sharded": (["shards", "new.pt"], "shards is a folder: sharded and distributed checkpoints are not migrated"),
    "empty": (["empty.pt", "new.pt"], "empty.pt is empty"),
    "text": (["model.py", "new.pt"], "model.py: not migrated: torch.load cannot read it with weights_only=True"),
    "safetensors": (["plain.bin", "new.pt"], "plain.bin is a safetensors file"),
    "scripted": (["scripted.pt", "new.pt"], "scripted.pt is a TorchScript archive"),
    "zip": (["other.zip", "new.pt"], "other.zip is a zip archive that torch.save did not write"),
    "objects": (
        ["objects.pt", "new.pt"],
        "objects that torch.load refuses with weights_only=True (argparse.Namespace)",
    ),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit, which wrote the archive that is refused
@pytest.mark.parametrize("row", REFUSED_PLACES.values(), ids=REFUSED_PLACES)
def test_places_and_formats_that_are_refused(project: Project, perfaudit: Run, row: tuple[list[str], str]) -> None:
    import argparse
    import zipfile

    import torch

    folder = project(**{"model.py": MODEL, "empty.pt": "", "shards/.metadata": ""})
    torch.save({}, "old.pt")
    torch.save({"args": argparse.Namespace(lr=1), "net": {}}, "objects.pt")
    Path("link.pt").symlink_to("old.pt")
    Path("dangling.pt").symlink_to("nothing.pt")
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    Path("plain.bin").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)), "scripted.pt")
    with zipfile.ZipFile("other.zip", "w") as archive:
        archive.writestr("notes/readme.txt", "nothing")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    arguments, message = row
    done = perfaudit("migrate-checkpoint", *arguments, "--target", "model.py")
    assert (done.code, done.out) == (2, "")
    assert message in done.err and done.err.count("\n") == 1
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_faults_of_the_users_code_are_told(project: Project, perfaudit: Run) -> None:
    import torch

    project(**{"model.py": MODEL.replace("return Net()", "return Net(1)")})
    torch.save({}, "old.pt")
    done = perfaudit("migrate-checkpoint", "old.pt", "new.pt", "--target", "model.py")
    assert done.code == 2
    assert "old.pt: not migrated: model.py: build_model() failed: TypeError" in done.err
    assert not Path("new.pt").exists()


def test_the_optimizer_of_another_training_is_refused(project: Project, perfaudit: Run) -> None:
    import torch

    project(**{"model.py": MODEL + SGD})
    old, optimizer = trained(MODEL + ADAM_IN_GROUPS)
    torch.save({"model": old.state_dict(), "optimizer": optimizer.state_dict()}, "old.pt")
    done = perfaudit("migrate-checkpoint", "old.pt", "new.pt", "--target", "model.py")
    assert done.code == 2
    assert (
        "optimizer: it holds 2 groups of 14 and 6 parameters, the old model had 20 parameters by build_optimizer()"
        in done.err
    )


def test_a_step_that_fails_in_evaluation_mode_is_checked_with_the_norms_alone(project: Project, perfaudit: Run) -> None:
    step_in_training = """

def training_step(model, batch):
    assert model.training
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
"""
    project(**{"model.py": MODEL + step_in_training})
    old, _ = trained(MODEL)
    new = migrated(perfaudit, old.state_dict())
    assert evaluates_as(old, new)


SHARED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BIAS = False


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1, bias=BIAS)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        {forward}


def build_model():
    return Net()


def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(8, 3, 4, 4), torch.zeros(8, dtype=torch.long)), batch_size=8)
"""


@pytest.mark.parametrize(
    "forward",
    [
        "return (self.norm(self.conv(x)) + self.norm(x)).mean((2, 3))",  # the norm stands for another input too
        "y = self.conv(x); return self.norm(y).mean((2, 3)) + (0 if self.training else y.mean((2, 3)))",
    ],
    ids=["a norm used twice", "another use in evaluation"],
)
def test_what_does_not_evaluate_as_before_is_refused(project: Project, perfaudit: Run, forward: str) -> None:
    import torch

    text = SHARED.format(forward=forward)
    project(**{"model.py": text})
    old = names_of(text, bias=True)["build_model"]()
    torch.save({"model": old.state_dict()}, "old.pt")
    done = perfaudit("migrate-checkpoint", "old.pt", "new.pt", "--target", "model.py")
    assert done.code == 2
    assert "old.pt: not migrated: model: folded, it does not evaluate as before" in done.err
    assert [path.name for path in Path().iterdir() if "new" in path.name] == []


def test_values_that_are_not_finite_are_not_compared(project: Project, perfaudit: Run) -> None:
    import torch

    project(**{"model.py": MODEL})
    old, _ = trained(MODEL, steps=0)
    with torch.no_grad():
        old.head.bias.fill_(float("nan"))
    torch.save(old.state_dict(), "old.pt")
    done = perfaudit("migrate-checkpoint", "old.pt", "new.pt", "--target", "model.py")
    assert done.code == 2
    assert "it gives values that are not finite as it is" in done.err


def test_a_checkpoint_in_16_bits(project: Project, perfaudit: Run) -> None:
    import torch

    project(**{"model.py": MODEL})
    old, _ = trained(MODEL)
    new = migrated(perfaudit, {key: v.half() if v.is_floating_point() else v for key, v in old.state_dict().items()})
    assert new["stem.1.running_mean"].dtype == torch.float16
    mean = old.state_dict()["stem.1.running_mean"] - old.state_dict()["stem.0.bias"]
    assert torch.allclose(new["stem.1.running_mean"].float(), mean, atol=2e-3)


@pytest.mark.gpu
def test_a_model_on_an_accelerator(project: Project, perfaudit: Run) -> None:
    project(**{"model.py": MODEL + SGD})
    old, optimizer = trained(MODEL + SGD)
    saved = {"model": old.cuda().state_dict(), "optimizer": optimizer.state_dict()}
    new = migrated(perfaudit, saved, "--device", "cuda")
    assert {value.device.type for value in new["model"].values()} == {"cpu"}
    assert evaluates_as(old.cpu(), new["model"])
