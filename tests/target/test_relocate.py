"""A child imports the project from another checkout, however it was installed, or it is seen that it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfaudit.target.installed_copies import copies
from perfaudit.target.relocate import refusal

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
print(json.dumps([found, strays({head!r}, {base!r})]))
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


BOTH = """
import json, os, sys
sys.path.append({package!r})
from perfaudit.target import overlay, relocate
sys.path.remove({package!r})
relocate.take_the_place({head!r}, {own!r})
overlay.install({{}})
for name in {names!r}:
    __import__(name)
realpath, copies, asked, given = os.path.realpath, relocate.copies, [], []
os.path.realpath = lambda path: asked.append(path) or realpath(path)
relocate.copies = lambda files, *roots: given.extend([sorted(files), roots]) or copies(files, *roots)
found = relocate.strays({head!r}, {base!r})
counts = len(asked), [name for name in given[0] if name.endswith("_x.py")], given[1]
print(json.dumps([counts, os.environ["PYTHONPATH"], [os.path.relpath(path, {own!r}) for path in overlay.digests()], found]))
"""


@pytest.mark.parametrize("place", ["env/lib/site-packages", "env_with_a_mark/site-packages"])
def test_the_code_as_it_is_does_what_the_reference_does(two: Two, place: str) -> None:
    """Also with an environment in the repository, seen from a folder in it: as many files looked at, and the same copies."""
    two.write("src/project_x.py")
    two.write("sub/deep_x.py")
    (two.head / place).mkdir(parents=True)
    (two.head / place / "library_x.py").write_text("")
    if "mark" in place:
        (two.head / "env_with_a_mark" / "pyvenv.cfg").write_text("")
    (two.site / "x.pth").write_text(f"{two.head / 'src'}\n{two.head / place}\n")
    start = f"import site, sys; sys.path.remove(''); site.addsitedir({str(two.site)!r})\n"
    said = {}
    for own in (two.head, two.base):
        roots = {"head": str(two.head), "base": str(two.base), "own": str(own)}
        code = BOTH.format(package=str(PACKAGE), names=("project_x", "library_x", "deep_x"), **roots)
        done = subprocess.run(
            [sys.executable, "-c", start + code],
            cwd=own / "sub",
            env={**os.environ, "PYTHONPATH": str(two.head / "sub")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        counts, python_path, digests, found = json.loads(done.stdout)
        assert python_path == os.pathsep.join([str(own / "sub"), str(own / "src")])
        # These are the repository's; what is installed is not among them.
        assert sorted(digests) == ["src/project_x.py", "sub/deep_x.py"]
        assert found == []
        said[own] = counts
    assert said[two.head] == said[two.base]
    assert said[two.head][1] == [str(two.head / place / "library_x.py")]


# ---- copies of the project in site-packages --------------------------------------------------------------------------


class Installed(Two):
    """The project installed as a copy: `install` writes what pip leaves in site-packages."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.site = folder / "env" / "site-packages"
        self.site.mkdir(parents=True)

    def install(self, *names: str, source: str = "", **texts: str) -> list[str]:
        """Copies of these files of the head, and what pip says of where it had them from."""
        for name in names:
            path = self.site / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("WHERE = 'installed'\n")
        for name, text in texts.items():
            info = self.site / "project_x-1.0.dist-info" / name.replace("_json", ".json")
            info.parent.mkdir(exist_ok=True)
            info.write_text(text)
        return [str(self.site / name) for name in names]

    def from_pip(self, *names: str, place: Path, told: str = "") -> list[str]:
        url = f'{{"url": "file://{place}", {told or chr(34) + "dir_info" + chr(34) + ": {}"}}}'
        record = "".join(f"{name},sha256=x,1\n" for name in names)
        return self.install(*names, direct_url_json=url, RECORD=record + "../../../bin/x,,\n")


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path.resolve())


@pytest.mark.parametrize("layout", ["src/", ""])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_copy_of_the_project_is_seen(installed: Installed, layout: str, is_known: bool) -> None:
    """As `pip install .` leaves it, and from a wheel that was built elsewhere. It is the same code on both sides."""
    for name in ("project_x/__init__.py", "project_x/inner.py", "single_x.py"):
        installed.write(f"{layout}{name}")
    (installed.base / layout / "project_x" / "inner.py").write_text("WHERE = 'head'\n")  # not changed since
    names = ("project_x/__init__.py", "project_x/inner.py", "single_x.py")
    files = installed.from_pip(*names, place=installed.head) if is_known else installed.install(*names)
    found, left = installed.imported("project_x", "project_x.inner", "single_x")
    assert (set(found.values()), left) == ({"installed"}, [files[0], files[2]])
    words = refusal(left)
    assert words.startswith(f"it imports {files[0]}, {files[2]} from a copy of the project in site-packages, so both ")
    assert words.endswith("install it editable: pip install -e .")


