"""Patches of the call of DistributedDataParallel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfaudit.tune.ranks.candidates import NoCandidates, candidates_of
from perfaudit.tune.ranks.patches import is_unchanged

HEAD = "from torch.nn.parallel import DistributedDataParallel as DDP\n"
ROUNDING = frozenset({"rounding"})


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]  # of pytest
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "train.py") -> str:
        (tmp_path / name).write_text(HEAD + text)
        return str(tmp_path / name)

    return write


def test_each_setting_is_a_patch_of_the_call_and_stands_beside_what_the_call_has(write) -> None:  # type: ignore[no-untyped-def]
    now, found, *_ = candidates_of([write("model = DDP(net, device_ids=[0])\n")], ROUNDING)
    assert now == {"gradient_as_bucket_view": False, "static_graph": False, "bucket_cap_mb": 25}
    assert [each.key for each in found] == [
        "gradient_as_bucket_view=True",
        "static_graph=True",
        "gradient_as_bucket_view=True, static_graph=True",
        "bucket_cap_mb=5",
        "bucket_cap_mb=100",
    ]
    both = found[2]
    assert both.text == HEAD + "model = DDP(net, device_ids=[0], gradient_as_bucket_view=True, static_graph=True)\n"
    assert (both.path, both.location.line, both.settings["bucket_cap_mb"]) == ("train.py", 2, 25)
    assert both.fix.before
    # The race sees a few steps, and torch relies on a static graph in all that follow.
    assert {each.fix.safety for each in found[:3]} == {"unsafe"}  # and who keeps gradients keeps views of buckets
    assert "during the whole training" in both.words
    assert found[3].fix.changes == ("rounding",)
    assert all(is_unchanged(each) for each in found)
    Path("train.py").write_text(HEAD + "\nmodel = DDP(net, device_ids=[0])\n")
    assert not any(is_unchanged(each) for each in found)


@pytest.mark.parametrize(
    ("behind", "why"),
    [
        ("model.module.freeze_backbone()\n", "parameters are frozen or freed"),
        ("for p in net.body.parameters():\n    p.requires_grad = False\n", "parameters are frozen or freed"),
        ("net.layer_drop = 0.1\n", "steps run other parts"),
        (
            "for epoch in range(9):\n    loss = f()\n    if epoch > 4:\n        loss += model.head()\n",
            "train.py:5 may change",
        ),
        ("loss = a if random.random() < 0.5 else b\n", "train.py:3 may change"),
        (
            "class Net:\n    def forward(self, x):\n        if torch.rand(1) < 0.5:\n            return x\n",
            "train.py:5 may change",
        ),
    ],
)
def test_where_a_step_may_have_another_graph_none_is_called_static(write, behind: str, why: str) -> None:  # type: ignore[no-untyped-def]
    _, found, left, _ = candidates_of([write(f"model = DDP(net)\n{behind}")], ROUNDING)
    assert not any("static_graph" in each.key for each in found)
    assert any(each.key == "gradient_as_bucket_view=True" for each in found)
    assert any(each.startswith("static_graph=True is not tried for train.py:2: ") and why in each for each in left), (
        left
    )


@pytest.mark.parametrize(
    "behind",
    [
        "",
        "for x in loader:\n    loss = f(x)\n    if step % 100 == 0:\n        print(loss)\n",
        "class Net:\n    def forward(self, x):\n        if self.training:\n            return x\n",
    ],
)
def test_what_says_nothing_of_the_graph_is_no_reason(write, behind: str) -> None:  # type: ignore[no-untyped-def]
    _, found, *_ = candidates_of([write(f"model = DDP(net, find_unused_parameters=False)\n{behind}")], ROUNDING)
    assert any(each.key == "static_graph=True" for each in found)


def test_what_freezes_in_another_file_and_a_search_for_unused_parameters_forbid_a_static_graph(write) -> None:  # type: ignore[no-untyped-def]
    other = write("def start(net):\n    net.requires_grad_(False)\n", "parts.py")
    for call, files in (("DDP(net)", [other]), ("DDP(net, find_unused_parameters=flag)", [])):
        _, found, *_ = candidates_of([write(f"model = {call}\n"), *files], ROUNDING)
        assert not any("static_graph" in each.key for each in found)


def test_what_is_not_allowed_or_set_already_is_left_out(write) -> None:  # type: ignore[no-untyped-def]
    file = write("model = DDP(net, bucket_cap_mb=50, static_graph=flag)\n")
    now, found, *_ = candidates_of([file], ROUNDING)
    assert now == {"gradient_as_bucket_view": False}
    assert [each.key for each in found] == ["gradient_as_bucket_view=True"]
    _, safe, *_ = candidates_of([write("model = DDP(net)\n")], frozenset())
    assert not any("bucket_cap_mb" in each.key for each in safe)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("model = net\n", "no file that the script runs calls"),
        ("first = DDP(a)\nsecond = DDP(b)\n", "call DistributedDataParallel 2 times: train.py:2, train.py:3"),
        ("model = DDP(net, **options)\n", "cannot be edited"),
    ],
)
def test_why_there_is_nothing_to_try(write, text: str, why: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(NoCandidates) as refused:
        candidates_of([write(text)], ROUNDING)
    assert why in str(refused.value)


def test_files_outside_of_the_project_are_left_alone(write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    file = write("model = DDP(net)\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    with pytest.raises(NoCandidates):
        candidates_of([os.path.relpath(file)], ROUNDING)
