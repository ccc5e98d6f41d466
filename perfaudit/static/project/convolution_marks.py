"""Whether the text of a file names convolutions of images, and wide ones. Reads bytes, parses nothing."""

from __future__ import annotations

import re
from itertools import islice

from perfaudit.expressions import matches_at_lines_with, regex
from perfaudit.static.bare_code import without_comments

_WORDS = (
    *(b"Conv2d(", b"Conv3d(", b"ConvTranspose2d(", b"ConvTranspose3d("),
    *(b"torchvision.models", b"from torchvision import models"),
)
_MAX_NUMBERS = 400  # of one file that are looked at
_FLAT = (b"Linear(", b".view(", b".reshape(")
_WIDE = tuple(  # numbers of channels that keep a GPU busy, beside a convolution
    regex(pattern) for pattern in (rb"(?<!\d)(?:512|1024)\b", rb"256, ?(?:128|256)\b", rb"128, ?256\b")
)
# What cuts an image into patches in front of a transformer is a matmul in effect.
_CONVOLUTION = regex(rb"Conv(?:Transpose)?[23]d\(")
_OF_PATCHES = regex(rb"Conv2d\([^\n]{0,120}(?:embed|patch)")
# A link to its code in a comment is none of its models.
_TORCHVISION = regex(rb"[ \t]*(?:from|import)\b[^\n#]*\btorchvision\b")
# `from torchvision import datasets, models, transforms`, of which many files use only the data sets.
_MODELS_IMPORTED = regex(
    rb"^[ \t]*from[ \t]+torchvision[ \t]+import[ \t]*(?:\([^)#]{0,200}?|[^\n#]{0,200}?)\bmodels\b(?![ \t]+as\b)",
    re.MULTILINE,
)
_MODELS_BUILT = regex(rb"\bmodels\.(?:__dict__\b|[a-z]\w{2,40}\()")
# A model that is built from a file of darknet's: all of them reach 512 channels or more.
_OF_DARKNET = regex(rb"\[[\"']filters[\"']\]")
# Models of other libraries, by what builds them: each with what is imported for it, and what is called.
_LIBRARIES = tuple(
    (name, regex(rb"\b" + pattern))
    for name, pattern in (
        (
            b"segmentation_models_pytorch",
            rb"(?:smp|segmentation_models_pytorch)\.(?:Unet|UnetPlusPlus|MAnet|Linknet|FPN|PSPNet|PAN|DeepLabV3|DeepLabV3Plus|UPerNet"
            rb"|create_model)\(",
        ),
        (b"efficientnet_pytorch", rb"EfficientNet\.from_(?:name|pretrained)\("),
        (
            b"monai.networks.nets",
            rb"(?:UNet|Unet|BasicUNet\w*|DynUNet|FlexibleUNet|AttentionUnet|SegResNet\w*|VNet|SwinUNETR|UNETR|[dD]ense[nN]et\d*"
            rb"|resnet\d+|ResNet|SEResN\w+|EfficientNetBN)\(",
        ),
        (
            b"torch.hub.load(",
            rb"torch\.hub\.load\(\s*[\"']pytorch/vision[^\n]{0,40}[\"'](?:resne|wide_resnet|densenet|vgg|inception)",
        ),
    )
)
_TIMM = b"timm.create_model("
# Names of its models: those that convolve, and the others.
_CONVOLVES = regex(
    rb"[\"'](?:\w+_)?(?:\w*efficientnet|(?:se|wide_)?res(?:net|next|nest)|convnext|densenet|regnet|(?:dm_)?nfnet|inception|xception|vgg|hrnet)"
)
_ATTENDS = regex(rb"[\"'](?:\w+_)?(?:vit|swin|deit|beit|mixer|xcit|cait|eva|maxvit|coat|pvt|mobilevit)")
_WIDE_1D = regex(rb"Conv1d\(\s*(?:\d+,\s*)?(?:512|1024|2048)\b")


def marks_of_convolutions(data: bytes) -> set[str]:
    """Which of "convolutions" and "wide convolutions" the text names."""
    has_some = any(word in data for word in _WORDS) or _builds_of_torchvision(data)
    is_wide = has_some and (_imports_torchvision(data) or any(_is_beside(pattern, data) for pattern in _WIDE))
    is_wide = is_wide or (b"Conv2d(" in data and b"arknet" in data and _OF_DARKNET.search(data) is not None)
    if not has_some or not is_wide:
        lent = marks_of_lent_convolutions(data)
        has_some, is_wide = has_some or "convolutions" in lent, is_wide or "wide convolutions" in lent
    is_wide = is_wide or (b"Conv1d(" in data and _WIDE_1D.search(data) is not None)
    if has_some and len(_CONVOLUTION.findall(data)) == len(_OF_PATCHES.findall(data)) > 0:
        has_some = False
    return ({"convolutions"} if has_some else set()) | ({"wide convolutions"} if is_wide else set())


def marks_of_lent_convolutions(data: bytes) -> set[str]:
    """Which of the two the text has of a library other than torchvision, by what builds a model of it.

    All models of timm keep a GPU busy; that they convolve is known by the names that the text has.
    """
    if not any(word in data for word in (_TIMM, *(name for name, _ in _LIBRARIES))):
        return set()
    data = without_comments(data)
    if any(name in data and built.search(data) for name, built in _LIBRARIES):
        return {"convolutions", "wide convolutions"}
    if _TIMM not in data:
        return set()
    convolves = _CONVOLVES.search(data) and not _ATTENDS.search(data)
    return {"convolutions", "wide convolutions"} if convolves else {"wide convolutions"}


def _is_beside(pattern: re.Pattern[bytes], data: bytes) -> bool:
    """Whether the numbers stand in some line but that of a linear layer, or of a reshape in front of one: `x.view(-1, 512)`.

    These say little of the convolutions.
    """
    return any(
        not any(word in data[data.rfind(b"\n", 0, match.start()) + 1 : match.start()] for word in _FLAT)
        for match in islice(pattern.finditer(data), _MAX_NUMBERS)
    )


def _builds_of_torchvision(data: bytes) -> bool:
    """Whether the text imports torchvision's models beside other names, and builds one."""
    if b"torchvision" not in data or b"models." not in data:
        return False
    return _MODELS_IMPORTED.search(data) is not None and _MODELS_BUILT.search(data) is not None


def _imports_torchvision(data: bytes) -> bool:
    return any(matches_at_lines_with(b"torchvision", _TORCHVISION, data))
