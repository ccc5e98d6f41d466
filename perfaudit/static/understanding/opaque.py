"""Whether a call runs code that a file does not show, and that may therefore do anything: train, differentiate, write."""

from __future__ import annotations

import ast
import builtins
import sys

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import assigned_value

LIBRARIES = sys.stdlib_module_names | {  # none of them runs a model that it was not handed
    *("torch", "torchvision", "torchaudio", "torchmetrics", "numpy", "scipy", "sklearn", "pandas", "PIL", "cv2"),
    *("skimage", "matplotlib", "seaborn", "tqdm", "rich", "einops", "wandb", "tensorboardX", "mlflow", "loguru"),
    *("nltk", "sacrebleu", "rouge_score", "seqeval", "pycocotools", "imageio", "h5py", "yaml", "evaluate", "termcolor"),
}
_REPORTS = {  # what loggers, writers, progress bars and clocks are asked for
    *("add_scalar", "add_scalars", "add_image", "add_images", "add_histogram", "add_text", "add_figure", "log", "info"),
    *(
        "debug",
        "warning",
        "error",
        "exception",
        "write",
        "writerow",
        "flush",
        "close",
        "set_description",
        "set_postfix",
    ),
    *("set_description_str", "set_postfix_str", "gather", "gather_for_metrics", "refresh", "tick", "toc"),
}
_METHODS = _REPORTS | {  # of tensors, lists, dicts, texts, metrics
    *("to", "cuda", "cpu", "float", "double", "half", "bfloat16", "long", "int", "bool", "byte", "type", "type_as"),
    *("item", "tolist", "numpy", "detach", "clone", "size", "dim", "numel", "nelement", "view", "view_as", "reshape"),
    *("permute", "transpose", "t", "squeeze", "unsqueeze", "flatten", "expand", "expand_as", "repeat", "contiguous"),
    *("argmax", "argmin", "argsort", "max", "min", "sum", "mean", "std", "var", "prod", "eq", "ne", "gt", "lt", "ge"),
    *("le", "softmax", "log_softmax", "sigmoid", "tanh", "relu", "exp", "sqrt", "abs", "pow", "square", "topk", "sort"),
    *("round", "clamp", "masked_fill", "masked_select", "gather", "index_select", "nonzero", "any", "all", "norm"),
    *("split", "chunk", "unbind", "cumsum", "add", "mul", "div", "sub", "matmul", "mm", "bmm", "fill_", "zero_", "new"),
    *("copy_", "add_", "mul_", "div_", "sub_", "scatter_", "numpy", "astype", "is_cuda", "new_zeros", "new_ones"),
    *("append", "extend", "insert", "pop", "popleft", "items", "keys", "values", "get", "setdefault", "copy", "count"),
    *("index", "clear", "format", "join", "strip", "lower", "upper", "startswith", "endswith", "replace", "zfill"),
    *("encode", "decode", "batch_decode", "update", "reset", "compute", "result", "add_batch", "average", "avg"),
    *("synchronize_between_processes", "log_every", "state_dict", "named_parameters", "parameters", "zfill"),
}
_MEASURES = regex(  # names of what judges or shows outputs, prepares text or masks, or puts batches together
    r"loss|crit|metric|meter|measure|accura|(^|_)acc(_|\d|$)|score|evaluator|tokeniz|collate|iou|dice|jaccard|psnr|ssim|bleu|rouge|"
    r"^(save|plot|draw|show|visuali[sz]e|print|log|display|write|dump|format)(_|$)|(^|_)masks?$|"
    r"(^|_)(wer|cer|auc|f1|mse|mae|rmse|bce|nll|ce|l1|l2|eer|err|error|precision|recall|correct|kld|kl)(_|$)"
)


def is_familiar(source: Source, call: ast.Call) -> bool:
    """Whether what a call runs is a builtin, of torch or another well-known library, or a method of plain values."""
    func = call.func
    if is_library(source, func):
        return True
    if isinstance(func, ast.Attribute):
        return func.attr in _METHODS
    if isinstance(func, ast.Call):
        return _is_layer(source, func)
    if not isinstance(func, ast.Name):
        return False
    own = source.lookup(func)
    if func.id == "xrange" and all(last_name(value) == "range" for value in made_of(source, func)):
        return True  # of Python 2, or bound to `range` where there is none
    if not own and func.id not in source.aliases:
        given = call.args[0] if call.args else None
        is_handed_on = func.id in ("map", "filter") and isinstance(given, (ast.Name, ast.Attribute))
        is_builtin = hasattr(builtins, func.id) and func.id not in ("exec", "eval")
        return is_builtin and (not is_handed_on or hasattr(builtins, last_name(given or func)))
    if len(own) == 1 and isinstance(own[0], ast.ClassDef):
        return True
    made = made_of(source, func)
    return len(made) == len(own) > 0 and all(_is_layer(source, value) for value in made)


def is_library(source: Source, node: ast.expr) -> bool:
    """Whether an expression is of the standard library or a well-known one, by its name: `torchvision.transforms.ToTensor`."""
    name = source.qualified_name(node)
    return name is not None and name.partition(".")[0] in LIBRARIES


def _is_layer(source: Source, made: ast.expr) -> bool:
    """Whether a value is a layer or loss of torch's (`softmax = nn.Softmax(dim=1)`), or a class of tensors."""
    if isinstance(made, ast.IfExp):
        return _is_layer(source, made.body) and _is_layer(source, made.orelse)
    if isinstance(made, ast.Attribute):
        return is_library(source, made) and made.attr.endswith("Tensor")
    name = (source.qualified_name(made.func) if isinstance(made, ast.Call) else None) or ""
    return name.startswith(("torch.nn.", "torchmetrics.")) and "Parallel" not in name


def judges(call: ast.Call) -> bool:
    """Whether a call is a loss's, a metric's, a tokenizer's or a collate function's, or shows something, by its name."""
    func = call.func
    while isinstance(func, ast.Subscript):
        func = func.value
    return bool(_MEASURES.search(last_name(func).lower()))


def reports(call: ast.Call) -> bool:
    """Whether a call tells a logger, a writer or a progress bar something, by its name."""
    return last_name(call.func) in _REPORTS


def made_of(source: Source, node: ast.expr) -> list[ast.expr]:
    """What the assignments of this file give a name or an attribute chain, wherever they stand."""
    if isinstance(node, ast.Name):
        values = [assigned_value(source, binding) for binding in source.lookup(node)]
    elif isinstance(node, ast.Attribute) and (name := dotted_name(node)):
        stores = [a for a in source.nodes(ast.Attribute) if a.attr == node.attr and not isinstance(a.ctx, ast.Load)]
        values = [assigned_value(source, store) for store in stores if dotted_name(store) == name]
    else:
        return []
    return [value for value in values if value is not None]


def is_opaque(source: Source, call: ast.Call) -> bool:
    """Whether the code that a call runs can be told neither from this file nor from its name."""
    return called_function(source, call) is None and not is_familiar(source, call) and not judges(call)
