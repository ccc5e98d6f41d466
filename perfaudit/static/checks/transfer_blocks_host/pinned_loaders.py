"""Which loaders surely pin their batches: a file's own, those that others hand in, those that a setting decides about."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfaudit.expressions import regex
from perfaudit.static.checks.transfer_blocks_host.batch_iterators import unseen_takes
from perfaudit.static.checks.transfer_blocks_host.host_tensors import holds_tensors, is_made_on_host
from perfaudit.static.project.loader_marks import (
    ASKED_TO_PIN,
    PINNED_BY_PARAMETER,
    PINNING_OFF,
    PINNING_ON,
    SURELY_PAGEABLE,
)
from perfaudit.static.project.neighbours import Neighbours
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.defaults import default_expression
from perfaudit.static.understanding.elsewhere import method_meant
from perfaudit.static.understanding.loaders import LOADER, passes, perhaps_passes, unseen_passes
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import (
    ABSENT,
    UNKNOWN,
    Argument,
    argument,
    assigned_value,
    constant,
    dict_items,
    is_true,
)

if TYPE_CHECKING:
    from perfaudit.static.checks.transfer_blocks_host.batch_parts import Part
    from perfaudit.static.checks.transfer_blocks_host.loaders_elsewhere import MadeLoader

BATCH_SIZE, COLLATE, PIN_MEMORY = 1, 6, 7  # positions in DataLoader.__init__ of every torch since 1.0
_PIN_SETTING = regex(r"pin_mem(ory)?")


def is_of_pinned(source: Source, part: Part, key: str = "") -> bool:
    """Whether a part of a batch is of loaders in sight that all pin it; so it is where none are in sight.

    key: under which it stands in the batch, where that is known.
    """
    return all(pins_tensors(source, loader, part, key) for loader in part.loaders)


def is_pinned_where_made(source: Source, part: Part) -> bool:
    """Whether a loop runs over loaders that other files make, and all of them pin what torch's own function collates.

    Or what a function of the project does that returns nothing but tensors which it makes itself.
    """
    if part.loaders or not program_says(source, ASKED_TO_PIN):
        return False
    # Imported here: most loaders are in sight.
    from perfaudit.static.checks.transfer_blocks_host.loaders_elsewhere import loaders_elsewhere

    own = [one for one in perhaps_passes(source) if one.loop is part.taken]
    made = loaders_elsewhere(source, own[0].over) if len(own) == 1 else []
    return bool(made) and all(
        pins_tensors(one.source, one.call, neighbours=source.neighbours, made=one)
        and (
            (collate := argument(one.source, one.call, "collate_fn", COLLATE)) is ABSENT
            or _collates_as_usual(one.source, collate, source.neighbours)
            or _collates_tensors_only(one.source, collate, source.neighbours)
        )
        for one in made
    )


def is_handed_pinned(source: Source, own: Sequence[ast.Call]) -> bool:
    """Whether a training loop runs over what other files hand in, and every loader of the program pins."""
    if not (unseen_passes(source) or unseen_takes(source)) or not all(pins_tensors(source, call) for call in own):
        return False
    if program_says(source, PINNED_BY_PARAMETER) and program_says(source, PINNING_OFF):
        return False
    return program_says(source, "pinned loaders") and not program_says(source, "pageable loaders")


def is_pinned_by_setting(source: Source, own: Sequence[ast.Call]) -> bool:
    """Whether every loader of the program pins by itself or as a setting has it, which is True wherever it is written."""
    if not perhaps_passes(source) or any(_is_pageable(source, call) for call in own):
        return False
    if program_says(source, SURELY_PAGEABLE) or program_says(source, PINNING_OFF):
        return False
    if not program_says(source, ASKED_TO_PIN):
        return False
    return program_says(source, PINNING_ON) or (not own and program_says(source, "pinned loaders"))


def _is_pageable(source: Source, call: ast.Call) -> bool:
    pinned = argument(source, call, "pin_memory", PIN_MEMORY)
    return pinned is ABSENT or (isinstance(pinned, ast.expr) and constant(source, pinned) is False)


def is_surely_pinned(source: Source, copy: ast.Call, part: Part) -> bool:
    """Whether what is copied is a batch that another file hands in, of a program whose loaders pin in any case."""
    if is_handed_pinned(source, source.calls(LOADER)):
        is_sure = any(one.loop is part.taken for one in unseen_passes(source))
    else:
        is_sure = is_pinned_where_made(source, part)
    return is_sure and any(around is part.taken for around in source.ancestors(copy))


def program_says(source: Source, mark: str) -> bool:
    """Whether some file of the program carries this mark."""
    return source.neighbours is not None and source.neighbours.program_carries(mark)


def pins_tensors(
    source: Source,
    call: ast.Call,
    part: Part | None = None,
    key: str = "",
    neighbours: Neighbours | None = None,
    made: MadeLoader | None = None,
) -> bool:
    """Whether a loader surely pins on a machine with a GPU, and this part of its batches has no `.to` of its own.

    Without a part, whether it yields tensors at all. key: that of the part, where the batch is a dict. neighbours: those of the
    file that is scanned, where the loader is in another one. made: by what call a function of another file makes the loader.
    """
    pinned = argument(source, call, "pin_memory", PIN_MEMORY)
    collate = argument(source, call, "collate_fn", COLLATE)
    if isinstance(pinned, ast.expr):
        file, pinned = _flag_as_passed(source, pinned, made)
        if not (is_true(file, pinned) or _is_on_with_gpu(file, pinned) or _is_on_by_setting(file, pinned)):
            return False
    elif pinned is ABSENT:
        return False
    elif not _is_pinned_by_key(source, call):
        if not _is_pinned_by_configuration(source, call):
            return False
        if collate is UNKNOWN and _is_set_nowhere(source, "collate_fn"):
            collate = ABSENT
    if collate is not ABSENT and not _collates_as_usual(source, collate, neighbours):
        tensors = _tensors_returned(source, collate, neighbours) if isinstance(collate, ast.expr) else []
        keyed = _tensors_by_key(source, collate, neighbours) if isinstance(collate, ast.expr) else {}
        is_one = (
            keyed.get(key, all(keyed.values())) if keyed else part is not None and _is_one_of(source, part, tensors)
        )
        if not any((*tensors, *keyed.values())) or (part is not None and not is_one):
            return False
    batch_size = argument(source, call, "batch_size", BATCH_SIZE)
    return constant(source, batch_size) is not None


def _flag_as_passed(source: Source, node: ast.expr, made: MadeLoader | None) -> tuple[Source, ast.expr]:
    """The value of a flag and its file: of a parameter of the function that makes the loader, what the call of it passes."""
    bindings = source.lookup(node) if isinstance(node, ast.Name) else []
    only = bindings[0] if len(bindings) == 1 else None
    if made is None or made.caller is None or made.asked is None or made.maker is None or not isinstance(only, ast.arg):
        return source, node
    names = [a.arg for a in (*made.maker.args.posonlyargs, *made.maker.args.args)]
    if source.enclosing(only, *FUNCTIONS, ast.Lambda) is not made.maker:
        return source, node
    given = argument(made.caller, made.asked, only.arg, names.index(only.arg) if only.arg in names else None)
    written = default_expression(made.maker, only)
    if given is ABSENT and written is not None:
        return source, written
    return (made.caller, given) if isinstance(given, ast.expr) else (source, node)


def _is_on_with_gpu(source: Source, node: ast.expr) -> bool:
    """Whether a flag is True wherever there is a GPU, or by default: `args.pin_mem` unless the command line says otherwise.

    Not a parameter of a file whose callers are not in sight.
    """
    # Imported here: most loaders are told a literal.
    from perfaudit.static.checks.transfer_blocks_host.flags_of_gpu import is_on_with_gpu
    from perfaudit.static.understanding.defaults import default_in_sight

    if is_on_with_gpu(source, node):
        return True
    is_in_sight = source.neighbours is not None or isinstance(node, ast.Attribute)
    found = default_in_sight(source, node) if is_in_sight else None
    return found is not None and found.value is True


def _is_on_by_setting(source: Source, node: ast.expr) -> bool:
    """Whether a setting says it, `config.PIN_MEM`, that the program writes as True wherever it writes one."""
    is_setting = isinstance(node, ast.Attribute) and _PIN_SETTING.fullmatch(last_name(node).lower()) is not None
    return is_setting and program_says(source, PINNING_ON) and not program_says(source, PINNING_OFF)


def _collates_as_usual(source: Source, collate: Argument, neighbours: Neighbours | None = None) -> bool:
    """Whether a collate function is torch's own one, or returns in any case what that makes of the samples it has padded."""
    if not isinstance(collate, ast.expr):
        return False
    if _is_default_collate(source, collate):
        return True
    there, function = _function_meant(source, collate, neighbours)
    if function is None:
        return False
    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and there.scope(n) is function]
    return bool(returned) and all(isinstance(v, ast.Call) and _is_default_collate(there, v.func) for v in returned)


