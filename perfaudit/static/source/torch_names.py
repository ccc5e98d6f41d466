"""The documented names of what torch has under several."""

from __future__ import annotations

from perfaudit.expressions import regex

# Where torch defines a name against where it is documented, which is the one rules use: how the name begins, all of that, and
# what stands there instead.
_CANONICAL = (
    ("torch.nn.modules.", regex(r"^torch\.nn\.modules(?:\.[a-z_]+)?\.(?=[A-Z])"), "torch.nn."),
    (
        "torch.utils.data.",
        regex(
            r"^torch\.utils\.data\.(?:dataloader|dataset|sampler|distributed)\.(?=[A-Z])",
            words="dataloader.|dataset.|sampler.|distributed.",
        ),
        "torch.utils.data.",
    ),
    (
        "torch.optim.",
        regex(r"^torch\.optim\.(?!lr_scheduler|swa_utils|_multi_tensor)[a-z_0-9]+\.(?=[A-Z])"),
        "torch.optim.",
    ),
    ("torch.nn.parallel.data_parallel.", regex(r"^torch\.nn\.parallel\.data_parallel\.(?=D)"), "torch.nn.parallel."),
    ("torch.nn.parallel.distributed.", regex(r"^torch\.nn\.parallel\.distributed\.(?=D)"), "torch.nn.parallel."),
    ("torch.autograd.anomaly_mode.", regex(r"^torch\.autograd\.anomaly_mode\."), "torch.autograd."),
    # It takes the arguments of DataLoader, in the same places, and keeps its position between runs besides.
    (
        "torchdata.",
        regex(r"^torchdata\.stateful_dataloader(?:\.stateful_dataloader)?\.StatefulDataLoader$"),
        "torch.utils.data.DataLoader",
    ),
)


def canonical(name: str) -> str:
    """The documented name of something in torch that can be reached under several."""
    if name.startswith(("torch.", "torchdata.")):
        for beginning, pattern, replacement in _CANONICAL:
            if name.startswith(beginning):
                name = pattern.sub(replacement, name)
    return name
