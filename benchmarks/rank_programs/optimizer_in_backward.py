"""Two equal trainings on ranks, whose blocks of steps take turns: one updates in `step()`, one in a communication hook.

The hook sums a bucket over the ranks and then updates its parameters, by an optimizer for each of them that shares state and
settings with the script's. Torch reads the annotations of a hook, so that they are no strings here. Given the name of an
optimizer's kind, it prints a JSON line.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

KINDS = {
    "AdamW": (torch.optim.AdamW, {"lr": 1e-3}),
    "AdamW, fused": (torch.optim.AdamW, {"lr": 1e-3, "fused": True}),
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
}
WIDTH, LAYERS, BATCH, STEPS, BLOCKS = 256, 20, 16, 6, 8


class Training:
    def __init__(self, kind: str, in_backward: bool) -> None:
        torch.manual_seed(0)
        layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
        self.model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(WIDTH, 4)))
        self.make, self.arguments = KINDS[kind]
        self.optimizer = self.make(self.model.parameters(), **self.arguments)
        self.batches = torch.Generator().manual_seed(dist.get_rank())
        self.losses: list[float] = []
        self.in_backward = in_backward
        if in_backward:
            self.one = {each: self.alone(each) for each in self.model.parameters()}
            self.model.register_comm_hook(None, self.hook)

    def alone(self, parameter: torch.Tensor) -> torch.optim.Optimizer:
        optimizer = self.make([parameter], **self.arguments)
        optimizer.state = self.optimizer.state
        return optimizer

    def hook(self, _: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        def update(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
                before, parameter.grad = parameter.grad, gradient
                self.one[parameter].step()
                parameter.grad = before
            return future.value()[0]

        buffer = bucket.buffer().div_(dist.get_world_size())
        return dist.all_reduce(buffer, async_op=True).get_future().then(update)

    def block(self) -> float:
        """Seconds of a step, over a block of them."""
        dist.barrier()
        began = time.perf_counter()
        for _ in range(STEPS):
            loss = self.model(torch.randn(BATCH, WIDTH, generator=self.batches)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            if not self.in_backward:
                self.optimizer.step()
            self.losses.append(loss.item())
        return (time.perf_counter() - began) / STEPS


def main(kind: str) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    behind, inside = Training(kind, False), Training(kind, True)
    for each in (behind, inside):
        each.block()  # buckets are made anew behind the first step
    pairs = []
    for number in range(BLOCKS):
        order = [behind, inside] if number % 2 else [inside, behind]
        seconds = {each.in_backward: each.block() for each in order}
        pairs.append([seconds[False], seconds[True]])
    weights = zip(behind.model.parameters(), inside.model.parameters(), strict=True)
    is_same = behind.losses == inside.losses and all(torch.equal(a, b) for a, b in weights)
    if dist.get_rank() == 0:
        print(json.dumps({"kind": kind, "same": is_same, "steps": len(behind.losses), "pairs": pairs}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1])
