"""Conditions that ranks may answer differently: some would wait for sums that others never send."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_choices import choice, of

LOOP = """\
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
count = 0
for {target} in {over}:
    {front}
    loss = model(x).mean()
    loss.backward()
    if {test}:
        optimizer.step()
        optimizer.zero_grad()
        {behind}
"""
RANK = "asks which rank it is"
BATCHES = "depends on what a rank's own batches hold"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("target", "over", "front", "test", "behind", "why"),
    [
        ("i, x", "enumerate(loader)", "pass", "(i + 1) % 4 == 0", "pass", ""),
        ("step, x", "tqdm(enumerate(loader))", "pass", "(step + 1) % 4 == 0", "pass", ""),
        ("i, (x, y)", "bar", "ni = i + 9 * epoch", "ni - count >= 4", "count = ni", ""),
        ("i", "range(99)", "x = next(batches)", "(i + 1) % 4 == 0", "pass", ""),
        ("i", "bar(range(99))", "x = next(batches)", "(i + 1) % 4 == 0", "pass", ""),
        ("x", "loader", "count += 1", "count % 4 == 0", "pass", ""),
        ("x", "loader", "count += world_size", "count % 4 == 0", "pass", ""),
        ("i, x", "enumerate(loader)", "last = (i + 1) % 4 == 0", "last", "pass", ""),
        ("i, x", "enumerate(loader)", "pass", "(i + 1) % 4 == 0 and rank == 0", "pass", RANK),
        ("i, x", "enumerate(loader)", "pass", "(i + 1) % 4 == 0 and args.local_rank", "pass", RANK),
        ("x", "loader", "count += x.numel()", "count >= 4", "count = 0", BATCHES),
        ("i, x", "enumerate(loader)", "count += len(x)", "count % 64 == 0", "pass", BATCHES),
        (
            "i, x",
            "enumerate(loader)",
            "n = x.shape[0]; count += n",
            "count - 1 >= 64",
            "count = 0",
            "",
        ),  # not told at all
        ("i, x", "enumerate(loader)", "n = x.shape[0]; seen = count + n", "seen % 64 == 0", "pass", BATCHES),
        ("size, x", "loader", "pass", "size % 64 == 0", "pass", BATCHES),
        ("i", "range(99)", "x, n = next(batches)", "n % 4 == 0", "pass", BATCHES),
        ("x, i", "numbered(loader)", "pass", "i % 4 == 0", "pass", BATCHES),
    ],
)
def test_ranks_must_agree_on_the_last_pass(
    target: str, over: str, front: str, test: str, behind: str, why: str
) -> None:
    found = choice(LOOP.format(target=target, over=over, front=front, test=test, behind=behind))
    assert any(why in each for each in found.left), found.left
    assert not why or of(found, "no_sync=True") is None
    assert of(found, "no_sync=True") or why or "- 1" in test, found.left


@pytest.mark.parametrize(("value", "is_tried"), [("0.5", True), ("x.numel()", False)])
def test_attributes_of_the_same_object_are_told_apart(value: str, is_tried: bool) -> None:
    text = LOOP.format(
        target="x",
        over="loader",
        front="self.size = x.numel(); self.n = NEW",
        test="self.n % 4 == 0",
        behind="self.n = 1",
    )
    text = "".join(f"        {line}\n" for line in text.replace("NEW", value).splitlines())
    found = choice(f"class Trainer:\n    def __init__(self):\n        self.n = 4\n    def fit(self):\n{text}")
    assert (of(found, "no_sync=True") is not None) == is_tried, found.left
