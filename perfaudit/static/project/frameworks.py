"""Libraries that run a training instead of its script, and whether a file uses the trainer of one."""

from __future__ import annotations

from collections.abc import Iterable

from perfaudit.expressions import regex
from perfaudit.static.bare_code import without_comments

# What runs the training instead of the script, or decides how tensors are computed with.
FRAMEWORKS = {
    "accelerate", "apex", "catalyst", "colossalai", "composer", "deepspeed", "detectron2", "fairscale", "fastai", "flash",
    "horovod", "ignite", "jax", "lightning", "lightning_fabric", "megatron", "mmcv", "mmengine", "pl_bolts",
    "pytorch_lightning", "ray", "speechbrain", "torch_xla", "torchbearer", "torchtitan", "torchtnt",
    "transformers", "bminf", "bmtrain",
}  # fmt: skip
_LENDS_PARTS = {"apex"}  # optimizers and layers; where it decides the precision, the file says so
# Of mmcv what runs a training, or wraps a model for that; the rest reads configurations and images.
_RUNS_OF_MMCV = ("mmcv.runner", "mmcv.parallel.MM", "mmcv.parallel.*", "mmcv.engine")
_WITH_TRAINERS = {"transformers", "trl", "optimum", "setfit", "adapters", "sentence_transformers"}
_LIBRARY_MODEL = regex(
    rb"(?:Model\w{0,20}|For\w{1,60})\.from_(?:pretrained|config)\(|class[ \t]+\w+\(\w{0,40}PreTrainedModel[,)]"
)

_AUDIO_BUNDLE = regex(r"torchaudio\.pipelines\.(?:WAV2VEC2|HUBERT|WAVLM)")  # the transformers of torchaudio


def marks_of_frameworks(data: bytes, imported: Iterable[str]) -> set[str]:
    """Whether a file that imports these names hands its training to a "framework", or trains a "library model"."""
    imported = set(imported)
    found = running_frameworks(imported)
    marks = set()
    if found - {"transformers"} or (found and has_trainer(imported, data.decode("utf-8", "replace"))):
        marks.add("framework")  # else it lends the model only
    if "transformers" in found and _LIBRARY_MODEL.search(data) and _LIBRARY_MODEL.search(without_comments(data)):
        marks.add("library model")
    if b".get_model(" in data and any(_AUDIO_BUNDLE.match(name) for name in imported):
        marks.add("library model")
    return marks


def running_frameworks(imported: Iterable[str]) -> set[str]:
    """The frameworks of which these imported names may have a training run; transformers may lend the model only."""
    names = [name for name in imported if not name.startswith("mmcv") or name.startswith(_RUNS_OF_MMCV)]
    return (FRAMEWORKS & {name.partition(".")[0] for name in names}) - _LENDS_PARTS


def has_trainer(imported: Iterable[str], text: str) -> bool:
    """Whether a file that imports these names uses a Trainer of transformers, or of what is built on that."""
    return any(word in text for word in ("TrainingArguments", "transformers.Trainer", "Seq2SeqTrainer")) or any(
        name.partition(".")[0] in _WITH_TRAINERS and name.endswith(("Trainer", "TrainingArguments", ".*"))
        for name in imported
    )
