"""Whether a script decides the precision that its model is trained in, by words of its code."""

from __future__ import annotations

import ast
import re

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.devices import names_cpu
from perfaudit.static.understanding.names import last_name

# Begins with a letter that stands for itself, and looks back from behind the word: so "sample" is passed over fast.
_AMP = regex(r"[aA][mM][pP](?<![a-zA-Z_][aA][mM][pP])(?![a-zA-Z])")
_OPTION_OF_AMP = regex(r"(?:use|enable|with|args|opt)_amp(?![a-z])", re.IGNORECASE, words="_amp")  # not use_amplify
# `corrects.double() / len(data)` is a number for people; LBFGS lives on small differences of gradients.
_OTHER_WORDS = regex(
    r"autocast|GradScaler|fp16|bf16|float16|\.half\(|mixed.?precision"
    r"|float64|\.double\((?!\)\s*/)|\bfft|create_graph|\boptim\.LBFGS|\bLBFGS\("
    r"|complex(?:32|64|128|_?(?:mul|conv|linear|bmm|norm|relu|tensor))|(?:as|is|torch\.|\b)_?complex\(|dtype\s*=\s*complex\b"
    r"|torch\.sparse|scipy\.sparse|to_sparse|sparse_(?:coo|csr|mx|adj|tensor|mm)|sparse_?(?:tensor|adam)|\bspmm\b|spconv|minkowski",
    re.IGNORECASE,
    words="autocast|gradscaler|fp16|bf16|float16|.half(|mixed|float64|.double(|fft|create_graph|lbfgs|complex|sparse|spmm|spconv|minkowski",
)
# Options of which other files would say so if they read them: `marks_of_precision` knows these words.
_KNOWN_OPTION = regex(r"fp16|bf16|float16|mixed_precision|use_amp")
_SHOWS = regex(r"^(print|cprint|log|info|debug|warning|write|set_description)$")


def decides_precision(source: Source) -> bool:
    """Whether a word of precision stands in the code, and not only in an import that nothing uses, in a text that is
    printed, in an option that nothing reads, or in a copy to the host.
    """
    said = [words for words in (_AMP, _OPTION_OF_AMP, _OTHER_WORDS) if source.says(words)]
    if not said:
        return False
    passed_over = (*_unused_imports(source), *_shown_texts(source), *_unread_options(source), *_host_copies(source))
    beside = [source.span(node) for node in passed_over]
    return any(
        not any(span.start <= match.start() and match.end() <= span.end for span in beside)
        for words in said
        for match in words.finditer(source.code)
    )


def _unused_imports(source: Source) -> list[ast.Import | ast.ImportFrom]:
    """The imports of torch's or apex's of which no name is used in the file."""
    found = []
    used = {node.id for node in source.nodes(ast.Name) if isinstance(node.ctx, ast.Load)}
    statements: list[ast.Import | ast.ImportFrom] = [*source.nodes(ast.Import), *source.nodes(ast.ImportFrom)]
    for statement in statements:
        module = statement.module if isinstance(statement, ast.ImportFrom) else statement.names[0].name
        names = {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
        if (module or "").partition(".")[0] in ("torch", "apex") and not names & (used | {"*"}):
            found.append(statement)
    return found


def _host_copies(source: Source) -> list[ast.Call]:
    """What is copied to the host in another type there: `scores.to(cpu, torch.float64)`."""
    return [call for call in source.calls(".to") if any(names_cpu(source, argument) for argument in call.args)]


def _shown_texts(source: Source) -> list[ast.Constant]:
    """Texts that are only printed or logged."""
    shown = [call for call in source.nodes(ast.Call) if _SHOWS.search(last_name(call.func))]
    return [node for call in shown for node in call.args if isinstance(node, ast.Constant)]


def _unread_options(source: Source) -> list[ast.Call]:
    """Declared options that the file does not read: neither `args.fp16` nor any other use of the name."""
    found = []
    for call in source.calls(".add_argument"):
        names = [node.value for node in call.args if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        name = names[-1].lstrip("-").replace("-", "_") if names else ""
        if any(keyword.arg == "dest" for keyword in call.keywords) or not _KNOWN_OPTION.search(name):
            continue
        span = source.span(call)
        others = source.code[: span.start] + source.code[span.end :]
        if not re.search(rf"\b{re.escape(name)}\b", others):
            found.append(call)
    return found
