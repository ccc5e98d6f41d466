"""A check is a file or a folder named as its rule; what else lies in the folder registers nothing."""

from __future__ import annotations

import pkgutil

from perfaudit.rules import all_rules
from perfaudit.static import checks
from perfaudit.static.registry import all_checks


def test_every_rule_has_a_check_of_its_name_and_every_check_a_rule() -> None:
    stems = {rule.name.replace("-", "_") for rule in all_rules().values() if rule.found_in == "code"}
    assert {module.name for module in pkgutil.iter_modules(checks.__path__)} == stems


def test_a_check_is_registered_by_the_file_or_folder_of_its_rule_alone() -> None:
    names = {rule.id: rule.name.replace("-", "_") for rule in all_rules().values() if rule.found_in == "code"}
    ours = [item for item in all_checks() if item.function.__module__.startswith(f"{checks.__name__}.")]
    assert {item.rule for item in ours} == set(names)
    for item in ours:
        assert item.function.__module__ == f"{checks.__name__}.{names[item.rule]}"
