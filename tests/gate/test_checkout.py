"""Where a path of the user's checkout lies in the reference's, and the other way round."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.gate.checkout import Checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """Of a repository `here`, with the gate run in its subfolder `src`; nothing is in the reference `there`."""
    (tmp_path / "here" / "src" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "there").mkdir()
    return Checkout(tmp_path / "there", tmp_path / "here", tmp_path / "here" / "src")


def test_the_working_directory_has_a_counterpart(checkout: Checkout) -> None:
    assert checkout.folder == checkout.root / "src"
    assert checkout.roots == (str(checkout.head_root), str(checkout.root))
    at_top = Checkout(checkout.root, checkout.head_root, checkout.head_root)
    assert at_top.folder == at_top.to_there(".") == at_top.to_there("") == at_top.root


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("train.py", "src/train.py"),
        (".", "src"),
        ("..", ""),
        ("../data", "data"),
        ("deep/../none/./a.py", "src/none/a.py"),
        ("../../here/src/a.py", "src/a.py"),
        ("with space/ümlaut – 模型.py", "src/with space/ümlaut – 模型.py"),
        ("-dash/per%cent$a", "src/-dash/per%cent$a"),
        ("../..", None),
        ("../../elsewhere/a.py", None),
        ("../../here2", None),
        ("/", None),
    ],
)
def test_a_path_is_relative_to_the_working_directory(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, path: str, inside: str | None
) -> None:
    monkeypatch.chdir("/")  # wherever the process is
    there = None if inside is None else checkout.root / inside
    assert checkout.to_there(path) == there
    assert checkout.to_there(checkout.working / path) == there
    if there is not None:
        assert checkout.to_here(there) == checkout.head_root / str(inside)


def test_a_path_may_exist_on_one_side_only(checkout: Checkout) -> None:
    (checkout.working / "new.py").touch()
    gone = checkout.root / "src" / "gone.py"
    gone.parent.mkdir()
    gone.touch()
    new = checkout.to_there("new.py")
    assert new == checkout.root / "src" / "new.py" and not new.exists()
    here = checkout.to_here(gone)
    assert here == checkout.working / "gone.py" and not here.exists()


def test_links_on_the_way_are_followed_and_the_last_one_is_itself(checkout: Checkout) -> None:
    (checkout.working / "short").symlink_to("deep")
    (checkout.working / "out").symlink_to(checkout.head_root.parent / "elsewhere")
    (checkout.head_root.parent / "in").symlink_to(checkout.head_root)
    assert checkout.to_there("short/a.py") == checkout.root / "src" / "deep" / "a.py"
    assert checkout.to_there("short") == checkout.root / "src" / "short"
    assert checkout.to_there("out") == checkout.root / "src" / "out"
    assert checkout.to_there("out/a.py") is None
    assert checkout.to_there("../../in/src/a.py") == checkout.root / "src" / "a.py"
    assert checkout.to_there("../../in") is None  # the link lies outside


def test_a_link_of_the_reference_leads_nowhere_else(checkout: Checkout) -> None:
    (checkout.root / "src").symlink_to(checkout.head_root.parent / "elsewhere")
    assert checkout.to_here(checkout.root / "src" / "a.py") == checkout.working / "a.py"


def test_a_path_outside_the_reference_is_no_path_of_it(checkout: Checkout) -> None:
    for path in (checkout.head_root / "a.py", Path("a.py")):
        with pytest.raises(ValueError, match="not in the subpath"):
            checkout.to_here(path)
