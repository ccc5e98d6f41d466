"""Optimizers and loaders that a library builds from arguments of the user's call: the edit of that call, or why there is none."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from surveys import facts, profile_of, survey_of

from perfaudit.findings import Fix, Location
from perfaudit.knobs import Survey, knob
from perfaudit.knobs._code import Code
from perfaudit.measure.facts import CallSite, HandedOn, Script
from perfaudit.tune.candidates import Candidate
from perfaudit.tune.final import why_not_built

FUSED = {"update": "fused"}
PLACE = "stable_baselines3/common/policies.py:634"
PPO = {"owner": "PPO", "path": ("policy_kwargs", "optimizer_kwargs"), "prefix": "", "kept": {"eps": "1e-05"}}
CREATE = {"owner": "create_optimizer_v2", "path": (), "prefix": "", "kept": {}}
NET = {"owner": "NeuralNetClassifier", "path": (), "prefix": "optimizer__", "kept": {}}


def site_in(text: str) -> CallSite:
    """The first call of train.py, which is written."""
    Path("train.py").write_text(text)
    call = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    assert call.end_lineno is not None and call.end_col_offset is not None
    return CallSite(str(Path("train.py").resolve()), call.lineno, call.end_lineno, call.col_offset, call.end_col_offset)


def survey_with(text: str, handed: dict[str, Any] | None, is_given: bool = False, **optimizer: object) -> Survey:
    on = HandedOn(site=site_in(text), is_given=is_given, **handed) if handed is not None else None
    return survey_of(
        script=Script(), optimizer={"name": "Adam", "library_line": PLACE, "handed_on": on, **optimizer}, factories={}
    )


@pytest.mark.parametrize(
    ("text", "handed", "optimizer", "patched", "words"),
    [
        (
            'model = PPO("MlpPolicy", env)\n', PPO, {},
            'model = PPO("MlpPolicy", env, policy_kwargs={"optimizer_kwargs": {"eps": 1e-05, "fused": True}})\n',
            'give PPO policy_kwargs={"optimizer_kwargs": {"eps": 1e-05, "fused": True}}, which it hands on to the Adam that it '
            "builds",
        ),
        (
            "net = NeuralNetClassifier(Net, lr=0.1)\n", NET, {},
            "net = NeuralNetClassifier(Net, lr=0.1, optimizer__fused=True)\n",
            "give NeuralNetClassifier optimizer__fused=True, which it hands on to the Adam that it builds",
        ),
        (  # torch refuses an optimizer that is asked to be both
            "net = NeuralNetClassifier(Net, optimizer__foreach=True)\n", NET, {"foreach": True},
            "net = NeuralNetClassifier(Net, optimizer__foreach=False, optimizer__fused=True)\n",
            "give NeuralNetClassifier optimizer__fused=True, which it hands on to the Adam that it builds",
        ),
        (
            "import skorch as s\nnet = s.NeuralNetClassifier(Net, **own)\n", NET, {},
            'import skorch as s\nnet = s.NeuralNetClassifier(Net, **{**own, "optimizer__fused": True})\n',
            "give NeuralNetClassifier optimizer__fused=True, which it hands on to the Adam that it builds",
        ),
        (
            "optimizer = create_optimizer_v2(model, **options(args), **args.more)\n", CREATE, {},
            'optimizer = create_optimizer_v2(model, **{**options(args), **args.more, "fused": True})\n',
            "give create_optimizer_v2 fused=True, which it hands on to the Adam that it builds",
        ),
    ],
)  # fmt: skip
def test_the_users_call_is_edited(
    text: str, handed: dict[str, Any], optimizer: dict[str, Any], patched: str, words: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    survey = survey_with(text, handed, **optimizer)
    patch = knob("optimizer").patch(Code("train.py", survey), FUSED)
    assert patch is not None and patch.after == patched
    assert (knob("optimizer").by_hand(survey), knob("optimizer").words(FUSED, survey)) == ("", words)


NO_LINE = f"no line of your files builds the Adam: {PLACE} does"


@pytest.mark.parametrize(
    ("text", "handed", "is_given", "said"),
    [
        ("train()\n", None, False, ", and it is not known to take this argument from a call of yours"),
        (
            'PPO("MlpPolicy", env, policy_kwargs=own)\n', PPO, True,
            '. PPO hands policy_kwargs={"optimizer_kwargs": {"fused": True}} on to it, and your call (train.py:1) is not written '
            "so that this can be added without a doubt: add it by hand",
        ),
        (
            "search(NeuralNetClassifier)\n", NET, False,  # which copies it
            ". NeuralNetClassifier hands optimizer__fused=True on to it, and your call (train.py:1) is not written so that this "
            "can be added without a doubt: add it by hand",
        ),
    ],
)  # fmt: skip
def test_what_is_said_where_no_call_is_edited(
    text: str, handed: dict[str, Any] | None, is_given: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    survey = survey_with(text, handed, is_given)
    assert knob("optimizer").patch(Code("train.py", survey), FUSED) is None
    assert knob("optimizer").by_hand(survey) == f"{NO_LINE}{said}"


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ({"eps": "1e-05"}, {"eps": "1e-05"}, ""),
        ({"eps": "1e-05"}, {"eps": "1e-08"}, "the Adam of the patched source has eps=1e-08 in the place of 1e-05"),
    ],
)
def test_a_patch_that_loses_what_the_library_gives_is_refused(
    before: dict[str, str], after: dict[str, str], lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """stable-baselines3 gives Adam its eps only where it is given nothing for the optimizer."""
    monkeypatch.chdir(tmp_path)
    survey = survey_with("PPO(env)\n", PPO, options=before)
    built = facts(script=Script(), optimizer={"name": "Adam", "fused": True, "options": after})
    place = Location("train.py", 1, 1, 1, 1)
    rung = Candidate("optimizer", "optimizer", FUSED, Fix("build it", "safe"), place, "", "setting")
    assert why_not_built(profile_of(survey), {"all": [rung]}, "all", built) == lost


@pytest.mark.parametrize(
    ("text", "patched", "said"),
    [
        ("series.to_dataloader(True, num_workers=0)\n", "series.to_dataloader(True, num_workers=2)\n", ""),
        (
            "trainer.fit(model)\n",
            None,
            "no line of your files builds the loader: lib/data.py:12 does",
        ),  # another call under way
        (
            "fit(a, b, c, d, e, f, num_workers=0)\n",
            None,
            "no line of your files builds the loader: lib/data.py:12 does",
        ),
    ],
)
def test_a_call_that_names_the_workers_of_a_librarys_loader(
    text: str, patched: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    survey = survey_of(
        script=Script(), factories={}, loader={"called_at": site_in(text), "library_line": "lib/data.py:12"}
    )
    settings = {"num_workers": 2, "pin_memory": False, "prefetch_factor": 2, "persistent_workers": False}
    patch = knob("dataloader").patch(Code("train.py", survey), settings)
    assert (patch and patch.after) == patched
    assert knob("dataloader").by_hand(survey) == said


@pytest.mark.parametrize(("more", "changes"), [("", ()), ("for _ in x:\n    series.resample()\n", ("rng",))])
def test_its_data_may_change_between_epochs(
    more: str, changes: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    site = site_in(f"x = series.to_dataloader(True, num_workers=0)\n{more}")
    survey = survey_of(script=Script(), factories={}, loader={"called_at": site})
    assert knob("dataloader").changes_at_least(survey) == changes


def test_a_loader_of_a_library_is_given_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its samples are torch's own, so workers may be shown to change only the time."""
    monkeypatch.chdir(tmp_path)
    loader = {"site": site_in("net = NeuralNet(Net)\n"), "prefix": "iterator_train__", "owner": "NeuralNet"}
    survey = survey_of(script=Script(), factories={}, loader=loader)
    settings = {"num_workers": 2, "pin_memory": False, "prefetch_factor": 2, "persistent_workers": False}
    patch = knob("dataloader").patch(Code("train.py", survey), settings)
    assert patch is not None and patch.after == "net = NeuralNet(Net, iterator_train__num_workers=2)\n"
    assert knob("dataloader").words(settings, survey) == "give NeuralNet iterator_train__num_workers=2"
    assert knob("dataloader").changes_at_least(survey) == ()
    assert knob("sampler").not_applicable(survey) == "NeuralNet builds the loader itself"
    assert knob("batch_size").patch(Code("train.py", survey), {"batch_size": 64}) is None


