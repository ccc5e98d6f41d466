"""A training that adds gradients up, and what is tried on the ranks of a program."""

from __future__ import annotations

from pathlib import Path

from perfaudit.findings import CHANGES
from perfaudit.tune.ranks.candidates import Choice, candidates_of
from perfaudit.tune.ranks.patches import RankPatch, SeenRanks

HEAD = """\
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

"""


ACCUMULATING = """\
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for i, x in enumerate(loader):
    y = x.cos()
    loss = model(y).mean()  # of one pass
    loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


LAST = "        optimizer.zero_grad()\n"


CONDITION = "if (i + 1) % 4 == 0:"


BACKWARD = "    loss.backward()\n"


def choice(text: str, allow: frozenset[str] = frozenset(CHANGES), ranks: SeenRanks | None = None) -> Choice:
    Path("train.py").write_text(HEAD + text)
    return candidates_of(["train.py"], allow, ranks or SeenRanks())


def of(found: Choice, key: str) -> RankPatch | None:
    return next((each for each in found.candidates if each.key == key), None)


def patched(found: Choice, key: str) -> str:
    candidate = of(found, key)
    assert candidate is not None, [each.key for each in found.candidates] + found.left
    return candidate.text


def patched_line(found: Choice) -> str:
    return next(line.strip() for line in patched(found, "no_sync=True").splitlines() if "no_sync" in line)
