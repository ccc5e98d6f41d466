"""Whatever the text: no check fails, no fix leaves a file that does not run as before, and no comment is lost.

Texts are made of the examples of the rule files and of `sample_models`: put together at random, and damaged at random.
`PERFAUDIT_FUZZ=100000 pytest tests/static/test_fuzz.py` looks at so many, other ones in each run.
"""

from __future__ import annotations

import ast
import functools
import io
import json
import os
import re
import textwrap
import tokenize
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfaudit.findings import Finding
from perfaudit.rules import all_rules
from perfaudit.static import edit
from perfaudit.static.fix import patch_document
from perfaudit.static.scan import Options, scan_bytes
from perfaudit.static.source import Source

pytestmark = pytest.mark.usefixtures("in_this_process")

ROOT = Path(__file__).parents[2]
NAME = "nowhere/train.py"  # no neighbours
ROUNDS = 12  # of --fix until nothing is left; a chain of fixes that make each other possible is shorter
LONG_RUN = int(os.environ.get("PERFAUDIT_FUZZ", "0"))

EXAMPLES = [example for rule in all_rules().values() for example in rule.examples]
SEEDS = [example.text for example in EXAMPLES for _ in range(4 if example.fixed else 1)]
FILES = [path.read_text() for path in sorted((ROOT / "sample_models").glob("*.py"))]


def texts(count: int) -> Callable[[Callable[[Random], None]], Callable[[], None]]:
    """Run a test with so many sources of chance, the same ones each time unless a long run is asked for."""

    def decorate(test: Callable[[Random], None]) -> Callable[[], None]:
        made = given(st.randoms(use_true_random=True))(test)
        return settings(
            max_examples=LONG_RUN or count,
            derandomize=not LONG_RUN,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )(made)

    return decorate


# ---- what holds for every text -------------------------------------------------------------------------------------


def findings(text: str, name: str = NAME, rules: frozenset[str] | None = None) -> list[Finding]:
    """What a scan finds; a check that fails fails the test."""
    report, _ = scan_bytes(text.encode("utf-8", "surrogatepass"), name, Options(rules))
    failed = [item.reason for item in report.skipped if "a bug of" in item.reason]
    assert not failed, f"{failed}\n{text}"
    return list(report.findings)


def with_edits(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.fix is not None and finding.fix.edits]


def offered(text: str, finding: Finding) -> int:
    """How often this very fix is offered for a text."""
    found = with_edits(findings(text, rules=frozenset([finding.rule, *finding.also])))
    return sum(f.fix.title == finding.fix.title for f in found if f.fix is not None and finding.fix is not None)


