"""What only a CUDA device can show. Each has a sibling that runs without one (tests/knobs, tests/target)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_model():
    return nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 900, 10))


def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(256, 3, 32, 32), torch.randint(0, 10, (256,))), batch_size=32)
"""


def test_cudnn_is_searched_on_a_cuda_device(project: Callable[..., Path], perfaudit: Callable[..., Any]) -> None:
    project(**{"train.py": TRAIN})
    report = json.loads(perfaudit("tune", "train.py", "--cudnn", "--budget", "30s", "--format", "json").out)
    assert {t["settings"]["benchmark"] for t in report["trials"] if t["status"] == "ok"} == {False, True}


def test_pinned_memory_and_peak_of_the_allocator(project: Callable[..., Path], perfaudit: Callable[..., Any]) -> None:
    project(**{"train.py": TRAIN})
    report = json.loads(
        perfaudit("tune", "train.py", "--dataloader", "--batch-size", "--budget", "60s", "--format", "json").out
    )
    assert {t["settings"].get("pin_memory") for t in report["trials"]} >= {True, False}
    peaks = [t["peak_memory_bytes"] for t in report["trials"] if t["knob"] == "batch_size" and t["peak_memory_bytes"]]
    assert len(peaks) >= 2 and min(peaks) > 0


def test_the_update_of_an_average_is_timed_by_events(
    project: Callable[..., Path], perfaudit: Callable[..., Any]
) -> None:
    project(**{"train.py": TRAIN})
    report = json.loads(perfaudit("tune", "train.py", "--ema", "--budget", "60s", "--format", "json").out)
    added = [t["added_seconds"][0] for t in report["trials"] if t["added_seconds"]]
    assert added and all(seconds > 0 for seconds in added)


needs_two = pytest.mark.skipif("__import__('torch').cuda.device_count() < 2", reason="needs two CUDA devices")

PLACED = (
    TRAIN
    + """

import os
PLACE = os.environ.get("PLACE", "")
plain = build_model


def build_model():
    return plain().to(PLACE) if PLACE else plain()
"""
)


@pytest.mark.parametrize("device", ["cuda", "cuda:0", pytest.param("cuda:1", marks=needs_two)])
@pytest.mark.parametrize("place", ["", "cuda"])
def test_a_training_is_timed_on_the_device_that_was_asked_for(
    project: Callable[..., Path], device: str, place: str
) -> None:
    """In a process of its own, as the device that is current there is the process'. Phases and peak are those of its device."""
    project(**{"train.py": PLACED})
    code = """
import json, sys, torch
from perfaudit.measure.holder import Holder
from perfaudit.measure.verbs import building, looking, timing
holder = Holder()
facts = building.build(holder, {"file": "train.py", "names": {}}, {}, "", {}, sys.argv[1])
block = timing.block(holder, 5)
own = holder.training.device
print(json.dumps({"device": str(own), "current": torch.cuda.current_device(), "places": sorted(
    {str(p.device) for p in holder.training.model.parameters()}), "phases": block["phases"], "wall": block["wall"],
    "peak": looking.memory(holder)["peak_bytes"], "held": torch.cuda.memory_allocated(own)}))
"""
    environment = {**os.environ, "PLACE": place, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code, device], capture_output=True, text=True, check=True, env=environment
    )
    seen = json.loads(done.stdout.splitlines()[-1])
    number = int(device.partition(":")[2] or 0)
    assert (seen["device"], seen["current"]) == (f"cuda:{number}", number)
    assert seen["places"] == [f"cuda:{number}"]
    on_device = {name: s for name, s in seen["phases"].items() if name in ("forward", "backward", "optimizer")}
    assert len(on_device) == 3 and all(s > 0 for s in on_device.values())
    assert sum(on_device.values()) <= 1.1 * seen["wall"]
    assert seen["peak"] >= seen["held"] > 0


def test_batches_of_every_kind_move_to_cuda() -> None:
    import torch
    from torch.nn.utils.rnn import pack_sequence

    from perfaudit.target.batches import on_device, tensors_in

    device = torch.device("cuda:0")
    batch = {"packed": pack_sequence([torch.ones(3, 2), torch.ones(2, 2)]), "pair": (torch.ones(2).pin_memory(), "cat")}
    for non_blocking in (False, True):
        moved, left = on_device(batch, device, non_blocking)
        assert not left and type(moved["packed"]) is type(batch["packed"])
        assert {t.device.type for t in tensors_in(moved["pair"])} == {"cuda"} == {moved["packed"].data.device.type}
        assert torch.equal(moved["pair"][0].cpu(), torch.ones(2))


def test_an_average_on_a_side_stream_is_the_same_average() -> None:
    import torch

    from perfaudit.target.accelerator import accelerator_of

    accelerator = accelerator_of(torch.device("cuda:0"))
    value = torch.zeros(1 << 20, device="cuda:0")
    start, wait = accelerator.beside(lambda: value.add_(1))
    for _ in range(20):
        start()
        wait()
        value.mul_(1)
    accelerator.synchronize()
    assert float(value.min()) == float(value.max()) == 20.0


def test_the_memory_that_is_asked_for_adds_up() -> None:
    import torch

    from perfaudit.target.accelerator import accelerator_of

    accelerator = accelerator_of(torch.device("cuda:0"))
    accelerator.reset_peak()
    held = torch.zeros(1 << 22, device="cuda:0")
    peak, reserved = accelerator.peak_bytes(), accelerator.reserved_bytes()
    free, total = accelerator.free_bytes(), torch.cuda.mem_get_info(torch.device("cuda:0"))[1]
    assert peak is not None and reserved is not None and free is not None
    assert held.nbytes <= peak <= (accelerator.peak_reserved_bytes() or 0)
    assert free + reserved <= total


