"""What the other files of a project say: what an imported name stands for, who imports whom. Reads them, imports nothing."""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from perfaudit.expressions import regex
from perfaudit.reading import read_bytes
from perfaudit.static.call_index import CallIndex, CallShape
from perfaudit.static.import_graph import FileSet, ImportGraph, numbers_in
from perfaudit.static.model_width import marks_of_width
from perfaudit.static.module_names import ModuleNames
from perfaudit.static.source import PLAIN_BASES, Source, Unreadable, canonical, read_source, read_text

if TYPE_CHECKING:
    from perfaudit.static.uses import Question, Uses

TOPS = (".git", "pyproject.toml", "setup.py", "setup.cfg")  # what lies in the top folder of a project
MAX_LEVELS = 6  # folders above a file in which its absolute imports are looked for
MAX_HOPS = 4  # re-exports followed from file to file
MAX_SOURCES = 8  # neighbours whose trees are kept; one of 100 kB takes 20 MB
MAX_NEIGHBOUR_BYTES = 1 << 20  # a larger file is no module of helpers

MAX_GLANCED = 10_000  # imports, and classes, of one file that a first look takes in; 250 characters a module

# No two repetitions that meet may take the same characters: of 80 kB of dots, `\.*[\w.]*` tried every split for minutes,
# and a first look has no limit of time.
_IMPORT = regex(rb"[ \t]*(?:from[ \t]+([\w.]{1,250})[ \t]+import[ \t]+([^\n#]*)|import[ \t]+([\w., \t]+))")
_NAME = regex(rb"[\w.]+|\*")
_SUBCLASS = regex(rb"class[ \t]+(\w+)[ \t]*\([ \t]*([\w.]+)[ \t]*\)")
_NOT_PLAIN = {
    "Module",
    "object",
    "ABC",
    "Exception",
    "Enum",
    "NamedTuple",
    "Protocol",
    "TypedDict",
    "Function",
    "Dataset",
}
# What runs the training instead of the script, or decides how tensors are computed with.
FRAMEWORKS = {
    "accelerate", "apex", "catalyst", "colossalai", "composer", "deepspeed", "detectron2", "fairscale", "fastai", "flash",
    "horovod", "ignite", "jax", "lightning", "lightning_fabric", "megatron", "mmcv", "mmengine", "pl_bolts",
    "pytorch_lightning", "ray", "speechbrain", "torch_xla", "torchbearer", "torchtitan", "torchtnt",
    "transformers", "bminf", "bmtrain",
}  # fmt: skip
_WITH_TRAINERS = {"transformers", "trl", "optimum", "setfit", "adapters", "sentence_transformers"}
_PLAIN = {name.rpartition(".")[2] for name in PLAIN_BASES}
# Only such names are worth opening another file for: classes, and the names under which torch's modules are known.
_MAY_BE_TORCH = regex(r"(?:^|\.)(?:[A-Z]\w*|torch|nn|F|optim|functional|data|cuda|amp|init)$")
# Each begins with letters that stand for themselves: such an expression is looked for ten times as fast as a choice of several.
_TO_ACCELERATOR = tuple(
    regex(pattern)
    for pattern in (
        *(rb"%s%s\b" % (quote, name) for name in (b"cuda", b"mps", b"xpu") for quote in (b'"', b"'")),
        *(rb"\.cuda\(", rb"\.to\(\s*(?:\w+\.)*device\b", rb"accelerator\.prepare", rb"accelerator=[\"']gpu[\"']"),
    )
)
_ACCELERATOR_WORDS = (b"cuda", b"device", b"accelerator", b"mps", b"xpu")
_SECOND_WORDS = (b"create_graph", b"autograd", b"torch.func", b"functorch", b"learn2learn", b"pyhessian", b"torchopt")
_MIXED_TYPES = tuple(
    regex(pattern)
    for pattern in (
        *(rb"\.half\(\s*\)", rb"\.bfloat16\(\s*\)", rb"\.to\((?:(?!\.to\()[^)\n])*?(?:float16|half\b|dtype)"),
        *(rb"FullyShardedDataParallel", rb"fully_shard", rb"deepspeed"),
    )
)
_TYPE_WORDS = (b"half", b"float16", b"dtype", b"fully_shard", b"FullyShardedDataParallel", b"deepspeed")
_SAID_BY_WORDS = {  # a mark, and the words of which one is enough
    "convolutions": (
        *(b"Conv2d(", b"Conv3d(", b"ConvTranspose2d(", b"ConvTranspose3d("),
        *(b"torchvision.models", b"from torchvision import models"),
    ),
    "cudnn": (b"cudnn", b"deterministic_algorithms", b"set_determin", b"reproducib", b"seed_everything"),
    "precision": (
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
        *(b"import apex", b"from apex", b"apex.amp", b"apex.fp16"),  # alone it may be a word of a comment
        *(b"use_amp", b"args.amp", b"ixed_precision", b"ixed precision", b"ixed-precision", b"create_graph"),
        *(b"set_default_dtype", b"torch.float64", b".double(", b"torch.fft", b"torch.complex"),
    ),
    "tf32": (b"tf32", b"TF32", b"matmul_precision", b"fp32_precision"),
    "sizes change": (
        *(
            b"scale_jitter",
            b"RandomResize(",
            b"pad_sequence",
            b"pack_padded",
        ),
        *(b"bucket", b"models.detection", b"progressive"),
    ),
    "audio": (b"torchaudio", b"librosa"),  # clips differ in length, unless a loader stacks them as they are
}
# Comments, and texts of several lines, each without what would end it.
_COMMENTS = regex(rb"#[^\n]*+|\"\"\"(?:[^\"]++|\"(?!\"\"))*+\"\"\"|'''(?:[^']++|'(?!''))*+'''")
# Types that NumPy is told, float64 that a new tensor is made with, and metrics that convert what they compare.
_BESIDE_PRECISION = regex(
    rb"(?:np|numpy)\.b?float16|dtype\s*=\s*torch\.float64|(?:features?|logits?|preds?|outputs?|targets?|labels?)\.double\(\)"
    rb"|(?<=\.to\()torch\.float16(?=\))|\.double\(\)(?=\s*/)"
    rb"|(?:linspace|arange)\([^()\n]{1,80}\)\.double\(\)"
)
# Weights in fewer bits. A VQ-VAE's `quantize`, and dequantization, which adds noise to images, are something else.
FEWER_BITS = regex(
    r"torch\.(?:ao\.)?quantization|quantize_dynamic|prepare_qat|QuantStub|[Ff]ake_?[Qq]uant|\b(?:num|n|w|a)_?bits?\b|[Bb]it_?[Ww]idth"
    r"|load_in_[48]bit|BitsAndBytes|(?<!np\.)(?<!numpy\.)\bint8\b|Quant(?:ized?)?(?:Conv|Linear|Module|Act)"
    r"|Binar(?:y|i[sz]ed?)(?:Conv|Linear|Module|Act|Net|Tanh|Connect)|[Bb]inari[sz]e_?(?:weight|param|layer|input)|XNOR"
)
_BIT_WORDS = (b"uant", b"bit", b"Bit", b"int8", b"inar", b"XNOR")
_WIDE = tuple(  # numbers of channels that keep a GPU busy, beside a convolution
    regex(pattern) for pattern in (rb"512\b", rb"1024\b", rb"256, ?(?:128|256)\b", rb"128, ?256\b")
)
# What cuts an image into patches in front of a transformer is a matmul in effect.
_CONVOLUTION = regex(rb"Conv(?:Transpose)?[23]d\(")
_OF_PATCHES = regex(rb"Conv2d\([^\n]{0,120}(?:embed|patch)")
_WIDE_1D = regex(rb"Conv1d\(\s*(?:\d+,\s*)?(?:512|1024|2048)\b")
_LIBRARY_MODEL = regex(
    rb"(?:Model|For\w{1,60})\.from_(?:pretrained|config)\(|class[ \t]+\w+\(\w{0,40}PreTrainedModel[,)]"
)
_SEARCH_PATH = regex(rb"sys\.path\.(?:append\(|insert\(\s*\d+\s*,)\s*[\"']([\w./-]+)[\"']\s*\)")
# `lib_path = osp.join(this_dir, "lib")` and `add_path(lib_path)` in a file of one's own for it, `_init_paths.py` as a rule.
_JOINED_PATH = regex(
    rb"path\.join\(\s*(?:\w*dir\w*|os\.path\.dirname\(__file__\))\s*,\s*[\"']([\w./-]+)[\"']\s*\)|"
    rb"osp\.join\(\s*(?:\w*dir\w*|osp\.dirname\(__file__\))\s*,\s*[\"']([\w./-]+)[\"']\s*\)"
)
_ADDS_A_NAME = regex(rb"sys\.path\.(?:append|insert)\((?:\s*\d+\s*,)?\s*\w+\s*\)")
# The arguments of a loader, with brackets in brackets; what lies deeper is not read.
_LOADER_CALL = regex(rb"DataLoader\(((?:[^()]++|\((?:[^()]++|\([^()]*+\))*+\))*+)\)")
_PINS = regex(
    rb"pin_memory\s*=\s*(?:True\b|torch\.cuda\.is_available\(\)|(?:self\.|args\.)?(?:use_|is_)?(?:cuda|gpu)\b"
    rb"|\(?(?:self\.|args\.)?device(?:\.type)?\s*(?:!=\s*[\"']cpu|==\s*[\"']cuda)[\"'])"
)
_LEAVES_PAGEABLE = regex(rb"pin_memory\s*=\s*False\b")
_PINS_BY_KEY = regex(rb"[\"']pin_memory[\"']\s*(?::|\]\s*=)\s*(\w+)")
_MAIN_GUARD = regex(rb"^if[ \t]+__name__[ \t]*==[ \t]*[\"']__main__[\"']", re.MULTILINE)
_RUNS_A_PROGRAM = (b"optim", b"model", b"train(", b"main(", b"fit(", b"run(")
# An option or a constant by that name, and its value where it is written: `PIN_MEMORY = True`, `"--pin_memory", default=False`.
_PIN_SETTING = regex(
    rb"(?:pin_memory|PIN_MEMORY)[\"']?\]?\s*(?::\s*bool\s*=|=|:|,[^\n]{0,80}?default\s*=)\s*(True|False)\b"
)
# A function that makes batches, and in it the length of the longest sample.
_PADS = regex(
    rb"def \w{0,40}(?:pad|batch)\w{0,40}\((?:(?!\ndef |\nclass )[^\x00]){0,1500}?max\(\[?(?:len\(|map\(len|\w+\.(?:size|shape))"
)
# Images in several sizes. A loss, a discriminator or a layer on several scales says nothing of the batches, nor does an option
# of monodepth2 for how its loss treats its scales.
SEVERAL_SIZES = (
    r"(?<!v1[_ ])multi[_-]?scale"
    r"(?![a-z_]{0,20}(?:loss|epe|ssim|stft|disc|feat|fus|att|deform|conv|block|modul|net|head|weight))"
)
_SEVERAL_SIZES = regex(SEVERAL_SIZES.encode())
# What puts samples together; one that stacks them, and pads none, gives batches of one size where the samples have one.
COLLATES, STACKS_ONLY = "collates in a way of its own", "stacks what it collates"
_COLLATE = regex(rb"def \w{0,40}collat\w{0,40}\(")
_PADDING = regex(rb"pad|max\(|zeros|ones\(|full\(|resize|interpolate|\bdgl\b|Batch\b|batch\(")
# Imports of what no torch from 2.0 on has; indented, they may be one of two ways.
FIRST_LOOK = frozenset({"old torch", "accelerator"})
_MAC_WORDS = (b'"mps', b"'mps", b".mps")
OLD_TORCH = "old torch"
_OLD_WORDS = (b"torchtext.legacy", b"torch._six", b"torch.utils.ffi")
_OLD_TORCH = regex(rb"(?:from|import)[ \t]+(?:torchtext\.legacy|torch\._six|torch\.utils\.ffi)\b")
# What torchtext had until torch 1.8, and a loss that is indexed without dimensions.
_OLD_USE = regex(rb"\bdata\.(?:Field|LabelField|BucketIterator|TabularDataset)\(|\bloss\w{0,20}\.data\[0\]")
ASKED_TO_PIN = "loaders that are told whether to pin"
PINNING_ON, PINNING_OFF, SURELY_PAGEABLE = (
    "pinning on by a setting",
    "pinning off by a setting",
    "surely pageable loaders",
)
_HOOK_WORDS = (b"register_forward", b"register_full_backward", b"register_backward")


