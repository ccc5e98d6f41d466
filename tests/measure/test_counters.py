# ruff: noqa: E501 - a row of a table is one line, so that texts can be compared
"""Counters of one training step: each change of the code shows in those that it should, and in no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfaudit.errors import TargetError
from perfaudit.measure import counters_as_run
from perfaudit.measure.counters import counters
from perfaudit.measure.counters_as_run import first_line, launches, recompilations, why_uncounted
from perfaudit.target.names import Target
from perfaudit.training.factory_training import FactoryTraining

torch = pytest.importorskip("torch")

from perfaudit.measure.counted_step import copy_counts  # noqa: E402

Project = Callable[..., Path]

LOADER = "DataLoader(Data(), batch_size=8)"
TRAIN = f"""
import random
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

KEPT = []
STEPS = []


class Data(Dataset):
    def __len__(self): return 60
    def __getitem__(self, i): return torch.full((4,), float(i)), i % 3


def build_dataloader():
    return {LOADER}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 256)
        self.out = nn.Linear(256, 3)

    def forward(self, x):
        h = F.relu(self.fc(x))
        return self.out(h)


def build_model():
    return Net()


def training_step(model, batch):
    x, y = batch
    loss = F.cross_entropy(model(x), y)
    return loss
"""
STEP = "    return loss\n"
FORWARD = "        return self.out(h)\n"


def step(*lines: str) -> str:
    """The program with these lines before the step's end."""
    assert TRAIN.count(STEP) == 1
    return TRAIN.replace(STEP, "".join(f"    {line}\n" for line in lines) + STEP)


def forward(*lines: str) -> str:
    """The program with these lines before the end of the model's forward."""
    assert TRAIN.count(FORWARD) == 1
    return TRAIN.replace(FORWARD, "".join(f"        {line}\n" for line in lines) + FORWARD)


def loader(text: str, more: str = "") -> str:
    assert TRAIN.count(LOADER) == 1
    return TRAIN.replace(LOADER, text) + more


def counted(project: Project, text: str, name: str) -> dict[str, Any]:
    path = project(**{f"{name}.py": text}) / f"{name}.py"
    training = FactoryTraining(Target(path.name), "cpu")
    found = counters(training)
    training.close()
    return found


def test_one_step_in_numbers(project: Project) -> None:
    found = counted(project, TRAIN, "plain")
    assert found["unsteady"] == found["absent"] == {}
    values = found["values"]
    # 8 samples; 4 x 256 and 256 x 3 weights; forward, backward to weights and, behind the first layer, to inputs
    assert values["flops"] == 2 * 8 * (2 * 4 * 256 + 3 * 256 * 3)
    assert (values["parameters"], values["trainable_parameters"]) == (5 * 256 + 257 * 3, 5 * 256 + 257 * 3)
    assert (values["samples"], values["dataset_samples"]) == (8, 60)
    assert (values["samples_repeated"], values["samples_skipped"], values["host_syncs"]) == (0, 0, 0)
    assert values["peak_live_bytes"] > 4 * 4 * (5 * 256 + 257 * 3)  # parameters, gradients, two moments
    for name in ("operators", "flops", "bytes_allocated"):
        assert sum(found["by_name"][name].values()) == values[name]
    assert ["plain.py", 28, "return self.out(h)", "aten::addmm", 1] in found["places"]["operators"]
    assert (found["device"], found["dtype"]) == ("cpu", "float32")