def compiles(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, NAME, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def comments(text: str) -> Counter[str]:
    """The comments of a text, as far as they can be read."""
    found: Counter[str] = Counter()
    try:
        for token in tokenize.generate_tokens(io.StringIO(re.sub(r"\r\n?", "\n", text), newline="").readline):
            if token.type == tokenize.COMMENT:
                found[token.string.rstrip()] += 1
    except (tokenize.TokenError, SyntaxError):
        return Counter()
    return found


def check_change(before: str, after: str, why: str) -> None:
    ast.parse(after)
    assert compiles(after) or not compiles(before), f"{why}: no longer compiles\n{before}\n--- after\n{after}"
    lost = comments(before) - comments(after)
    assert not lost, f"{why}: lost {lost}\n{before}\n--- after\n{after}"


def check_text(text: str) -> None:
    """No check fails; each fix alone and all together leave a program; fixing comes to an end."""
    found = with_edits(findings(text))
    for finding in found:
        assert finding.fix is not None
        after = edit.apply(text, finding.fix.edits)
        check_change(text, after, finding.rule)
        again = offered(after, finding)
        assert again < offered(text, finding), f"{finding.rule}: its fix settles nothing\n{text}\n--- after\n{after}"
    for _ in range(ROUNDS):
        if not found:
            return
        _, document = scan_bytes(text.encode("utf-8", "surrogatepass"), NAME, Options(frozenset()))
        assert document is not None
        patched = patch_document(NAME, document, found)
        chosen = tuple(e for f in patched.applied if f.fix is not None for e in f.fix.edits)
        refused = [f.rule for f in patched.waiting if f.fix is not None and not edit.overlap(chosen, f.fix.edits)]
        assert not refused, f"{refused}: would not parse together with the others\n{text}"
        check_change(text, patched.after, "all fixes")
        text = patched.after
        found = with_edits(findings(text))
    raise AssertionError(f"fixing does not come to an end: {[f.rule for f in found]}\n{text}")


# ---- programs from pieces ------------------------------------------------------------------------------------------


@functools.cache  # when a test asks: each worker of pytest imports this file
def pieces() -> tuple[list[str], list[str], list[str]]:
    """Statements, expressions and import lines of all examples, as written."""
    statements, expressions, imports = dict[str, None](), dict[str, None](), dict[str, None]()
    for text in dict.fromkeys(SEEDS):
        rows = text.encode().split(b"\n")
        for node in ast.walk(ast.parse(text)):
            written = segment(rows, node)
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                if not written.startswith("from __future__"):
                    imports[written.strip()] = None
            elif isinstance(node, ast.stmt) and written.count("\n") < 40:
                statements[textwrap.dedent(written).rstrip()] = None
            elif isinstance(node, (ast.Call, ast.BinOp, ast.Attribute, ast.Subscript, ast.Compare)):
                expressions[written.strip()] = None
    return list(statements), list(expressions), list(imports)


def segment(rows: list[bytes], node: ast.AST) -> str:
    """What `ast.get_source_segment(…, padded=True)` gives, which splits the text anew for each node; "" for no place."""
    if not isinstance(node, (ast.stmt, ast.expr)):
        return ""
    end, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    if end == node.lineno:
        return rows[end - 1][node.col_offset : end_column].decode()
    padded = " " * node.col_offset + rows[node.lineno - 1][node.col_offset :].decode()
    return "\n".join(
        [padded, *(row.decode() for row in rows[node.lineno : end - 1]), rows[end - 1][:end_column].decode()]
    )


FIXABLE = ["\n".join(line for line in e.text.split("\n") if "__future__" not in line) for e in EXAMPLES if e.fixed]
HEADS = [
    "for x, y in loader:\n{}",
    "for step, batch in enumerate(tqdm(loader)):\n{}",
    "while step < 100:\n{}",
    "if step % 100 == 0:\n{}\nelse:\n{}",
    "if a:\n{}\nelif (b := c):\n{}",
    "with torch.no_grad():\n{}",
    "with open(p) as f, torch.autocast('cuda'):\n{}",
    "try:\n{}\nexcept (ValueError, TypeError) as error:\n{}\nfinally:\n{}",
    "try:\n{}\nexcept* OSError:\n{}",
    "match mode:\n    case {{'a': [x, *_]}} if x > 1:\n    {}\n    case _:\n    {}",
    "def forward(self, x, *args, key=None, **kwargs):\n{}",
    "def train(model, loader, optimizer, /, device='cuda', *, n: int = 3) -> None:\n{}",
    "async def main():\n{}",
    "async def load():\n    async for x in stream:\n    {}",
    "@torch.no_grad()\n@wraps(lambda f: f)\ndef evaluate(model, loader):\n{}",
    "class Model(nn.Module):\n    def __init__(self, w=3):\n    {}\n    def forward(self, x):\n    {}",
    "if __name__ == '__main__':\n{}",
]
LAYOUTS = ["{}", "({})", "(\n    {}\n)", "({}  # kept\n)", "f({})", "f(\n    *a,  # first\n    k={},\n)", "[{}\n]"]
LAYOUTS += ["(lambda x: {})", "(await g({}))", "[({}) for x in y if x]", "{{**a, 'k': ({})}}", "(z := {})", "-({})"]
LAYOUTS += ["a if {} else b", "not {}", "{} @ y", "({}).a[0, ...]", "{}\\\n    + 1", "(yield {})"]


def block(random: Random, depth: int) -> str:
    """Statements of one block."""
    statements, _, _ = pieces()
    parts = []
    for _ in range(random.randint(1, 3)):
        if depth and random.random() < 0.6:
            head = random.choice(HEADS)
            bodies = [textwrap.indent(block(random, depth - 1), "    ") for _ in range(head.count("{}"))]
            parts.append(deeper(head, bodies))
        else:
            parts.append(random.choice(random.choice([statements, FIXABLE])))
    return "\n".join(parts)


def deeper(head: str, bodies: list[str]) -> str:
    """The head with bodies in its places, as deep as each place stands."""
    waiting = iter(bodies)
    lines = []
    for line in head.replace("{{", "{").replace("}}", "}").split("\n"):
        here = line.strip() == "{}"
        lines.append(textwrap.indent(next(waiting), line[: line.index("{}")]) if here else line)
    return "\n".join(lines)


def program(random: Random) -> str:
    """A file of a user who writes as nobody does: imports of the examples, their statements in any surrounding."""
    head = random.choice(["", "'''About.'''\n", "from __future__ import annotations\n", "#!/usr/bin/env python\n# é\n"])
    imports = ["import torch", *random.sample(pieces()[2], random.randint(1, 6))]
    text = head + "\n".join(imports) + "\n" + block(random, random.randint(0, 3)) + "\n"
    for _ in range(random.randint(0, 3)):
        text = random.choice(HARMLESS)(random, text)
    return text


# ---- changes ---------------------------------------------------------------------------------------------------------


def graft(random: Random, text: str) -> str:
    """Another expression, in any layout, in the place of one."""
    try:
        nodes = [
            n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.expr) and isinstance(n, (ast.Call, ast.Name))
        ]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    if not nodes or not text.isascii():
        return text
    node = random.choice(nodes)
    starts = [0, *(m.end() for m in re.finditer(r"\r\n|\r|\n", text))]
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)
    own = random.random() < 0.5
    new = random.choice(LAYOUTS).format(text[begin:end] if own else random.choice(pieces()[1]))
    return text[:begin] + new + text[end:]