@dataclass(frozen=True)
class Glance:
    """What the bytes of one file show without parsing: a digest, marks, imported modules as written ("a.*" for all of one),
    and classes with one base that may be one of torch's.
    """

    digest: str
    size: int
    marks: frozenset[str]
    imports: tuple[str, ...]
    subclasses: dict[str, str]
    search_path: tuple[str, ...] = ()  # what it adds to `sys.path` as it is written

    def may_bind(self, name: str, bases: Collection[str] = _PLAIN, hops: int = 4) -> bool:
        """Whether the module may bind a name to something of torch's, so that it is worth parsing.

        bases: the last names of the classes of torch's from which one of the module may be derived.
        """
        if base := self.subclasses.get(name):
            return base in bases or (hops > 0 and base != name and self.may_bind(base, bases, hops - 1))
        return name in self.last_imported or "*" in self.last_imported

    def takes_from_torch(self, name: str) -> bool:
        """Whether the module imports this name from torch."""
        return name in self._last_from_torch

    @cached_property
    def bound(self) -> frozenset[str]:
        """Names that the module may bind to something of torch's; "*" where it imports everything from another."""
        return self.last_imported | self.subclasses.keys()

    @cached_property
    def last_imported(self) -> frozenset[str]:
        return frozenset(imported.rpartition(".")[2] for imported in self.imports)

    @cached_property
    def _last_from_torch(self) -> frozenset[str]:
        return frozenset(name.rpartition(".")[2] for name in self.imports if name.startswith("torch."))


