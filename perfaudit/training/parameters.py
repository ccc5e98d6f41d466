"""Parameters that a training is given, for comparing it with another one. Child only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def take_parameters(model: Any, file: str) -> str:
    """Take a model's parameters and buffers from a file by name; "" if it has all of them, else why nothing was taken."""
    import torch

    # The file was written by our own child a moment ago; weights_only all the same.
    return take_state(model, torch.load(file, weights_only=True, map_location="cpu"))


def take_state(model: Any, state: Mapping[str, Any]) -> str:
    """The same from a state dict."""
    mine = model.state_dict()
    lacking = [key for key in mine if key not in state or state[key].shape != mine[key].shape]
    if lacking:
        return f"such as {', '.join(lacking[:3])}"
    model.load_state_dict({key: state[key] for key in mine})
    return ""


def nudge(model: Any, share: float, draw: int = 0) -> None:
    """Move every floating parameter by this share of itself, up or down by chance, the same for one draw."""
    import torch

    dice = torch.Generator().manual_seed(draw)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                signs = torch.randint(0, 2, parameter.shape, generator=dice).to(parameter.device, parameter.dtype)
                parameter.mul_(1 + share * (2 * signs - 1))
