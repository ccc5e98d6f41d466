"""A rule says nothing of a text that lacks its words, and its check is not even imported for such a text."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfaudit.rules import Rule, all_rules, rule_heads
from perfaudit.static import registry
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

ROOT = Path(__file__).parent.parent.parent
RULES = {id: rule for id, rule in all_rules().items() if rule.found_in == "code"}


def texts() -> Iterator[str]:
    for rule in RULES.values():
        for example in rule.examples:
            yield example.text
            if example.fixed is not None:
                yield example.fixed
    for folder in (Path(__file__).parent / "programs", ROOT / "sample_models"):
        for path in sorted(folder.rglob("*.py")):
            yield path.read_text()


def test_what_is_said_without_regard_to_words_is_said_of_texts_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    has_words = registry.mentions_all
    monkeypatch.setattr(registry, "mentions_all", lambda source, words: True)
    found = 0
    for text in texts():
        source = Source("train.py", text)
        for finding in run_checks(source, RULES):
            found += 1
            assert has_words(source, RULES[finding.rule].words), f"{finding.rule} speaks of\n{text}"
    assert found > 1000


@pytest.mark.parametrize("rule", all_rules().values(), ids=lambda rule: rule.id)
def test_the_line_that_is_read_alone_says_what_the_whole_file_does(rule: Rule) -> None:
    heads = rule_heads()
    assert heads.words_of(rule.id) == (rule.words if rule.found_in == "code" else None)
    assert heads.name_of(rule.id) == rule.name


@pytest.mark.parametrize(
    ("text", "words", "mentioned"),
    [
        ("import torch", (), True),
        ("import torch", ("torch",), True),
        ("import torch", ("numpy",), False),
        ("import torch", ("numpy|torch",), True),
        ("import torch", ("import", "numpy"), False),
        ("from torch.nn import *\nnet = Linear(1, 2)", ("Linear", "nn|F"), True),
    ],
)
def test_words(text: str, words: tuple[str, ...], mentioned: bool) -> None:
    assert registry.mentions_all(Source("a.py", text), words) is mentioned


def test_a_check_without_its_words_is_not_imported() -> None:
    code = (
        "import sys\n"
        "from perfaudit.rules import rule_heads\n"
        "from perfaudit.static.registry import run_checks\n"
        "from perfaudit.static.source import Source\n"
        "run_checks(Source('a.py', 'import torch\\nx = torch.randn(3).tanh()\\n'), rule_heads())\n"
        "print([name for name in ('handwritten_gelu', 'handwritten_attention', 'dataloader_no_workers')\n"
        "       if f'perfaudit.static.checks.{name}' in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['handwritten_gelu']"
