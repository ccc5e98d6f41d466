"""Imports go one way, as `docs/architecture.md` has it, and a scan stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "perfaudit"

BASE = {"findings", "errors", "reading", "decoding", "__init__"}
# What each part may import of the package besides itself and BASE. `docs/architecture.md` shows the same table.
MAY_IMPORT = {
    "findings": set(),
    "reading": set(),
    "decoding": set(),
    "errors": set(),
    "__init__": {"static", "rank", "report", "target", "tune"},
    "__main__": {"cli"},
    "files": set(),
    "user_folder": {"files"},
    "measurements": set(),
    "verdicts": set(),
    "quantities": set(),
    "processes": set(),
    "runs": set(),
    "ownership": set(),
    "rules": set(),
    "report": {"measurements", "verdicts", "runs"},
    "rank": {"report", "rules"},
    "patterns": set(),
    "config": {"ownership", "patterns", "rules"},
    "static": {"files", "user_folder", "ownership", "patterns", "rules", "config", "report"},
    "target": {"measurements"},
    "training": {"measurements", "target", "script"},
    "measure": {"files", "processes", "measurements", "target", "script", "training"},
    "script": {"processes", "runs", "target"},
    "knobs": {"measurements", "measure", "target", "training", "static"},
    "tune": {"files", "measurements", "knobs", "measure", "target", "script", "static", "report", "rank"},
    "checkpoints": {"files", "measure", "target", "training"},
    "gate": {
        "files",
        "user_folder",
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
    "render": {"measurements", "verdicts", "runs", "report", "rules", "rank"},
    "pytest_plugin": {"files", "verdicts", "config", "target", "measure", "gate", "render"},
    "cli": {
        "files",
        "user_folder",
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
        "checkpoints",
        "gate",
        "render",
    },
}
HEAVY = {"torch", "pandas", "numpy"}
NO_RICH = {
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


def imports(path: Path) -> list[tuple[str, bool]]:
    """Imported modules of a file, each with whether it is imported when the file is."""
    found = []

    def visit(node: ast.AST, at_once: bool) -> None:
        for child in ast.iter_child_nodes(node):
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


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    here = part(path)
    allowed = MAY_IMPORT[here] | BASE | {here}
    for module, at_once in imports(path):
        if module.startswith("perfaudit."):
            assert module.split(".")[1] in allowed | {"__version__"}, f"{here} imports {module}"
        top = module.partition(".")[0]
        assert not (at_once and top in HEAVY), f"{path.name} imports {top} when it is imported"
        if here in NO_RICH:
            assert top != "rich"


# Where a module is imported that is named by a text: the table above sees none of these.
BY_NAME = {
    "knobs/__init__.py": "a knob, by its file's name in this folder",
    "render/__init__.py": "a format, by its file's name in this folder",
    "static/registry.py": "the checks, by their files' names in a folder of this one",
    "static/rule_importer.py": "rules of the user's own",
    "target/load.py": "the user's own modules",
    "measure/forking.py": "libraries of others that children will need",
    "measure/attribute_names.py": "in a child, what a parent that imports it has named",
}


def test_modules_named_by_a_text_are_imported_in_few_places() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else [name]
            if {"import_module", "__import__"} & set(names):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == set(BY_NAME)


def test_what_a_parent_has_named_is_looked_up_by_verbs_alone() -> None:
    users = {path.parent.name for path in PACKAGE.rglob("*.py") if "find_named" in path.read_text()}
    assert users == {"measure", "verbs"}


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
        "from perfaudit.cli import main\n"
        "try: main()\n"
        "except SystemExit as leave: assert not leave.code, leave.code\n"
        "print([m for m in ('torch', 'pandas', 'numpy', 'rich', 'pydantic') if m in sys.modules])\n"
        "print([m for m in sys.modules if m.startswith('perfaudit.knobs.') and '._' not in m])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "PA101" in done.stdout
    *_, heavy, knobs = done.stdout.splitlines()
    assert heavy == "[]"
    assert (knobs == "[]") == (command[0] == "scan" or command == ["rules"])  # `settled_by` asks each knob


# Inside the scanner: what no module of a folder may import. `registry` loads the checks by their folder, not by name.
SCANNER = {"scan", "audit", "cache", "fix", "baseline", "discover", "document", "notebook", "suppress"}
INSIDE_STATIC = {
    "checks": SCANNER,
    "understanding": SCANNER | {"checks"},
    "": {"understanding"},
}


@pytest.mark.parametrize("path", sorted((PACKAGE / "static").rglob("*.py")), ids=lambda p: p.stem)
def test_the_scanner_knows_no_rule_and_no_rule_the_scanner(path: Path) -> None:
    folder = path.parent.name if path.parent.name != "static" else ""
    for module, _ in imports(path):
        inside = (
            module.removeprefix("perfaudit.static.").split(".")[0] if module.startswith("perfaudit.static.") else ""
        )
        assert inside not in INSIDE_STATIC[folder], f"{path.stem} imports {module}"