def glance(data: bytes) -> Glance:
    """A first look at the bytes of a file; `from a import b` counts as "a" and "a.b", `as c` as "a.c" as well."""
    headers = islice(_at_lines_with(b"class ", _SUBCLASS, data), MAX_GLANCED)
    classes = ((match[1].decode(), match[2].decode().rpartition(".")[2]) for match in headers)
    subclasses = {name: base for name, base in classes if base not in _NOT_PLAIN}
    imports = tuple(islice(dict.fromkeys(islice(_imported(data), 2 * MAX_GLANCED)), MAX_GLANCED))
    added = tuple(_search_path(data)) if b"sys.path" in data else ()
    return Glance(hashlib.sha256(data).hexdigest()[:32], len(data), _marks(data), imports, subclasses, added)


def _search_path(data: bytes) -> Iterator[str]:
    """What a file adds to `sys.path`, as it is written: a text, or one that is joined to the file's own folder."""
    yield from (match[1].decode() for match in _SEARCH_PATH.finditer(data))
    if _ADDS_A_NAME.search(data):
        yield from ((match[1] or match[2]).decode() for match in _JOINED_PATH.finditer(data))


def _imported(data: bytes) -> Iterator[str]:
    """Modules and names as `glance` counts them, in order of the text."""
    last_bracket = data.rfind(b")")
    for match in _at_lines_with(b"import", _IMPORT, data):
        module, names, plain = match.groups()
        if plain is not None:
            yield from (name[0].decode() for name in _NAME.finditer(plain) if name[0] != b"as")
            continue
        end = match.end()
        if names.startswith(b"(") and match.start(2) < last_bracket:
            end = data.find(b")", match.start(2))
        prefix = module.decode()
        yield prefix
        joined = prefix if prefix.endswith(".") else prefix + "."
        yield from (joined + name[0].decode() for name in _NAME.finditer(data, match.start(2), end) if name[0] != b"as")


def _at_lines_with(word: bytes, pattern: re.Pattern[bytes], data: bytes) -> Iterator[re.Match[bytes]]:
    """Where a pattern matches at the beginning of a line that holds a word: five times as fast as a search for `^`."""
    at = data.find(word)
    while at >= 0:
        if match := pattern.match(data, data.rfind(b"\n", 0, at) + 1):
            yield match
        line_end = data.find(b"\n", at)
        at = data.find(word, line_end) if line_end >= 0 else -1


def _finds(patterns: tuple[re.Pattern[bytes], ...], data: bytes) -> bool:
    return any(pattern.search(data) for pattern in patterns)


def _marks(data: bytes) -> frozenset[str]:
    """What decides whether a file is worth parsing for a question: "torch", "accelerator", "bias", "hook" and so on."""
    marks = []
    if b"torch" in data or b"\0" in data:  # null bytes: another encoding, in which the word would look otherwise
        marks.append("torch")
    if any(word in data for word in _ACCELERATOR_WORDS) and _finds(_TO_ACCELERATOR, data):
        marks.append("accelerator")
    if b"cuda" in data:
        marks.append("cuda")
    if any(word in data for word in _MAC_WORDS):
        marks.append("mac")
    if b".bias" in data:
        marks.append("bias")
    if any(word in data for word in _HOOK_WORDS):
        marks.append("hook")
    if b".forward =" in data or b".forward=" in data:
        marks.append("forward")
    if any(word in data for word in _TYPE_WORDS) and _finds(_MIXED_TYPES, data):
        marks.append("mixed types")
    if b"DataLoader(" in data:
        marks += _marks_of_loaders(data)
    if b"pin_memory" in data or b"PIN_MEMORY" in data:
        values = set(_PIN_SETTING.findall(_LOADER_CALL.sub(b"", data)))
        marks += [PINNING_ON] * (b"True" in values) + [PINNING_OFF] * (b"False" in values)
    if any(word in data for word in _SECOND_WORDS) or b"innerloop_ctx" in data:
        marks.append("second derivatives")
    if b".grad.detach_(" in data:
        marks.append("gradients detached in place")
    imports_old = any(word in data for word in _OLD_WORDS) and any(_at_lines_with(b"import", _OLD_TORCH, data))
    if imports_old or ((b"torchtext" in data or b".data[0]" in data) and _OLD_USE.search(data)):
        marks.append(OLD_TORCH)
    return frozenset(marks)


