"""Which wrong patches verification tells from right ones, on small trainings in this process, as on CPU and as on CUDA.

A machine is described as CUDA by its facts: cuDNN convolutions and matmuls in TF32, which tolerances follow. The patches
themselves compute as the CPU does.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from perfaudit.measure.gather_facts import facts_of
from perfaudit.measure.holder import Holder
from perfaudit.measure.ledger import Variant
from perfaudit.measure.runner import TrialFailed
from perfaudit.measure.verbs import VERBS
from perfaudit.target.names import Target
from perfaudit.training.factory_training import FactoryTraining
from perfaudit.tune.tolerance import Curve, Reference, curve_of
from perfaudit.tune.verify import Verifier

Json = dict[str, Any]

REFUSED = "refused: "
ROLES = {
    "model": "build_model",
    "dataloader": "build_dataloader",
    "optimizer": "build_optimizer",
    "step": "training_step",
}
FLAGS = {"cudnn.allow_tf32": True, "matmul_precision": "high"}


class Here:
    """In the place of a child: a training of this process that answers as one of a child does."""

    def __init__(self, file: str) -> None:
        self.holder = Holder()
        self.holder.training = FactoryTraining(Target(file, {}), "cpu")
        self.holder.built = True

    def ask(self, command: Json, timeout: float) -> Json:
        command = json.loads(json.dumps(command))
        reply: Json = VERBS[command.pop("do")](self.holder, **command)
        return json.loads(json.dumps(reply))  # type: ignore[no-any-return]  # as it goes through a pipe


Patch = tuple[str, str, tuple[str, ...]]  # what to replace, by what, and what besides speed that is said to change


def texts_of(program: str, patches: tuple[Patch, ...]) -> dict[str, str]:
    """By file, the program and what each patch makes of it."""
    texts = {"base.py": program}
    for number, (before, after, _) in enumerate(patches):
        assert before in program
        texts[f"{number}.py"] = program.replace(before, after)
    return texts


@functools.cache
def reference_of(program: str, patches: tuple[Patch, ...]) -> Reference:
    """What the program and its patches do by themselves, which is the same on every described machine."""

    def own(command: Json) -> Curve | None:
        return curve_of(Here("base.py").ask(command, 60.0))

    def reply(variant: Variant, command: Json) -> Json | None:
        return Here(f"{variant.key}.py").ask(command, 60.0)

    return Reference(own, lambda variant: 0, steps=4, ask_of=reply)


def judged(program: str, patches: tuple[Patch, ...], cuda: bool = False) -> dict[Patch, str]:
    """By patch, what is said of the program with it; why it was refused, after REFUSED."""
    texts = texts_of(program, patches)

    def load(target: Target) -> dict[str, Any]:
        found: dict[str, Any] = {}
        exec(texts[target.file], found)  # texts of this file
        return {role: found[name] for role, name in ROLES.items() if name in found}

    changes = {str(number): patch[2] for number, patch in enumerate(patches)}
    said: dict[Patch, str] = {}
    with pytest.MonkeyPatch.context() as change, Verifier("base", changes, reference_of(program, patches)) as verifier:
        change.setattr("perfaudit.training.factory_training.load", load)
        for key in ("base", *changes):
            child = Here(f"{key}.py")
            facts = facts_of(child.holder.training)
            if cuda:
                facts = replace(facts, device=replace(facts.device, type="cuda"), flags={**facts.flags, **FLAGS})
            try:
                verifier.check(child, Variant(key, "", {}), facts)  # type: ignore[arg-type]  # a stand-in
            except TrialFailed as failure:
                said[patches[int(key)]] = REFUSED + str(failure)
    return {**said, **{patches[int(key)]: words for key, words in verifier.said.items()}}


GENERATOR = '''
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_model():
    """A small DCGAN: the generator is trained against a discriminator that stays as it is."""
    model = nn.Module()
    model.generator = nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh(),
    )
    model.discriminator = nn.Sequential(
        nn.Conv2d(3, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2), nn.Conv2d(32, 1, 4, bias=False),
    )
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, 0.0, 0.02)
    return model


def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(64, 16, 1, 1)), batch_size=16)


def build_optimizer(model):
    return torch.optim.Adam(model.generator.parameters(), lr=2e-4, betas=(0.5, 0.999))


def training_step(model, batch):
    scores = model.discriminator(model.generator(batch[0])).flatten()
    return nn.functional.binary_cross_entropy_with_logits(scores, torch.ones_like(scores))
'''
AUTOCAST = ("def training_step", "@torch.autocast('cpu', dtype=torch.bfloat16)\ndef training_step")


def test_autocast_of_a_generator_is_no_rounding_and_says_how_far_the_gradients_move() -> None:
    hidden, named = (*AUTOCAST, ("rounding",)), (*AUTOCAST, ("precision",))
    said = judged(GENERATOR, (hidden, named))
    assert (
        said[hidden]
        == f"{REFUSED}more than the promised change: it computes in bfloat16, which is a change of precision"
    )
    moved = re.search(r"; fewer bits move the gradients of the first step by (\S+) % of their norm", said[named])
    assert moved is not None, said[named]
    assert float(moved[1]) > 5
    assert "; in double precision losses, gradients and updates of 2 steps agree within" in said[named]


PHOTOS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
DATA = TensorDataset(torch.randn(64, 3, 16, 16), torch.randint(0, 4, (64,)))


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8, eps=1e-5, momentum=0.1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16, eps=1e-5, momentum=0.1), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, bias=True), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    )


def build_dataloader():
    return DataLoader(DATA, batch_size=16)


def build_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


def training_step(model, batch):
    images, labels = batch
    return nn.functional.cross_entropy(model(images), labels)
"""
STORY = """
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
TOKENS = torch.randint(0, 20, (64, 13))


def gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16, eps=1e-5), nn.LayerNorm(16, eps=1e-5)
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("mask", torch.tril(torch.ones(12, 12, dtype=torch.bool)))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(16)
        scores = scores.masked_fill(~self.mask, torch.finfo(scores.dtype).min)
        y = torch.softmax(scores.float(), dim=-1).type_as(x) @ v
        x = x + self.drop(self.proj(y))
        return x + self.down(gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(16, 20)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))


def build_model():
    return GPT()


def build_dataloader():
    return DataLoader(TensorDataset(TOKENS[:, :-1], TOKENS[:, 1:]), batch_size=8)


def build_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def training_step(model, batch):
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())
"""
SOFTMAX = "y = torch.softmax(scores.float(), dim=-1).type_as(x) @ v"
SDPA = "y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=True)[:, 0]"
NORM = "nn.BatchNorm2d(16, eps=1e-5"
LAYER_NORM = "norm1, self.norm2 = nn.LayerNorm(16, eps=1e-5)"
LAYOUT = (
    "images, labels = batch\n", "images, labels = batch[0].to(memory_format=torch.channels_last), batch[1]\n"
)  # fmt: skip

