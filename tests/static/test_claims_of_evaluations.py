"""What PA801 claims of an evaluation: advice with a condition says of this file only that no backward pass uses the graph."""

from __future__ import annotations

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

LOADED = """
import torch
from attacks import craft

net = torch.load("net.pt")
for x, y in loader:
    x = craft(x)
    print((net(x).argmax(1) == y).sum().item())
"""
KEEPS = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        self.kept = self.first(x)
        return self.kept.relu()

def test(net, loader):
    net.eval()
    for x, y in loader:
        print((net(x).argmax(1) == y).sum().item())
"""


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (LOADED, " in this file"),
        (LOADED.replace("    x = craft(x)\n", ""), ""),
        (KEEPS, " in this file"),
        (KEEPS.replace("self.kept", "kept"), ""),
    ],
)
def test_what_is_seen_of_this_file_alone_is_said_of_it_alone(text: str, where: str) -> None:
    (finding,) = run_checks(Source("test.py", text), all_rules(), frozenset(["PA801"]))
    assert finding.message.endswith(f"records a graph, which no backward pass{where} uses")
    assert finding.fix is not None
    assert (", if " in finding.fix.title) is bool(where)


PARTS = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(8, 8)
        self.decoder = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.decoder(self.encoder(x))

def test(loader):
    net = Net()
    net.encoder.eval()
    net.decoder.eval()
    for x in loader:
        print(net(x).mean().item())
"""


@pytest.mark.parametrize(
    ("text", "mode"),
    [(PARTS, "runs in eval mode"), (PARTS.replace("= Net()", "= make()"), "runs with parts in eval mode")],
)
def test_a_model_is_said_to_be_in_eval_mode_where_all_its_parts_are_seen_to_be(text: str, mode: str) -> None:
    (finding,) = run_checks(Source("test.py", text), all_rules(), frozenset(["PA801"]))
    assert finding.message.startswith(f"`net(x)` {mode}, but records a graph")
