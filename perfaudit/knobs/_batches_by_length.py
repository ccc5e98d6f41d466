"""The sampler that is written into a user's file: batches of samples of similar length, in one process and on several ranks.

Both draw the samples of each window as the file's own sampler would: only which of them meet in a batch is another thing.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from perfaudit.findings import Edit, Span
from perfaudit.static import edit
from perfaudit.static.given_arguments import hands_on_options
from perfaudit.static.source import Source
from perfaudit.static.understanding.values import ABSENT, argument, is_true

NAME = "BatchesByLength"
WINDOW = 25  # batches whose samples are sorted together: more leave little less padding, and less of the random order
LOADER = "torch.utils.data.DataLoader"
LOST = ("batch_size", "sampler", "drop_last")  # attributes that a loader with a batch sampler has not, or not as before

ALONE = f'''\
class {NAME}:
    """Batches of samples of similar length, as `batch_sampler` of a DataLoader.

    An epoch is shuffled as shuffle=True does it. The samples of `window` batches are sorted by length, and
    these batches are shuffled.
    """

    def __init__(self, lengths, batch_size, drop_last=False, window={WINDOW}):
        self.lengths, self.batch_size, self.drop_last, self.window = lengths, batch_size, drop_last, window

    def __len__(self):
        whole, rest = divmod(len(self.lengths), self.batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    def __iter__(self):
        chance = torch.Generator().manual_seed(int(torch.empty((), dtype=torch.int64).random_()))
        order = torch.randperm(len(self.lengths), generator=chance).tolist()
        size = self.batch_size
        for start in range(0, len(order), self.window * size):
            drawn = order[start : start + self.window * size]
            whole = len(drawn) // size
            alike = sorted(drawn[: whole * size], key=self.lengths.__getitem__)
            for number in torch.randperm(whole, generator=chance).tolist():
                yield alike[number * size : (number + 1) * size]
            if len(drawn) > whole * size and not self.drop_last:
                yield drawn[whole * size :]
'''
ON_RANKS = f'''\
class {NAME}:
    """Batches of samples of similar length, as `batch_sampler` of a DataLoader on several ranks.

    An epoch is shuffled as DistributedSampler does it. The samples that all ranks have in `window` batches
    are sorted by length, and shared out so that ranks have batches of similar length at the same time.
    """

    def __init__(self, lengths, batch_size, drop_last=False, window={WINDOW}, seed=0):
        self.lengths, self.batch_size, self.drop_last, self.window = lengths, batch_size, drop_last, window
        self.seed, self.epoch = seed, 0
        self.rank, self.ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        whole, rest = divmod(-(-len(self.lengths) // self.ranks), self.batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    def __iter__(self):
        chance = torch.Generator().manual_seed(self.seed + self.epoch)  # the same on all ranks
        order = torch.randperm(len(self.lengths), generator=chance).tolist()
        order += order[: -len(order) % self.ranks]
        size = self.batch_size * self.ranks
        for start in range(0, len(order), self.window * size):
            drawn = order[start : start + self.window * size]
            whole = len(drawn) // size
            alike = sorted(drawn[: whole * size], key=self.lengths.__getitem__)
            for number in torch.randperm(whole, generator=chance).tolist():
                yield alike[number * size + self.rank : (number + 1) * size : self.ranks]
            if len(drawn) > whole * size and not self.drop_last:
                yield drawn[whole * size + self.rank :: self.ranks]
'''


class NotWritten(Exception):
    """The sampler cannot be written into this call without a doubt; the message says why."""


@dataclass(frozen=True, slots=True)
class Loader:
    """A call that builds a loader of random batches, as far as a batch sampler can take their place.

    drawing: the call of DistributedSampler whose place the sampler takes, None where the loader shuffles by itself. collates: it
    is given a function that puts samples together.
    """

    source: Source
    call: ast.Call
    statement: ast.stmt
    drawing: ast.Call | None = None

    @property
    def collates(self) -> bool:
        given = argument(self.source, self.call, "collate_fn", 6)
        return given is not ABSENT and not (isinstance(given, ast.Constant) and given.value is None)


def random_loader(source: Source, call: ast.Call) -> Loader:
    """The loader of random batches that this call builds. Raises NotWritten."""
    place = f"{source.path}:{call.lineno}"
    if source.qualified_name(call.func) != LOADER:
        raise NotWritten(f"{place} calls no DataLoader by its name")
    if hands_on_options(call) or any(isinstance(each, ast.Starred) for each in call.args):
        raise NotWritten(f"{place} takes options that are made elsewhere")
    if argument(source, call, "batch_sampler", 4) is not ABSENT:
        raise NotWritten(f"{place} has a batch sampler of its own")
    if len(call.args) > 3:
        raise NotWritten(f"{place} gives more than three arguments without their names")
    if edit.keyword(call, "generator") is not None:
        raise NotWritten(f"{place} shuffles by a generator of its own")
    if not isinstance(argument(source, call, "batch_size", 1), ast.expr):
        raise NotWritten(f"{place} gives no batch size")
    if NAME in source.text:
        raise NotWritten(f"{source.path} has a {NAME} already")
    statement = source.statement(call)
    simple = (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr, ast.For)
    around = [each for each in source.ancestors(call) if isinstance(each, ast.expr)]
    scopes = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp)
    if not isinstance(statement, simple) or any(isinstance(each, scopes) for each in around):
        raise NotWritten(f"{place} stands where no line can be put before it")
    if edit.insert_before(source, statement, "") is None:
        raise NotWritten(f"{place} shares its line with another statement")
    if asked := _asked_of_loader(source, statement):
        raise NotWritten(
            f"{source.path}:{asked.lineno} asks the loader for its {asked.attr}, which it has no more with a batch sampler"
        )
    sampler = argument(source, call, "sampler", 3)
    if sampler is not ABSENT:
        if not isinstance(sampler, ast.expr):
            raise NotWritten(f"{place} has a sampler that the text does not show")
        return Loader(source, call, statement, _drawing(source, call, sampler))
    if not is_true(source, argument(source, call, "shuffle", 2)):
        raise NotWritten(f"{place} does not shuffle by shuffle=True")
    return Loader(source, call, statement)


def _asked_of_loader(source: Source, statement: ast.stmt) -> ast.Attribute | None:
    """Where the file asks a loader for what it has no more with a batch sampler; None where it does not."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    names = {each.id for each in targets if isinstance(each, ast.Name)}
    for node in source.nodes(ast.Attribute):
        of = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        if node.attr in LOST and (of in names or "load" in of.lower()):
            return node
    return None