ROUNDING = ("rounding",)

WRONG = [
    (PHOTOS, NORM, "nn.BatchNorm2d(16, eps=1e-3"),
    (PHOTOS, NORM, "nn.BatchNorm2d(16, eps=1e-4"),
    (PHOTOS, "momentum=0.1), nn.ReLU(), nn.MaxPool", "momentum=0.2), nn.ReLU(), nn.MaxPool"),  # of running statistics
    (PHOTOS, "bias=True", "bias=False"),
    (PHOTOS, "momentum=0.9", "momentum=0.9, dampening=0.01"),
    (PHOTOS, "weight_decay=1e-4", "weight_decay=2e-4"),
    (STORY, LAYER_NORM, LAYER_NORM.replace("1e-5", "1e-3")),
    (STORY, LAYER_NORM, LAYER_NORM.replace("1e-5", "1e-4")),
    (STORY, "return 0.5 * x", "return F.gelu(x)\n    return 0.5 * x"),  # the exact one for tanh
    (STORY, "/ math.sqrt(16)", "/ 4.004"),  # scores, by a thousandth
    (STORY, SOFTMAX, SDPA.replace("True)", "False)")),
    (STORY, SOFTMAX, SDPA.replace("True)", "True, scale=0.2501)")),
    (STORY, "self.drop(self.proj(y))", "self.proj(y)"),
    (STORY, "lr=1e-3)", "lr=1e-3, weight_decay=0.011)"),  # 0.01 is the default
    (STORY, "lr=1e-3)", "lr=1e-3, eps=1e-7)"),
]
RIGHT = [
    (PHOTOS, *LAYOUT),
    (PHOTOS, "weight_decay=1e-4", "weight_decay=1e-4, fused=True"),
    (PHOTOS, "(model(images), labels)", "(model(images.flip(0)).flip(0), labels)"),  # sums in another order
    (STORY, SOFTMAX, SDPA),
    (STORY, "return 0.5 * x", "return F.gelu(x, approximate='tanh')\n    return 0.5 * x"),
    (STORY, "lr=1e-3)", "lr=1e-3, fused=True)"),
    (STORY, "self.norm2(x)", "self.norm2(x.flip(0)).flip(0)"),
]


