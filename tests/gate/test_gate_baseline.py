"""`perfaudit-gate.json`: what is written is what is read, line for line, and what is damaged is never a pass."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfaudit.errors import ConfigError, UserError
from perfaudit.gate.baseline import (
    Acceptance,
    Baseline,
    TargetState,
    counter_values,
    gate_baseline_if_there,
    read_gate_baseline,
    write_gate_baseline,
)
from perfaudit.gate.comparable import Fingerprint, Seconds
from perfaudit.gate.target_counters import Counted, Spot
from perfaudit.static.baseline import Known, write_baseline
from perfaudit.target.names import Target

Project = Callable[..., Path]

HERE = Fingerprint("2.13.0+cpu", "cpu", "cpu", ("float32",), "Linux x86_64", "3.12", "AMD EPYC 7B13", 2, 2, "")
VALUES = {
    "bytes_allocated": 4096,
    "dataset_samples": 32,
    "host_syncs": 1,
    "operators": 120,
    "parameters": 18,
    "samples": 8,
    "samples_repeated": 0,
    "samples_skipped": 0,
    "trainable_parameters": 18,
}
COUNTED = Counted(
    VALUES,
    {"operators": {"aten::mul": 70, "aten::add": 50}, "host_syncs": {"item": 1}},
    {"host_syncs": [Spot("train.py", 12, "total += loss.item()", "item", 1)]},
    {"peak_live_bytes": "4,096 and 8,192 in two runs"},
    {"flops": "no formula"},
    torch="2.13.0+cpu",
    dtype="float32",
)
BASELINE = Baseline(
    (
        Known("train.py", "PA201", "aa", "a bias before a norm"),
        Known("data/load.py", "PA101", "bb", "no workers — “é”"),
    ),
    {
        "train.py": TargetState(HERE, COUNTED.as_json(), Seconds(0.0123, 0.0121, 0.0131, 12)),
        "eval.py": TargetState(HERE, {}, None, {"model": "nets/all.py:small"}),
    },
    (
        Acceptance(
            "2026-11-22", "a deeper model", ("train.py",), ("train.py operators 100 -> 120",), (("train.py", 0.2),)
        ),
    ),
)
TEXT = """{
 "schema": "perfaudit.gate/1",
 "accepted": [
  {
   "at": "2026-11-22",
   "changes": [
    "train.py operators 100 -> 120"
   ],
   "reason": "a deeper model",
   "slower": {
    "train.py": 0.2
   },
   "targets": [
    "train.py"
   ]
  }
 ],
 "findings": [
  {"digest": "bb", "message": "no workers — “é”", "path": "data/load.py", "rule": "PA101"},
  {"digest": "aa", "message": "a bias before a norm", "path": "train.py", "rule": "PA201"}
 ],
 "targets": {
  "eval.py": {
   "counters": {},
   "environment": {
    "cores": 2,
    "cpu": "AMD EPYC 7B13",
    "device": "cpu",
    "device_name": "cpu",
    "driver": "",
    "dtypes": [
     "float32"
    ],
    "platform": "Linux x86_64",
    "python": "3.12",
    "threads": 2,
    "torch": "2.13.0+cpu"
   },
   "factories": {
    "model": "nets/all.py:small"
   },
   "seconds_per_step": null
  },
  "train.py": {
   "counters": {
    "absent": {
     "flops": "no formula"
    },
    "by_name": {
     "host_syncs": {
      "item": 1
     },
     "operators": {
      "aten::add": 50,
      "aten::mul": 70
     }
    },
    "device": "cpu",
    "dtype": "float32",
    "places": {
     "host_syncs": [
      {"count": 1, "line": 12, "path": "train.py", "text": "total += loss.item()", "what": "item"}
     ]
    },
    "set_aside": {
     "peak_live_bytes": "4,096 and 8,192 in two runs"
    },
    "torch": "2.13.0+cpu",
    "values": {
     "bytes_allocated": 4096,
     "dataset_samples": 32,
     "host_syncs": 1,
     "operators": 120,
     "parameters": 18,
     "samples": 8,
     "samples_repeated": 0,
     "samples_skipped": 0,
     "trainable_parameters": 18
    }
   },
   "environment": {
    "cores": 2,
    "cpu": "AMD EPYC 7B13",
    "device": "cpu",
    "device_name": "cpu",
    "driver": "",
    "dtypes": [
     "float32"
    ],
    "platform": "Linux x86_64",
    "python": "3.12",
    "threads": 2,
    "torch": "2.13.0+cpu"
   },
   "seconds_per_step": {
    "high": 0.0131,
    "low": 0.0121,
    "median": 0.0123,
    "n": 12
   }
  }
 }
}
"""


LISTS = {name: TEXT.partition(f' "{name}": ')[2].partition("\n ]")[0] + "\n ]" for name in ("accepted", "findings")}


def in_order(baseline: Baseline) -> Baseline:
    return replace(baseline, findings=tuple(sorted(baseline.findings)))


def test_the_file_as_a_review_shows_it(project: Project) -> None:
    file = project() / "perfaudit-gate.json"
    write_gate_baseline(file, BASELINE)
    assert file.read_text(encoding="utf-8") == TEXT
    assert read_gate_baseline(file) == in_order(BASELINE)
    assert counter_values(read_gate_baseline(file).targets["train.py"]) == VALUES


def test_the_same_state_gives_the_same_bytes_whatever_its_order(project: Project) -> None:
    file = project() / "perfaudit-gate.json"
    write_gate_baseline(file, read_back := replace(BASELINE, findings=BASELINE.findings[::-1]))
    assert file.read_text(encoding="utf-8") == TEXT
    write_gate_baseline(file, replace(read_back, targets=dict(reversed(BASELINE.targets.items()))))
    assert file.read_text(encoding="utf-8") == TEXT
    write_gate_baseline(file, read_gate_baseline(file))
    assert file.read_text(encoding="utf-8") == TEXT


def test_an_empty_one(project: Project) -> None:
    file = project() / "perfaudit-gate.json"
    write_gate_baseline(file, Baseline())
    assert (
        file.read_text() == '{\n "schema": "perfaudit.gate/1",\n "accepted": [],\n "findings": [],\n "targets": {}\n}\n'
    )
    assert read_gate_baseline(file) == Baseline()


def test_digits_of_a_time_that_say_nothing_are_not_kept(project: Project) -> None:
    file = project() / "perfaudit-gate.json"
    seconds = Seconds(0.012345678901, 0.01234567, 0.0123456999, 3)
    write_gate_baseline(file, Baseline(targets={"train.py": TargetState(HERE, {}, seconds)}))
    assert read_gate_baseline(file).targets["train.py"].seconds_per_step == Seconds(0.0123457, 0.0123457, 0.0123457, 3)


def test_paths_are_relative_to_the_file_and_shown_from_where_one_stands(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(**{"ci/.keep": "", "models/train.py": ""})
    counted = replace(COUNTED, places={"host_syncs": [Spot("models/train.py", 3, "x", "item", 1)]})
    inside = Baseline(
        (Known("models/train.py", "PA201", "aa", "m"), Known("", "PA000", "bb", "of no file")),
        {"models/train.py": TargetState(HERE, counted.as_json(), names={"model": "models/net.py:make", "step": "run"})},
        (Acceptance("2026-11-22", "why", ("models/train.py",)),),
    )
    write_gate_baseline(Path("ci/known.json"), inside)
    text = (folder / "ci" / "known.json").read_text()
    assert text.count('"../models/train.py"') == 4 and str(folder) not in text
    assert '"model": "../models/net.py:make"' in text
    assert read_gate_baseline(Path("ci/known.json")) == in_order(inside)
    monkeypatch.chdir(folder / "models")
    there = read_gate_baseline(folder / "ci" / "known.json")
    assert (list(there.targets), there.findings[0].path) == (["train.py"], "")
    assert (there.findings[1].path, there.accepted[0].targets) == ("train.py", ("train.py",))
    assert there.targets["train.py"].names == {"model": "net.py:make", "step": "run"}
    write_gate_baseline(Path("../ci/known.json"), there)
    assert (folder / "ci" / "known.json").read_text() == text


def test_scripts_are_called_as_they_are_typed_or_by_their_names(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(**{"sub/train.py": ""})
    typed, named = Target("sub/train.py", {}, ("-n", "a b")), Target("sub/train.py", {}, (), "sub.train")
    states = {"sub/train.py -n 'a b'": TargetState(HERE, script=typed), "small": TargetState(HERE, script=named)}
    reasons = (Acceptance("2026-11-22", "why", tuple(states), (), (("small", 0.1),)),)
    baseline = Baseline(targets=states, accepted=reasons)
    write_gate_baseline(Path("sub/gate.json"), baseline)
    assert "\"train.py -n 'a b'\": {" in Path("sub/gate.json").read_text()
    assert read_gate_baseline(Path("sub/gate.json")) == baseline
    monkeypatch.chdir(folder / "sub")
    found = read_gate_baseline(Path("gate.json"))
    assert list(found.targets) == ["small", "train.py -n 'a b'"]
    assert found.accepted[0].targets == ("train.py -n 'a b'", "small")
    assert found.targets["small"].script == Target("train.py", {}, (), "sub.train")


def test_the_file_of_a_reference_stands_for_that_of_the_project(project: Project) -> None:
    folder = project(**{"base/.keep": ""})
    write_gate_baseline(folder / "perfaudit-gate.json", BASELINE)
    (folder / "perfaudit-gate.json").rename(folder / "base" / "perfaudit-gate.json")
    there = Path("base/perfaudit-gate.json")
    assert set(read_gate_baseline(there).targets) == {"base/train.py", "base/eval.py"}
    assert read_gate_baseline(there, stands_for=Path("perfaudit-gate.json")) == in_order(BASELINE)


def test_a_reference_without_the_file_is_no_fault(project: Project) -> None:
    file = project() / "perfaudit-gate.json"
    assert gate_baseline_if_there(file) is None
    file.symlink_to("nowhere")
    with pytest.raises(ConfigError, match="no such baseline"):
        gate_baseline_if_there(file)


def test_a_missing_one_says_how_it_is_written(project: Project) -> None:
    project()
    with pytest.raises(ConfigError) as caught:
        read_gate_baseline(Path("perfaudit-gate.json"))
    assert str(caught.value) == "perfaudit-gate.json: no such baseline; write it with `perfaudit gate init`"


def test_a_folder_in_its_place(project: Project) -> None:
    project(**{"perfaudit-gate.json/.keep": ""})
    with pytest.raises(ConfigError, match=r"^perfaudit-gate\.json: cannot be read: is a directory$"):
        read_gate_baseline(Path("perfaudit-gate.json"))


def test_the_baseline_of_a_scan_is_one_with_findings_only(project: Project) -> None:
    project()
    write_baseline(Path("known.json"), BASELINE.findings)
    assert read_gate_baseline(Path("known.json")) == Baseline(tuple(sorted(BASELINE.findings)))


def test_the_next_version_is_a_row_in_a_table(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfaudit.gate import baseline_versions

    file = project() / "perfaudit-gate.json"
    file.write_text('{"schema": "perfaudit.gate/0", "known": []}')
    with pytest.raises(ConfigError, match="not a baseline of `perfaudit gate`; this one reads"):
        read_gate_baseline(file)

    def of_zero(data: dict[str, Any]) -> dict[str, Any]:
        return {"schema": "perfaudit.baseline/1", "findings": data["known"]}

    monkeypatch.setitem(baseline_versions._MIGRATIONS, "perfaudit.gate/0", of_zero)
    assert read_gate_baseline(file) == Baseline()


NOT_OURS = "known.json: not a baseline of `perfaudit gate`; this one reads perfaudit.gate/1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": "perfaudit.gate/2"}', "known.json: made by a newer perfaudit (perfaudit.gate/2); this one reads "
            "perfaudit.gate/1: upgrade it"),
        ('{"schema": "perfaudit.baseline/2"}', "known.json: made by a newer perfaudit (perfaudit.baseline/2); this one "
            "reads perfaudit.gate/1: upgrade it"),
        ("[]", NOT_OURS),
        ("null", NOT_OURS),
        ("{}", NOT_OURS),
        ('{"schema": "perfaudit.report/1"}', NOT_OURS),
        ('{"schema": ["perfaudit.gate/1"]}', NOT_OURS),
    ],
)  # fmt: skip
def test_what_this_version_does_not_read(text: str, message: str, project: Project) -> None:
    (project() / "known.json").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_gate_baseline(Path("known.json"))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (TEXT, "", "Expecting value: line 1 column 1 (char 0)"),
        (TEXT[300:], "", "(char "),  # truncated
        (TEXT[-3:], "", "Expecting"),
        (' "findings": [\n', '<<<<<<< HEAD\n "findings": [\n', "line 18: a merge conflict is not resolved (<<<<<<<)"),
        (' "targets": {\n', '=======\n "targets": {\n', "line 22: a merge conflict is not resolved (=======)"),
        ('"operators": 120', '"operators": 1, "operators": 120', "'operators' stands 2 times in one object"),
        ('"host_syncs": 1,\n', '"host_syncs": 1,\n     "host_syncs": 1,\n', "'host_syncs' stands 2 times in one object"),
        ('"operators": 120', '"operators": -120', "targets['train.py'].counters.values.operators must be a whole number"),
        ('"torch": "2.13.0+cpu",', '"torch": "1.0",', "targets['train.py'].counters.torch must be '2.13.0+cpu'"),
        ('"operators": 120', '"operators": NaN', "NaN is not a finite number"),
        ('"operators": 120', '"operators": 1e999', "1e999 is not a finite number"),
        ('"operators": 120', '"operators": 9223372036854775808', "9223372036854775808… is too large a number"),
        ('"operators": 120', '"operators": 1' + 400 * "0", "10000000000000000000… is too large a number"),
        ('"operators": 120', '"operators": true', "targets['train.py'].counters.values.operators must be a whole number"),
        ('"operators": 120', '"operators": "120"', "values.operators must be a whole number of at least 0, it is '120'"),
        ('"operators": 120', '"operaters": 120', "targets['train.py'].counters has by_name.operators"),  # misspelt
        ('"values": {', '"vaules": {', "targets['train.py'].counters has no key 'vaules'"),
        ('"findings": [', '"finding": [', "the file has no key 'finding' (it has: accepted, findings, schema, targets)"),
        ('\n "accepted": [', '\n "extra": 1,\n "accepted": [', "the file has no key 'extra'"),
        ('"rule": "PA201"', '"rules": "PA201"', "findings[1] has no key 'rules'"),
        (', "rule": "PA201"', "", "findings[1] lacks 'rule'"),
        ('"rule": "PA201"', '"rule": 201', "findings[1].rule must be a string, it is 201"),
        ('"path": "train.py", "rule"', '"path": "/home/me/train.py", "rule"',
            "findings[1].path holds '/home/me/train.py', an absolute path"),
        ('"path": "train.py", "text"', '"path": "/home/me/train.py", "text"',
            "targets['train.py'].counters.places holds '/home/me/train.py', an absolute path"),
        ('"eval.py": {', '"./train.py": {', "is the second target called 'train.py'"),
        ('"at": "2026-11-22"', '"at": "yesterday"', "accepted[0].at must be a date such as 2026-11-22, it is 'yesterday'"),
        ('"reason": "a deeper model"', '"reason": " "', "accepted[0].reason must be a string that is not empty"),
        ('"train.py": 0.2', '"train.py": "much"', "accepted[0].slower['train.py'] must be a number of at least 0, it is 'much'"),
        ('"train.py": 0.2', '"train.py": -0.2', "accepted[0].slower['train.py'] must be a number"),
        ('"train.py": 0.2', '"train.py": true', "accepted[0].slower['train.py'] must be a number"),
        ('"slower": {\n    "train.py": 0.2\n   }', '"slower": [0.2]',
            "accepted[0].slower must be an object"),
        (f' "accepted": {LISTS["accepted"]}', ' "accepted": {}', "accepted must be a list"),
        (f' "findings": {LISTS["findings"]}', ' "findings": {"a": 1}', "findings must be a list"),
        ('"device": "cpu",\n    "device_name"', '"device": "mps",\n    "device_name"',
            "targets['train.py'].counters.device must be 'mps' as in the environment"),
        ('"slower": {', '"time": true, "slowed": {', "accepted[0] has no key 'slowed'"),
        ('"cores": 2', '"cores": 2.5', "targets['eval.py'].environment.cores must be a whole number"),
        ('"seconds_per_step": null', '"seconds_per_step": 0.1', "targets['eval.py'].seconds_per_step must be an object"),
        ('"median": 0.0123', '"median": -1', "targets['train.py'].seconds_per_step must be times"),
        ('"n": 12', '"n": 0', "targets['train.py'].seconds_per_step.n must be a whole number of at least 1"),
        ('"model": "nets', '"models": "nets', "targets['eval.py'].factories has no key 'models' (it has: dataloader, "),
        ('"factories": {\n    "model": "nets/all.py:small"\n   }', '"factories": []',
            "targets['eval.py'].factories must be an object"),
        ('"path": "train.py", "rule"', '"path": "a\\u0000b", "rule"', "findings[1].path holds 'a\\x00b', which is no path"),
        ('"nets/all.py:small"', '""', "targets['eval.py'].factories.model must be a string that is not empty"),
        ('"nets/all.py:small"', "3", "targets['eval.py'].factories.model must be a string, it is 3"),
        ('"nets/all.py:small"', '"/home/me/all.py:small"', "factories.model holds '/home/me/all.py', an absolute path"),
        ('     "parameters": 18,\n', "", "'parameters' neither in values nor in set_aside nor in absent"),
        ('"peak_live_bytes": "', '"operators": "', "'operators' 2 times in values, set_aside and absent"),
        ('"low": 0.0121', '"low": 0.02', "seconds_per_step must be times"),
    ],
)  # fmt: skip
def test_a_damaged_one_is_an_error_that_says_where(old: str, new: str, problem: str, project: Project) -> None:
    assert old in TEXT
    (project() / "known.json").write_text(TEXT.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_gate_baseline(Path("known.json"))
    assert str(caught.value).startswith("known.json: a damaged baseline: ")
    assert problem in str(caught.value)
    assert str(caught.value).endswith("write it again with `perfaudit gate init --baseline known.json --force`")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("data", [b"\xff\xfe{}", b"\x00", b"[" * 100_000, b'{"schema": ' * 20_000], ids=range(4))
def test_bytes_that_are_no_text(data: bytes, project: Project) -> None:
    (project() / "known.json").write_bytes(data)
    with pytest.raises(ConfigError, match=r"^known\.json: a damaged baseline: "):
        read_gate_baseline(Path("known.json"))


@pytest.mark.parametrize("cut", range(0, len(TEXT) - 1, 97))
def test_wherever_it_is_cut_it_is_damaged(cut: int, project: Project) -> None:
    (project() / "known.json").write_text(TEXT[:cut], encoding="utf-8")
    with pytest.raises(ConfigError, match="a damaged baseline"):
        read_gate_baseline(Path("known.json"))


@pytest.mark.parametrize("number", range(len(re.findall(r'"\w+":', TEXT))))
def test_whatever_is_misspelt_is_noticed_unless_it_is_a_name(number: int, project: Project) -> None:
    """Only names of sums' parts are free."""
    match = list(re.finditer(r'"(\w+)":', TEXT))[number]
    (project() / "known.json").write_text(TEXT[: match.start(1)] + "x" + TEXT[match.start(1) :], encoding="utf-8")
    try:
        read_gate_baseline(Path("known.json"))
    except ConfigError:
        return
    assert match[1] == "item"