@pytest.mark.parametrize(
    ("text", "changed", "line"),
    [
        (TRAIN.replace("def training_step", "\n\n# moved\n\ndef training_step"), {}, None),
        (step("loss.item()"), {"operators": 1, "host_syncs": 1}, "loss.item()"),
        (step("KEPT[:] = [model.fc.weight.clone()]"), {"operators": 1, "bytes_allocated": 4096}, "KEPT[:] = [model.fc.weight.clone()]"),
        (forward("h = h + torch.zeros_like(h)"), {"operators": 2, "bytes_allocated": 2 * 8192}, "h = h + torch.zeros_like(h)"),
        (step("KEPT.append(torch.empty(1024))"), {"operators": 1, "bytes_allocated": 4096, "peak_live_bytes": 4096}, "KEPT.append(torch.empty(1024))"),
    ],
    ids=["moved", "item", "clone", "zeros", "leak"],
)  # fmt: skip
def test_a_change_shows(project: Project, request: Any, text: str, changed: dict[str, int], line: str | None) -> None:
    name = request.node.callspec.id
    before, after = counted(project, TRAIN, f"{name}_before"), counted(project, text, f"{name}_after")
    growth = {key: after["values"][key] - value for key, value in before["values"].items()}
    growth = {key: value for key, value in growth.items() if value}
    peak = growth.pop("peak_live_bytes", 0)
    assert growth == {key: value for key, value in changed.items() if key != "peak_live_bytes"}
    assert peak >= changed.get("peak_live_bytes", 0)
    assert after["unsteady"] == {}
    texts = {spot[2] for spots in before["places"].values() for spot in spots}
    new = {spot[2] for spots in after["places"].values() for spot in spots} - texts
    assert new == ({line} if line else set())


@pytest.mark.parametrize(
    ("text", "unsteady"),
    [
        (step("STEPS.append(1)", "if len(STEPS) % 2: loss = loss * 1"), {"operators", "bytes_allocated"}),
        (step("for _ in range(random.randrange(1000)): x * 1"), {"operators", "bytes_allocated"}),
        (step("if random.random() < 2: loss = loss * 1"), set()),
    ],
    ids=["every_other_step", "chance", "always"],
)  # fmt: skip
def test_a_step_that_is_not_like_the_next_is_told(
    project: Project, request: Any, text: str, unsteady: set[str]
) -> None:
    found = counted(project, text, f"unsteady_{request.node.callspec.id}")
    assert set(found["unsteady"]) - {"peak_live_bytes"} == unsteady
    assert all(words.endswith(" in two steps") for words in found["unsteady"].values())


ITERABLE = """

class Stream(IterableDataset):
    def __iter__(self): return ((torch.ones(4), 1) for _ in range(60))
"""
NAMES = """

class Named(Data):
    def __getitem__(self, name): return super().__getitem__(ord(name))
"""
ENDLESS = """

class Endless:
    def __iter__(self):
        while True: yield 0
"""
UNLOADED = """

class Fragile(Data):
    def __getitem__(self, i):
        if i > 55: raise ValueError("loaded")
        return super().__getitem__(i)
"""


@pytest.mark.parametrize(
    ("text", "repeated", "skipped"),
    [
        (loader("DataLoader(Data(), batch_size=8, shuffle=True)"), 0, 0),
        (loader("DataLoader(Data(), batch_size=8, shuffle=True, drop_last=True)"), 0, 4),
        (loader("DataLoader(Data(), batch_size=8, sampler=[0, 0, 1] * 20)"), 58, 58),
        (loader("DataLoader(Data(), batch_sampler=[[0, 1], [2, -58]] * 9)"), 33, 57),  # -58 is 2
        (loader("DataLoader([(torch.ones(8, 4), torch.zeros(8).long())] * 12, batch_size=None)"), 0, 0),
        (loader("DataLoader(Fragile(), batch_size=8)", UNLOADED), 0, 0),  # no sample is loaded for it
    ],
    ids=["shuffle", "drop_last", "list", "batches", "single", "fragile"],
)  # fmt: skip
def test_samples_of_an_epoch(project: Project, request: Any, text: str, repeated: int, skipped: int) -> None:
    found = counted(project, text, f"epoch_{request.node.callspec.id}")
    assert (found["values"]["samples_repeated"], found["values"]["samples_skipped"]) == (repeated, skipped)
    assert "samples_repeated" not in found["absent"]


