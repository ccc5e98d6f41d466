"""ResNet and ViT models written out, so that no model library is needed, and a GELU as people write it out.

Parameter counts of the models are those of the published ones.

Sources: He et al., Deep Residual Learning (arXiv:1512.03385), with the stride in the 3x3 convolution as in later code;
Dosovitskiy et al., An Image is Worth 16x16 Words (arXiv:2010.11929); Tiny and Small are those of DeiT (arXiv:2012.12877).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Residual(nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3, 1x1 where `bottleneck`, beside a shortcut that is projected when shapes differ."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = width * 4 if bottleneck else width
        # (kernel, from, to, stride) of each convolution
        shapes = [(3, inputs, width, stride), (3, width, width, 1)]
        if bottleneck:
            shapes = [(1, inputs, width, 1), (3, width, width, stride), (1, width, outputs, 1)]
        layers: list[nn.Module] = []
        for kernel, channels_in, channels_out, step in shapes:
            layers += [
                nn.Conv2d(channels_in, channels_out, kernel, step, kernel // 2, bias=False),
                nn.BatchNorm2d(channels_out),
                nn.ReLU(inplace=True),
            ]
        self.path = nn.Sequential(*layers[:-1])
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.path(x) + self.shortcut(x))


def resnet(blocks: Sequence[int], bottleneck: bool, width: int = 64, classes: int = 1000) -> nn.Module:
    """Stem, then one stage per entry of `blocks`, each with twice the channels and half the size of the one before."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            stage_width = width * 2**stage
            layers.append(Residual(channels, stage_width, 2 if stage and not block else 1, bottleneck))
            channels = stage_width * (4 if bottleneck else 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Attention(nn.Module):
    """Multi-head self-attention through the library's fused function."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class Encoder(nn.Module):
    """Attention and a four times wider perceptron, each behind a LayerNorm and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads))
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        out: Tensor = x + self.perceptron(x)
        return out


class VisionTransformer(nn.Module):
    """Patches of 16x16 pixels, a class token, learned positions, `depth` encoders, a linear head."""

    def __init__(self, width: int, depth: int, heads: int, image: int = 224, classes: int = 1000) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 1 + (image // 16) ** 2, width) * 0.02)
        self.encoders = nn.Sequential(*(Encoder(width, heads) for _ in range(depth)), nn.LayerNorm(width))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), patches], dim=1) + self.positions
        logits: Tensor = self.head(self.encoders(tokens)[:, 0])
        return logits


def gelu(x: Tensor) -> Tensor:
    """The tuning guide's, operator by operator."""
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))


# From the side of the (square) image to the model.
FAMILIES: dict[str, Callable[[int], nn.Module]] = {
    "ResNet-18": lambda image: resnet((2, 2, 2, 2), bottleneck=False),
    "ResNet-34": lambda image: resnet((3, 4, 6, 3), bottleneck=False),
    "ResNet-50": lambda image: resnet((3, 4, 6, 3), bottleneck=True),
    "ResNet-101": lambda image: resnet((3, 4, 23, 3), bottleneck=True),
    "ViT-Tiny": lambda image: VisionTransformer(192, 12, 3, image),
    "ViT-Small": lambda image: VisionTransformer(384, 12, 6, image),
    "ViT-Base": lambda image: VisionTransformer(768, 12, 12, image),
}
