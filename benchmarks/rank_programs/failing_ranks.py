"""A training on two ranks of which the second fails behind twenty steps, as its argument says: raise, hang, die, fewer."""

from __future__ import annotations

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, FAILS_AT = 400, 20


def fail(how: str) -> None:
    if how == "raise":
        raise ValueError("rank 1 has had enough")
    if how == "hang":
        dist.barrier()  # which the other rank does not enter
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "fewer":
        sys.exit()


def main(mode: str) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        if dist.get_rank() == 1 and step == FAILS_AT:
            fail(mode)
        loss = model(torch.randn(8, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1] if len(sys.argv) > 1 else "raise")