def test_a_forked_child_uses_the_device(project: Callable[..., Path]) -> None:
    from perfaudit.measure import nursery
    from perfaudit.measure.child import Child
    from perfaudit.measure.lab import build_command
    from perfaudit.measure.ledger import Variant

    folder = project(**{"train.py": TRAIN})
    with Child() as child:
        target = {"file": str(folder / "train.py"), "names": {}}
        facts = child.ask(build_command(target, Variant("plain", "", {}), "cuda"), 120.0)
        room = child.ask({"do": "room"}, 60.0)
    assert (facts["device"]["type"], nursery.refusal()) == ("cuda", "")
    assert room["free"] > 0 and room["taken"] > 0


def test_a_training_of_more_than_half_of_the_device_is_measured_one_copy_after_the_other(
    project: Callable[..., Path], perfaudit: Callable[..., Any]
) -> None:
    kept = "torch.zeros(int(0.55 * torch.cuda.get_device_properties(0).total_memory), dtype=torch.uint8)"
    text = TRAIN.replace("def build_model():\n    return ", "def build_model():\n    model = ")
    text = text.replace(
        "\n\n\ndef build_dataloader",
        f'\n    model.register_buffer("kept", {kept})\n    return model\n\n\ndef build_dataloader',
    )
    project(**{"train.py": text})
    report = json.loads(perfaudit("tune", "train.py", "--batch-size", "--budget", "60s", "--format", "json").out)
    assert any("one after the other" in note for note in report["notes"])


def test_a_confirmed_batch_stays_within_its_budget(project: Callable[..., Path], perfaudit: Callable[..., Any]) -> None:
    project(**{"train.py": TRAIN})
    report = json.loads(
        perfaudit("tune", "train.py", "--batch-size", "--memory", "2GiB", "--budget", "90s", "--format", "json").out
    )
    said = " ".join(remark for winner in report["winners"] for remark in winner["remarks"])
    confirmed = re.search(r"confirmed: a real step of [\d,]+ samples took ([\d,.]+) MiB", said)
    assert confirmed, said
    assert float(confirmed[1].replace(",", "")) <= 2048


def screened(file: str, entrants: list[Any], seconds: float) -> tuple[Any, Any]:
    """What a child says of candidates that it puts in place, and how their race stands after so many seconds."""
    from perfaudit.measure.child import Child
    from perfaudit.measure.lab import build_command
    from perfaudit.measure.ledger import Variant

    with Child() as child:
        child.ask(build_command({"file": file, "names": {}}, Variant("own", "", {}), "cuda"), 120.0)
        prepared = child.ask({"do": "screen", "entrants": entrants, "least": 0.01, "seed": 1}, 120.0)
        return prepared, child.ask({"do": "race", "seconds": seconds, "last": True}, 120.0)


def test_candidates_are_raced_in_blocks_between_two_waits(project: Callable[..., Path]) -> None:
    project(**{"train.py": TRAIN})
    entrants = [
        {"key": "format", "settings": [["perfaudit.knobs.memory_format:KNOB", {"memory_format": "channels_last"}]]},
        {"key": "twin", "whole": {"train.py": TRAIN + "\n"}, "way": "twin"},
    ]
    prepared, state = screened("train.py", entrants, 20.0)
    assert prepared["refused"] == {}
    assert prepared["ways"] == {"format": "setting", "twin": "twin", "control": "twin"}
    assert state["block"] >= 5
    assert state["base"]["phases"]["forward"] > 0  # by events
    assert all(entrant["log_ratios"] for entrant in state["entrants"].values())
    assert 0.5 < state["entrants"]["twin"]["interval"][0] < 2.0  # identical code


def test_a_twin_for_which_the_device_has_no_room_is_refused(project: Callable[..., Path]) -> None:
    import torch

    # Four copies: parameters, gradients, and AdamW's two.
    features = int((0.6 * torch.cuda.mem_get_info()[0] / 4 / 4) ** 0.5)
    program = f"""
import torch
from torch import nn

def build_model():
    return nn.Linear({features}, {features}, bias=False)

def build_dataloader():
    return torch.utils.data.DataLoader(torch.randn(64, {features}), batch_size=2)

def training_step(model, batch):
    return model(batch).square().mean()
"""
    project(**{"large.py": program})
    prepared, state = screened("large.py", [{"key": "twin", "whole": {"large.py": program + "\n"}, "way": "twin"}], 1.0)
    assert prepared["refused"]["twin"].startswith("memory does not hold a second training beside the first")
    assert "twin" not in state["entrants"]


LIMITED = """
import sys
import torch
from torch import nn

wide = sys.argv[1] == "device"
layers = [nn.Linear(4096, 4096) for _ in range(8)] if wide else [nn.Linear(4, 4) for _ in range(200)]
model = nn.Sequential(*layers).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(4096 if wide else 4, 4096 if wide else 4, device="cuda")
while True:
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("limit", ["device", "host"])
def test_what_limits_a_script_on_a_cuda_device(limit: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LIMITED)
    done = subprocess.run(
        [sys.executable, "-m", "perfaudit", "run", "train.py", "--steps", "40", "--profile", "--format", "json", "--", limit],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    seen = json.loads(done.stdout)["run"]
    assert (seen["limited_by"], seen["device"]) == (limit, "cuda"), seen
    assert seen["profile"]["kernels"]
