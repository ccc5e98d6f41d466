"""A child imports the project from another checkout, however it was installed, or it is seen that it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2]
RUN = """
import json, sys
sys.path.append({package!r})
from perfaudit.target.relocate import strays, take_the_place
sys.path.remove({package!r})
for name in {early!r}:
    __import__(name)
take_the_place({head!r}, {base!r})
import importlib
found = {{}}
for name in {names!r}:
    try:
        found[name] = importlib.import_module(name).WHERE
    except ImportError:
        found[name] = "not there"
print(json.dumps([found, strays({head!r})]))
"""
FINDER = """
import importlib.util, sys
MAPPING = {mapping!r}
NAMESPACES = {{}}


class _EditableFinder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        for package, place in MAPPING.items():
            if name == package:
                import os
                init = os.path.join(place, "__init__.py")
                file = init if os.path.exists(init) else place + ".py"
                return importlib.util.spec_from_file_location(name, file) if os.path.exists(file) else None


def install():
    sys.meta_path.append(_EditableFinder)
"""
REDIRECTOR = """
import importlib.util, sys


class RedirectingFinder:
    _redirections = {redirections!r}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        place = cls._redirections.get(name)
        return importlib.util.spec_from_file_location(name, place) if place else None


sys.meta_path.append(RedirectingFinder)
"""


class Two:
    """The same project twice, head and base, and a folder that is installed as a site of packages."""

    def __init__(self, folder: Path) -> None:
        self.head, self.base, self.site = folder / "head", folder / "base", folder / "site"
        for place in (self.head, self.base, self.site):
            place.mkdir()

    def write(self, name: str) -> None:
        for place in (self.head, self.base):
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"WHERE = {place.name!r}\n")

    def imported(
        self, *names: str, early: tuple[str, ...] = (), python_path: str = "", folder: Path | None = None
    ) -> tuple[dict[str, str], list[str]]:
        """Where the modules come from in a child that has base in the place of head, and the strays."""
        roots = {"head": str(self.head), "base": str(self.base)}
        code = RUN.format(package=str(PACKAGE), names=names, early=early, **roots)
        start = f"import site, sys; sys.path.remove(''); site.addsitedir({str(self.site)!r})\n"
        environment = {**os.environ, "PYTHONPATH": python_path}
        done = subprocess.run(
            [sys.executable, "-c", start + code],
            cwd=folder or self.base,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found, left = json.loads(done.stdout)
        return found, left


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path.resolve())


@pytest.mark.parametrize("layout", ["src/", ""])
def test_an_editable_install_by_path(two: Two, layout: str) -> None:
    two.write(f"{layout}project_x/__init__.py")
    (two.site / "project_x.pth").write_text(f"{two.head / layout}\n")
    assert two.imported("project_x") == ({"project_x": "base"}, [])


def test_an_editable_install_of_setuptools(two: Two) -> None:
    two.write("src/project_x/__init__.py")
    two.write("src/project_x/inner.py")
    two.write("single.py")
    mapping = {"project_x": str(two.head / "src" / "project_x"), "single": str(two.head / "single")}
    (two.site / "__editable___project_x_1_0_finder.py").write_text(FINDER.format(mapping=mapping))
    (two.site / "__editable__.project_x.pth").write_text(
        "import __editable___project_x_1_0_finder; __editable___project_x_1_0_finder.install()\n"
    )
    names = ("project_x", "project_x.inner", "single")
    assert two.imported(*names) == (dict.fromkeys(names, "base"), [])


def test_an_editable_install_by_redirection(two: Two) -> None:
    two.write("project_x/__init__.py")
    redirections = {"project_x": str(two.head / "project_x" / "__init__.py")}
    (two.site / "redirector_x.py").write_text(REDIRECTOR.format(redirections=redirections))
    (two.site / "_project_x.pth").write_text("import redirector_x\n")
    assert two.imported("project_x") == ({"project_x": "base"}, [])


def test_a_finder_that_nobody_knows_is_seen(two: Two) -> None:
    two.write("project_x/__init__.py")
    odd = REDIRECTOR.replace("_redirections", "_odd").format(
        redirections={"project_x": str(two.head / "project_x" / "__init__.py")}
    )
    (two.site / "odd_x.py").write_text(odd)
    (two.site / "_project_x.pth").write_text("import odd_x\n")
    file = str(two.head / "project_x" / "__init__.py")
    assert two.imported("project_x") == ({"project_x": "head"}, [file])


def test_what_was_imported_before_is_seen(two: Two) -> None:
    two.write("project_x.py")
    two.write("project_y.py")
    (two.site / "x.pth").write_text(f"{two.head}\n")
    found = two.imported("project_x", "project_y", early=("project_x",))
    assert found == ({"project_x": "head", "project_y": "base"}, [str(two.head / "project_x.py")])


def test_the_python_path(two: Two) -> None:
    two.write("src/project_x.py")
    assert two.imported("project_x", python_path=str(two.head / "src")) == ({"project_x": "base"}, [])


def test_what_the_reference_does_not_have_is_not_taken_from_here(two: Two) -> None:
    two.write("src/project_x.py")
    (two.base / "src" / "project_x.py").unlink()
    (two.site / "x.pth").write_text(f"{two.head / 'src'}\n")
    assert two.imported("project_x") == ({"project_x": "not there"}, [])


@pytest.mark.parametrize(
    "place",
    [
        "env/lib/python3/site-packages",
        "vendor/dist-packages",
        "env_with_a_mark/stuff",
        "__pypackages__/lib/site-packages",
    ],
)
def test_environments_in_the_repository_stay(two: Two, place: str) -> None:
    two.write(f"{place}/library_x.py")
    (two.base / place / "library_x.py").unlink()
    if "mark" in place:
        (two.head / "env_with_a_mark" / "pyvenv.cfg").write_text("")
    (two.site / "x.pth").write_text(f"{two.head / place}\n")
    assert two.imported("library_x") == ({"library_x": "head"}, [])


def test_neighbours_with_a_longer_name_stay(two: Two) -> None:
    neighbour = two.head.parent / "head_and_more"
    neighbour.mkdir()
    (neighbour / "near_x.py").write_text("WHERE = 'neighbour'\n")
    (two.site / "x.pth").write_text(f"{neighbour}\n")
    assert two.imported("near_x") == ({"near_x": "neighbour"}, [])


def test_links_to_either(two: Two) -> None:
    two.write("src/project_x.py")
    (two.head.parent / "link").symlink_to(two.head)
    (two.site / "x.pth").write_text(f"{two.head.parent / 'link' / 'src'}\n")
    assert two.imported("project_x") == ({"project_x": "base"}, [])


def test_a_file_that_the_user_had_linked_is_no_stray(two: Two) -> None:
    two.write("src/compiled_x.py")
    (two.base / "src" / "compiled_x.py").unlink()
    (two.base / "src" / "compiled_x.py").symlink_to(two.head / "src" / "compiled_x.py")
    (two.site / "x.pth").write_text(f"{two.head / 'src'}\n")
    assert two.imported("compiled_x") == ({"compiled_x": "head"}, [])


def test_a_base_inside_the_head(tmp_path: Path) -> None:
    two = Two(tmp_path.resolve())
    two.base = two.head / "tmp" / "base"
    two.base.mkdir(parents=True)
    two.write("project_x.py")
    (two.site / "x.pth").write_text(f"{two.head}\n")
    assert two.imported("project_x") == ({"project_x": "base"}, [])


IN_PROCESSES = """
import multiprocessing, subprocess, sys