def comment(random: Random, text: str) -> str:
    """A comment behind every third line or so."""
    lines = text.split("\n")
    return "\n".join(f"{line}  # note {n}, (ü" if random.random() < 0.3 else line for n, line in enumerate(lines))


def wrap(random: Random, text: str) -> str:
    """A line or several under a head."""
    lines = text.split("\n")
    begin = random.randrange(len(lines))
    end = begin + random.randint(1, 4)
    indent = lines[begin][: len(lines[begin]) - len(lines[begin].lstrip())]
    head = random.choice(["if x:", "for q in r:", "with a as b:", "while 1:", "def f(x):", "class C:", "else:", "try:"])
    return "\n".join([*lines[:begin], indent + head, *("  " + line for line in lines[begin:end]), *lines[end:]])


def line_ends(random: Random, text: str) -> str:
    return text.replace("\n", random.choice(["\r\n", "\r", "\n\n", "\n\x0c", " \\\n"]), random.choice([1, 3, 9999]))


def indents(random: Random, text: str) -> str:
    old, new = random.choice([("    ", "\t"), ("    ", "  "), ("  ", " "), ("\n    ", "\n"), ("    ", "\t ")])
    return text.replace(old, new, random.choice([1, 9999]))


def spread(random: Random, text: str) -> str:
    """Line breaks behind some commas and brackets."""
    return re.sub(r"[(,\[]", lambda m: m.group() + ("\n  " if random.random() < 0.2 else ""), text)


def squeeze(random: Random, text: str) -> str:
    """Statements on one line."""
    return re.sub(r"\n(?=[ ]*\w+ ?=|$)", lambda _: "; " if random.random() < 0.3 else "\n", text)


def tokens(random: Random, text: str) -> str:
    """One token left out, doubled, or changed places with the next."""
    found = re.findall(r"\s+|\w+|[^\w\s]", text)
    if len(found) < 2:
        return text
    at = random.randrange(len(found) - 1)
    change = random.choice([[], [found[at]] * 2, [found[at + 1], " ", found[at]], [random.choice(found)]])
    return "".join([*found[:at], *change, *found[at + (2 if len(change) == 3 else 1) :]])


def lines(random: Random, text: str) -> str:
    """One line left out, doubled, or moved."""
    found = text.split("\n")
    line = found.pop(random.randrange(len(found)))
    for _ in range(random.randint(0, 2)):
        found.insert(random.randint(0, len(found)), line)
    return "\n".join(found)


def cut(random: Random, text: str) -> str:
    return text[: random.randint(0, len(text))]