def _drawing(source: Source, call: ast.Call, sampler: ast.expr) -> ast.Call:
    """The call of DistributedSampler that a loader's sampler is."""
    place = f"{source.path}:{call.lineno}"
    made: ast.AST | None = sampler
    if isinstance(sampler, ast.Name):
        bindings = source.lookup(sampler)
        assigned = source.parent(bindings[0]) if len(bindings) == 1 else None
        made = assigned.value if isinstance(assigned, (ast.Assign, ast.AnnAssign)) else None
        if made is not None and not all(
            _is_known_use(source, use, call) for use in source.uses_of(bindings[0], sampler.id)
        ):
            raise NotWritten(f"{place} has a sampler that is used for more than to load")
    if not isinstance(made, ast.Call) or not (source.qualified_name(made.func) or "").endswith(".DistributedSampler"):
        raise NotWritten(f"{place} has a sampler of its own that is no DistributedSampler")
    given = {keyword.arg for keyword in made.keywords}
    shuffle = argument(source, made, "shuffle", 3)
    if len(made.args) > 1 or given - {"dataset", "shuffle", "seed"}:
        raise NotWritten(f"{source.path}:{made.lineno} gives DistributedSampler more than its samples")
    if shuffle is not ABSENT and not is_true(source, shuffle):
        raise NotWritten(f"{source.path}:{made.lineno} does not shuffle")
    theirs, mine = argument(source, made, "dataset", 0), argument(source, call, "dataset", 0)
    same = isinstance(theirs, ast.expr) and isinstance(mine, ast.expr) and ast.dump(theirs) == ast.dump(mine)
    if not same:
        raise NotWritten(f"{source.path}:{made.lineno} draws from other samples than are loaded")
    return made


def _is_known_use(source: Source, use: ast.Name, call: ast.Call) -> bool:
    """Whether a sampler is used here as the loader's argument, or told its epoch."""
    parent = source.parent(use)
    if isinstance(parent, ast.keyword):
        return parent in call.keywords and parent.arg == "sampler"
    return parent is call or (isinstance(parent, ast.Attribute) and parent.attr == "set_epoch")


def sampler_edits(loader: Loader, accessor: str, dimension: int, window: int = WINDOW) -> tuple[Edit, ...]:
    """The sampler's class in front of what builds the loader, the lengths of all samples, and the loader with it.

    accessor: from a sample to what has the length, `["input_ids"]`; dimension: of that, in which it has it. Raises NotWritten.
    """
    source, call = loader.source, loader.call
    dataset = argument(source, call, "dataset", 0)
    if not isinstance(dataset, ast.expr):
        raise NotWritten(f"{source.path}:{call.lineno} does not show its samples")
    drawing = loader.drawing
    first = source.statement(drawing) if drawing is not None else loader.statement
    if edit.insert_before(source, first, "") is None:
        raise NotWritten(f"{source.path}:{first.lineno} shares its line with another statement")
    lines, changed = list[str](), list[Edit]()
    samples = source.text_of(dataset)
    if not _is_plain(dataset):
        if drawing is not None:
            raise NotWritten(f"{source.path}:{call.lineno} gives its samples no name")
        name = _free(source, "samples", "samples_to_load")
        lines.append(f"{name} = {samples}")
        changed += _all(edit.replace(source, dataset, name), source, call)
        samples = name
    lengths, index = _free(source, "lengths", "sample_lengths"), _free(source, "i", "index")
    sized = (
        f"len({samples}[{index}]{accessor})" if not dimension else f"{samples}[{index}]{accessor}.shape[{dimension}]"
    )
    lines.append(f"{lengths} = [{sized} for {index} in range(len({samples}))]")
    changed += _arguments(loader, lengths, window)
    return (*_in_front(source, first, lines, ON_RANKS if drawing is not None else ALONE), *changed)


