"""Imports go one way, as `docs/architecture.md` has it, and a scan stays light."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "perfaudit"

BASE = {"findings", "errors", "reading", "decoding", "expressions", "records", "__init__"}
# What each part may import of the package besides itself and BASE. `docs/architecture.md` shows the same table.
MAY_IMPORT = {
    "findings": set(),
    "reading": set(),
    "decoding": set(),
    "expressions": set(),
    "records": set(),
    "errors": set(),
    "__init__": {"report", "trace", "rules", "machine", "functions"},
    "__main__": {"cli"},
    "files": set(),
    "user_folder": {"files"},
    "measurements": set(),
    "verdicts": set(),
    "quantities": set(),
    "processes": set(),
    "runs": set(),
    "traces": set(),
    "machine_facts": set(),
    "machine": {"machine_facts"},
    "forked_work": set(),
    "ownership": set(),
    "rules": set(),
    "report": {"measurements", "verdicts", "runs", "traces", "machine_facts", "render"},
    "rank": {"report", "rules"},
    "patterns": set(),
    "config": {"ownership", "patterns", "rules"},
    "static": {"forked_work", "files", "user_folder", "ownership", "patterns", "rules", "config", "report"},
    "target": {"measurements"},
    "training": {"measurements", "target", "script"},
    "measure": {"files", "processes", "measurements", "machine", "target", "script", "training"},
    "distributed": {"files", "processes", "runs"},
    "script": {"processes", "runs", "target"},
    "trace": {"forked_work", "traces", "report", "rules"},
    "knobs": {"measurements", "measure", "target", "training", "static"},
    "tune": {"files", "measurements", "machine", "knobs", "measure", "target", "script", "static", "report", "rank"},
    "callbacks": {"runs", "script"},
    "checkpoints": {"files", "measure", "target", "training"},
    "gate": {
        "files",
        "user_folder",
        "machine",
        "measurements",
        "verdicts",
        "quantities",
        "ownership",
        "rules",
        "config",
        "report",
        "rank",
        "static",
        "target",
        "training",
        "measure",
    },
    "cluster": {"files", "machine", "measure"},
    "render": {"measurements", "verdicts", "runs", "traces", "machine_facts", "report", "rules", "rank"},
    "pytest_plugin": {"files", "verdicts", "config", "target", "measure", "gate", "render"},
    "mcp": {"quantities", "knobs"},
    "functions": {"report", "knobs", "measure", "script", "gate", "tune", "cli"},
    "cli": {
        "mcp",
        "files",
        "user_folder",
        "machine",
        "measurements",
        "verdicts",
        "quantities",
        "runs",
        "rules",
        "report",
        "rank",
        "config",
        "static",
        "target",
        "measure",
        "knobs",
        "tune",
        "script",
        "distributed",
        "checkpoints",
        "gate",
        "cluster",
        "render",
        "trace",
        "traces",
    },
}
HEAVY = {"torch", "pandas", "numpy"}
NO_RICH = {
    "trace",
    "traces",
    "static",
    "findings",
    "rules",
    "report",
    "rank",
    "config",
    "ownership",
    "measurements",
    "verdicts",
    "quantities",
    "gate",
    "errors",
    "files",
    "user_folder",
}


def part(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@functools.cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Imported modules of a file, each with whether it is imported when the file is. Read once for all tests."""
    found = []

    def visit(node: ast.AST, at_once: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                continue  # no expression has an import in it
            typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            if isinstance(child, ast.Import):
                found.extend((alias.name, at_once) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                found.append((child.module or "", at_once))
                found.extend(
                    (f"{child.module}.{alias.name}", at_once) for alias in child.names if child.module == "perfaudit"
                )
            visit(child, at_once and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and not typing_only)

    visit(ast.parse(path.read_text()), True)
    return found


def test_imports_go_one_way() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        here = part(path)
        allowed = MAY_IMPORT[here] | BASE | {here, "__version__"}
        for module, at_once in imports(path):
            if module.startswith("perfaudit."):
                assert module.split(".")[1] in allowed, f"{path}: {here} imports {module}"
            top = module.partition(".")[0]
            assert not (at_once and top in HEAVY), f"{path} imports {top} when it is imported"
            if here in NO_RICH:
                assert top != "rich", f"{path} imports {top}"


# Where a module is imported that is named by a text: the table above sees none of these.
BY_NAME = {
    "knobs/__init__.py": "a knob, by its file's name in this folder",
    "trace/checks/__init__.py": "a check of traces, by its file's name in this folder",
    "machine/checks/__init__.py": "a check of the machine, by its file's name in this folder",
    "render/__init__.py": "a format, by its file's name in this folder",
    "cli/app.py": "a command, by its file's name in this folder",
    "static/registry.py": "the checks, by their files' names in a folder of this one",
    "static/rule_importer.py": "rules of the user's own",
    "target/load.py": "the user's own modules",
    "measure/forking.py": "libraries of others that children will need",
    "measure/imported_libraries.py": "libraries of others that a child has imported",
    "measure/attribute_names.py": "in a child, what a parent that imports it has named",
}


def test_modules_named_by_a_text_are_imported_in_few_places() -> None:
    found = set()
    texts = {path: path.read_text() for path in PACKAGE.rglob("*.py")}
    for path in (path for path, text in texts.items() if "import_module" in text or "__import__" in text):
        for node in ast.walk(ast.parse(texts[path])):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else [name]
            if {"import_module", "__import__"} & set(names):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == set(BY_NAME)


def test_what_a_parent_has_named_is_looked_up_by_verbs_alone() -> None:
    users = {path.parent.name for path in PACKAGE.rglob("*.py") if "find_named" in path.read_text()}
    assert users == {"measure", "verbs"}


def test_benchmarks_import_nothing_of_the_tests() -> None:
    """What both need lies in simulated/."""
    own = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    of_tests = {path.stem for path in (ROOT / "tests").rglob("*.py")} - own
    for path in (ROOT / "benchmarks").glob("*.py"):
        used = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, (ast.Import, ast.ImportFrom))
        ]
        names = {(node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name) for node in used}
        assert not names & of_tests, f"{path.name} imports {names & of_tests}"