def test_an_editable_install_beside_what_pip_says(installed: Installed) -> None:
    installed.write("src/project_x/__init__.py")
    installed.from_pip(place=installed.head, told='"dir_info": {"editable": true}')
    (installed.site / "project_x.pth").write_text(f"{installed.head / 'src'}\n")
    assert installed.imported("project_x") == ({"project_x": "base"}, [])


def test_a_copy_that_the_change_does_not_touch(installed: Installed) -> None:
    for place in (installed.head, installed.base):
        (place / "src" / "project_x").mkdir(parents=True)
        (place / "src" / "project_x" / "__init__.py").write_text("WHERE = 'alike'\n")
    installed.write("train_x.py")
    names = ("project_x/__init__.py", "project_x/_version.py", "project_x/made_pb2.py")  # two are made by the build
    installed.from_pip(*names, place=installed.head)
    (installed.head / "src" / "project_x" / "_version.py").write_text("")
    modules = ("project_x", "project_x._version", "project_x.made_pb2")
    assert installed.imported(*modules) == (dict.fromkeys(modules, "installed"), [])


def test_a_module_that_the_change_adds_to_a_copy(installed: Installed) -> None:
    for place in (installed.head, installed.base):
        (place / "project_x").mkdir()
        (place / "project_x" / "__init__.py").write_text("")
    (installed.head / "project_x" / "added.py").write_text("")
    files = installed.from_pip("project_x/__init__.py", "project_x/added.py", place=installed.head)
    assert installed.imported("project_x.added")[1] == [files[1]]


@pytest.mark.parametrize(
    ("place", "is_copy"),
    [
        ("datasets/load_x.py", False),  # a folder of scripts, no package
        ("tests/datasets/__init__.py", False),
        ("third_party/datasets/__init__.py", False),
        ("datasets.py", False),
        ("datasets/__init__.py", True),
    ],
)
def test_a_library_that_shares_a_name(installed: Installed, place: str, is_copy: bool) -> None:
    installed.write(place)
    files = installed.install("datasets/__init__.py", "datasets/load_x.py")
    copies = files[:1] if is_copy else []
    assert installed.imported("datasets", "datasets.load_x") == (
        {"datasets": "installed", "datasets.load_x": "installed"},
        copies,
    )


def test_libraries_that_pip_had_from_the_project(installed: Installed) -> None:
    """Vendored libraries: changed or not; wheels that lie there may be of anybody."""
    for place in (installed.head, installed.base):
        (place / "third_party" / "lib" / "python" / "lib_x").mkdir(parents=True)
        (place / "third_party" / "lib" / "python" / "lib_x" / "__init__.py").write_text("")
        (place / "wheels").mkdir()
    installed.from_pip("lib_x/__init__.py", "other_x.py", place=installed.head / "third_party" / "lib")
    assert installed.imported("lib_x")[1] == []
    wheel = installed.head / "wheels" / "other_x.whl"
    installed.from_pip("lib_x/__init__.py", "other_x.py", place=wheel, told='"archive_info": {}')
    assert installed.imported("lib_x", "other_x")[1] == []
    installed.write("third_party/lib/python/lib_x/__init__.py")
    files = installed.from_pip("lib_x/__init__.py", place=installed.head / "third_party" / "lib")
    assert installed.imported("lib_x")[1] == files


@pytest.mark.parametrize(
    ("changed", "is_copy"),
    [("ops/src/kernel.cu", True), ("ops/setup.py", True), ("ops/README.md", False), ("a.cu", False)],
)
def test_a_compiled_module_whose_source_the_change_edits(installed: Installed, changed: str, is_copy: bool) -> None:
    for place in (installed.head, installed.base):
        (place / "ops" / "src").mkdir(parents=True)
        for name in ("ops/src/kernel.cu", "ops/setup.py", "ops/README.md", "a.cu"):
            (place / name).write_text("")
    (installed.head / changed).write_text("changed")
    (installed.head / "ops" / "made.c").write_text("by the build")
    [binary] = installed.from_pip("ops_x.cpython-311-x86_64-linux-gnu.so", place=installed.head / "ops")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(installed.site))
        assert copies([binary], str(installed.head), str(installed.base)) == ({binary} if is_copy else set())


def test_what_pip_left_damaged_is_passed_over(installed: Installed) -> None:
    installed.write("src/project_x/__init__.py")
    for text in ("{", "[]", '{"url": 3, "dir_info": {}}', '{"url": "file:///", "dir_info": []}'):
        files = installed.install("project_x/__init__.py", direct_url_json=text)
        assert installed.imported("project_x") == ({"project_x": "installed"}, files)


def test_words_for_both_kinds() -> None:
    assert refusal(()) == ""
    words = refusal([f"/p/{n}.py" for n in range(5)] + ["/v/site-packages/x.py"])
    assert words.startswith(
        "it imports /p/0.py, /p/1.py, /p/2.py and 2 more from the working tree, so both sides would "
    )
    assert "; it imports /v/site-packages/x.py from a copy of the project in site-packages" in words


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
