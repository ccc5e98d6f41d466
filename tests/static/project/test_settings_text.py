"""What settings files set: the keys that lead to a value, and what cannot be told without a parser."""

from __future__ import annotations

import pytest

from perfaudit.static.project.settings_text import UNREAD, Section, sections_of

YAML = """\
# of the project
--- # a document
seed: 1  # any
data: &data
  batch_size : 64
  "num_workers": 0
  'pin_memory': no
  root: "a # b"
  path: ${oc.env:HOME}
  notes: |
    num_workers: 9
    data: 3

  augment:
  - name: flip
    p: 0.5
  - name: crop
trainer: {num_workers: 2, gpus: [0, 1]}
loader: { num_workers: 3,
          pin_memory: true }
copy:
  <<: *data
  num_workers: *n
empty:
last: ~
"""


def settings(text: str, suffix: str) -> dict[str, tuple[object, int]]:
    found = sections_of(text, suffix)
    assert found is not None
    return {".".join(each.keys): (each.value, each.line) for section in found for each in section.settings}


def test_yaml_by_lines() -> None:
    assert settings(YAML, ".yaml") == {
        "seed": (1, 3),
        "data.batch_size": (64, 5),
        "data.num_workers": (0, 6),
        "data.pin_memory": (False, 7),
        "data.root": ("a # b", 8),
        "data.path": (UNREAD, 9),
        "data.augment.name": ("crop", 17),
        "data.augment.p": ("0.5", 16),
        "trainer.num_workers": (UNREAD, 18),
        "trainer.gpus": (UNREAD, 18),
        "loader.num_workers": (3, 19),
        "loader.pin_memory": (True, 20),
        "copy.num_workers": (UNREAD, 23),
        "last": (None, 25),
    }


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ('{"data": {"num_workers": 0, "pin_memory": false}, "more": [{"x": 1}]}', ".json"),
        ("[data]\nnum_workers = 0\npin_memory = false\n[[more]]\nx = 1\n", ".toml"),
        ("data:\n    num_workers: 0\n    pin_memory: False\nmore:\n    - x: 1\n", ".yml"),
    ],
)
def test_all_kinds_say_the_same(text: str, suffix: str) -> None:
    values = {name: value for name, (value, _) in settings(text, suffix).items()}
    assert values == {"data.num_workers": 0, "data.pin_memory": False, "more.x": 1}
    assert type(values["data.num_workers"]) is int
    assert values["data.pin_memory"] is False


@pytest.mark.parametrize(
    ("text", "suffix"), [("{", ".json"), ("// of ours\n{}", ".json"), ("a = \n", ".toml"), ("[" * 99999, ".json")]
)
def test_what_is_none_of_its_kind(text: str, suffix: str) -> None:
    assert sections_of(text, suffix) is None


@pytest.mark.parametrize(
    "text",
    [
        "- - - :\n",
        ": x\n",
        "\t\n",
        "'a\n",
        "a: 'b\n",
        "{\n",
        "a: {\n  b: {\n",
        "- \n-\n - a: 1\n",
        "a: &x\n  b: 1\n",
        "? a\n: b\n",
        "a:\n" * 9,
    ],
)
def test_a_text_of_any_shape_is_read(text: str) -> None:
    assert sections_of(text, ".yaml")


@pytest.mark.parametrize(
    "text",
    [
        "steps:\n  - |\n    num_workers: 0\n",
        "a: !!str |\n  num_workers: 0\n",
        'help: "some text\n  num_workers: 0\n  more"\n',
        "loader: {\n  a: 4,\n  # num_workers: 0\n}\n",
        "a: >-\n  num_workers: 0\n",
    ],
)
def test_text_that_is_no_setting(text: str) -> None:
    assert not any(name.endswith("num_workers") for name in settings(text, ".yaml"))


def test_no_word_takes_long() -> None:
    for text in (f"x: [{'a' * 200_000}]\n", f"{'- ' * 100_000}a: 1\n", f"x: {{{'a' * 200_000}\n"):
        assert sections_of(text, ".yaml")


def test_lists_at_the_indentation_of_their_key() -> None:
    assert settings("a:\n- b: 1\n- b: 2\nc: 3\n", ".yaml") == {"a.b": (2, 3), "c": (3, 4)}


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ("data:\n  _target_: src.data.Images\n  num_workers: 0\n", ".yaml"),
        ("data:\n  num_workers: 0\n  _target_: src.data.Images\n", ".yaml"),
        ("data:\n  class_path: Images\n  init_args:\n    num_workers: 0\n", ".yaml"),
        ("data:\n  - class_path: data.Images\n    init_args:\n      num_workers: 0\n  - class_path: Other\n", ".yaml"),
        ('{"target": "a.Images", "params": {"num_workers": 0}}', ".json"),
    ],
)
def test_the_class_that_a_section_is_for(text: str, suffix: str) -> None:
    found = sections_of(text, suffix)
    assert found is not None
    holds = [section for section in found if any(each.keys[-1] == "num_workers" for each in section.settings)]
    assert [section.class_made.rpartition(".")[2] for section in holds] == ["Images"]


def test_a_merge_adds_what_is_not_in_sight() -> None:
    found = sections_of("a: &a\n  x: 1\nb:\n  <<: *a\n  y: 2\n", ".yaml")
    assert found is not None
    assert {section.keys: section.is_whole for section in found} == {(): True, ("a",): True, ("b",): False}


def test_a_section_by_itself_is_for_no_class() -> None:
    assert Section().class_made == ""