def test_a_sampler_with_replacement_draws_the_same_after_any_construction(project: Project) -> None:
    text = loader("DataLoader(Data(), batch_size=8, sampler=RandomSampler(Data(), replacement=True))")
    one = counted(project, text, "replacement_one")["values"]
    other = counted(project, text.replace("KEPT = []", "KEPT = [torch.rand(100)]"), "replacement_other")["values"]
    assert one["samples_repeated"] == one["samples_skipped"] > 0
    assert one == other


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (loader("DataLoader(Stream(), batch_size=8)", ITERABLE), "the dataset is iterable and has no indices"),
        (loader("DataLoader(Named(), batch_size=4, sampler=list('abcdefgh'))", NAMES),
         "the sampler's indices cannot be counted: ValueError: invalid literal for int() with base 10: 'a'"),
        (loader("DataLoader(Data(), batch_size=4, sampler=Endless())", ENDLESS),
         "the sampler draws more than 2,000,000 indices in an epoch"),
    ],
    ids=["iterable", "names", "endless"],
)  # fmt: skip
def test_an_epoch_without_indices(project: Project, request: Any, text: str, why: str) -> None:
    found = counted(project, text, f"no_indices_{request.node.callspec.id}")
    assert found["absent"] == {"samples_repeated": why, "samples_skipped": why}
    assert found["unsteady"] == {}
    assert "samples_repeated" not in found["values"]


def test_the_smaller_last_batch_of_a_short_epoch_is_not_counted(project: Project) -> None:
    found = counted(project, loader("DataLoader(Data(), batch_size=40)"), "short_epoch")
    assert (found["values"]["samples"], found["unsteady"]) == (40, {})


def test_batches_of_other_sizes_are_told(project: Project) -> None:
    text = loader("DataLoader(Data(), batch_sampler=[[0] * n for n in range(1, 20)])")
    found = counted(project, text, "growing")
    assert found["unsteady"]["samples"] == "1 and 2 in two steps"
    assert "flops" in found["unsteady"] and "operators" not in found["unsteady"]


def test_loading_is_no_part_of_the_step(project: Project) -> None:
    plain = counted(project, TRAIN, "loading_plain")["values"]
    slow = counted(project, TRAIN.replace("float(i)),", "float(i)) * 1 + 1,"), "loading_more")["values"]
    assert slow == plain


def test_a_step_that_fails_says_so_itself(project: Project) -> None:
    with pytest.raises(ZeroDivisionError):
        counted(project, step("1 / 0"), "fails")
    with pytest.raises(TargetError, match=r"training_step\(\) returned a float"):
        counted(project, step("return 1.0"), "no_loss")


def test_a_step_that_fails_only_under_observation_is_absent(project: Project) -> None:
    watched = "torch.utils._python_dispatch._get_current_dispatch_mode() is not None"
    found = counted(project, step(f"assert not {watched}, 'watched'"), "shy")
    why = "a step under observation failed: AssertionError: watched"
    assert found["absent"] == dict.fromkeys(
        ("bytes_allocated", "flops", "host_syncs", "operators", "peak_live_bytes", "samples"), why
    )
    assert found["values"]["parameters"] == 5 * 256 + 257 * 3


HOST, META = torch.ones(6), torch.ones(6, device="meta")  # a device without data stands for an accelerator


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "copies"),
    [
        ("aten::_to_copy", (HOST,), {"device": META.device}, 1),
        ("aten::_to_copy", (HOST,), {"device": HOST.device}, 0),
        ("aten::_to_copy", (HOST,), {"dtype": torch.float64}, 0),
        ("aten::_to_copy", (META,), {"device": META.device}, 0),
        ("aten::copy_", (META, HOST), {}, 1),
        ("aten::copy_", (HOST, META), {}, 0),
        ("aten::copy_", (META, META), {}, 0),
        ("aten::clone", (HOST,), {}, 0),
    ],
)
def test_copies_to_the_device(name: str, args: Any, kwargs: Any, copies: int) -> None:
    found = copy_counts(name, args, kwargs, "meta")
    assert found == ({"copies_to_device": 1, "bytes_to_device": 24, "unpinned_copies": 1} if copies else {})


