"""A line about a thing, put behind what gives its name a value."""

from __future__ import annotations

import pytest

from perfaudit.static import edit
from perfaudit.static.behind_binding import state_behind
from perfaudit.static.source import Source

IN_A_FUNCTION = """
def main(args):
    model = Net(args.width)  # small
    model = model.to(device)
    for batch in data():
        model(batch)  # here
    model = load("best.pt")
"""
IN_BRANCHES = """
if resume:
    model = torch.load("last.pt")
elif wide:
    model = Wide()
else:
    model = Net()
for batch in data():
    model(batch)  # here
"""
BESIDE_OTHERS = """
def main():
    model, optimizer = accelerator.prepare(
        model_of(), optimizer)
    train(model)  # here
"""
OWN = """
class Trainer:
    def __init__(self, model):
        self.model = model.to(0)

    def fit(self):
        while True:
            self.model(1)  # here
"""


@pytest.mark.parametrize(
    ("text", "function", "name", "behind"),
    [
        (IN_A_FUNCTION, "main", "model", "model = model.to(device)"),
        (IN_BRANCHES, "<module>", "model", "    model = Net()"),
        (BESIDE_OTHERS, "main", "model", "        model_of(), optimizer)"),
        (OWN, "Trainer.fit", "self.model", "        self.model = model.to(0)"),
    ],
)
def test_the_line_stands_behind_the_last_value_that_the_name_is_given(
    text: str, function: str, name: str, behind: str
) -> None:
    source = Source("train.py", text)
    here = 1 + next(n for n, line in enumerate(text.splitlines()) if line.endswith("# here"))
    word = "def " + function.rpartition(".")[2]
    first = 1 + next((n for n, line in enumerate(text.splitlines()) if line.lstrip().startswith(word)), 0)
    found = state_behind(source, function, first, name, here, "{}.compile()")
    assert found is not None
    lines = edit.apply(text, found[0]).splitlines()
    at = next(n for n, line in enumerate(lines) if line.strip() == f"{name}.compile()")
    assert lines[at - 1].endswith(behind)
    assert [line for n, line in enumerate(lines) if n != at] == text.splitlines()


@pytest.mark.parametrize(
    ("statements", "behind"),
    [
        ("net.apply(init)\nif path:\n    net.load_state_dict(load(path))\nprint(net)\nopt = Adam(net.parameters())", 3),
        ("for m in net.modules():\n    nn.init.zeros_(m.weight)\nsize = sum(p.numel() for p in net.parameters())", 2),
        ("init_weights(net, 0.02)\nnet.fc = nn.Linear(3, 2)\nother.apply(init)\ndef train():\n    net.apply(init)", 2),
        ("opt = Adam(net.parameters())\nif path:\n    net.load_state_dict(load(path))", 0),  # it is loaded as it lies
        ("opt = Adam(net.parameters())\nwriter.add_graph(net, x)\nnet.body.apply(init)\nnet.train()", 3),
        ("with torch.no_grad():\n    net.weight.normal_()\nlog(sum(1 for p in net.parameters()))", 2),
        ("size = net.parameters()\nnetwork.apply(init)", 0),
    ],
)
def test_a_model_is_changed_behind_what_initialises_it(statements: str, behind: int) -> None:
    text = f"net = Net()\n{statements}\nfit(net)\n"
    lines = text.splitlines()
    source = Source("train.py", text)
    found = state_behind(source, "<module>", 1, "net", len(lines), "{}.to(1)", initialised=True)
    assert found is not None
    assert edit.apply(text, found[0]).splitlines() == [*lines[: 1 + behind], "net.to(1)", *lines[1 + behind :]]
    plain = state_behind(source, "<module>", 1, "net", len(lines), "{}.to(1)")
    assert plain is not None and edit.apply(text, plain[0]).splitlines()[1] == "net.to(1)"


@pytest.mark.parametrize(
    "text",
    [
        "def main(model):\n    while True:\n        model(1)\n",  # a parameter
        "def main():\n    for fold in range(5):\n        model = Net()\n        model(1)\n",  # in a loop
        "def main():\n    with Net() as model:\n        model(1)\n",
        "def main():\n    model = 1; x = 2\n    model(1)\n",  # shares its line
        "def main():\n    model = None\n    if True:\n        model = Net()\n        model(1)\n",  # behind both is too late
    ],
)
def test_where_it_cannot_be_told_nothing_is_written(text: str) -> None:
    here = text.splitlines().index(next(line for line in text.splitlines() if "model(1)" in line)) + 1
    assert state_behind(Source("train.py", text), "main", 1, "model", here, "{}.compile()") is None