OWN_NET = "class Net(NeuralNet):\n    def __init__(self, **own):\n        super().__init__(Module, **own)\n"


@pytest.mark.parametrize(
    ("text", "patched"),
    [
        (
            "from skorch import NeuralNet\nclass Net(NeuralNet):\n    pass\nnet = Net(Module)\n",
            "net = Net(Module, iterator_train__num_workers=2)\n",
        ),
        (OWN_NET, '        super().__init__(Module, **{**own, "iterator_train__num_workers": 2})\n'),
    ],
)  # fmt: skip
def test_a_net_of_a_class_of_the_users_is_given_its_loaders_arguments(
    text: str, patched: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loader = {"site": site_in(text), "prefix": "iterator_train__", "owner": "Net"}
    survey = survey_of(script=Script(), factories={}, loader=loader)
    settings = {"num_workers": 2, "pin_memory": False, "prefetch_factor": 2, "persistent_workers": False}
    patch = knob("dataloader").patch(Code("train.py", survey), settings)
    assert patch is not None and patch.after.splitlines(keepends=True)[-1] == patched


def test_a_class_of_the_users_gives_its_base_the_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    handed = {"path": (), "prefix": "optimizer__", "kept": {}}
    survey = survey_with(OWN_NET, {"owner": "Net", **handed})
    patch = knob("optimizer").patch(Code("train.py", survey), FUSED)
    assert patch is not None and '(Module, **{**own, "optimizer__fused": True})' in patch.after
    of_another = survey_with(OWN_NET, {"owner": "Other", **handed})
    assert knob("optimizer").patch(Code("train.py", of_another), FUSED) is None


def test_a_call_that_has_a_library_copy_the_object_is_not_given_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sklearn's `clone` builds the net anew while `fit` is under way."""
    monkeypatch.chdir(tmp_path)
    loader = {"site": site_in("search.fit(X, y)\n"), "prefix": "iterator_train__", "owner": "NeuralNet"}
    survey = survey_of(script=Script(), factories={}, loader=loader)
    settings = {"num_workers": 2, "pin_memory": False, "prefetch_factor": 2, "persistent_workers": False}
    assert knob("dataloader").patch(Code("train.py", survey), settings) is None
    assert knob("dataloader").by_hand(survey) == (
        "NeuralNet builds the loader, and your call (train.py:1) does not name it: give it iterator_train__num_workers by hand"
    )
    assert knob("transfer").patch(Code("train.py", survey), {"pin_memory": True, "non_blocking": False}) is None
