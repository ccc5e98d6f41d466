"""What else than the call of DistributedDataParallel is tried on ranks, and why some of it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_choices import ACCUMULATING, HEAD, choice, of, patched

from perfaudit.findings import CHANGES
from perfaudit.tune.ranks.candidates import candidates_of
from perfaudit.tune.ranks.patches import SeenRanks


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_line_that_cannot_be_edited_is_named_with_the_patch_it_was_for() -> None:
    found = choice(
        "model = DDP(net)\nloader = DataLoader(a, num_workers=N)\nN = 4\n",
        ranks=SeenRanks(4, loaders_read=[["train.py", 8, 8]]),
    )
    assert "num_workers=1 is not tried: train.py:8 cannot be edited without a doubt" in found.left
    spread = ACCUMULATING.replace("if (i + 1) % 4 == 0:", "if (\n        (i + 1)\n        % 4 == 0\n    ):")
    left = choice(spread).left
    assert "no_sync=True is not tried: train.py:12 cannot be edited without a doubt" in left, left


def test_the_search_for_unused_parameters_is_left_out_where_nothing_says_that_it_is_needed() -> None:
    text = "model = DDP(nn.Linear(2, 2), find_unused_parameters=True)\n"
    key = "find_unused_parameters=False"
    assert patched(choice(text), key) == HEAD + "model = DDP(nn.Linear(2, 2))\n"
    frozen = choice(text + "model.module.freeze_backbone()\n")
    assert of(frozen, key) is None
    assert any("parts are frozen" in each for each in frozen.left)
    assert of(choice(text.replace("True", "flag")), key) is None
    candidate = of(choice(text), key)
    assert candidate is not None and candidate.fix.safety == "unsafe"  # a later step may leave one unused
    Path("parts.py").write_text("def start(net):\n    net.body.requires_grad_(False)\n")
    elsewhere = candidates_of(["train.py", "parts.py"], frozenset(CHANGES), SeenRanks())
    assert of(elsewhere, key) is None


def test_compressed_communication_is_a_hook_behind_the_wrapping_and_has_to_be_allowed() -> None:
    text = "model = DDP(nn.Linear(2, 2))\nrun(model)\n"
    found = choice(text)
    line = "model = DDP(nn.Linear(2, 2))\nmodel.register_comm_hook(None, fp16_compress_hook)\nrun(model)\n"
    assert patched(found, "comm_hook='fp16_compress_hook'").endswith(line)
    assert of(found, "comm_hook='bf16_compress_hook'") is None  # torch refuses it on gloo
    assert of(choice(text, ranks=SeenRanks(backend="nccl")), "comm_hook='bf16_compress_hook'")
    safe = choice(text, frozenset({"rounding"}))
    assert of(safe, "comm_hook='fp16_compress_hook'") is None
    assert any("--allow precision tries it" in each for each in safe.left)
    own = choice(text + "model.register_comm_hook(None, hook)\n")
    assert any("one of its own" in each for each in own.left)
    assert any("no name" in each for each in choice("run(DDP(nn.Linear(2, 2)))\n").left)


@pytest.mark.parametrize(
    ("argument", "cores", "numbers"),
    [
        ("", 1, [1]),
        (", num_workers=0", 4, [1, 4]),
        (", num_workers=8", 2, [0, 1, 2]),
        (", num_workers=8, persistent_workers=True", 2, [1, 2]),
        (", num_workers=2", 2, [1]),
        (", num_workers=args.workers", 2, []),
    ],
)
def test_workers_of_all_ranks_share_the_cores(argument: str, cores: int, numbers: list[int]) -> None:
    text = f"model = DDP(net)\nloader = DataLoader(data, sampler=DistributedSampler(data){argument})\n"
    found = choice(text + "other = DataLoader(held_out)\n", ranks=SeenRanks(cores, loaders_read=[["train.py", 8, 8]]))
    tried = [each for each in found.candidates if "num_workers" in each.settings]
    assert [each.settings["num_workers"] for each in tried] == numbers
    assert {(each.fix.safety, each.fix.changes) for each in tried} <= {("unsafe", ("rng",))}  # as the dataloader knob's
    assert bool(numbers) or any("no number in the text" in each for each in found.left)


def test_workers_that_would_each_read_all_of_an_iterable_dataset_are_not_tried() -> None:
    text = "model = DDP(net)\nloader = DataLoader(stream)\n"
    found = choice(text, ranks=SeenRanks(2, loaders_read=[["train.py", 8, 8]], reads_iterable=True))
    assert not [each for each in found.candidates if "num_workers" in each.settings]
    assert any("gives the same samples again" in each for each in found.left), found.left


def test_workers_are_told_in_numbers_of_one_and_of_more() -> None:
    text, read = "model = DDP(net)\nloader = DataLoader(data)\n", [["train.py", 8, 8]]
    words = [each.words for each in choice(text, ranks=SeenRanks(1, loaders_read=read)).candidates]
    assert "load with 1 worker on each rank; this node has 1 core for each" in words
    words = [each.words for each in choice(text, ranks=SeenRanks(4, loaders_read=read)).candidates]
    assert "load with 4 workers on each rank; this node has 4 cores for each" in words


@pytest.mark.parametrize(
    ("read", "line", "why"),
    [
        ([8], 8, ""),
        ([9], 9, ""),  # of the other one, although it shares nothing out
        ([8, 9], 0, "steps read 2 loaders: train.py:8, train.py:9"),
        ([], 0, "steps have read none of the 2 loaders that the files make by name"),
    ],
)
def test_the_loader_is_the_one_that_steps_have_read(read: list[int], line: int, why: str) -> None:
    text = "model = DDP(net)\nfirst = DataLoader(a, sampler=DistributedSampler(a))\nsecond = DataLoader(b)\n"
    found = choice(text, ranks=SeenRanks(2, loaders_read=[["train.py", each, each] for each in read]))
    assert {each.location.line for each in found.candidates if "num_workers" in each.settings} == ({line} - {0})
    assert not why or any(why in each for each in found.left), found.left


def test_parameters_that_are_sharded_may_stay_gathered() -> None:
    text = "from torch.distributed.fsdp import fully_shard\nfor layer in layers:\n    fully_shard(layer)\nfully_shard(net)\n"
    found = choice(text)
    assert patched(found, "reshard_after_forward=False").count(", reshard_after_forward=False)") == 2
    own = choice(text.replace("fully_shard(net)", "fully_shard(net, reshard_after_forward=True)"))
    assert of(own, "reshard_after_forward=False") is None
    assert any("sets it itself" in each for each in own.left)


def test_each_gradient_is_moved_by_its_last_bit_where_the_wrapped_model_has_a_name() -> None:
    moved = choice("model = DDP(nn.Linear(2, 2))\nrun(model)\n").moved
    assert moved is not None
    assert moved.path == "train.py"
    assert moved.nudged.splitlines()[-2].endswith("for _n, _w in enumerate(model.parameters()) if _w.requires_grad]")
    assert [
        text.count(f"grad * (1 + {share} * ") for text, share in zip(moved[1:], ("2**-23", "1.0"), strict=True)
    ] == [1, 1]
    assert choice("run(DDP(nn.Linear(2, 2)))\n").moved is None
    own = choice("class A:\n    def __init__(self):\n        self.model = DDP(nn.Linear(2, 2))\n").moved
    assert own is not None and "enumerate(self.model.parameters())" in own.spoiled


def test_batch_norm_over_ranks_is_only_named() -> None:
    found = choice("model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net))\n")
    assert any("SyncBatchNorm is left as it is" in each for each in found.left)
