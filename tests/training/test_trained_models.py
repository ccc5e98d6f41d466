"""Which modules of a process are the models that it trains."""

from __future__ import annotations

import pytest


@pytest.mark.slow
def test_a_network_of_whose_layers_the_model_was_built_is_no_model() -> None:
    import torch

    from perfaudit.training.trained_models import find_models

    whole = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 5))
    model = torch.nn.Sequential(whole[0], torch.nn.Linear(4, 2))
    head = torch.nn.Linear(2, 2)
    found = find_models([torch.optim.SGD([*model.parameters(), *head.parameters()])]).trained
    assert [id(each) for each in found] == [id(model), id(head)]


@pytest.mark.slow
def test_a_trace_of_the_model_is_no_model() -> None:
    import torch

    from perfaudit.training.trained_models import find_models

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    trace = torch.jit.trace(model, torch.zeros(2, 3))
    assert next(trace.parameters()) is model[0].weight
    wrapper = type("QualnameWrapper", (torch.nn.Sequential,), {"__module__": "torch.jit._trace"})(*model)
    assert find_models([torch.optim.SGD(model.parameters())]).trained == [model], wrapper
