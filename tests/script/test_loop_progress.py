"""How far a script has come, from the loops around its update."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perfaudit.script.loop_progress import fraction_done


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("for step in range(4):\n    update()\n", [0.25, 0.5, 0.75, 1.0]),
        ("for step in tqdm(range(2, 6, 2)):\n    update()\n", [0.5, 1.0]),
        (
            "for epoch in range(2):\n    for batch in loader:\n        update(0.5)\n        update(1.0)\n",
            [0.25, 0.5, 0.75, 1.0],
        ),
        ("step = 0\nwhile step < 4:\n    step += 1\n    update()\n", [0.25, 0.5, 0.75, 1.0]),
        (
            "step, most = 0, 2\nwhile True:\n    step += 1\n    update()\n    if step >= most:\n        break\n",
            [0.5, 1.0],
        ),
        (
            "def train(epoch):\n    for batch in loader:\n        update(1.0)\n"
            "class options:\n    epochs = 2\nfor epoch in range(0, options.epochs):\n    train(epoch)\n",
            [0.5, 1.0],
        ),
        ("for batch in loader:\n    update(0.5)\n", [0.5]),
        ("for batch in loader:\n    update(None)\n", [None]),
        ("for fold in folds:\n    for step in range(2):\n        update()\n", [None, None]),
        ("for step in range(len(folds)):\n    update()\n", [None]),
        ("while True:\n    update()\n    break\n", [None]),
        (
            "patience, most, done = 0, 2, []\nwhile True:\n    patience += 1\n    update()\n    patience = 0\n"
            "    done.append(0)\n    if patience >= most:\n        break\n    if len(done) == 2:\n        break\n",
            [None, None],
        ),
        ("update()\n", [None]),
    ],
)
def test_how_far_a_script_has_come(tmp_path: Path, text: str, seen: list[float | None]) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    found: list[float | None] = []

    def update(of_epoch: float | None = None) -> None:
        found.append(fraction_done(sys._getframe(1), lambda file: file == str(path), of_epoch))

    names = {"update": update, "loader": [0], "folds": [0], "tqdm": lambda each: each, "__name__": "train"}
    exec(compile(text, str(path), "exec"), names)
    assert found == seen