def test_a_pinned_copy_is_none_from_unpinned_memory() -> None:
    pinned = SimpleNamespace(
        device=HOST.device, numel=lambda: 6, element_size=lambda: 4, is_pinned=lambda: True
    )  # fmt: skip
    found = copy_counts("aten::_to_copy", (pinned,), {"device": META.device}, "meta")
    assert found == {"copies_to_device": 1, "bytes_to_device": 24, "unpinned_copies": 0}


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([], (0, 0)),
        (["aten::mul", "cudaLaunchKernel", "void at::native::vectorized_elementwise_kernel<4>"], (1, 0)),
        (["cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaLaunchCooperativeKernel"], (4, 0)),
        (["hipLaunchKernel", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel", "hipGraphLaunch"], (3, 1)),
        (["cudaGraphLaunch", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaStreamSynchronize"], (0, 2)),
        (["MyModule.LaunchKernel", "user: cudaLaunchKernel"], (0, 0)),  # names that the program gave
    ],
)
def test_launches_in_a_profile(names: list[str], found: tuple[int, int]) -> None:
    assert launches(names) == found


def _refuses(run: Callable[[], None]) -> list[str]:
    raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES\nmore")


@pytest.mark.parametrize(
    ("seen_of", "said"),
    [
        (lambda run: ["aten::zeros", "cudaLaunchKernel", "cudaStreamSynchronize"], ""),
        (
            lambda run: ["aten::zeros", "aten::fill_"],
            "torch's profiler does not see a kernel that was launched, so CUPTI is",
        ),
        (
            lambda run: [],
            "torch's profiler does not see a kernel that was launched, so CUPTI is missing, not permitted, or",
        ),
        (_refuses, "torch's profiler does not run here: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
    ],
)
def test_a_profiler_that_sees_no_kernel_counts_none(seen_of: Any, said: str) -> None:
    found = why_uncounted(seen_of, lambda: None)
    assert found.startswith(said) and bool(found) == bool(said)


@pytest.mark.parametrize(
    ("sees", "values"), [(True, {"kernels_launched": 2, "graphs_replayed": 0}), (False, {})], ids=["CUPTI", "without"]
)
def test_launches_that_cannot_be_counted_are_absent(monkeypatch: pytest.MonkeyPatch, sees: bool, values: Any) -> None:
    """On a described device: a step of two kernels, with a profiler that sees them and one that does not."""
    run = iter([["cudaLaunchKernel"], ["cudaLaunchKernel"] * 2])
    monkeypatch.setattr(counters_as_run, "names_of", lambda _: next(run) if sees else ["aten::mul"])
    monkeypatch.setattr(counters_as_run, "compiles", lambda _: False)  # another test of this process may have compiled
    training = SimpleNamespace(
        device=SimpleNamespace(type="cuda"),
        compiled_sites={},
        model=torch.nn.Linear(1, 1),
        whole_step=lambda: None,
        synchronize=lambda: None,
        phases=SimpleNamespace(take=dict),
    )
    found = counters_as_run.counters_as_run(training)
    assert found["values"] == values
    assert set(found["absent"]) == ({"kernels_launched", "graphs_replayed"} - values.keys())


@pytest.mark.parametrize(
    ("compiled", "found"),
    [([], 0), ([("a.py", 1, "f")], 0), ([("a.py", 1, "f"), ("a.py", 9, "g")], 0), ([("a.py", 1, "f")] * 3, 2)],
)
def test_recompilations(compiled: list[tuple[object, ...]], found: int) -> None:
    assert recompilations(compiled) == found


def test_reasons_of_graph_breaks_are_one_line() -> None:
    assert first_line("\n  Data dependent\n  Explanation: ...") == "Data dependent"
    assert len(first_line("x" * 500)) == 120


@pytest.mark.gpu
def test_copies_and_launches_on_a_device(project: Project) -> None:
    path = project(**{"on_device.py": TRAIN}) / "on_device.py"
    training = FactoryTraining(Target(path.name), "cuda")
    values = counters(training)["values"]
    assert (values["copies_to_device"], values["unpinned_copies"]) == (2, 2)
    assert values["bytes_to_device"] == 8 * 4 * 4 + 8 * 8
    ran = counters_as_run.counters_as_run(training)
    if ran["absent"]:  # without CUPTI
        assert set(ran["absent"]) == {"kernels_launched", "graphs_replayed"} and not ran["values"]
    else:
        assert ran["values"]["kernels_launched"] > 10 and ran["values"]["graphs_replayed"] == 0
