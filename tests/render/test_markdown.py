"""The page for a job's summary, whole, and what must not become markup in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from climbs import CLIMB
from reports import DIFF, EMPTY, ERROR, NOTEBOOK, ODD, SMALL

from perfaudit.findings import Finding, Fix, Location
from perfaudit.measurements import Environment, Ladder, NotApplicable, Winner
from perfaudit.render.ladder import ladder
from perfaudit.render.ladder_details import details
from perfaudit.render.markdown import LIMIT, _within, render
from perfaudit.render.paint import plain
from perfaudit.render.tables import environment
from perfaudit.report import Report, Skipped

HEAD = "| severity | place | rule | what is there |\n|---|---|---|---|\n"


def test_a_whole_report() -> None:
    assert render(SMALL) == (
        "## perfaudit scan\n\n**3 findings** in 1 file, 1 not audited: 1 error, 1 warning, 1 info\n\n"
        + HEAD
        + "| error"
        " | `pkg/a.py:2:1` | PA000 slow-thing | `slow(True)` waits for the device: 100 % of the time"
        "<br>documented: saves up to 50 % of a step (a paper)<br>fix (safe): switch it off |\n"
        "| warning | `pkg/a.py:4:3` | PA001 other-thing | `f(a \\| b)` is slow, too"
        "<br>saves 10.0 to 20.0 % of the step, 4.00 ms a step (measured)<br>advice: do less |\n"
        "| info | (no source line) | PA002 no-place | the whole program is slow |\n"
        "\n"
        "- not audited: `b.py`: binary\n"
        "- `pkg/a.py:7:1`: `perfaudit: ignore[PA101]` silences nothing here\n"
        "- 2 findings of the baseline not shown\n"
        "- stopped at the budget\n"
        "\n"
        "<details><summary>pkg/a.py:2:1 PA000 fix (safe): switch it off</summary>\n"
        "\n"
        "```diff\n" + DIFF + "```\n"
        "\n"
        "</details>\n"
    )


def test_nothing_found() -> None:
    assert render(EMPTY) == "## perfaudit scan\n\n**Nothing found** in 2 files\n"


def test_what_is_in_a_name_is_no_markup() -> None:
    assert render(ODD) == (
        "## perfaudit scan\n\n**2 findings** in 1 file, 1 not audited: 2 errors\n\n" + HEAD + "| error"
        " | ``dir, 100%:größe/训练 𝒳\\|`x`.py:1:2`` | PA000 slow-thing | `x␛[2J`␊::error::\\<b\\>\\&\\]\\]\\>␀\ufffd |\n"
        "| error | `␇\ufffd␊.py:1:1` | PA000 slow-thing | a \ufffd \\*b\\* \\_c\\_ \\[d\\](e) \\` |\n"
        "\n"
        "- not audited: `␛|.py`: ␛\\[2J␊::error::\n"
    )


def test_a_patch_does_not_end_its_block() -> None:
    fix = Fix("mend <b>it</b>", "safe", diff="--- a\n+++ b\n@@ -1 +1 @@\n-'''```'''\n+''\n")
    text = render(Report("scan", (Finding("PA000", "n", "info", "m", Location("``.py", 1, 1, 1, 2), fix=fix),)))
    assert "| ``` ``.py:1:1 ``` |" in text
    assert "````diff\n--- a\n" in text
    assert "+''\n````\n" in text
    assert "<summary>``.py:1:1 PA000 fix (safe): mend &lt;b&gt;it&lt;/b&gt;</summary>" in text


def test_code_in_the_title_of_a_patch_is_code() -> None:
    """No Markdown is read within a summary: backticks would be shown as they are."""
    fix = Fix("use `a < b` and `c`", "safe", diff="--- a\n+++ b\n")
    text = render(Report("scan", (Finding("PA000", "n", "info", "m", Location("a.py", 1, 1, 1, 2), fix=fix),)))
    assert "fix (safe): use <code>a &lt; b</code> and <code>c</code></summary>" in text


def test_a_notebook() -> None:
    assert "| `n.ipynb:cell 3:2:5` |" in render(NOTEBOOK)


@pytest.mark.parametrize("number", [3_000, 20_000])
def test_a_long_report_is_cut_and_says_so(number: int) -> None:
    found = tuple(
        ERROR.with_(message=f"`größer{n}` is slow", location=Location("a.py", n, 1, n, 2)) for n in range(1, number + 1)
    )
    text = render(Report("scan", found, files=1))
    assert len(text.encode()) <= LIMIT
    assert text.startswith(f"## perfaudit scan\n\n**{number} findings** in 1 file")
    rows, patches = text.count("\n| error |"), text.count("<details>")
    left = 2 * number - rows - patches
    assert left > 0
    assert (rows == number) or not patches
    assert text.endswith(f"\n**Cut here: {left} more entries would not fit; `--format json` has them all.**\n")


def test_what_tune_measured_stands_open() -> None:
    machine = Environment("cpu", "3.11", "Linux", 2, 1 << 30, torch="2.13", threads=2)
    winner = Winner("dataloader", {"num_workers": 2}, False, "load with 2 workers", fix=Fix("x", "safe", diff=DIFF))
    text = render(Report("tune", target="train.py", environment=machine, winners=(winner,)))
    assert text.startswith(
        "## perfaudit tune\n\n`train.py`\n\n<details open><summary>What was measured</summary>\n\n```text\n"
    )
    assert "train.py on cpu, 2 cores, 2 threads, 1.0 GiB, torch 2.13, Python 3.11\n" in text
    assert text.endswith("```\n\n</details>\n")


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("12345", "12345"),
        ("1234é", "\n**Cut here: 1 more entries would not fit; `--format json` has them all.**\n"),
    ],
)
def test_two_hundred_bytes_are_kept_for_the_line_that_says_what_was_cut(text: str, page: str) -> None:
    assert _within(205, [text]) == page
    assert len(_within(205, ["1"], [], ["123"], ["45"], ["6"]).encode()) <= 205


def test_what_is_cut_ends_with_the_last_part_that_fits() -> None:
    cut = "\n**Cut here: 2 more entries would not fit; `--format json` has them all.**\n"
    assert _within(205, ["1", "2"], ["3456", "7"]) == "12" + cut


CLIMBED = """\
## perfaudit tune

