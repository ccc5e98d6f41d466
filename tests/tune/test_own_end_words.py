"""How it is said that a script ends by itself."""

from __future__ import annotations

from pathlib import Path

from perfaudit.errors import AT_BREAKPOINT
from perfaudit.measure.child import ChildFailed
from perfaudit.target.names import Target
from perfaudit.tune.own_end import End
from perfaudit.tune.workshop import as_user_error


def test_a_breakpoint_is_no_error_that_the_script_ends_with() -> None:
    assert End(f"{AT_BREAKPOINT} at t.py:3").words("t.py") == "t.py: it stops at a breakpoint at t.py:3"
    assert End("ValueError: no", updates=7).words("t.py") == (
        "t.py ends by itself with ValueError: no after 7 updates of its optimizers"
    )


def test_who_stops_at_a_breakpoint_is_not_told_to_train_longer(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("breakpoint()\n")

    def said(end: End) -> str:
        return str(as_user_error(Target(str(tmp_path / "t.py"), arguments=()), ChildFailed("ended", end.words("t")), 1))

    assert said(End(f"{AT_BREAKPOINT} at t.py:3")) == "t: it stops at a breakpoint at t.py:3"
    assert "have it train longer" in said(End("ValueError: no"))