def _marks_of_loaders(data: bytes) -> set[str]:
    """Whether loaders pin their batches, surely leave some pageable or may do so, and collate in a way of their own."""
    data = _without_trial(data)
    calls = [match[1] for match in _LOADER_CALL.finditer(data)]
    values = _PINS_BY_KEY.findall(data)
    by_key = bool(values) and set(values) == {b"True"}
    pinned = [call for call in calls if _PINS.search(call) or (by_key and b"**" in call and b"pin_memory" not in call)]
    marks = {"pinned loaders"} if pinned else set()
    if len(pinned) < data.count(b"DataLoader("):
        marks.add("pageable loaders")
    if any(b"collate_fn" in call for call in calls):
        marks.add("collating loaders")
    asks = [call for call in calls if b"pin_memory" in call or b"**" in call]
    if asks:
        marks.add(ASKED_TO_PIN)
    if len(asks) < data.count(b"DataLoader(") or any(_LEAVES_PAGEABLE.search(call) for call in asks):
        marks.add(SURELY_PAGEABLE)
    return marks


def _without_trial(data: bytes) -> bytes:
    """A module of datasets without the block under its main guard that tries them out: no program runs that loader."""
    guard = _MAIN_GUARD.search(data) if b"__main__" in data else None
    if guard is None or b"Dataset" not in data[: guard.start()]:
        return data
    block = data[guard.end() :].removeprefix(b":")
    is_program = any(word in block for word in _RUNS_A_PROGRAM)
    return data if is_program else data[: guard.start()]


class BehindStars(NamedTuple):
    """Star imports of a module by the names that they may bind, the last one first, and the modules that were looked at, by
    folder and name as in `module_file`.
    """

    stars: dict[str, list[str]]
    modules: dict[tuple[str, str], str]


def _said_to_program(data: bytes, imports: Iterable[str]) -> frozenset[str]:
    """What a file says that matters to a script which imports it. More words than a first look at every file can afford."""
    marks = {mark for mark, words in _SAID_BY_WORDS.items() if any(word in data for word in words)}
    if "precision" in marks and not _decides_precision(data):
        marks.discard("precision")
    if any(word in data for word in _BIT_WORDS) and FEWER_BITS.search(data.decode("utf-8", "replace")):
        marks.add("precision")
    imported = set(imports)
    frameworks = FRAMEWORKS & {module.partition(".")[0] for module in imported}
    if frameworks - {"transformers"} or (
        frameworks and has_trainer(imported, data.decode("utf-8", "replace"))
    ):  # else it lends the model only
        marks.add("framework")
    if "transformers" in frameworks and _LIBRARY_MODEL.search(data) and _LIBRARY_MODEL.search(_COMMENTS.sub(b"", data)):
        marks.add("library model")
    if b"Conv1d(" in data and _WIDE_1D.search(data):
        marks.add("wide convolutions")
    if b"timm.create_model" in data or ("convolutions" in marks and (b"torchvision" in data or _finds(_WIDE, data))):
        marks.add("wide convolutions")
    if "convolutions" in marks and len(_CONVOLUTION.findall(data)) == len(_OF_PATCHES.findall(data)) > 0:
        marks.discard("convolutions")
    if (b"max(" in data and _PADS.search(data)) or (b"multi" in data and _SEVERAL_SIZES.search(data)):
        marks.add("sizes change")
    if b"collat" in data:
        marks |= marks_of_collation(data)
    marks |= marks_of_width(data)
    if b".backward(" in data and b".step(" in data:
        marks.add("steps" if b"__main__" not in data else "steps of a script")
    return frozenset(marks)


def marks_of_collation(data: bytes) -> set[str]:
    """Whether the text of a file has to do with collation, and defines functions for it that stack tensors and pad none."""
    found = list(islice(_COLLATE.finditer(data), MAX_GLANCED))
    bodies = [_body(data, match.start()) for match in found]
    if found and all(b"stack(" in body and not _PADDING.search(body) for body in bodies):
        return {COLLATES, STACKS_ONLY}
    return {COLLATES} | ({"sizes change"} if found else set())


def _body(data: bytes, at: int) -> bytes:
    """The text of a function from its `def` to the next line that is indented no deeper."""
    indent = at - data.rfind(b"\n", 0, at) - 1
    end = data.find(b"\n", at)
    while 0 <= end < len(data):
        stop = data.find(b"\n", end + 1)
        line = data[end + 1 : stop if stop >= 0 else len(data)]
        if line.strip() and len(line) - len(line.lstrip()) <= indent and not line.lstrip().startswith((b")", b"#")):
            return data[at:end]
        end = stop
    return data[at:]


def has_trainer(imported: Iterable[str], text: str) -> bool:
    """Whether a file that imports these names uses a Trainer of transformers, or of what is built on that."""
    return any(word in text for word in ("TrainingArguments", "transformers.Trainer", "Seq2SeqTrainer")) or any(
        name.partition(".")[0] in _WITH_TRAINERS and name.endswith(("Trainer", "TrainingArguments", ".*"))
        for name in imported
    )


def _decides_precision(data: bytes) -> bool:
    """Whether a word of precision stands in the code of a file, not only in its comments and texts, and is no matter of NumPy
    or of a table that is computed in float64 once.
    """
    code = _BESIDE_PRECISION.sub(b"", _COMMENTS.sub(b"", data))
    return any(word in code for word in _SAID_BY_WORDS["precision"])