@functools.cache
def all_judged(program: str, cuda: bool) -> dict[Patch, str]:
    return judged(program, tuple((b, a, ROUNDING) for p, b, a in [*WRONG, *RIGHT] if p == program), cuda)


@pytest.mark.parametrize("cuda", [False, True], ids=["cpu", "cuda"])
@pytest.mark.parametrize(("program", "before", "after"), WRONG, ids=[after[-30:] for _, _, after in WRONG])
def test_a_wrong_patch_is_refused(program: str, before: str, after: str, cuda: bool) -> None:
    said = all_judged(program, cuda)[before, after, ROUNDING]
    assert said.startswith(REFUSED + "more than the promised change"), said


@pytest.mark.parametrize("cuda", [False, True], ids=["cpu", "cuda"])
@pytest.mark.parametrize(("program", "before", "after"), RIGHT, ids=[after[-30:] for _, _, after in RIGHT])
def test_a_right_patch_passes(program: str, before: str, after: str, cuda: bool) -> None:
    said = all_judged(program, cuda)[before, after, ROUNDING]
    agree = re.search(r"in double precision losses, gradients and updates of 2 steps agree within (\S+)$", said)
    assert agree is not None, said
    assert float(agree[1]) < 1e-9


@pytest.mark.parametrize("frozen", [False, True])
def test_a_bias_before_a_norm_is_left_out_only_where_it_is_not_trained(frozen: bool) -> None:
    """Biases begin at zero and move slowly, so that the losses are nearly those without them."""
    program = PHOTOS.replace("padding=1), nn.BatchNorm2d(16,", "padding=1, bias=False), nn.BatchNorm2d(16,")
    program = program.replace("lr=0.05", "lr=1e-6")
    model = "    if model[0].bias is not None:\n        nn.init.zeros_(model[0].bias)\n"
    model += "    model[1].eval()\n    model[1].train = lambda mode: model[1]\n" if frozen else ""
    program = program.replace("    return nn.Sequential(", "    model = nn.Sequential(").replace(
        "nn.Linear(16, 4),\n    )\n", f"nn.Linear(16, 4),\n    )\n{model}    return model\n"
    )
    patch = (
        "nn.Conv2d(3, 8, 3, padding=1)",
        "nn.Conv2d(3, 8, 3, padding=1, bias=False)",
        ("rounding", "rng", "checkpoint"),
    )
    said = judged(program, (patch,))[patch]
    if frozen:
        assert said.startswith(REFUSED + "the patch leaves out 0.bias, which is trained"), said
    else:
        assert "the gradients of the first step agree within" in said, said