def _collates_tensors_only(source: Source, collate: Argument, neighbours: Neighbours | None) -> bool:
    """Whether a collate function of the project returns tensors that it makes itself, and nothing else."""
    if not isinstance(collate, ast.expr):
        return False
    keyed = _tensors_by_key(source, collate, neighbours)
    made = (*_tensors_returned(source, collate, neighbours), *keyed.values())
    return bool(made) and all(made)


def _is_default_collate(source: Source, node: ast.expr) -> bool:
    name = source.qualified_name(node) or ""
    return name.startswith("torch.utils.data.") and name.endswith(".default_collate")


def _function_meant(source: Source, collate: ast.expr, neighbours: Neighbours | None) -> tuple[Source, Function | None]:
    """The function of the project that an expression stands for, and its file."""
    found: list[ast.AST] = list(source.lookup(collate)) if isinstance(collate, ast.Name) else []
    there, known = source, source.neighbours or neighbours
    if not found and known is not None and (dotted := source.qualified_name(collate)):
        defined = known.definition_of(dotted, None if known is source.neighbours else source)
        there, found = (defined[0], [defined[1]]) if defined is not None else (source, [])
    if not found and isinstance(collate, ast.Attribute) and (method := method_meant(source, collate)) is not None:
        there, found = method[0], [method[1]]
    only = found[0] if len(found) == 1 else None
    return there, only if isinstance(only, FUNCTIONS) else None