class Project:
    """The files of one scan and what lies beside them; answers are kept, so that each file is looked at once.

    files: every Python file of the scan. Files beside them are read too where an import leads there. notebooks: those of
    the scan, which import and call but are imported by nobody. folders: what was scanned with all that lies below it.
    """

    def __init__(self, files: Iterable[Path], notebooks: Iterable[Path] = (), folders: Iterable[Path] = ()) -> None:
        self._paths: dict[Path, str] = {}
        self.files = tuple(dict.fromkeys(self.absolute(path) for path in files))
        self.notebooks = tuple(dict.fromkeys(self.absolute(path) for path in notebooks))
        self.folders = tuple(absolute(path) for path in folders)
        self._glances: dict[str, Glance | None] = {}
        self._said: dict[str, frozenset[str]] = {}
        self._module_names: dict[str, ModuleNames | None] = {}
        self._behind_stars: dict[tuple[str, int], BehindStars] = {}
        self.owners: dict[
            tuple[str, str, int, frozenset[str] | None], tuple[str, Asked]
        ] = {}  # see `Neighbours._owner`
        self._sources: dict[str, Source | None] = {}
        self._listings: dict[str, frozenset[str]] = {}
        self._roots: dict[str, tuple[str, ...]] = {}
        self._tops: dict[str, str] = {}
        self._modules: dict[tuple[str, str], str] = {}
        self._heads: dict[tuple[str, str], list[str]] = {}
        self._facts: dict[Callable[[Source], bool], tuple[FileSet, FileSet]] = {}  # where each is false, and where true
        self._marked: dict[str, FileSet] = {}
        self._below_top: dict[str, FileSet] = {}
        self._digests: dict[FileSet, str] = {}

    def glance(self, path: str) -> Glance | None:
        """A first look at a file, None if it cannot be read or is larger than any that is audited."""
        if path not in self._glances:
            try:
                self._glances[path] = glance(read_bytes(path))
            except OSError:
                self._glances[path] = None
        return self._glances[path]

    def said_to_program(self, path: str) -> frozenset[str]:
        """What a file says that matters to a script which imports it, besides the marks of a first look."""
        if path not in self._said:
            seen = self.glance(path)
            try:
                self._said[path] = (
                    seen.marks | _said_to_program(read_bytes(path), seen.imports) if seen else frozenset()
                )
            except OSError:
                self._said[path] = frozenset()
        return self._said[path]

    def seen_from(self, path: Path) -> Neighbours:
        """What this project says to the checks of one file."""
        return Neighbours(self, self.absolute(path))

    def absolute(self, path: Path) -> str:
        """The path of a file as this project knows it, links resolved."""
        if path not in self._paths:
            self._paths[path] = absolute(path)
        return self._paths[path]

    # ---- modules and files -------------------------------------------------------------------------------------------

    def module_file(self, folder: str, dotted: str) -> str:
        """The file of a module as imported by a file in this folder (".data", "pkg.net"); "" if it is none of ours."""
        key = (folder, dotted)
        if key not in self._modules:
            self._modules[key] = self._find_module(folder, dotted)
        return self._modules[key]

    def _find_module(self, folder: str, dotted: str) -> str:
        name = dotted.lstrip(".")
        if level := len(dotted) - len(name):
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            return self._below(folder, name)
        return next((found for root in self._roots_with(folder, name) if (found := self._below(root, name))), "")

    def _roots_with(self, folder: str, name: str) -> list[str]:
        """The roots that hold the first part of a module's name: none for what is installed."""
        key = (folder, name.partition(".")[0])
        if key not in self._heads:
            names = {key[1], f"{key[1]}.py"}
            self._heads[key] = [root for root in self._roots_of(folder) if names & self.listing(root)]
        return self._heads[key]

    def _below(self, folder: str, name: str) -> str:
        parts = name.split(".") if name else []
        for part in parts[:-1]:
            if part not in self.listing(folder):
                return ""
            folder = os.path.join(folder, part)
        if not parts:
            return os.path.join(folder, "__init__.py") if "__init__.py" in self.listing(folder) else ""
        listing = self.listing(folder)
        if parts[-1] in listing and "__init__.py" in self.listing(inside := os.path.join(folder, parts[-1])):
            return os.path.join(inside, "__init__.py")
        return os.path.join(folder, f"{parts[-1]}.py") if f"{parts[-1]}.py" in listing else ""

    def listing(self, folder: str) -> frozenset[str]:
        if folder not in self._listings:
            try:
                self._listings[folder] = frozenset(os.listdir(folder))  # names only, twice as fast
            except OSError:
                self._listings[folder] = frozenset()
        return self._listings[folder]

    def _roots_of(self, folder: str) -> tuple[str, ...]:
        """Folders in which absolute imports of a file are looked for: its own and those above, up to the project's top.

        And what its scripts add to `sys.path`, where that lies inside the project: nothing outside is read for what they say.
        """
        if folder not in self._roots:
            roots = [folder]
            while len(roots) < MAX_LEVELS and not self.listing(roots[-1]).intersection(TOPS):
                above = os.path.dirname(roots[-1])
                if above == roots[-1]:
                    break
                roots.append(above)
            top = os.path.join(roots[-1], "")
            if "src" in self.listing(roots[-1]):
                roots.append(os.path.join(roots[-1], "src"))
            added = (os.path.normpath(os.path.join(folder, name)) for name in self._search_paths.get(folder, ()))
            self._roots[folder] = tuple(dict.fromkeys([*roots, *(path for path in added if path.startswith(top))]))
        return self._roots[folder]

    @cached_property
    def _search_paths(self) -> dict[str, list[str]]:
        """What scripts add to `sys.path`, by the folder in which they lie and from which they are most often started."""
        found: dict[str, list[str]] = {}
        for file in self.files:
            if (seen := self.glance(file)) is not None and seen.search_path:
                found.setdefault(os.path.dirname(file), []).extend(seen.search_path)
        return found

    def top(self, folder: str) -> str:
        """The folder of the project to which a folder belongs.

        The nearest one above with `.git`, `pyproject.toml` or the like; without it the part of the scan it lies in: all
        of it where files lie directly in the folder that holds the whole scan, else the folder below that one.
        """
        if folder not in self._tops:
            above = os.path.dirname(folder)
            if self.listing(folder).intersection(TOPS):
                self._tops[folder] = folder
            elif folder == self._base or above in (folder, self._base):
                self._tops[folder] = self._base if self._is_one_project else folder
            else:
                self._tops[folder] = self.top(above)
        return self._tops[folder]

    @cached_property
    def _folders(self) -> frozenset[str]:
        return frozenset(os.path.dirname(file) for file in self.files)

    @cached_property
    def _base(self) -> str:
        """The deepest folder that holds the whole scan, "" if none does."""
        try:
            return os.path.commonpath(self._folders)
        except ValueError:  # no files, or several drives
            return ""

    @cached_property
    def _is_one_project(self) -> bool:
        """Whether the whole scan lies below one top, or files lie where its parts do: a folder of projects has none."""
        folder = self._base
        while folder and not self.listing(folder).intersection(TOPS):
            above = os.path.dirname(folder)
            folder = above if above != folder else ""
        return bool(folder) or self._base in self._folders

    def module_names(self, path: str) -> ModuleNames | None:
        """What a module binds at its top level; None if it cannot be read or parsed."""
        if path not in self._module_names:
            seen = self.glance(path)
            try:
                small = seen is not None and seen.size <= MAX_NEIGHBOUR_BYTES
                self._module_names[path] = ModuleNames(read_text(Path(path))[0]) if small else None
            except (OSError, Unreadable, SyntaxError, ValueError, RecursionError, MemoryError):
                self._module_names[path] = None
        return self._module_names[path]

    def behind_stars(self, path: str, hops: int) -> BehindStars:
        """What the modules bind from which this one imports everything, directly or through others.

        A package may import so from hundreds of modules, each of which would be asked for every name.
        """
        if (path, hops) not in self._behind_stars:
            self._behind_stars[path, hops] = self._read_stars(path, hops)
        return self._behind_stars[path, hops]

    def _read_stars(self, path: str, hops: int) -> BehindStars:
        found = self.module_names(path)
        stars: dict[str, list[str]] = {}
        modules: dict[tuple[str, str], str] = {}
        for star in reversed(found.stars) if found is not None else ():
            if star.partition(".")[0] == "torch":  # what its star exports cannot be known without importing it
                continue
            key = (os.path.dirname(path), star)
            modules[key] = module = self.module_file(*key)
            if not module:  # of a library, or missing: what is none of ours leads to none of torch's names
                continue
            seen = self.glance(module)
            names: set[str] = set() if seen is None else {*seen.bound}
            if hops > 1 and "*" in names:
                further = self.behind_stars(module, hops - 1)
                names |= further.stars.keys()
                modules |= further.modules
            for name in names:
                stars.setdefault(name, []).append(star)
        return BehindStars(stars, modules)

    def source(self, path: str) -> Source | None:
        """A neighbour with its tree, None where there is none; the last few are kept."""
        if path not in self._sources:
            seen = self.glance(path)
            try:
                small = seen is not None and seen.size <= MAX_NEIGHBOUR_BYTES
                self._sources[path] = read_source(Path(path), os.path.basename(path)) if small else None
            except (Unreadable, RecursionError, MemoryError):
                self._sources[path] = None
            for oldest in list(self._sources)[:-MAX_SOURCES]:
                del self._sources[oldest]
        return self._sources[path]

    # ---- programs ------------------------------------------------------------------------------------------------------

    @cached_property
    def graph(self) -> ImportGraph:
        """Who imports whom among the files of the scan."""
        return ImportGraph(self.files, self._imports)

    def _imports(self, file: str) -> Iterator[str]:
        seen = self.glance(file)
        folder = os.path.dirname(file)
        return (path for module in (seen.imports if seen else ()) if (path := self.module_file(folder, module)))

    def calls(self, files: FileSet, name: str) -> list[CallShape]:
        """The calls in these files of whatever has this last name; none in a file that cannot be read or parsed."""
        index = self._call_index
        return [call for number in index.files_calling(name, files) for call in index.calls(number, name)]

    @cached_property
    def _call_index(self) -> CallIndex:
        return CallIndex(self.files)

    @cached_property
    def imports_digest(self) -> str:
        """Changes when who imports whom changes, or what a file's bytes show."""
        parts = ((file, seen.imports, sorted(seen.marks)) for file in self.files if (seen := self.glance(file)))
        return hashlib.sha256(repr(list(parts)).encode("utf-8", "replace")).hexdigest()[:32]

    def digest_of_marked(self, mark: str) -> str:
        """Changes when a file with this mark does."""
        return self.digest_of(self.marked(mark))

    def digest_of_importers(self, path: str) -> str:
        """Changes when a file that imports this one, directly or through others, does."""
        return self.digest_of(self.graph.importers(path))

    def digest_of(self, files: FileSet) -> str:
        """Changes when one of these files does, or when they are others."""
        if files not in self._digests:
            parts = (
                (file, seen.digest) for number in numbers_in(files) if (seen := self.glance(file := self.files[number]))
            )
            self._digests[files] = hashlib.sha256(repr(list(parts)).encode("utf-8", "replace")).hexdigest()[:32]
        return self._digests[files]

    def marked(self, mark: str) -> FileSet:
        """Files of the scan whose bytes carry a mark."""
        if mark not in self._marked:
            self._marked[mark] = self._files_where(
                lambda file: mark in seen.marks if (seen := self.glance(file)) else False
            )
        return self._marked[mark]

    def below_top_of(self, folder: str) -> FileSet:
        """Files of the scan that belong to the same project as a folder."""
        top = self.top(folder)
        if top not in self._below_top:
            self._below_top[top] = self._files_where(lambda file: self.top(os.path.dirname(file)) == top)
        return self._below_top[top]

    @cached_property
    def uses(self) -> Uses:
        """Which of what files define is used, and what they are there for."""
        from perfaudit.static.uses import Uses  # only where a question comes

        return Uses(self)

    @cached_property
    def texts_digest(self) -> str:
        """Changes when any file or notebook of the scan does."""
        parts = [(file, seen.digest) for file in (*self.files, *self.notebooks) if (seen := self.glance(file))]
        return hashlib.sha256(repr(parts).encode("utf-8", "replace")).hexdigest()[:32]

    def only(self, path: str) -> FileSet:
        """The set of one file; an empty one where the scan does not hold it."""
        number = self._numbers.get(path)
        return 0 if number is None else 1 << number

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {file: number for number, file in enumerate(self.files)}

    def _files_where(self, holds: Callable[[str], bool]) -> FileSet:
        return int("".join("1" if holds(file) else "0" for file in reversed(self.files)) or "0", 2)

    def first_where(
        self, fact: Callable[[Source], bool], files: FileSet, needed: Callable[[Source], bool] | None = None
    ) -> str:
        """The first of these files of which something is true, "" if it is of none; each file is read once for a fact.

        needed: another fact, which holds wherever this one does, and which several questions share.
        """
        if needed is not None:
            return next(
                (file for file in self._all_where(needed, files) if self.first_where(fact, self.only(file))), ""
            )
        false, true = self._facts.get(fact, (0, 0))
        for number in numbers_in(files & ~false):
            if not true >> number & 1:
                if not self._holds(fact, self.files[number]):
                    false |= 1 << number
                    continue
                true |= 1 << number
            self._facts[fact] = false, true
            return self.files[number]
        self._facts[fact] = false, true
        return ""

    def _all_where(self, fact: Callable[[Source], bool], files: FileSet) -> Iterator[str]:
        """Those of some files of which something is true, in order."""
        while file := self.first_where(fact, files):
            yield file
            files &= ~((self.only(file) << 1) - 1)  # it, and those before it, of which it is not true

    def _holds(self, fact: Callable[[Source], bool], path: str) -> bool:
        """Whether something is true of a file; False for one that does not parse."""
        try:
            return fact(read_source(Path(path), path))
        except (Unreadable, RecursionError):
            return False


