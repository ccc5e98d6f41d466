"""Rule files: what is read from them, and that every refusal names file and key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfaudit.errors import RuleFileError
from perfaudit.findings import Saving
from perfaudit.rules import Example, Reading, all_rules, read_folder, read_rule

RULE = """id = "PA999"
name = "slow-thing"
title = "something is slow"
area = "host"
severity = "warning"
fix = "unsafe"
changes = ["rng"]
tier = "preview"
reading = { read = 10, right = 7, arguable = 2, wrong = 1, mended = 2, where = "a page" }
saving = { low = 0.0, high = 0.5, source = "https://example.org/a", says = "up to twice as fast" }
why = '''
Because of
this.
'''
sources = ["https://example.org"]

[[example]]
bad = "x\\ny"
lines = [2]
fixed = "x\\nz"

[[example]]
bad = "w"
missed = true

[[example]]
good = "z"
"""


DOCUMENTED = 'source = "https://example.org/a", says = "up to twice as fast"'
READING = 'reading = { read = 10, right = 7, arguable = 2, wrong = 1, mended = 2, where = "a page" }'
READING_KEYS = "must hold read, right, arguable, wrong and where, and may hold mended and together"
KEYS = "must hold low and high, and either source and says (documented), or command, device and versions (benchmarked)"


def written(folder: Path, text: str, name: str = "PA999-slow-thing.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_rule(tmp_path: Path) -> None:
    rule = read_rule(written(tmp_path, RULE))
    assert (rule.id, rule.name, rule.title, rule.area) == ("PA999", "slow-thing", "something is slow", "host")
    assert (rule.severity, rule.fix, rule.changes) == ("warning", "unsafe", ("rng",))
    assert (rule.why, rule.sources) == ("Because of this.", ("https://example.org",))
    documented = Saving("documented", 0.0, 0.5, source="https://example.org/a", conditions="up to twice as fast")
    assert rule.saving == documented
    assert (rule.tier, rule.reading) == ("preview", Reading(10, 7, 2, 1, 2, "a page"))
    assert rule.examples == (Example("x\ny", (2,), "x\nz"), Example("w", missed=True), Example("z"))
    assert [example.is_bad for example in rule.examples] == [True, True, False]


def test_a_rule_of_the_users_own_needs_no_tier_and_no_reading(tmp_path: Path) -> None:
    rule = read_rule(written(tmp_path, RULE.replace('tier = "preview"\n', "").replace(READING + "\n", "")))
    assert (rule.tier, rule.reading, rule.reported_as) == ("stable", None, "warning")


def test_a_benchmarked_saving(tmp_path: Path) -> None:
    ours = 'command = "make bench", device = "2-core CPU", versions = "torch 2.13.0"'
    rule = read_rule(written(tmp_path, RULE.replace(DOCUMENTED, ours)))
    assert rule.saving == Saving("benchmarked", 0.0, 0.5, source="make bench", conditions="2-core CPU, torch 2.13.0")


def test_our_own_benchmark_stands_beside_what_is_documented(tmp_path: Path) -> None:
    ours = 'benchmarked = { low = -0.1, high = 0.5, command = "make bench", device = "2-core CPU", versions = "torch 2.13.0" }'
    rule = read_rule(written(tmp_path, RULE.replace("why = ", f"{ours}\nwhy = ")))
    found = Saving("benchmarked", -0.1, 0.5, source="make bench", conditions="2-core CPU, torch 2.13.0")
    assert (rule.benchmarked, rule.known_saving) == (found, found)
    assert rule.saving is not None and rule.saving.basis == "documented"
    with pytest.raises(RuleFileError, match=r"'benchmarked'.*command, device and versions"):
        read_rule(
            written(
                tmp_path, RULE.replace("why = ", f"benchmarked = {{ low = 0.0, high = 0.5, {DOCUMENTED} }}\nwhy = ")
            )
        )


def test_a_command_of_ours_is_no_document() -> None:
    """What our own runs printed was once told as documented: nobody else had written it anywhere."""
    documented = [
        rule for rule in all_rules().values() if rule.saving is not None and rule.saving.basis == "documented"
    ]
    assert documented
    for rule in documented:
        assert rule.saving is not None
        assert "perfaudit" not in rule.saving.source + rule.saving.conditions, rule.id
        assert rule.saving.source in rule.sources, f"{rule.id}: the source of the saving is no source of the rule"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "PA999"\n', "", "key 'id': missing"),
        ('sources = ["https://example.org"]\n', "", "key 'sources': missing"),
        ('area = "host"', 'area = "host"\ncolour = "red"', "key 'colour': unknown"),
        ('title = "something is slow"', 'title = " "', "key 'title': must be a string that is not empty"),
        ('title = "something is slow"', "title = 3", "key 'title': must be a string that is not empty"),
        ('name = "slow-thing"', 'name = "other"', "key 'name': the file must be called PA999-other.toml"),
        ('severity = "warning"', 'severity = "bad"', "key 'severity': 'bad' is none of error, warning, info, hint"),
        ('severity = "warning"', "severity = []", "key 'severity': [] is none of error, warning, info, hint"),
        (
            'area = "host"',
            'area = "gpu"',
            "key 'area': 'gpu' is none of input, model, backend, optimizer, debugging, host, distributed, evaluation, "
            "environment",
        ),
        ('fix = "unsafe"', 'fix = "auto"', "key 'fix': 'auto' is none of none, safe, unsafe, manual"),
        (
            'changes = ["rng"]',
            'changes = ["luck"]',
            "key 'changes': 'luck' is none of rounding, precision, rng, checkpoint, order, algorithm, aliasing",
        ),
        ('changes = ["rng"]', 'changes = "rng"', "key 'changes': must be a list of strings"),
        (
            'changes = ["rng"]\n',
            "",
            "key 'changes': an unsafe fix names what it changes, any other fix names nothing",
        ),
        (
            'fix = "unsafe"',
            'fix = "safe"',
            "key 'changes': an unsafe fix names what it changes, any other fix names nothing",
        ),
        ('tier = "preview"', "accelerator_only = 1", "key 'accelerator_only': must be true or false"),
        ('tier = "preview"', "read_at_start = 1", "key 'read_at_start': must be true or false"),
        ('tier = "preview"', "several_processes = 1", "key 'several_processes': must be true or false"),
        ('tier = "preview"', 'tier = "new"', "key 'tier': 'new' is none of stable, preview"),
        (READING, "reading = 3", f"key 'reading': {READING_KEYS}"),
        ("wrong = 1, ", "", f"key 'reading': {READING_KEYS}"),
        ("wrong = 1, ", "wrong = 1, odd = 1, ", f"key 'reading': {READING_KEYS}"),
        ('where = "a page"', "where = 1", "key 'reading': where must be a string that is not empty"),
        ("right = 7", "right = true", "key 'reading': all but where are numbers of findings"),
        ("right = 7", "right = -7", "key 'reading': all but where are numbers of findings"),
        ("right = 7", "right = 8", "key 'reading': read is the sum of right, arguable, wrong, and not 0"),
        (
            READING,
            'reading = { read = 0, right = 0, arguable = 0, wrong = 0, where = "a page" }',
            "key 'reading': read is the sum of right, arguable, wrong, and not 0",
        ),
        ("mended = 2", "mended = 4", "key 'reading': only what was arguable or wrong can be mended"),
        ('tier = "preview"', 'settled_by = "dataloader"', "key 'settled_by': unknown"),  # the knob says it
        ('sources = ["https://example.org"]', "sources = []", "key 'sources': at least one"),
        ('sources = ["https://example.org"]', "sources = ['']", "key 'sources': must be a list of strings"),
        (f"{DOCUMENTED} }}", "}", None),  # not TOML: the comma before it
        (f", high = 0.5, {DOCUMENTED}", "", f"key 'saving': {KEYS}"),
        (DOCUMENTED, 'source = "https://example.org/a"', f"key 'saving': {KEYS}"),
        (DOCUMENTED, f"{DOCUMENTED}, device = 'a CPU'", f"key 'saving': {KEYS}"),
        (DOCUMENTED, "command = 'make'", f"key 'saving': {KEYS}"),
        (DOCUMENTED, "command = 'make', device = 'a CPU'", f"key 'saving': {KEYS}"),
        (
            DOCUMENTED,
            "command = 'make', device = 'a CPU', versions = ''",
            "key 'saving': versions must be a string that is not empty",
        ),
        (
            "https://example.org/a",
            "on a 2-core CPU, our own command printed it",
            "key 'saving': source must be a link that a reader can open; our own runs have command, device and versions",
        ),
        (
            "high = 0.5",
            "high = 50",
            "key 'saving': low and high are fractions of the step, 0.0 <= low <= high < 1.0",
        ),
        (
            "low = 0.0",
            "low = 0.7",
            "key 'saving': low and high are fractions of the step, 0.0 <= low <= high < 1.0",
        ),
        ('"https://example.org/a"', '""', "key 'saving': source must be a string that is not empty"),
        ('"up to twice as fast"', "2", "key 'saving': says must be a string that is not empty"),
        ("lines = [2]", "lines = [2]\nline = 2", "key 'example 1': unknown key 'line'"),
        ('good = "z"', 'good = "z"\nbad = "z"', "key 'example 3': has either `bad` or `good`"),
        ('good = "z"', "", "key 'example 3': has either `bad` or `good`"),
        ('good = "z"', "good = 1", "key 'example 3': code is a string"),
        ('fixed = "x\\nz"', "fixed = 1", "key 'example 1': code is a string"),
        (
            "lines = [2]\n",
            "",
            "key 'example 1': `lines` says where a `bad` example is reported, and stands nowhere else",
        ),
        (
            'good = "z"',
            'good = "z"\nlines = [1]',
            "key 'example 3': `lines` says where a `bad` example is reported, and stands nowhere else",
        ),
        (
            "lines = [2]",
            "lines = [3]",
            "key 'example 1': `lines` is a list of numbers from 1 to 2, the lines of the code",
        ),
        (
            "lines = [2]",
            "lines = [0]",
            "key 'example 1': `lines` is a list of numbers from 1 to 2, the lines of the code",
        ),
        (
            "lines = [2]",
            "lines = 2",
            "key 'example 1': `lines` is a list of numbers from 1 to 2, the lines of the code",
        ),
        (
            'good = "z"',
            'good = "z"\nfixed = "y"',
            "key 'example 3': `fixed` stands in a `bad` example that is reported",
        ),
        (
            'good = "z"',
            'good = "z"\nmissed = true',
            "key 'example 3': `missed = true` stands in a `bad` example or nowhere",
        ),
        (
            "missed = true",
            "missed = 'yes'",
            "key 'example 2': `missed = true` stands in a `bad` example or nowhere",
        ),
        (
            '[[example]]\ngood = "z"\n',
            "",
            "key 'example': 1 bad and 0 good: at least one bad, and at least as many good",
        ),
        (
            'fix = "unsafe"\nchanges = ["rng"]',
            'fix = "manual"',
            "key 'example': `fixed` in a rule whose fix is 'manual'",
        ),
    ],
)
def test_refusals_name_file_and_key(tmp_path: Path, old: str, new: str, message: str | None) -> None:
    assert old in RULE
    path = written(tmp_path, RULE.replace(old, new, 1))
    with pytest.raises(RuleFileError) as caught:
        read_rule(path)
    said = re.sub(r"\.toml:\d+: ", ".toml: ", str(caught.value))  # which line: tests/cli/test_bad_input.py
    assert said.startswith("PA999-slow-thing.toml: ")
    if message is not None:
        assert said == f"PA999-slow-thing.toml: {message}"


@pytest.mark.parametrize("examples", ['example = "x"', "example = [1]", "example = { bad = 'x' }", "example = []"])
def test_examples_are_tables(tmp_path: Path, examples: str) -> None:
    head = RULE.partition("[[example]]")[0]
    with pytest.raises(RuleFileError, match=r"^PA999-slow-thing\.toml(:\d+)?: key 'example': "):
        read_rule(written(tmp_path, head + examples))


@pytest.mark.parametrize("content", [b"id = ", b"\xff", None])
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "PA999-slow-thing.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RuleFileError, match=r"^PA999-slow-thing\.toml: (not valid TOML|cannot be read): "):
        read_rule(path)


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(RuleFileError, match=r"no rule files in .*: a rule is a TOML file and a Python file"):
        read_folder(tmp_path)
    written(tmp_path, RULE)
    written(tmp_path, RULE.replace("PA999", "PA100"), "PA100-slow-thing.toml")
    assert list(read_folder(tmp_path)) == ["PA100", "PA999"]
    written(tmp_path, RULE.replace("slow-thing", "a-thing"), "PA999-a-thing.toml")
    with pytest.raises(
        RuleFileError, match=r"^PA999-slow-thing\.toml: id 'PA999' is used by PA999-a-thing\.toml already$"
    ):
        read_folder(tmp_path)


def test_ours_are_in_order() -> None:
    rules = all_rules()
    assert list(rules) == sorted(rules)
    assert len({rule.name for rule in rules.values()}) == len(rules)