def _tensors_returned(source: Source, collate: ast.expr, neighbours: Neighbours | None) -> list[bool]:
    """Which elements of the tuple that a collate function of the project returns are tensors that it makes itself."""
    there, function = _function_meant(source, collate, neighbours)
    if function is None:
        return []
    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and there.scope(n) is function]
    tuples = [value.elts for value in returned if isinstance(value, ast.Tuple)]
    if not tuples or len(tuples) < len(returned) or len({len(elements) for elements in tuples}) > 1:
        return []
    return [
        all(is_made_on_host(there, element) or holds_tensors(there, element) for element in elements)
        for elements in zip(*tuples, strict=True)
    ]


def _tensors_by_key(source: Source, collate: ast.expr, neighbours: Neighbours | None) -> dict[str, bool]:
    """Of the dict that a collate function of the project writes where it returns, which keys hold tensors that it makes itself.

    Empty for any other function.
    """
    there, function = _function_meant(source, collate, neighbours)
    if function is None:
        return {}
    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and there.scope(n) is function]
    only = returned[0] if len(returned) == 1 else None
    if not isinstance(only, ast.Dict):
        return {}
    found = {}
    for name, value in zip(only.keys, only.values, strict=True):
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            return {}
        found[name.value] = is_made_on_host(there, value) or holds_tensors(there, value)
    return found


def _is_one_of(source: Source, part: Part, tensors: list[bool]) -> bool:
    """Whether a part of a batch is one of its elements that are tensors, as the loop takes it apart."""
    if all(tensors):
        return True
    own = [one.batch for one in passes(source) if one.loop is part.taken]
    elements = own[0].elts if len(own) == 1 and isinstance(own[0], (ast.Tuple, ast.List)) else []
    if len(elements) != len(tensors):
        return False
    named = [
        is_tensor for element, is_tensor in zip(elements, tensors, strict=True) if last_name(element) in part.names
    ]
    return bool(named) and all(named)


def _is_pinned_by_key(source: Source, call: ast.Call) -> bool:
    """Whether a dict that the call unpacks has the key where there is a GPU, and the file gives it no value but True."""
    dicts = [dict_items(source, keyword.value) for keyword in call.keywords if keyword.arg is None]
    if not any(items is not None and "pin_memory" in items for items in dicts):
        return False
    values = [k.value for k in source.nodes(ast.keyword) if k.arg == "pin_memory"]
    for node in source.nodes(ast.Dict):
        values += [v for k, v in zip(node.keys, node.values, strict=True) if _is_key(k)]
    for target in source.nodes(ast.Subscript):
        if isinstance(target.ctx, ast.Store) and _is_key(target.slice):
            value = assigned_value(source, target)
            if value is None:
                return False
            values.append(value)
    return all(is_true(source, value) or _is_on_with_gpu(source, value) for value in values)


def _is_pinned_by_configuration(source: Source, call: ast.Call) -> bool:
    """Whether the part of a configuration that the call unpacks pins: `DataLoader(images, **cfg.loader)`."""
    # Imported here: most loaders are told a literal.
    from perfaudit.static.understanding.configured_values import configured_argument

    found = configured_argument(source, call, "pin_memory")
    return found is not None and found.value is True


def _is_set_nowhere(source: Source, key: str) -> bool:
    """Whether no settings file in sight has a key, nor a text of this file: what unpacks a part of them does not give it."""
    return source.neighbours is not None and source.neighbours.settings(key) == [] and key not in source.text


def _is_key(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value == "pin_memory"