@dataclass(slots=True)
class Asked:
    """What the findings of one file depend on besides its own text; for the cache."""

    files: set[str] = field(default_factory=set)
    modules: dict[tuple[str, str], str] = field(default_factory=dict)  # folder and name, and the file it was found in
    marks: set[str] = field(default_factory=set)
    imports: bool = False  # who imports whom, and what the bytes of files show
    importers: bool = False  # what files say that import this one, directly or through others
    uses: set[tuple[Question, str]] = field(default_factory=set)  # of what is defined here, in any file of the scan


class Neighbours:
    """The project as one of its files sees it. Every answer is noted in `asked`."""

    def __init__(self, project: Project, path: str) -> None:
        self._project = project
        self._path = path
        self._folder = os.path.dirname(path)
        self._names: dict[str, str] = {}
        self._derived: dict[tuple[str, frozenset[str]], bool] = {}
        self._noted: set[tuple[str, int]] = set()
        self._folders: dict[int, tuple[Source, str]] = {}  # of the files that definitions were found in
        self.asked = Asked()

    def torch_name(self, dotted: str) -> str:
        """The documented name of torch's that an imported name stands for (".layers.Conv" is "torch.nn.Conv2d"), or "".

        Through re-exports, star imports, and subclasses that take the same arguments.
        """
        if dotted not in self._names:
            known = _MAY_BE_TORCH.search(dotted) is not None or self._takes_from_torch(dotted)
            self._names[dotted] = self._follow(self._folder, dotted, MAX_HOPS) if known else ""
        return self._names[dotted]

    def _takes_from_torch(self, dotted: str) -> bool:
        """Whether a module of the project imports this name from torch, as its bytes show: a function, `checkpoint as ck`."""
        module, _, name = dotted.rpartition(".")
        if dotted.startswith(".") and not module.strip("."):
            module = dotted[: len(dotted) - len(dotted.lstrip("."))]
        path = self._module_file(self._folder, module) if module else ""
        if not path:
            return False
        self.asked.files.add(path)
        seen = self._project.glance(path)
        return seen is not None and seen.takes_from_torch(name)

    def _module_file(self, folder: str, dotted: str) -> str:
        path = self._project.module_file(folder, dotted)
        self.asked.modules[folder, dotted] = path  # where there is none too: there may be one tomorrow
        return path

    def derives_from(self, dotted: str, bases: frozenset[str]) -> bool:
        """Whether an imported name is a class of the project derived from one of these of torch's, in any way.

        Each class on the way has one base.
        """
        if (dotted, bases) not in self._derived:
            self._derived[dotted, bases] = self._follow(self._folder, dotted, MAX_HOPS, bases) in bases
        return self._derived[dotted, bases]

    def _follow(self, folder: str, dotted: str, hops: int, bases: frozenset[str] | None = None) -> str:
        """What a name stands for; bases: classes of torch's of which any subclass counts, None for plain ones."""
        if dotted.partition(".")[0] == "torch":
            return canonical(dotted)
        module, _, name = dotted.rpartition(".")
        if dotted.startswith(".") and not module.strip("."):
            module = dotted[: len(dotted) - len(dotted.lstrip("."))]
        if not module or not hops:
            return ""
        path = self._module_file(folder, module)
        if not path:
            owner = self._owner(folder, module, hops - 1, bases)  # `layers.nn.Conv2d`
            return canonical(f"{owner}.{name}") if owner else ""
        self.asked.files.add(path)
        seen = self._project.glance(path)
        if seen is None or not seen.may_bind(name, _last_names(bases)):
            return ""
        found = self._project.module_names(path)
        if found is None:
            return ""
        inside = os.path.dirname(path)
        if written := found.base_of(name, plain=bases is None):
            head, _, tail = written.partition(".")
            base = found.imports.get(head)
            if base is None:
                return self._follow(folder, f"{module}.{head}", hops - 1, bases) if not tail and head != name else ""
            meant = self._follow(inside, f"{base}.{tail}" if tail else base, hops - 1, bases)
            return meant if meant in (bases or PLAIN_BASES) else ""
        if name in found.imports:
            return self._follow(inside, found.imports[name], hops - 1, bases)
        for star in self._stars_that_bind(path, name, hops) if found.stars else ():
            joined = star if star.endswith(".") else star + "."
            if meant := self._follow(inside, joined + name, hops - 1, bases):
                return meant
        return ""

    def _owner(self, folder: str, module: str, hops: int, bases: frozenset[str] | None) -> str:
        """What a module's name stands for where no file has it: something of torch's that another module imports, or nothing.

        A scan of a part of a package asks it for each missing module from every file, and each time goes through all star
        imports: the project keeps the answer.
        """
        while module.startswith(".."):
            folder, module = os.path.dirname(folder), module[1:]
        key = (folder, module, hops, bases)
        if key not in self._project.owners:
            asked, noted = self.asked, self._noted
            self.asked, self._noted = Asked(), set()
            try:
                self._project.owners[key] = self._follow(folder, module, hops, bases), self.asked
            finally:
                self.asked, self._noted = asked, noted
        owner, seen = self._project.owners[key]
        self.asked.files |= seen.files
        self.asked.modules |= seen.modules
        return owner

    def _stars_that_bind(self, path: str, name: str, hops: int) -> Sequence[str]:
        """The star imports of a module that may bind a name, directly or through others; the last one first."""
        behind = self._project.behind_stars(path, hops)
        if (path, hops) not in self._noted:
            self._noted.add((path, hops))
            self.asked.files.update(filter(None, behind.modules.values()))
            self.asked.modules.update(behind.modules)
        return behind.stars.get(name, ())

    def defined(self, dotted: str, by: Source | None = None) -> tuple[Source, ast.AST] | None:
        """The function or class of another file that an imported name stands for, and that file; None where none surely is.

        Through re-exports. The file is seen alone: what its own imports stand for is asked with `by`, the file that imports
        the name, where that is one in which something was found before.
        """
        folder = self._folder if by is None else self._folders[id(by)][1]
        for _ in range(MAX_HOPS):
            module, _, name = dotted.rpartition(".")
            if dotted.startswith(".") and not module.strip("."):
                module = dotted[: len(dotted) - len(dotted.lstrip("."))]
            path = self._module_file(folder, module) if module and name else ""
            if not path or path == self._path:
                return None
            self.asked.files.add(path)
            source = self._project.source(path)
            if source is None:
                return None
            bound = source.bound_in(source.tree).get(name, [])
            imported = source.aliases.get(name)
            if bound or not imported:
                self._folders[id(source)] = (source, os.path.dirname(path))
                return (source, bound[0]) if len(bound) == 1 else None
            folder, dotted = os.path.dirname(path), imported
        return None

    def imports_a_marked_file(self, mark: str, imports: Iterable[str]) -> bool:
        """Whether one of these modules is a file of the project whose bytes carry the mark.

        Of a package that only hands on what its modules define, these are asked too.
        """
        pending = [(self._folder, module, 0) for module in imports]
        known = set()
        for folder, module, hops in pending:
            path = self._module_file(folder, module)
            if not path or path in known:
                continue
            known.add(path)
            self.asked.files.add(path)
            seen = self._project.glance(path)
            if seen and mark in seen.marks:
                return True
            if seen and hops < MAX_HOPS and os.path.basename(path) == "__init__.py":
                pending += [(os.path.dirname(path), inner, hops + 1) for inner in seen.imports]
        return False

    def is_imported_by_a_marked_file(self, mark: str) -> bool:
        """Whether a file of the scan that imports this one, directly or through others, carries the mark."""
        self.asked.imports = True
        return bool(self._project.graph.importers(self._path) & self._project.marked(mark))

    def program_carries(self, mark: str) -> bool:
        """Whether a file of the scan that runs together with this one carries the mark: an importer, or what it imports."""
        self.asked.imports = True
        return bool(self._project.graph.program(self._path) & self._project.marked(mark))

    def imports_carry(self, mark: str) -> bool:
        """Whether a file of the scan that this one imports, directly or through others, says something (`said_to_program`)."""
        self.asked.imports = True
        imported = self._project.graph.imported_by(self._path)
        if (
            mark in FIRST_LOOK
        ):  # every file's first look has it, and it is asked of any file: others are asked of scripts
            return bool(imported & self._project.marked(mark))
        files = [self._project.files[n] for n in numbers_in(imported)]
        self.asked.files.update(files)
        return any(mark in self._project.said_to_program(file) for file in files)

    def is_own_module(self, dotted: str) -> bool:
        """Whether an imported name is a module of the project, or lies in one."""
        return bool(
            self._module_file(self._folder, dotted) or self._module_file(self._folder, dotted.rpartition(".")[0])
        )

    def is_imported(self) -> bool:
        """Whether another file of the scan imports this one."""
        self.asked.imports = True
        return bool(self._project.graph.importers(self._path))

    def calls_by_importers(self, name: str) -> list[CallShape]:
        """What the files of the scan that import this one, directly or through others, call by this last name."""
        self.asked.imports = self.asked.importers = True
        return self._project.calls(self._project.graph.importers(self._path), name)

    def some_file(
        self, mark: str, fact: Callable[[Source], bool], needed: Callable[[Source], bool] | None = None
    ) -> str:
        """The path of another file of this project that carries the mark and of which the fact holds; "" if none.

        Of the same program, or below the same top; a scan may hold projects that know nothing of each other. needed: see
        `Project.first_where`.
        """
        self.asked.marks.add(mark)
        self.asked.imports = True
        project = self._project
        marked = project.marked(mark)
        if not marked:
            return ""
        together = project.graph.importers(self._path) | project.graph.program(self._path)
        together |= project.below_top_of(self._folder)
        return project.first_where(fact, marked & together & ~project.only(self._path), needed)

    def some_relative(
        self, mark: str, fact: Callable[[Source], bool], needed: Callable[[Source], bool] | None = None
    ) -> str:
        """The path of a file that imports this one or that this one imports, directly or not, marked, and of which the fact
        holds; "" if none. Of a file that nobody imports and that imports nobody's, another one of this project.
        """
        self.asked.marks.add(mark)
        self.asked.imports = True
        graph = self._project.graph
        related = graph.importers(self._path) | graph.imported_by(self._path)
        if not graph.importers(self._path) & ~self._project.only(self._path):
            related |= self._project.below_top_of(self._folder)  # it may be imported by its name in a text
        marked = self._project.marked(mark)
        others = marked & related & ~self._project.only(self._path)
        return self._project.first_where(fact, others, needed) if marked else ""

    def answer(self, question: Question, name: str = "") -> bool:
        """What the texts of the scan say of this file, or of a name that it defines; see `Uses`."""
        self.asked.uses.add((question, name))
        return self._project.uses.answer(self._path, question, name)

    def some_importer(self, fact: Callable[[Source], bool]) -> str:
        """The path of a file of the scan that imports this one, directly or not, and of which the fact holds; "" if none."""
        self.asked.imports = self.asked.importers = True
        nearest = self._project.graph.nearest_importers(self._path)
        return next((file for file in nearest if self._project.first_where(fact, self._project.only(file))), "")


def _last_names(bases: frozenset[str] | None) -> Collection[str]:
    return _PLAIN if bases is None else {name.rpartition(".")[2] for name in bases}


def absolute(path: Path) -> str:
    return os.path.realpath(path)
