"""A model of DistributedDataParallel that is wrapped otherwise for some steps: it learns what it would have learned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forked_programs import run_on_ranks

from perfaudit.measure.wrapped_otherwise import WrappedOtherwise, wrapped_model
from perfaudit.training.code_change import NotSwappable

pytestmark = pytest.mark.slow
SETTINGS = [
    {"gradient_as_bucket_view": True},
    {"static_graph": True},
    {"gradient_as_bucket_view": True, "static_graph": True},
    {"bucket_cap_mb": 5},
    {"comm_hook": "fp16_compress_hook"},
]
# Two equal models on each rank: one trained as it is, the other wrapped otherwise in most steps. All but the hook sum alike.
RANK = """
import contextlib, json, sys
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from perfaudit.measure.wrapped_otherwise import WrappedOtherwise

dist.init_process_group("gloo")
torch.set_num_threads(1)
settings, keeps_gradients = json.loads(sys.argv[1]), sys.argv[2] == "keeps"


def trained(other):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(300, 300), nn.BatchNorm1d(300), nn.ReLU()) for _ in range(6)]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(300, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    training, wrapped, buckets = SimpleNamespace(optimizers=[optimizer]), WrappedOtherwise(), set()
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(24):
        setting = settings[step // 2 % len(settings)] if other and step % 5 else None
        with wrapped.in_place(training, setting) if setting else contextlib.nullcontext():
            loss = (model(torch.randn(8, 300, generator=generator)) - 1).square().mean()
            optimizer.zero_grad(set_to_none=not keeps_gradients)
            loss.backward()
            buckets.add((id(model.reducer), model._get_ddp_logging_data().get("bucket_sizes")))
            optimizer.step()
        assert not model.gradient_as_bucket_view and not model.static_graph
    return [each.detach().clone() for each in model.state_dict().values()], buckets


own, _ = trained(False)
other, buckets = trained(True)
assert len({reducer for reducer, _ in buckets}) == 1 + len(settings), buckets
apart = max(float((a - b).abs().max()) for a, b in zip(own, other))
print(json.dumps({"same": all(map(torch.equal, own, other)), "apart": apart}))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("gradients", ["drops", "keeps"])
def test_what_is_learned_stays_the_same_to_the_bit(tmp_path: Path, gradients: str) -> None:
    for found in learned(tmp_path, SETTINGS[:4], gradients):
        assert found["same"], found


def test_a_hook_that_halves_the_gradients_bytes_is_felt_and_taken_back(tmp_path: Path) -> None:
    for found in learned(tmp_path, SETTINGS[4:], "drops"):
        assert 0 < found["apart"] < 0.1


def learned(folder: Path, settings: list[dict[str, Any]], gradients: str) -> Iterator[dict[str, Any]]:
    for done in run_on_ranks(RANK, "rank.py", [json.dumps(settings), gradients], folder):
        assert done.code == 0, done.err
        yield json.loads(done.out.splitlines()[-1])


@pytest.fixture
def alone() -> Iterator[Any]:
    """torch.distributed with this process as its only rank."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist
    dist.destroy_process_group()


def a_training(**arguments: Any) -> Any:
    import torch

    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)), **arguments
    )
    return SimpleNamespace(model=model, optimizers=[torch.optim.SGD(model.parameters(), lr=0.1)])


def with_own_hook() -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    training = a_training()
    training.model.register_comm_hook(None, default_hooks.allreduce_hook)
    return training


def with_builtin_hook() -> Any:
    import torch

    training = a_training()
    training.model._register_builtin_comm_hook(torch.distributed.BuiltinCommHookType.ALLREDUCE)
    return training


def with_two_models() -> Any:
    import torch

    first, second = a_training(), a_training()
    parameters = [*first.model.parameters(), *second.model.parameters()]
    return SimpleNamespace(models=[first.model, second.model], optimizers=[torch.optim.SGD(parameters, lr=0.1)])


def compiled() -> Any:
    import torch

    training = a_training()
    training.compiled = torch.compile(training.model)
    return training


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: a_training(find_unused_parameters=True), "searches for unused parameters"),
        (with_own_hook, "has a communication hook of its own"),
        (with_builtin_hook, "has a communication hook of its own"),
        (with_two_models, "steps update 2 models of DistributedDataParallel"),
        (lambda: SimpleNamespace(optimizers=[]), "steps update no models of DistributedDataParallel"),
        (compiled, "is compiled"),
    ],
)
def test_why_a_model_keeps_its_reducer(alone: Any, made: Any, why: str) -> None:
    with pytest.raises(NotSwappable, match=why):
        wrapped_model(made())


def test_a_model_whose_parameters_were_frozen_since_keeps_its_reducer(alone: Any) -> None:
    training = a_training()
    training.model.module[0].bias.requires_grad_(False)
    with (
        pytest.raises(NotSwappable, match="frozen, or freed"),
        WrappedOtherwise().in_place(training, {"static_graph": True}),
    ):
        pass


def test_buckets_are_as_large_as_the_setting_and_the_models_own_come_back(alone: Any) -> None:
    training, wrapped = a_training(bucket_cap_mb=7), WrappedOtherwise()
    own = training.model.reducer
    with wrapped.in_place(training, {"bucket_cap_mb": 5}):
        other = training.model.reducer
        assert (training.model.bucket_bytes_cap, other is own) == (5 << 20, False)
    assert (training.model.bucket_bytes_cap, training.model.reducer is own) == (7 << 20, True)
    with wrapped.in_place(training, {"gradient_as_bucket_view": True}):
        assert (training.model.bucket_bytes_cap, training.model.gradient_as_bucket_view) == (7 << 20, True)
    with wrapped.in_place(training, {"bucket_cap_mb": 5}):
        assert training.model.reducer is other  # and its buckets, in the order in which gradients come