@pytest.mark.parametrize("name", [*VALUES, "peak_live_bytes", "flops"])
def test_a_counter_that_is_taken_out_is_noticed(name: str, project: Project) -> None:
    file = project() / "known.json"
    data = json.loads(TEXT)
    for part in ("values", "set_aside", "absent", "by_name", "places"):
        data["targets"]["train.py"]["counters"][part].pop(name, None)
    file.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=f"'{name}' neither in values nor in set_aside nor in absent"):
        read_gate_baseline(file)


def test_a_file_that_does_not_speak_of_factories_is_read(project: Project) -> None:
    file = project() / "known.json"
    data = json.loads(TEXT)
    del data["targets"]["eval.py"]["factories"]
    file.write_text(json.dumps(data))
    assert read_gate_baseline(file).targets["eval.py"] == TargetState(HERE)


def test_a_step_may_be_accepted_to_be_no_slower_at_all(project: Project) -> None:
    file = project() / "known.json"
    file.write_text(TEXT.replace('"train.py": 0.2', '"train.py": 0'))
    assert read_gate_baseline(file).accepted[0].slower == (("train.py", 0.0),)


def test_names_that_are_no_text_in_utf_8_are_written_and_read(project: Project) -> None:
    file = project() / "known.json"
    odd = Baseline((Known("a\udc80.py", "PA201", "aa", "x"),))
    write_gate_baseline(file, odd)
    assert read_gate_baseline(file) == odd