ODD = [
    "\0",
    "\x0c",
    "\u2028",
    "\ufeff",
    "é",
    "日本",
    "\r",
    "\\",
    "\\\n",
    "#",
    "'",
    '"""',
    "(",
    "]",
    "\t",
    ";",
    "𝔁",
    ":",
]
ODD += ["f'{", "lambda: ", "*", "**", " := ", "\x1a", "\x85", "\xa0", "...", "await ", "yield ", "0x", "1_0", "@", "`"]


def odd(random: Random, text: str) -> str:
    at = random.randint(0, len(text))
    return text[:at] + random.choice(ODD) + text[at:]


def rename(random: Random, text: str) -> str:
    """One name instead of another, everywhere."""
    names = sorted(set(re.findall(r"\b[^\W\d]\w*\b", text)))
    return re.sub(rf"\b{random.choice(names)}\b", random.choice(names), text) if names else text


HARMLESS = [graft, comment, spread, indents, line_ends, squeeze, rename]
CHANGES = [*HARMLESS, graft, graft, wrap, tokens, lines, odd, cut]


def damaged(random: Random, text: str) -> str:
    for _ in range(random.randint(1, 3)):
        text = random.choice(CHANGES)(random, text)
    return text


@texts(60)
def test_programs(random: Random) -> None:
    check_text(program(random))


@texts(600)
def test_damaged_examples(random: Random) -> None:
    check_text(damaged(random, random.choice(SEEDS)))


@texts(16)
def test_damaged_files(random: Random) -> None:
    check_text(damaged(random, random.choice(FILES)))


# ---- the editor ------------------------------------------------------------------------------------------------------

TEXTS = ["z", "a + b", "lambda: 0", "g(1)", "'é'", "-1", "(yield)", "not z", "x if y else z", "[a, b]"]
FIXED_PLACES = (ast.Slice, ast.Starred, ast.FormattedValue)  # what stands there cannot be any expression