def _arguments(loader: Loader, lengths: str, window: int) -> list[Edit]:
    """The arguments of the loader: the sampler in the place of batch size, shuffling and the short last batch."""
    source, call, drawing = loader.source, loader.call, loader.drawing
    size, last = argument(source, call, "batch_size", 1), argument(source, call, "drop_last", 8)
    assert isinstance(size, ast.expr)
    given = [lengths, f"batch_size={source.text_of(size)}"]
    if isinstance(last, ast.expr):
        given.append(f"drop_last={source.text_of(last)}")
    if window != WINDOW:
        given.append(f"window={window}")
    changed: list[Edit] = []
    if drawing is None:
        sampler = f"{NAME}({', '.join(given)})"
    else:
        if seed := edit.keyword(drawing, "seed"):
            given.append(f"seed={source.text_of(seed.value)}")
        sampler = f"{NAME}({', '.join(given)})"
        standing = argument(source, call, "sampler", 3)
        if standing is not drawing:
            if isinstance(size, ast.Call) or (isinstance(last, ast.expr) and not isinstance(last, ast.Constant)):
                raise NotWritten(f"{source.path}:{call.lineno} computes its batch size")
            changed += _all(edit.replace(source, drawing, sampler), source, drawing)
            assigned = source.parent(drawing)
            if isinstance(assigned, ast.AnnAssign):
                changed += _all(edit.replace(source, assigned.annotation, NAME), source, drawing)
            assert isinstance(standing, ast.expr)
            sampler = source.text_of(standing)
    remove = partial(_without, source, call)
    named = edit.keyword(call, "batch_size")
    if named is not None:
        changed += _all(edit.replace(source, named, f"batch_sampler={sampler}"), source, call)
    else:  # by position: what stands behind it is shuffle
        span = Span(source.span(call.args[1]).start, source.span(call.args[-1]).end)
        if "#" in source.text[span.start : span.end]:
            raise NotWritten(f"{source.path}:{call.lineno} has a comment between its arguments")
        changed.append(Edit(span, f"batch_sampler={sampler}"))
    return [*changed, *remove("shuffle"), *remove("drop_last"), *remove("sampler")]


def _without(source: Source, call: ast.Call, name: str) -> list[Edit]:
    if edit.keyword(call, name) is None:
        return []
    return _all(edit.remove_keyword(source, call, name), source, call)


def _all(edits: Sequence[Edit] | None, source: Source, node: ast.Call) -> list[Edit]:
    if edits is None:
        raise NotWritten(f"{source.path}:{node.lineno} cannot be edited without a doubt")
    return list(edits)


def _in_front(source: Source, statement: ast.stmt, lines: Sequence[str], text: str) -> list[Edit]:
    """The lines in front of the statement, and the class in front of what holds that at the top of the file."""
    top = next((each for each in (statement, *source.ancestors(statement)) if each in source.tree.body), None)
    written = edit.insert_before(source, statement, f"{source.newline}{source.indent_of(statement)}".join(lines))
    place = edit.insert_before(source, top, "") if isinstance(top, ast.stmt) else None
    if written is None or place is None:
        raise NotWritten(f"{source.path}:{statement.lineno} stands where no class can be put before it")
    name, imported = edit.name_for(source, "torch")
    body = text.replace("torch.", f"{name.rstrip('.')}.")
    at = _above_comments(source, place[0].span.start)
    before = source.text[:at].rstrip(" \t\r\n")
    blank = source.text[len(before) : at].count("\n") - 1 if before else 2
    whole = ("\n" * max(0, 2 - blank) + body + "\n\n").replace("\n", source.newline)
    if at == written[0].span.start:
        return [*imported, Edit(written[0].span, whole + written[0].text)]
    return [*imported, Edit(Span(at, at), whole), *written]


def _above_comments(source: Source, at: int) -> int:
    """Where the comments begin that stand directly above a line which begins here."""
    while at and source.text[(line := source.line_at(at - 1)).start : line.end].startswith("#"):
        at = line.start
    return at


def _is_plain(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _free(source: Source, *names: str) -> str:
    """The first of these names that the file does not use."""
    used = {node.id for node in source.nodes(ast.Name)} | {node.arg for node in source.nodes(ast.arg)}
    for name in names:
        if name not in used:
            return name
    raise NotWritten(f"{source.path} uses the names {' and '.join(names)}")