def test_a_folder_that_is_read_only(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project()

    # Root, who may run this, may write everywhere.
    def refused(path: object, flags: int, *mode: int, **place: object) -> int:
        if flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *mode, **place)  # type: ignore[arg-type]  # handed on as they came

    real = os.open
    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(UserError, match=r"^perfaudit-gate\.json: not written: permission denied$"):
        write_gate_baseline(Path("perfaudit-gate.json"), BASELINE)


def test_a_folder_that_is_not_there(project: Project) -> None:
    project()
    with pytest.raises(UserError, match=r"^none/perfaudit-gate\.json: not written: no such file or directory$"):
        write_gate_baseline(Path("none/perfaudit-gate.json"), BASELINE)


def test_what_cannot_be_written_leaves_the_old_file(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    file = project() / "perfaudit-gate.json"
    write_gate_baseline(file, BASELINE)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="not written: no space left on device"):
        write_gate_baseline(file, Baseline())
    assert file.read_text(encoding="utf-8") == TEXT
    assert os.listdir(file.parent) == [file.name]  # noqa: PTH208  # names are all that matters


def test_it_is_json_for_everyone_else_too(project: Project) -> None:
    file = project() / "perfaudit-gate.json"
    write_gate_baseline(file, BASELINE)
    assert json.loads(file.read_text(encoding="utf-8"))["targets"]["train.py"]["counters"] == COUNTED.as_json()
