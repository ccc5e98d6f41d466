"""What of a change can be put in place of a running training, by its text alone; everything else names its reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from git_repository import Repository, settled

from perfaudit.gate.checkout import Checkout
from perfaudit.gate.gitref import Reference
from perfaudit.gate.swappable import NotInOneTraining, as_of_a_change, texts_to_swap
from perfaudit.measure import preparation
from perfaudit.render.html import render as render_html
from perfaudit.render.json import render as render_json
from perfaudit.report import Report
from perfaudit.training import code_change, code_variant, patch_in_place

STEP = """\
import torch

RATE = 0.1


class Net(torch.nn.Module):
    size = 8

    def forward(self, x):
        self.seen = x.shape[0]
        return x * RATE


def training_step(model, batch, times=1):
    loss = model(batch[0]).sum()
    return loss
"""
LOSS = "    loss = model(batch[0]).sum()\n"


class Both:
    """A repository, and a folder that holds a commit of it."""

    def __init__(self, tmp_path: Path) -> None:
        self.repository = Repository(tmp_path / "here")
        self.there = tmp_path / "there"
        self.commit = ""

    def before(self, **files: str) -> None:
        self.commit = self.repository.commit(**files)
        self.repository.git("worktree", "add", "--quiet", str(self.there), self.commit)

    def texts(self, working: str = ".") -> dict[str, tuple[str, str]]:
        here = self.repository.folder
        return texts_to_swap(Reference(self.there, here, (here / working).resolve(), "main", self.commit))


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Both:
    settled(monkeypatch, tmp_path / "temporary")
    return Both(tmp_path)


@pytest.mark.parametrize(
    "new",
    [
        "    loss = torch.relu(model(batch[0])).sum()\n",
        LOSS + "    for _ in range(3):\n        made = loss * 2\n",
        LOSS + "    loss.item()\n",
        LOSS + "    print(float(loss))\n",
        LOSS + "    torch.cuda.synchronize()\n",
        "    # a comment\n" + LOSS,
    ],
)
def test_other_bodies_of_functions_are_swapped(both: Both, new: str) -> None:
    both.before(**{"train.py": STEP})
    text = STEP.replace(LOSS, new)
    both.repository.write(**{"train.py": text})
    assert both.texts() == {"train.py": (text, STEP)}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("RATE = 0.1", "RATE = 0.2", "the change is in line 3, which ran on import"),
        ("RATE = 0.1", "RATE = 0.1\ntorch.set_num_threads(1)", "which ran on import"),
        ("import torch\n", "import torch\nimport math\n", "which ran on import"),
        ("size = 8", "size = 9", "the change is in line 7, which ran on import"),
        ("Net(torch.nn.Module)", "Net(torch.nn.Linear)", "the change is in how the class Net is made"),
        ("times=1", "times=2", "the change is in the parameters of training_step"),
        ("def training_step", "@torch.no_grad()\ndef training_step", "the change is in the decorators or the name"),
        (
            "    return loss\n",
            "    return loss\n\n\ndef other():\n    pass\n",
            "the change adds line 19, which runs on import",
        ),
        (LOSS, LOSS + "    torch.set_num_threads(1)\n", "what may last beyond a step: torch.set_num_threads(1)"),
        (LOSS, LOSS + "    done = model.enable_cache()\n", "what may last beyond a step: model.enable_cache()"),
        (LOSS, LOSS + "    model.history.append(loss)\n", "what may last beyond a step: model.history.append(loss)"),
        (LOSS, LOSS + "    last = model.queue.pop()\n", "what may last beyond a step: model.queue.pop()"),
        (LOSS, LOSS + "    model.last = loss\n", "what may last beyond a step: model.last = loss"),
        (LOSS, LOSS + "    model.kept[0] = loss\n", "what may last beyond a step: model.kept[0] = loss"),
        (LOSS, LOSS + "    for model.i in range(3):\n        pass\n", "what may last beyond a step: model.i"),
        (
            LOSS,
            LOSS + "    with model as model.inside:\n        pass\n",
            "what may last beyond a step: model as model.inside",
        ),
        (LOSS, "    global RATE\n" + LOSS + "    RATE = 1\n", "what may last beyond a step: RATE = "),
        ("self.seen = x.shape[0]", "self.seen = x.shape[1]", "what may last beyond a step: self.seen = x.shape"),
        (LOSS, "    loss = (\n", "train.py does not parse"),
    ],
)
def test_any_other_change_goes_to_pairs_of_processes_either_way_round(
    both: Both, old: str, new: str, reason: str
) -> None:
    other = STEP.replace(old, new)
    assert other != STEP
    both.before(**{"train.py": STEP})
    both.repository.write(**{"train.py": other})
    with pytest.raises(NotInOneTraining) as refused:
        both.texts()
    assert str(refused.value).startswith("train.py: ")
    assert reason in str(refused.value)
    (both.repository.folder / "train.py").write_text(STEP)
    (both.there / "train.py").write_text(other)
    both.repository.git("-C", str(both.there), "commit", "--quiet", "-am", "the other way round")
    both.commit = both.repository.git("-C", str(both.there), "rev-parse", "HEAD")
    with pytest.raises(NotInOneTraining, match=r"^train\.py: "):
        both.texts()


@pytest.mark.parametrize(
    ("of_a_patch", "of_a_change"),
    [
        ("a step does not run build_model, which the patch changes", "a step does not run build_model, where the change is"),
        ("the patch changes no function", "the change is in no function"),
        ("with the patch, step uses other variables", "with the change, step uses other variables"),
        ("step.inner is in use, and the patched text has it no longer",
         "step.inner is in use, and the other version has no such function"),
        ("with it, losses become NaN or infinite", "with the reference's functions in place, losses become NaN or infinite"),
        ("step is a generator that is running", "step is a generator that is running"),
        ("a step raises ValueError: deal with it, now", "a step raises ValueError: deal with it, now"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_patch_reads_well_of_a_change(of_a_patch: str, of_a_change: str) -> None:
    assert as_of_a_change(of_a_patch) == of_a_change


def refusals() -> list[str]:
    """All that code may refuse to be put in place of other code for; … stands for what is filled in."""
    files = [code_change.__file__, code_variant.__file__, patch_in_place.__file__, preparation.__file__]
    found = []
    for node in (each for file in files for each in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "NotSwappable":
            parts = getattr(node.args[0], "values", [node.args[0]])
            found.append("".join(part.value if isinstance(part, ast.Constant) else "…" for part in parts))
    return found


def test_no_refusal_of_a_change_speaks_of_a_patch() -> None:
    said = refusals()
    assert len(said) > 20
    of_a_change = list(map(as_of_a_change, said))
    assert [words for words in of_a_change if "patch" in words or "which the change" in words] == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("config.yaml", "config.yaml differs, and is no Python"),
        ("requirements.txt", "requirements.txt differs, and is no Python"),
        ("kernel.cpp", "kernel.cpp differs, and is no Python"),
        ("data/labels.csv", "data/labels.csv differs, and is no Python"),
        ("prompts.md", "prompts.md differs, and is no Python"),  # which may be what a training reads
        ("data/corpus.rst", "data/corpus.rst differs, and is no Python"),
    ],
)
def test_other_files_go_to_pairs_of_processes(both: Both, name: str, reason: str) -> None:
    both.before(**{"train.py": STEP, name: "before"})
    both.repository.write(**{name: "after"})
    with pytest.raises(NotInOneTraining, match=f"^{reason}$"):
        both.texts()


@pytest.mark.parametrize("name", ["layers.py", "weights.bin"])
def test_a_file_of_one_version_only_goes_to_pairs_of_processes(both: Both, name: str) -> None:
    both.before(**{"train.py": STEP})
    both.repository.write(**{name: "x = 1\n"})
    with pytest.raises(NotInOneTraining, match=f"^{name} is a file in one version only, which a training may read$"):
        both.texts()
    both.repository.git("add", "--all")
    both.repository.git("commit", "--quiet", "-m", "it is there now")
    both.commit = both.repository.git("rev-parse", "HEAD")
    (both.repository.folder / name).rename(both.there / name)
    with pytest.raises(NotInOneTraining, match=f"^{name} is a file in one version only, which a training may read$"):
        both.texts()


def test_what_no_training_runs_does_not_count(both: Both) -> None:
    both.before(**{"train.py": STEP, "README.md": "a", "tests/test_train.py": "a = 1\n", "same.txt": "a"})
    both.repository.write(**{"README.md": "b", "tests/test_train.py": "a = 2\n", "CHANGELOG.md": "c"})
    both.repository.write(**{"docs/guide.md": "d", "lib/README.rst": "e", ".github/pull_request.md": "f"})
    both.repository.write(**{"tests/conftest.py": "", "perfaudit-gate.json": "{}", ".gitignore": "x"})
    assert both.texts() == {}
    both.repository.write(**{"tests/batch.npy": "data"})
    with pytest.raises(
        NotInOneTraining, match=r"tests/batch\.npy is a file in one version only, which a training may read"
    ):
        both.texts()


OWN = {
    "perfaudit.profile.json": "{}",
    "perfaudit.trace.json": "{}",
    "runs/perfaudit.trace.json": "{}",
    "perfaudit.tensorboard/events.1": "x",
    ".perfaudit/runs/1.jsonl": "{}",
    "out.json": render_json(Report("tune")),
    "out.html": render_html(Report("scan")),
}


@pytest.mark.parametrize("name", OWN)
def test_what_perfaudit_has_written_does_not_count(both: Both, name: str) -> None:
    both.before(**{"train.py": STEP})
    both.repository.write(**{name: OWN[name]})
    assert both.texts() == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("out.json", '{"schema": "perfaudit.reports"}'),
        ("page.html", "<title>perfaudit</title>"),
        ("profile.json", "{}"),
    ],
)
def test_what_only_looks_like_it_counts(both: Both, name: str, text: str) -> None:
    both.before(**{"train.py": STEP})
    both.repository.write(**{name: text})
    with pytest.raises(NotInOneTraining, match=f"^{name} is a file in one version only"):
        both.texts()


def test_a_report_that_was_something_else_before_counts(both: Both) -> None:
    both.before(**{"train.py": STEP, "out.json": "[1]"})
    both.repository.write(**{"out.json": OWN["out.json"]})
    with pytest.raises(NotInOneTraining, match=r"^out\.json differs"):
        both.texts()


def test_a_change_that_the_other_checkout_has_as_well_is_none(both: Both) -> None:
    """The self-test brings what is not committed over there."""
    both.before(**{"train.py": STEP, "config.yaml": "a"})
    for folder in (both.repository.folder, both.there):
        (folder / "config.yaml").write_text("b")
    assert both.texts() == {}


def test_files_are_named_from_the_working_directory(both: Both) -> None:
    both.before(**{"train/main.py": STEP, "lib/model.py": STEP})
    text = STEP.replace(LOSS, LOSS + "    loss = loss * 2\n")
    both.repository.write(**{"train/main.py": text, "lib/model.py": text})
    assert both.texts("train") == {"main.py": (text, STEP), "../lib/model.py": (text, STEP)}


def test_text_that_cannot_be_read_goes_to_pairs_of_processes(both: Both) -> None:
    both.before(**{"train.py": STEP})
    (both.repository.folder / "train.py").write_bytes(b"# \xff\xfe\n")
    with pytest.raises(NotInOneTraining, match=r"train\.py differs, and cannot be read: not valid text"):
        both.texts()


def test_without_a_commit_nobody_knows_what_differs(tmp_path: Path) -> None:
    for base in (None, Checkout(tmp_path, tmp_path, tmp_path)):
        with pytest.raises(NotInOneTraining, match="no commit that says which files differ"):
            texts_to_swap(base)
    nowhere = Reference(tmp_path / "there", tmp_path, tmp_path, "main", "0" * 40)
    with pytest.raises(NotInOneTraining, match="git does not say which files differ"):
        texts_to_swap(nowhere)
