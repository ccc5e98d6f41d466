"""Layers of FSDP2 are gathered ahead where the text says which comes next."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from forked_programs import run_on_ranks

from perfaudit.static.source import Source
from perfaudit.tune.ranks.patches import PatchRefused, SeenRanks
from perfaudit.tune.ranks.prefetching import candidates

HEAD = "from torch.distributed.fsdp import fully_shard\n"
LOOP = "for layer in model.layers:\n    fully_shard(layer)\nfully_shard(model)\n"
ONE = """\
for layer in model.layers:
    fully_shard(layer)
for number, layer in enumerate(model.layers):
    layer.set_modules_to_forward_prefetch(list(model.layers)[number + 1 : number + 2])
fully_shard(model)
"""
TWO = """\
for layer in model.layers:
    fully_shard(layer)
for number, layer in enumerate(model.layers):
    layer.set_modules_to_forward_prefetch(list(model.layers)[number + 1 : number + 3])
    layer.set_modules_to_backward_prefetch(list(model.layers)[max(0, number - 2) : number][::-1])
fully_shard(model)
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def texts(text: str) -> dict[str, str]:
    Path("train.py").write_text(HEAD + text)
    found = candidates([Source("train.py", HEAD + text)], SeenRanks())
    return {each.key: each.text.removeprefix(HEAD) for each in found}


def test_one_layer_ahead_and_two_in_both_passes() -> None:
    assert texts(LOOP) == {"forward_prefetch=1": ONE, "forward_prefetch=2, backward_prefetch=2": TWO}
    found = list(candidates([Source("train.py", HEAD + LOOP)], SeenRanks()))
    assert {each.fix.changes for each in found} == {()}


class Layer:
    def __init__(self) -> None:
        self.ahead: list[Layer] = []
        self.behind: list[Layer] = []

    def set_modules_to_forward_prefetch(self, layers: list[Layer]) -> None:
        self.ahead = layers

    def set_modules_to_backward_prefetch(self, layers: list[Layer]) -> None:
        self.behind = layers


def test_what_the_patch_tells_each_layer() -> None:
    layers = [Layer() for _ in range(4)]
    exec(TWO, {"model": SimpleNamespace(layers=layers), "fully_shard": lambda layer: None})
    first, second, third, last = layers
    assert [each.ahead for each in layers] == [[second, third], [third, last], [last], []]
    assert [each.behind for each in layers] == [[], [first], [second, first], [third, second]]


@pytest.mark.parametrize(
    "loop",
    [
        "for i, block in enumerate(self.model.blocks):\n    fully_shard(block, mesh=mesh)\n",
        "for block in net.layers.values():\n    policy = choose(block)\n    fully_shard(block, mp_policy=policy)\n",
    ],
)
def test_other_loops_over_layers(loop: str) -> None:
    patched = texts(loop + "number = 1\n")["forward_prefetch=1"]
    assert "\nfor position, block in enumerate(" in patched
    assert patched.endswith("[position + 1 : position + 2])\nnumber = 1\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("fully_shard(model)\n", "no loop shards"),
        (LOOP.replace("    fully", "    if big(layer):\n        fully"), "no loop shards"),
        (LOOP.replace("    fully", "    if small(layer):\n        continue\n    fully", 1), "no loop shards"),
        (LOOP.replace("    fully", "    layer = wrap(layer)\n    fully", 1), "no loop shards"),
        (LOOP.replace("model.layers", "model.modules()"), "no loop shards"),
        (LOOP + LOOP, "several loops"),
        (LOOP + "model.layers[0].set_modules_to_forward_prefetch([model.layers[1]])\n", "says itself"),
        (LOOP + "number = position = place = 0\n", "no name left"),
    ],
)
def test_why_nothing_is_gathered_ahead(text: str, why: str) -> None:
    with pytest.raises(PatchRefused, match=why):
        texts(text)


def test_a_program_without_fsdp_is_left_alone() -> None:
    assert list(candidates([Source("train.py", "for layer in model.layers:\n    compile(layer)\n")], SeenRanks())) == []


# Each step leaves out another layer, so that some of what is gathered ahead is gathered for nothing.
PROGRAM = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))

    def forward(self, features, without):
        for number, layer in enumerate(self.layers):
            if number != without:
                features = torch.relu(layer(features))
        return features


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
torch.manual_seed(dist.get_rank())
for step in range(12):
    loss = (model(torch.randn(4, 8), step % 6) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_what_is_learned_stays_the_same_to_the_bit(tmp_path: Path) -> None:
    found = {"": PROGRAM} | {each.key: each.text for each in candidates([Source("train.py", PROGRAM)], SeenRanks())}
    assert len(found) == 3
    losses = [losses_of(text, tmp_path) for text in found.values()]
    assert losses[1:] == [losses[0]] * 2
    assert len(losses[0][0].split()) == 12


def losses_of(text: str, folder: Path) -> list[str]:
    """What a program prints on two ranks."""
    ranks = run_on_ranks(text, "train.py", [], folder)
    assert [each.code for each in ranks] == [0, 0], ranks[0].err + ranks[1].err
    return [each.out for each in ranks]
