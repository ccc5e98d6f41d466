"""Where the results of calls lie that this file does not define: torch's functions, builtins, methods of tensors."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.devices import changes_default_device, names_accelerator, names_cpu
from perfaudit.static.understanding.kinds import Kind, Value, all_arithmetic, whole
from perfaudit.static.understanding.values import resolve

_HOST_ATTRIBUTES = {  # and what begins with "is_"
    *("shape", "device", "dtype", "ndim", "layout", "requires_grad", "grad_fn", "name", "names", "itemsize"),
    *("nbytes", "output_nr", "retains_grad"),
}
_TENSOR_ATTRIBUTES = {"grad", "data", "T", "mT", "H", "mH", "real", "imag"}
_HOST_METHODS = {  # and what begins with "is_"
    *("item", "tolist", "cpu", "numpy", "size", "dim", "numel", "nelement", "ndimension", "element_size"),
    *("stride", "data_ptr", "storage_offset", "get_device", "untyped_storage", "storage", "backward"),
    *("register_hook", "keys"),
}
_HOST_BUILTINS = {
    *("float", "int", "bool", "str", "repr", "len", "isinstance", "issubclass", "print", "range", "round"),
    *("hash", "id", "type", "hasattr", "callable", "format"),
}
_COLLECTIONS = {
    *("list", "tuple", "set", "dict", "sorted", "reversed", "iter", "next", "enumerate", "zip", "map", "filter"),
    *("sum", "any", "all"),
}
_ON_HOST = {  # what makes a tensor there, unless it is given a device
    f"torch.{name}"
    for name in (
        *("tensor", "as_tensor", "zeros", "ones", "full", "empty", "eye", "rand", "randn", "randint", "randperm"),
        *("arange", "linspace", "Tensor", "FloatTensor", "DoubleTensor", "HalfTensor", "LongTensor", "IntTensor"),
        *("ShortTensor", "ByteTensor", "BoolTensor"),
    )
}
_CUDA_TYPE = regex(r"torch\.cuda\.\w+Tensor$", words="torch.cuda.")
_HOST_TORCH = {"torch.is_tensor", "torch.numel", "torch.save", "torch.from_numpy", "torch.is_floating_point"}
_GRAD_NORMS = {"torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_norm", "torch.nn.utils.get_total_norm"}
_PARAMETERS = {"parameters", "named_parameters"}
_COMPARES = {"eq", "ne", "lt", "le", "gt", "ge", "eq_", "sub", "mul", "div"}  # what only a tensor does to another one
_WRAPPERS = {"torch.autograd.Variable", "torch.nn.Parameter"}
_TENSOR_FUNCTION = regex(r"^torch\.([a-z_0-9]+|(nn\.functional|linalg|special|fft)\.[a-z_0-9]+|autograd\.grad)$")


def of_attribute(name: str, base: Kind) -> Kind:
    """Where an attribute lies of something that lies there."""
    if name in _HOST_ATTRIBUTES or name.startswith("is_"):
        return Kind.HOST
    if base is Kind.TENSOR and name in _TENSOR_ATTRIBUTES:
        return Kind.TENSOR
    return Kind.MAYBE if base >= Kind.MAYBE else Kind.UNKNOWN


def of_imported(source: Source, call: ast.Call, name: str, given: Kind) -> Kind:
    """What a function of an imported module returns."""
    if name.startswith(("numpy.", "math.")) or name in _HOST_TORCH:
        return Kind.HOST
    if _CUDA_TYPE.match(name):
        return Kind.TENSOR
    if name in _ON_HOST:
        device = next((keyword.value for keyword in call.keywords if keyword.arg == "device"), None)
        if device is not None:
            return Kind.TENSOR if names_accelerator(source, device) else Kind.UNKNOWN
        return Kind.UNKNOWN if changes_default_device(source) else Kind.HOST
    if name in _GRAD_NORMS:
        return Kind.TENSOR
    if name in _WRAPPERS:
        return given
    if given < Kind.MAYBE:
        return Kind.UNKNOWN
    return Kind.TENSOR if _TENSOR_FUNCTION.match(name) else Kind.MAYBE


def of_builtin(name: str, arguments: list[Value]) -> Kind:
    given = max((whole(argument) for argument in arguments), default=Kind.HOST)
    if name in _HOST_BUILTINS:
        return Kind.HOST
    if name in ("min", "max", "abs") and (len(arguments) > 1 or name == "abs"):
        return all_arithmetic(arguments)
    if name in _COLLECTIONS and given is Kind.HOST:
        return Kind.HOST
    return Kind.MAYBE if given >= Kind.MAYBE else Kind.UNKNOWN


def of_method(source: Source, call: ast.Call, func: ast.Attribute, receiver: Kind, given: Kind) -> Kind:
    """What a method returns that is not defined here, for the kinds of what it is called on and with."""
    is_on_host = func.attr in _HOST_METHODS or func.attr.startswith("is_")
    if is_on_host or (func.attr == "format" and is_text(func.value)):
        return Kind.HOST
    if func.attr == "cuda":
        return Kind.TENSOR
    if func.attr == "to":
        return _kind_after_move(source, call, receiver)
    if func.attr == "type" and any(makes_cuda_tensors(source, argument) for argument in call.args):
        return Kind.TENSOR
    if receiver is Kind.MAYBE and given is Kind.TENSOR and func.attr in _COMPARES:
        return Kind.TENSOR
    if receiver >= Kind.MAYBE:
        return receiver
    if func.attr in _PARAMETERS:  # of what is trained on the device
        return Kind.MAYBE
    return Kind.MAYBE if given >= Kind.MAYBE else receiver


def _kind_after_move(source: Source, call: ast.Call, receiver: Kind) -> Kind:
    targets = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
    if any(names_cpu(source, target) for target in targets):
        return Kind.HOST
    if any(names_accelerator(source, target) for target in targets):
        return Kind.TENSOR
    return receiver


def makes_cuda_tensors(source: Source, node: ast.expr) -> bool:
    """Whether a name stands for a type such as `torch.cuda.FloatTensor`, also if only where there is such a device."""
    value = resolve(source, node)
    options = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    return any(_CUDA_TYPE.match(source.qualified_name(option) or "") for option in options)


def is_text(node: ast.expr) -> bool:
    """Whether an expression is a text literal, or made of them with `+` and `*`."""
    if isinstance(node, ast.BinOp):
        return is_text(node.left) or is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
