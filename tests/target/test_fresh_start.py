"""Programs that no library may be imported for beforehand, told from their text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.target import fresh_start
from perfaudit.target.fresh_start import must_start_afresh

SETS = 'import os\nos.environ["OMP_NUM_THREADS"] = "1"\n'
Project = Callable[..., Path]


@pytest.mark.parametrize(
    "text",
    [
        "import options\n",
        "import os, options as given\n",
        "from options import parse\n",
        "from pkg import (\n    one,  # the first\n    deep,\n)\n",
        "from pkg.deep import *\n",
        "def main():\n    from pkg import deep\n",
        SETS,
        "os.environ.setdefault('MKL_NUM_THREADS', '2')\n",
        "for name in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS'):\n    os.environ[name] = '1'\n",
        "os.environ.update(OMP_NUM_THREADS='1')\n",
        "os.environ['TORCHDYNAMO_DISABLE'] = '1'\n",
        "from dotenv import load_dotenv\nload_dotenv()\n",
    ],
)
def test_variables_are_found_wherever_imports_of_own_files_lead(project: Project, text: str) -> None:
    project(**{"options.py": SETS, "pkg/__init__.py": "", "pkg/deep.py": "from . import base\n", "pkg/base.py": SETS})
    Path("train.py").write_text(text)
    assert must_start_afresh("train.py")


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nfrom pkg import other\n",
        'import os\nos.environ["HOME"]\nos.environ["WANDB_MODE"] = "off"\n',
        "import missing, .\n",
        "# the environment has OMP_NUM_THREADS\n",
    ],
)
def test_others_set_none(project: Project, text: str) -> None:
    project(**{"options.py": SETS, "pkg/__init__.py": "", "pkg/other.py": "import pkg, other, train\n"})
    Path("train.py").write_text(text)
    assert not must_start_afresh("train.py")
    assert not must_start_afresh("not_there.py")


def test_own_modules_that_are_named_as_libraries_are_imported_afresh(project: Project) -> None:
    project(**{"train.py": "import profile\nimport packaging\n", "src/packaging/__init__.py": ""})
    assert not must_start_afresh("train.py")
    Path("train.py").write_text('import sys\nsys.path.insert(0, "src")\nimport packaging\n')
    assert must_start_afresh("train.py")
    project(
        **{"train.py": "from models import net\n", "models/__init__.py": "from . import types", "models/types.py": ""}
    )
    assert not must_start_afresh("train.py")
    project(**{"train.py": "import torch\nimport profile\n", "profile.py": ""})
    assert must_start_afresh("train.py")


def test_a_module_finds_the_files_of_its_package(project: Project) -> None:
    root = project(
        **{"app/__init__.py": "", "app/a.py": "from ..app import b\n", "app/b.py": "import app.c", "app/c.py": SETS}
    )
    assert must_start_afresh(str(root / "app/a.py"))


def test_a_program_of_too_many_files_is_taken_to_set_some(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_start, "MOST_FILES", 3)
    project(**{f"m{n}.py": f"import m{n + 1}\n" for n in range(5)})
    assert must_start_afresh("m0.py")
    assert not must_start_afresh("m3.py")
