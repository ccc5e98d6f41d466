"""Entries of a dict that a call is given: written where none stands, beside those that stand, and not where that is in doubt."""

from __future__ import annotations

import ast

import pytest

from perfaudit.static import edit
from perfaudit.static.nested_arguments import give_inside
from perfaudit.static.source import Source

FUSED, KEPT, PATH = {"fused": "True"}, {"eps": "1e-05"}, ("policy_kwargs", "optimizer_kwargs")


def given(text: str, path: tuple[str, ...] = PATH, is_given: bool = False) -> str | None:
    source = Source("train.py", f"{text}\n")
    (call,) = [node.value for node in source.tree.body if isinstance(node, ast.Expr)]
    assert isinstance(call, ast.Call)
    edits = give_inside(source, call, path, FUSED, KEPT, is_given)
    return edit.apply(source.text, edits).rstrip("\n") if edits is not None else None


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("PPO(env)", 'PPO(env, policy_kwargs={"optimizer_kwargs": {"eps": 1e-05, "fused": True}})'),
        ("PPO(policy_kwargs=None)", 'PPO(policy_kwargs={"optimizer_kwargs": {"eps": 1e-05, "fused": True}})'),
        (
            "PPO(policy_kwargs=dict(net_arch=[64]))",
            'PPO(policy_kwargs=dict(net_arch=[64], optimizer_kwargs={"eps": 1e-05, "fused": True}))',
        ),
        (
            'PPO(policy_kwargs={"net_arch": [64]})',
            'PPO(policy_kwargs={"net_arch": [64], "optimizer_kwargs": {"eps": 1e-05, "fused": True}})',
        ),
        ("PPO(policy_kwargs={})", 'PPO(policy_kwargs={"optimizer_kwargs": {"eps": 1e-05, "fused": True}})'),
        (
            "PPO(policy_kwargs=own)",
            'PPO(policy_kwargs={**own, "optimizer_kwargs": {"eps": 1e-05, "fused": True}})',
        ),
        # What the call gives takes the place of what the library gives, so nothing of that is written.
        (
            'PPO(policy_kwargs=dict(optimizer_kwargs={"weight_decay": wd}))',
            'PPO(policy_kwargs=dict(optimizer_kwargs={"weight_decay": wd, "fused": True}))',
        ),
        (
            'PPO(policy_kwargs={"optimizer_kwargs": own})',
            'PPO(policy_kwargs={"optimizer_kwargs": {**own, "fused": True}})',
        ),
        (
            'PPO(policy_kwargs={"optimizer_kwargs": {"lr": (1e-3 if big else 1e-4)}})',
            'PPO(policy_kwargs={"optimizer_kwargs": {"lr": (1e-3 if big else 1e-4), "fused": True}})',
        ),
        (
            'PPO(policy_kwargs={"optimizer_kwargs": {"lr": lr, **(own or {})}})',
            'PPO(policy_kwargs={"optimizer_kwargs": {"lr": lr, **(own or {}), "fused": True}})',
        ),
        (
            'PPO(policy_kwargs={"optimizer_kwargs": {\n    "lr": (lr),  # slow (here)\n}})',
            'PPO(policy_kwargs={"optimizer_kwargs": {\n    "lr": (lr), "fused": True,  # slow (here)\n}})',
        ),
        (
            'PPO(policy_kwargs={"optimizer_kwargs": {\n    "lr": lr  # fast, (here)\n}})',
            'PPO(policy_kwargs={"optimizer_kwargs": {\n    "lr": lr, "fused": True  # fast, (here)\n}})',
        ),
        (
            "PPO(policy_kwargs=dict(optimizer_kwargs=dict(fused=False)))",
            "PPO(policy_kwargs=dict(optimizer_kwargs=dict(fused=True)))",
        ),
        ("PPO(env, **options)", None),
        ("PPO(policy_kwargs=make())", None),
        # What comes behind takes the place of an entry.
        ('PPO(policy_kwargs={"optimizer_kwargs": {"fused": False, **own}})', None),
        ('PPO(policy_kwargs={"optimizer_kwargs": {}, **own})', None),
    ],
)
def test_entries_are_put_where_the_call_takes_them(text: str, after: str | None) -> None:
    assert given(text) == after


@pytest.mark.parametrize("text", ["PPO(policy_kwargs=own)", 'PPO(policy_kwargs={**own, "net_arch": [64]})'])
def test_a_dict_that_may_hold_them_already_is_left_alone(text: str) -> None:
    """Else what the user gives would be lost."""
    assert given(text) is not None and given(text, is_given=True) is None


def test_an_argument_may_hold_them_itself() -> None:
    assert (
        given("NBeats(data)", ("optimizer_params",)) == 'NBeats(data, optimizer_params={"eps": 1e-05, "fused": True})'
    )
    assert given("NBeats(optimizer_params=own)", ("optimizer_params",)) == (
        'NBeats(optimizer_params={**own, "fused": True})'
    )