class Swap(ast.NodeTransformer):
    """Puts one expression in the place of another; makes `number` the only node that differs."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old = old
        self.new = new

    def visit(self, node: ast.AST) -> Any:  # Any: what NodeTransformer takes
        return self.new if node is self.old else self.generic_visit(node)


def parsable(random: Random) -> str:
    for _ in range(20):
        text = program(random) if random.random() < 0.5 else damaged(random, random.choice(SEEDS))
        if compiles(text):
            return text
    return "f(x)  # y\n"


@texts(80)
def test_expressions_replaced(random: Random) -> None:
    """The tree is the old one with the new expression in the place of the old."""
    text, new = parsable(random), random.choice(TEXTS)
    source = Source(NAME, text)
    nodes = [node for node in ast.walk(source.tree) if isinstance(node, ast.expr)]
    for number in random.sample(range(len(nodes)), min(len(nodes), 6)):
        node, parent = nodes[number], source.parent(nodes[number])
        if isinstance(node, FIXED_PLACES) or isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            continue
        if isinstance(parent, (ast.MatchValue, ast.MatchMapping, ast.MatchClass, ast.JoinedStr, ast.AnnAssign)):
            continue
        edits = edit.replace(source, node, new)
        if edits is None:
            continue
        after = edit.apply(text, edits)
        expected = ast.parse(text)
        same = [other for other in ast.walk(expected) if isinstance(other, ast.expr)][number]
        expected = Swap(same, ast.parse(new, mode="eval").body).visit(expected)
        assert ast.dump(ast.parse(after)) == ast.dump(expected), f"{source.text_of(node)}\n{text}\n--- after\n{after}"
        assert comments(after) == comments(text)


@texts(80)
def test_arguments_set_and_removed(random: Random) -> None:
    text = parsable(random)
    source = Source(NAME, text)
    calls = source.nodes(ast.Call)
    for call in random.sample(calls, min(len(calls), 4)):
        number = calls.index(call)
        for name in [*(k.arg for k in call.keywords if k.arg), "num_workers"]:
            for value in (random.choice(["8", "x + 1", "'cuda'"]), None):
                edits = (edit.set_keyword if value else edit.remove_keyword)(source, call, name, *filter(None, [value]))
                if edits is None:
                    continue
                after, expected = edit.apply(text, edits), ast.parse(text)
                other = Source(NAME, text)
                same = other.nodes(ast.Call)[number]
                kept = [k for k in same.keywords if k.arg != name]
                if value:
                    new = ast.keyword(name, ast.parse(value, mode="eval").body)
                    kept = [new if k.arg == name else k for k in same.keywords] + [new] * (
                        len(kept) == len(same.keywords)
                    )
                same.keywords = kept
                expected = other.tree
                assert ast.dump(ast.parse(after)) == ast.dump(expected), f"{name}={value}\n{text}\n--- after\n{after}"
                assert comments(after) == comments(text)


@texts(30)
def test_statements_moved(random: Random) -> None:
    """Statements wrapped, taken out, and put in: the program still compiles, and its comments are all there."""
    text = parsable(random)
    source = Source(NAME, text)
    statements = [node for node in ast.walk(source.tree) if isinstance(node, ast.stmt)]
    for statement in random.sample(statements, min(len(statements), 6)):
        siblings = source.block(statement)
        first = next(n for n, item in enumerate(siblings) if item is statement)
        several = siblings[first : first + random.randint(1, 3)]
        for why, edits in {
            "wrapped": edit.wrap_block(source, several, "with torch.no_grad():"),
            "before": edit.insert_before(source, statement, "inserted = 1"),
            "after": edit.insert_after(source, statement, "inserted = 1"),
            "import": edit.insert_import(source, "import inserted"),
            "deleted": edit.delete_statement(source, statement),
        }.items():
            if edits is None or (why != "import" and is_bound_to_its_place(statement, several, why)):
                continue
            after = edit.apply(text, edits)
            check_change(text, after, f"{why}: {source.brief(statement)}")
            inside = Counter(ast.dump(node) for node in ast.walk(ast.parse(after)) if isinstance(node, ast.stmt))
            gone = Counter(
                ast.dump(node) for item in several[:1] for node in ast.walk(item) if isinstance(node, ast.stmt)
            )
            assert why == "deleted" or not gone - inside, f"{why}\n{text}\n--- after\n{after}"


def is_bound_to_its_place(statement: ast.stmt, several: list[ast.stmt], why: str) -> bool:
    """Whether a check would not do this: nothing comes before `from __future__`, and no `nonlocal` goes without use."""
    return any(isinstance(s, (ast.ImportFrom, ast.Global, ast.Nonlocal)) for s in several) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


# ---- notebooks -------------------------------------------------------------------------------------------------------

MAGIC = [
    "%matplotlib inline",
    "!pip install torch",
    "files = !ls",
    "%%time",
    "%%bash\nls",
    "model?",
    "%%capture out",
    "?x",
]


def notebook(random: Random) -> dict[str, Any]:
    cells = []
    for _ in range(random.randint(1, 5)):
        kind = random.choice(["code", "code", "code", "markdown", "raw"])
        parts = [*random.sample(MAGIC, random.randint(0, 1)), "import torch", block(random, random.randint(0, 1))]
        parts += random.sample(MAGIC, random.randint(0, 1))
        source = random.choice(CHANGES)(random, "\n".join(parts)).replace("\0", "")
        cell: dict[str, Any] = {"cell_type": kind, "metadata": {"é": [1, None]}}
        cell["source"] = source if random.random() < 0.3 else source.splitlines(keepends=True)
        if kind == "code":
            cell |= {"outputs": [{"data": {"image/png": "iVBO=", "text": ["<ü>\n"]}}], "execution_count": None}
        cells.append(cell)
    return {"cells": cells, "metadata": {"kernelspec": {"language": "python"}}, "nbformat": 4, "nbformat_minor": 5}


@texts(80)
def test_notebooks(random: Random) -> None:
    """A fix changes the text of code cells; everything else of the file stays as it was."""
    before = notebook(random)
    raw = json.dumps(before, indent=random.choice([None, 1, 4]), ensure_ascii=random.random() < 0.5)
    report, document = scan_bytes(raw.encode(), "nowhere/nb.ipynb")
    failed = [item.reason for item in report.skipped if "a bug of" in item.reason]
    assert not failed, f"{failed}\n{raw}"
    if document is None:
        return
    after = json.loads(patch_document("nowhere/nb.ipynb", document, with_edits(list(report.findings))).after)
    for old, new in zip(before["cells"], after["cells"], strict=True):
        assert isinstance(new["source"], type(old["source"]))
        if old["cell_type"] == "code":
            old["source"], new["source"] = "", ""
    assert after == before
    findings(json.dumps(after), "nowhere/nb.ipynb")