def test_the_documented_table_is_this_one() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", text, flags=re.MULTILINE)
    documented = {name: set(re.findall(r"`(\w+)`", cell)) for name, cell in rows}
    assert documented == {name: needs for name, needs in MAY_IMPORT.items() if not name.startswith("__")}


@pytest.mark.parametrize(
    "command", [["scan", "train.py", "--exit-zero"], ["explain", "PA101"], ["rules"], ["rules", "--format", "json"]]
)
def test_what_only_reads_imports_neither_torch_nor_pandas_nor_rich(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "train.py").write_text("import torch\nloader = torch.utils.data.DataLoader(d)\n")
    code = (
        f"import sys; sys.argv = ['perfaudit', *{command}]\n"
        "from perfaudit.cli.entry import run\n"
        "try: assert not run()\n"
        "except SystemExit as leave: assert not leave.code, leave.code\n"
        "print([m for m in ('torch', 'pandas', 'numpy', 'rich', 'pydantic') if m in sys.modules])\n"
        "print([m for m in sys.modules if m.startswith('perfaudit.knobs.') and '._' not in m])\n"
        "print('perfaudit.cli.tune' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "PA101" in done.stdout
    *_, heavy, knobs, has_tune = done.stdout.splitlines()
    assert (heavy, has_tune) == ("[]", "False")  # a command imports no other
    assert (knobs == "[]") == (command[0] == "scan" or command == ["rules"])  # `settled_by` asks each knob


# What takes longer to import than a file of code to scan: a scan of one file is typed all day, and asked for by editors.
SLOW_TO_IMPORT = ("dataclasses", "difflib", "inspect", "json", "rich", "subprocess", "tempfile", "tokenize", "typer")


def test_a_plain_scan_imports_nothing_that_is_slow_to_import(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nloader = torch.utils.data.DataLoader(d, num_workers=0)\n")
    code = (
        "import sys; before = set(sys.modules); sys.argv = ['perfaudit', 'scan', 'train.py', '--exit-zero', '--no-cache']\n"
        "from perfaudit.cli.entry import run\n"
        "try: assert not run()\n"
        "except SystemExit as leave: assert not leave.code, leave.code\n"
        f"print(sorted((set(sys.modules) - before) & set({SLOW_TO_IMPORT})))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "PA101" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


# Inside the scanner: what no module of a folder may import. `registry` loads the checks by their folder, not by name.
SCANNER = {"scan", "audit", "cache", "fix", "baseline", "discover", "document", "notebook", "suppress"}
INSIDE_STATIC = {
    "checks": SCANNER,
    "understanding": SCANNER | {"checks"},
    "project": SCANNER | {"checks", "understanding"},
    "source": SCANNER | {"checks", "understanding"},
    "": {"understanding"},
}


STATIC = PACKAGE / "static"


def test_the_scanner_knows_no_rule_and_no_rule_the_scanner() -> None:
    for path in sorted(STATIC.rglob("*.py")):
        inside = path.relative_to(STATIC).parts
        folder = inside[0] if len(inside) > 1 else ""
        for module, _ in imports(path):
            of_static = module.removeprefix("perfaudit.static.") if module.startswith("perfaudit.static.") else ""
            assert of_static.split(".")[0] not in INSIDE_STATIC[folder], f"{path} imports {module}"


# What fewer than three rules use lies beside one of them, but for these.
SHARED_BY_FEWER = {
    "taint": "where tensors lie is asked of any program; both rules that ask it are about other things",
    "kinds": "the lattice of taint",
    "device_calls": "what calls do in taint",
    "code_reader": "the statements of taint",
    "expression_kinds": "the expressions of taint",
    "loss_seeds": "where taint begins",
    "reached_code": "what a script has a use for is asked of any program",
    "rows_of_layers": "what the optimizers of a script train is asked of any program",
}


def static_imports(name: str) -> set[str]:
    """What a module of the scanner imports of `checks` and `understanding`, by names below `static`."""
    base = STATIC.joinpath(*name.split("."))
    path = base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py"
    modules = {module.removeprefix("perfaudit.static.") for module, _ in imports(path)}
    return {module for module in modules if module.startswith(("checks.", "understanding."))}


def rules_that_use() -> dict[str, set[str]]:
    """The rules whose checks import a module, directly or through others."""
    users: dict[str, set[str]] = {}
    for check in sorted(path.stem for path in (STATIC / "checks").iterdir() if not path.name.startswith("__")):
        reached, waiting = set(), [f"checks.{check}"]
        while waiting:
            module = waiting.pop()
            if module not in reached:
                reached.add(module)
                waiting += static_imports(module)
        for module in reached:
            users.setdefault(module, set()).add(check)
    return users


def test_what_serves_one_or_two_rules_lies_beside_one_of_them_and_what_serves_more_is_shared() -> None:
    users = rules_that_use()
    shared = {path.stem for path in (STATIC / "understanding").glob("*.py") if path.stem != "__init__"}
    assert {name for name in shared if len(users.get(f"understanding.{name}", ())) < 3} == set(SHARED_BY_FEWER)
    for path in (STATIC / "checks").glob("*/*.py"):
        if path.stem != "__init__":
            rules = users.get(f"checks.{path.parent.name}.{path.stem}", set())
            assert path.parent.name in rules, f"{path}: its own rule does not use it"
            assert len(rules) < 3, f"{path} serves {rules}: it belongs into understanding"


def test_a_check_imports_private_modules_of_another_never_the_check_itself() -> None:
    checks = {f"checks.{path.stem}" for path in (STATIC / "checks").iterdir()}
    for path in (STATIC / "checks").rglob("*.py"):
        name = ".".join(path.relative_to(STATIC).with_suffix("").parts).removesuffix(".__init__")
        assert not static_imports(name) & checks, f"{path} imports a check"


def test_what_is_shared_is_documented() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    shared = {path.stem for path in (STATIC / "understanding").glob("*.py") if path.stem != "__init__"}
    assert {name for name in shared if f"`{name}`" not in text} == set()