**219.7 ms a step: no patch was raced**

`t.py`

<details open><summary>The ladder and its patch</summary>

```text
t.py on cpu, 1 core, 2 threads, 1.0 GiB, torch 2.13, Python 3.11
```

</details>

<details><summary>Details</summary>

```text
not searched:
  ema: no
```

</details>
"""


def test_a_climb_without_a_rung() -> None:
    machine = Environment("cpu", "3.11", "Linux", 1, 1 << 30, torch="2.13", threads=2)
    idle = (NotApplicable("ema", "no"),)
    found = Ladder(seconds_per_step=0.2197)
    assert render(Report("tune", target="t.py", environment=machine, ladder=found, not_applicable=idle)) == CLIMBED


def test_a_whole_climb() -> None:
    shown = render(CLIMB)
    ladder_ = "\n".join([environment(CLIMB, plain, 100), *ladder(CLIMB, plain, 100)])
    more = "\n".join(text for _, text in details(CLIMB, plain, 100))
    assert shown == (
        "## perfaudit tune\n\n"
        "**100.0 ms -\\> 70.0 ms a step (1.43 x), 2 patches, verified; 1 undecided (attention), 1 not reached (compile)**\n\n"
        "`t.py`\n\n- a note\n\n"
        f"<details open><summary>The ladder and its patch</summary>\n\n```text\n{ladder_}```\n\n</details>\n\n"
        f"<details><summary>Details</summary>\n\n```text\n{more}```\n\n</details>\n"
    )


def test_a_control_that_excludes_one_stands_below_the_result_once() -> None:
    assert CLIMB.calibration is not None
    shown = render(CLIMB.with_(calibration=replace(CLIMB.calibration, low=1.001)))
    assert shown.splitlines()[4].startswith("**the screened ratios of this run may be off: the control, ")
    assert shown.count("may be off") == 1


def test_what_was_measured_beside_a_scan_is_folded_away_and_as_wide_as_text() -> None:
    machine = Environment("cpu", "3.11", "Linux", 1, 1 << 30, torch="2.13", threads=2)
    words = " ".join(["word"] * 18)  # with the name and two spaces, 98 characters
    idle = (NotApplicable("abcdef", words), NotApplicable("abcdefg", words + " or"))
    text = render(Report("scan", environment=machine, not_applicable=idle))
    assert "\n<details><summary>What was measured</summary>\n" in text
    assert f"  abcdef: {words}\n" in text
    assert f"  abcdefg: {words}\n  or\n" in text


def test_odd_ends_of_names() -> None:
    found = (
        Finding("PA000", "n", "info", "m", None, fix=Fix('say "it"', "safe", diff="--- a\n+++ b\n")),
        Finding("PA000", "n", "info", "m", Location("a.py", 1, 1, 1, 2)),
    )
    text = render(Report("scan", found, (Skipped("`a", "b"), Skipped("a`", "b"), Skipped("a", "b"))))
    assert "**2 findings** in 0 files, 3 not audited: 2 info\n" in text
    assert "- not audited: `` `a ``: b\n- not audited: `` a` ``: b\n- not audited: `a`: b\n" in text
    assert '<summary>PA000 fix (safe): say "it"</summary>' in text


def test_the_limit_is_below_that_of_github() -> None:
    assert LIMIT < 1 << 20