def where(queue):
    import project_x, named_x
    queue.put([project_x.WHERE, named_x.WHERE])


if __name__ == "__main__":
    sys.path.append({package!r})
    from perfaudit.target.relocate import take_the_place
    sys.path.remove({package!r})
    take_the_place({head!r}, {base!r})
    for method in ("spawn", "fork"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=where, args=(queue,))
        process.start()
        print(*queue.get(timeout=60))
        process.join()
    print(subprocess.check_output([sys.executable, "-c", "import project_x; print(project_x.WHERE)"], text=True).strip())
"""


def test_processes_that_the_training_starts(two: Two) -> None:
    two.write("src/project_x.py")
    two.write("named_x.py")
    (two.site / "x.pth").write_text(f"{two.head / 'src'}\n")
    finder = FINDER.format(mapping={"named_x": str(two.head / "named_x")})
    (two.site / "__editable___named_x_finder.py").write_text(finder)
    (two.site / "y.pth").write_text("import __editable___named_x_finder as f; f.install()\n")
    (two.site / "sitecustomize.py").write_text(f"import site; site.addsitedir({str(two.site)!r})\n")
    script = two.site / "started.py"
    script.write_text(IN_PROCESSES.format(package=str(PACKAGE), head=str(two.head), base=str(two.base)))
    environment = {**os.environ, "PYTHONPATH": str(two.site)}
    done = subprocess.run(
        [sys.executable, script], cwd=two.base, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["base base", "base base", "base"], done.stderr
