"""Whether the text of a file decides the precision that a model is trained in. Reads bytes, parses nothing."""

from __future__ import annotations

import re

from perfaudit.expressions import regex
from perfaudit.static.bare_code import without_comments

_WORDS = (
    *(
        b"autocast",
        b"GradScaler",
        b"float16",
        b"fp16",
        b"bf16",
        b".half(",
        b"cuda.amp",
        b"torch.amp",
        b"import amp",
    ),
    *(b"apex.amp", b"apex.fp16", b"FP16"),  # its optimizers and layers decide nothing
    *(b"use_amp", b"args.amp", b"ixed_precision", b"ixed precision", b"ixed-precision", b"create_graph"),
    *(b"set_default_dtype", b"torch.float64", b".double(", b"torch.fft", b"torch.complex", b"optim.LBFGS"),
)
# Types that NumPy is told, and those of a table of all types; what a tensor is asked for, `x.dtype == torch.float64`; float64
# that a new tensor is made with, and metrics that convert what they compare.
_BESIDE_PRECISION = regex(
    rb"(?:np|numpy)\.b?float16|[{,]\s{0,80}torch\.(?:b?float16|float64)\s*:|dtype\s*=\s*torch\.float64|(?:features?|logits?|preds?|outputs?|targets?|labels?)\.double\(\)"
    rb"|\.dtype\s*(?:==|!=|(?:not\s+)?in|is(?:\s+not)?)\s*[\[(]?(?:\s*+torch\.\w++\s*+,?+)++"
    rb"|(?<=\.to\()torch\.float16(?=\))|\.double\(\)(?=\s*/|\.(?!cuda|to\b|train|eval|requires_grad))"
    rb"|(?:linspace|arange|zeros|ones|eye|rand|randn)\((?:[^()\n]|\([^()\n]{0,40}\)){1,80}\)\.double\(\)"
    rb"|use_amp(?=[a-z])"  # use_amplify, use_amplitude
    rb"|torch\.fft\.r?fftfreq\("  # a table of frequencies
)
# An import that brings autocast and what belongs to it: where nothing uses the names, it decides nothing.
_IMPORTED = regex(
    rb"^[ \t]*(?:from[ \t]+(?:torch\.(?:cuda\.)?amp(?:\.\w{1,40})?|torch\.cuda|apex)[ \t]+import[ \t]+([\w, \t]{1,200})"
    rb"|import[ \t]+(torch\.cuda\.amp[ \t]+as[ \t]+\w{1,40}))\r?$",
    re.MULTILINE,
)
_AMP_OF_APEX = regex(rb"from[ \t]+apex[ \t]+import[^\n]{0,200}\bamp\b")
# Weights in fewer bits. A VQ-VAE's `quantize`, and dequantization, which adds noise to images, are something else.
FEWER_BITS = regex(
    r"torch\.(?:ao\.)?quantization|quantize_dynamic|prepare_qat|QuantStub|[Ff]ake_?[Qq]uant|\b(?:num|n|w|a)_?bits?\b|[Bb]it_?[Ww]idth"
    r"|load_in_[48]bit|BitsAndBytes|(?<!np\.)(?<!numpy\.)(?<!astype\([\"'])(?<!dtype=[\"'])\bint8\b|Quant(?:ized?)?(?:Conv|Linear|Module|Act)"
    r"|Binar(?:y|i[sz]ed?)(?:Conv|Linear|Module|Act|Net|Tanh|Connect)|[Bb]inari[sz]e_?(?:weight|param|layer|input)|XNOR",
    words="uant|qat|bit|Bit|int8|inar|XNOR",
)
# Matmuls are on the tensor cores, though what they read is kept in float32.
TF32_ON = regex(
    r"set_float32_matmul_precision\(\s*[\"'](?:high|medium)[\"']|matmul\.(?:allow_tf32\s*=\s*True|fp32_precision\s*=\s*[\"']tf32)",
    words="matmul_precision|matmul.",
)
_TF32_WORDS = (b"matmul_precision", b"matmul.")
_INT8_OF_TABLE = regex(rb"[{,]\s{0,80}torch\.int8\s*:")  # not the end of a condition: `if dtype == torch.int8:`
_TRAINS_NOTHING = regex(  # by the name of a file
    r"(^|_)(test|eval|val(?=[._])|valid|infer|demo|predict|generat|export|visuali[sz]|metric)"
)
_BIT_WORDS = (b"uant", b"bit", b"Bit", b"int8", b"inar", b"XNOR")


def marks_of_precision(data: bytes, name: str) -> set[str]:
    """The mark "precision" where a word of it stands in the code, or weights are kept in fewer bits; "tf32 on" where matmuls
    get it.

    name: that of the file. What only evaluates, by its name, decides nothing for a training that imports it.
    """
    if _TRAINS_NOTHING.search(name):
        return set()
    marks = {"precision"} if _keeps_fewer_bits(data) or _decides_precision(data) else set()
    return marks | {"tf32 on"} if _turns_tf32_on(data) else marks


def _turns_tf32_on(data: bytes) -> bool:
    if not any(word in data for word in _TF32_WORDS):
        return False
    return TF32_ON.search(without_comments(data).decode("utf-8", "replace")) is not None


def _keeps_fewer_bits(data: bytes) -> bool:
    if not any(word in data for word in _BIT_WORDS):
        return False
    return FEWER_BITS.search(_INT8_OF_TABLE.sub(b"", data).decode("utf-8", "replace")) is not None


def _decides_precision(data: bytes) -> bool:
    """Whether a word of precision stands in the code of a file, not only in its comments and texts, and is no matter of NumPy
    or of a table that is computed in float64 once.
    """
    if not any(word in data for word in _WORDS) and b"apex" not in data:
        return False
    code = _without_unused_imports(_BESIDE_PRECISION.sub(b"", without_comments(data)))
    return any(word in code for word in _WORDS) or _AMP_OF_APEX.search(code) is not None


def _without_unused_imports(code: bytes) -> bytes:
    """The code without the lines that import autocast, a scaler or amp and of whose names nothing else in it is one."""
    for match in list(_IMPORTED.finditer(code)):
        names = [part.split()[-1] for part in (match[1] or match[2]).split(b",") if part.strip()]
        others = code.replace(match[0], b"")
        if not any(re.search(rb"\b" + re.escape(name) + rb"\b", others) for name in names):
            code = others
    return code
