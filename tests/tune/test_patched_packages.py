"""What runs in a child is the patched text, however the user's code is laid out and found; and nothing on disk changes."""

from __future__ import annotations

import hashlib
import json
import os
import py_compile
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfaudit.knobs import Survey, knob
from perfaudit.knobs._code import Code
from perfaudit.measure.child import Child, ChildFailed
from perfaudit.measure.facts import Facts, from_json
from perfaudit.measure.ledger import Variant
from perfaudit.measure.watch import Watch
from perfaudit.static.source import decode_source
from perfaudit.target.names import parse
from perfaudit.tune.workshop import Children

pytestmark = pytest.mark.slow

Project = Callable[..., Path]
Json = dict[str, Any]  # Any: nested JSON

LOADER = """
def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 3)), batch_size=4)
"""
HEAD = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n"
STEP = "\ndef training_step(model, batch):\n    return model(batch[0]).square().mean()\n"
REST = LOADER + STEP
NETS = "from torch import nn\n\nWIDTH = 3\n\ndef net():\n    return nn.Linear(4, WIDTH)\n"
USES = "\ndef build_model():\n    return net()\n" + REST


def facts_of(target: str, overlay: dict[str, str] | None = None) -> Facts:
    """What a child says of the training it built, after it has made a step."""
    return from_json(replies(target, overlay, {"do": "block", "steps": 1})[0])


def replies(target: str, overlay: dict[str, str] | None, *commands: Json) -> list[Json]:
    children = Children(parse(target), "cpu", Watch(), 60.0)
    return children.ask(Variant("one", "", {}, overlay or {}), *commands)


def changed(folder: Path, path: str, old: str, new: str) -> dict[str, str]:
    """A file's text with one thing replaced, as an overlay."""
    text, _ = decode_source((folder / path).read_bytes())
    assert text.count(old) == 1, (path, old)
    return {path: text.replace(old, new)}


def disk(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Every row: files, the target, the patch (file, old, new), and how many parameters the model has with it; 15 without.
LAYOUTS = {
    "a module beside the target": (
        {"train.py": HEAD + "from nets import net\n" + USES, "nets.py": NETS},
        "train.py", ("nets.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "the target itself": (
        {"train.py": HEAD + NETS + USES}, "train.py", ("train.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "relative imports, a submodule": (
        {"pkg/__init__.py": "", "pkg/nets.py": NETS, "pkg/train.py": HEAD + "from .nets import net\n" + USES},
        "pkg/train.py", ("pkg/nets.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "relative imports, __init__.py": (
        {"pkg/__init__.py": NETS, "pkg/sub/__init__.py": "",
         "pkg/sub/train.py": HEAD + "from .. import net\n" + USES},
        "pkg/sub/train.py", ("pkg/__init__.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "the target is an __init__.py": (
        {"pkg/__init__.py": HEAD + "from .nets import net\n" + USES, "pkg/nets.py": NETS},
        "pkg/__init__.py", ("pkg/nets.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "a dotted name, as python -m takes it": (
        {"pkg/__init__.py": "", "pkg/nets.py": NETS, "pkg/train.py": HEAD + "from pkg.nets import net\n" + USES},
        "pkg.train", ("pkg/nets.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "a namespace package, relative": (
        {"space/lib/nets.py": NETS, "space/run/train.py": HEAD + "from ..lib.nets import net\n" + USES},
        "space/run/train.py", ("space/lib/nets.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "a namespace package, absolute from the working directory": (
        {"space/lib/nets.py": NETS, "space/train.py": HEAD + "from space.lib.nets import net\n" + USES},
        "space.train", ("space/lib/nets.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "src layout": (
        {"src/proj/__init__.py": "", "src/proj/nets.py": NETS,
         "src/proj/train.py": HEAD + "from proj.nets import net\n" + USES},
        "src/proj/train.py", ("src/proj/nets.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "a file whose name is no module's": (
        {"my-train.py": HEAD + NETS + USES}, "my-train.py", ("my-train.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "a file named as a module of the standard library": (
        {"profile.py": HEAD + NETS + USES}, "profile.py", ("profile.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "one module under two names": (
        {"src/nets.py": NETS, "src/train.py": HEAD + "import nets\nimport src.nets as again\n"
         "def build_model():\n    assert again is not nets\n"
         "    return nn.ModuleList([nets.net(), again.net()])[1]\n" + REST},
        "src/train.py", ("src/nets.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "importlib.reload": (
        {"train.py": HEAD + "import importlib\nimport nets\nimportlib.reload(nets)\nnet = nets.net\n" + USES, "nets.py": NETS},
        "train.py", ("nets.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "the user's own spec_from_file_location": (
        {"train.py": HEAD + "import importlib.util\n"
         "spec = importlib.util.spec_from_file_location('config', 'configs/wide.py')\n"
         "config = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(config)\nnet = config.net\n" + USES,
         "configs/wide.py": NETS},
        "train.py", ("configs/wide.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "runpy, and a __main__ guard": (
        {"train.py": HEAD + NETS + USES + "\nif __name__ == '__main__':\n    raise SystemExit('trained')\n"},
        "train.py", ("train.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "data beside the module": (
        {"pkg/__init__.py": "", "pkg/width.txt": "3", "pkg/train.py": HEAD
         + "from pathlib import Path\nimport pkgutil\nWIDTH = int((Path(__file__).parent / 'width.txt').read_text())\n"
         "assert pkgutil.get_data('pkg', 'width.txt') == b'3'\n"
         "def net():\n    return nn.Linear(4, WIDTH)\n" + USES},
        "pkg/train.py", ("pkg/train.py", "Linear(4, WIDTH)", "Linear(4, WIDTH + 2)"), 25,
    ),
    "decorated factories": (
        {"train.py": HEAD + "import functools\n"
         "def counted(f):\n    @functools.wraps(f)\n    def inner(*args):\n        inner.calls += 1\n"
         "        return f(*args)\n    inner.calls = 0\n    return inner\n"
         "WIDTH = 3\n@counted\ndef build_model():\n    return nn.Linear(4, WIDTH)\n" + LOADER
         + STEP.replace("def ", "@counted\ndef ")},
        "train.py", ("train.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "a dataclass config": (
        {"train.py": "from __future__ import annotations\n" + HEAD + "import dataclasses\nimport sys\nimport typing\n"
         "@dataclasses.dataclass\nclass Config:\n    width: int = 3\n    kind: typing.ClassVar[str] = 'mlp'\n"
         "def build_model():\n    assert [f.name for f in dataclasses.fields(Config)] == ['width']\n"
         "    assert typing.get_type_hints(Config, vars(sys.modules[Config.__module__]))['width'] is int\n"
         "    return nn.Linear(4, Config().width)\n" + REST},
        "train.py", ("train.py", "width: int = 3", "width: int = 5"), 25,
    ),
    "a factory called twice": (
        {"train.py": HEAD + "def build_model():\n    return nn.Linear(4, 3)\n"
         "def build_ema(model):\n    teacher = build_model()\n    assert teacher.weight.shape == model.weight.shape\n"
         "    class Ema:\n        def update(self):\n            teacher.weight.data.lerp_(model.weight.data, 0.1)\n"
         "    return Ema()\n" + REST},
        "train.py", ("train.py", "Linear(4, 3)", "Linear(4, 5)"), 25,
    ),
    "a model built by exec": (
        {"train.py": HEAD + "WIDTH = 3\ndef build_model():\n    names = {'nn': nn}\n"
         "    exec(f'model = nn.Linear(4, {WIDTH})', names)\n    return names['model']\n" + REST},
        "train.py", ("train.py", "WIDTH = 3", "WIDTH = 5"), 25,
    ),
    "a class defined in one file and patched in another": (
        {"train.py": HEAD + "import nets, wider\n" + "def build_model():\n    return nets.Net()\n" + REST,
         "nets.py": "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self):\n        super().__init__(4, 3)\n",
         "wider.py": "import nets\nfrom torch import nn\ndef start(self):\n    nn.Linear.__init__(self, 4, 3)\n"
         "nets.Net.__init__ = start\n"},
        "train.py", ("wider.py", "4, 3", "4, 5"), 25,
    ),
    "a source in latin-1": (
        {"train.py": HEAD + "from nets import net\n" + USES, "nets.py": "# -*- coding: latin-1 -*-\nNAME = 'größe'\n" + NETS},
        "train.py", ("nets.py", "WIDTH = 3", "WIDTH = 3 + (len(NAME) == 5) * 2"), 25,
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_patched_text_is_what_runs(project: Project, layout: str) -> None:
    files, target, (path, old, new), parameters = LAYOUTS[layout]
    folder = project(**files)
    if "latin-1" in layout:
        (folder / path).write_text((folder / path).read_text(), encoding="latin-1")
    before = disk(folder)
    assert facts_of(target).model.parameters == 15
    assert facts_of(target, changed(folder, path, old, new)).model.parameters == parameters
    assert disk(folder) == before


def test_two_patches_of_one_class_run_together(project: Project) -> None:
    net = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a = nn.Linear(4, 4)\n        self.b = nn.Linear(4, 3)\n"
        "    def forward(self, x):\n        return self.b(self.a(x))\n"
    )
    folder = project(**{"train.py": HEAD + net + "def build_model():\n    return Net()\n" + REST})
    text = (folder / "train.py").read_text()
    both = text.replace("Linear(4, 4)", "Linear(4, 4, bias=False)").replace("Linear(4, 3)", "Linear(4, 3, bias=False)")
    assert facts_of("train.py").model.parameters == 35
    assert facts_of("train.py", {"train.py": both}).model.parameters == 28


@pytest.mark.parametrize(
    "mode", [py_compile.PycInvalidationMode.TIMESTAMP, py_compile.PycInvalidationMode.UNCHECKED_HASH]
)
def test_byte_code_of_the_original_is_neither_used_nor_replaced(
    project: Project, mode: py_compile.PycInvalidationMode
) -> None:
    folder = project(**{"train.py": HEAD + "from nets import net\n" + USES, "nets.py": NETS})
    for name in ("train", "nets"):
        assert py_compile.compile(str(folder / f"{name}.py"), invalidation_mode=mode) is not None
    before = disk(folder)
    assert facts_of("train.py", changed(folder, "nets.py", "WIDTH = 3", "WIDTH = 5")).model.parameters == 25
    assert disk(folder) == before
    assert facts_of("train.py").model.parameters == 15


def test_byte_code_of_another_text_is_not_run_for_the_text_that_is_read(project: Project) -> None:
    folder = project(**{"train.py": HEAD + "from nets import net\n" + USES, "nets.py": NETS.replace("3", "9")})
    py_compile.compile(str(folder / "nets.py"), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    (folder / "nets.py").write_text(NETS)
    assert facts_of("train.py").model.parameters == 15


def test_digests_are_those_of_what_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fresh interpreter, because nothing takes the patched imports back."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"a.py": "import b", "b.py": "\ufeffx = 1\n", "c.py": "import a"}.items():
        Path(name).write_text(text, encoding="utf-8")
    script = (
        "import sys, json\nfrom perfaudit.target import overlay\noverlay.install({'b.py': 'x = 2\\n', 'unused.py': ''})\n"
        "sys.path.insert(0, '.')\nimport a, b\nassert b.x == 2\nprint(json.dumps(overlay.digests()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    written = {"a.py": b"import b", "b.py": "\ufeffx = 2\n".encode()}
    wanted = {os.path.realpath(name): hashlib.sha256(data).hexdigest() for name, data in written.items()}
    assert json.loads(done.stdout) == wanted


def test_a_folder_reached_through_a_link_is_patched_and_shown_patched(project: Project) -> None:
    check = "import inspect\nassert WIDTH == int(inspect.getsource(net)[-2])\n"
    linked = "import sys\nsys.path.insert(0, 'linked')\nfrom nets import net\n"
    nets = NETS.replace("Linear(4, WIDTH)", "Linear(4, WIDTH)  # 3") + check
    folder = project(**{"real/nets.py": nets, "train.py": HEAD + linked + USES})
    (folder / "linked").symlink_to(folder / "real")
    patched = (folder / "real/nets.py").read_text().replace("WIDTH = 3", "WIDTH = 5").replace("# 3", "# 5")
    assert facts_of("train.py", {"real/nets.py": patched}).model.parameters == 25


@pytest.mark.parametrize(
    "look",
    [
        "import inspect\nassert inspect.getsource(double) == 'def double(x):\\n    return x * 3\\n', inspect.getsource(double)\n",
        "assert torch.jit.script(double)(torch.ones(())) == 3\n",
        "assert torch.compile(double, backend='eager')(torch.ones(())) == 3\n",
        "import linecache\nlinecache.checkcache()\nassert 'x *' ' 3' in ''.join(linecache.getlines(__file__))\n",
        "assert b'x *' b' 3' in __loader__.get_data(__file__) and 'x *' ' 3' in __loader__.get_source(__name__)\n",
    ],
    ids=["inspect", "script", "compile", "linecache", "loader"],
)
@pytest.mark.parametrize("above", ["", "# a form feed\f is no end of line\n\f\n"], ids=["", "after a form feed"])
@pytest.mark.filterwarnings("ignore")
def test_whoever_reads_the_source_sees_the_patched_text(project: Project, look: str, above: str) -> None:
    text = (
        HEAD
        + "def build_model():\n    return nn.Linear(4, 3)\n"
        + REST
        + above
        + "def double(x):\n    return x * 2\n\n"
    )
    folder = project(**{"train.py": text})
    (folder / "train.py").write_text(text + look)
    with pytest.raises(ChildFailed, match=r"train\.py does not import"):
        facts_of("train.py")
    facts_of("train.py", changed(folder, "train.py", "x * 2", "x * 3"))


def test_two_loaders_from_one_line_are_told_apart(project: Project) -> None:
    loaders = (
        "def build_dataloader():\n    data = TensorDataset(torch.randn(16, 4))\n"
        "    train, test = DataLoader(data, 4), DataLoader(data, 8)\n    return test\n"
    )
    folder = project(**{"train.py": HEAD + "def build_model():\n    return nn.Linear(4, 3)\n" + loaders + STEP})
    facts = facts_of("train.py")
    found = Code("train.py", Survey(facts)).call(facts.loader.site)
    assert found is not None and found[0].text_of(found[1]) == "DataLoader(data, 8)"
    patched = changed(folder, "train.py", "DataLoader(data, 8)", "DataLoader(data, 2)")
    assert facts_of("train.py", patched).loader.epoch_batches == 8


def test_a_loader_from_exec_has_no_line_that_could_be_patched(project: Project) -> None:
    built = (
        "def build_dataloader():\n    names = dict(globals())\n"
        "    exec('loader = DataLoader(TensorDataset(torch.randn(16, 4)), 4)', names)\n    return names['loader']\n"
    )
    project(**{"train.py": HEAD + "def build_model():\n    return nn.Linear(4, 3)\n" + built + STEP})
    facts = facts_of("train.py")
    assert Code("train.py", Survey(facts)).call(facts.loader.site) is None


def test_code_in_a_zip_file_is_run_and_not_patched(project: Project) -> None:
    loaders = NETS + "from torch.utils.data import DataLoader\n\ndef loader(data):\n    return DataLoader(data, 4)\n"
    files = "import sys\nsys.path.insert(0, 'lib.zip')\nfrom nets import net, loader\n"
    rows = "def build_dataloader():\n    return loader(TensorDataset(torch.randn(16, 4)))\n"
    folder = project(**{"train.py": HEAD + files + "def build_model():\n    return net()\n" + rows + STEP})
    with zipfile.ZipFile(folder / "lib.zip", "w") as archive:
        archive.writestr("nets.py", loaders)
    facts = facts_of("train.py")
    assert (facts.model.parameters, facts.loader.epoch_batches) == (15, 4)
    assert Code("train.py", Survey(facts)).source("lib.zip/nets.py") is None
    found = Code("train.py", Survey(facts)).call(facts.loader.site)
    assert found is None or found[0].text_of(found[1]) != "DataLoader(data, 4)"


DATASET = """
import torch
from torch.utils.data import DataLoader, Dataset
from torch import nn

class Rows(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.full((4,), 1.0)
"""
SPAWNING = """
def build_model():
    return nn.Linear(4, 3)

def build_dataloader():
    return DataLoader(Rows(), batch_size=4, num_workers=1, multiprocessing_context="{method}")

def training_step(model, batch):
    return model(batch).mean() * 0 + batch.mean()
"""


@pytest.mark.parametrize(
    ("target", "rows", "method"),
    [
        ("train.py", "train.py", "fork"),
        ("train.py", "train.py", "spawn"),
        ("train.py", "rows.py", "spawn"),
        ("pkg/train.py", "pkg/rows.py", "fork"),
        ("pkg/train.py", "pkg/rows.py", "spawn"),
        ("pkg/train.py", "pkg/rows.py", "forkserver"),
        ("my-train.py", "my-train.py", "spawn"),
        ("my-train.py", "my-train.py", "forkserver"),
    ],
)
def test_workers_load_with_the_patched_text(project: Project, method: str, target: str, rows: str) -> None:
    head = DATASET if target == rows else HEAD + f"from {'.' * ('/' in rows)}rows import Rows\n"
    files = {target: head + SPAWNING.format(method=method)}
    if target != rows:
        files[rows] = DATASET
    if "/" in rows:
        files["pkg/__init__.py"] = ""
    folder = project(**files)
    losses = {"do": "losses", "steps": 1, "seed": 0}
    assert loss(replies(target, None, losses)) == 1.0
    assert loss(replies(target, changed(folder, rows, "(4,), 1.0", "(4,), 7.0"), losses)) == 7.0


def loss(said: list[Json]) -> float:
    return float.fromhex(said[1]["losses"][0])


def test_one_file_asked_for_two_factories_is_imported_once(project: Project) -> None:
    start = "import os\nwith open('imports', 'a') as log:\n    log.write('x')\n"
    project(**{"train.py": start + HEAD + NETS + USES, "other/train.py": start + HEAD + LOADER})
    command = {"do": "build", "target": {"file": "train.py", "names": {"model": "train.py:net",
               "dataloader": "other/train.py:build_dataloader", "step": "./train.py:training_step"}},
               "overlay": {}, "knob": "", "settings": {}, "device": "cpu"}  # fmt: skip
    with Child() as child:
        assert child.ask(command, 60.0)["loader"]["epoch_batches"] == 4
    assert Path("imports").read_text() == "xx"


def test_a_package_whose_name_is_taken_is_refused_and_not_mistaken(project: Project) -> None:
    project(**{"json/__init__.py": HEAD + NETS + USES})
    with pytest.raises(ChildFailed, match=r"json/__init__.py: its name json stands for .*json/__init__.py already"):
        facts_of("json/__init__.py")


def test_a_patched_text_that_does_not_compile_is_told_at_its_line(project: Project) -> None:
    folder = project(**{"train.py": HEAD + "from nets import net\n" + USES, "nets.py": NETS})
    with pytest.raises(ChildFailed, match=r"train.py does not import: SyntaxError: .* \(nets.py:3\)"):
        facts_of("train.py", changed(folder, "nets.py", "WIDTH = 3", "WIDTH = = 3"))


def test_a_file_that_changed_since_the_child_ran_it_is_not_edited(project: Project) -> None:
    folder = project(**{"train.py": HEAD + NETS + USES})
    facts = facts_of("train.py")
    path = os.path.realpath(folder / "train.py")
    facts = replace(facts, digests={path: hashlib.sha256((folder / "train.py").read_bytes()).hexdigest()})
    assert Code("train.py", Survey(facts)).call(facts.loader.site) is not None
    (folder / "train.py").write_text((folder / "train.py").read_text().replace("batch_size=4", "batch_size=8"))
    assert Code("train.py", Survey(facts)).call(facts.loader.site) is None
    assert Code("train.py", Survey(facts)).factory("model") is None


TOP_LEVEL_FACTORIES = "def build_model():\n    return net\ndef build_dataloader():\n    return train_loader\n"
TOP_LEVEL = (
    HEAD + "rows = TensorDataset(torch.randn(16, 4))\ntrain_loader = DataLoader(rows, 4)\nnet = nn.Linear(4, 3)\n"
    "optimizer = torch.optim.Adam(net.parameters())\n" + TOP_LEVEL_FACTORIES
    + "def build_optimizer(model):\n    return optimizer\n" + STEP
)  # fmt: skip
EARLY = "import os\nos.environ['OMP_NUM_THREADS'] = '1'\n"  # has the child import torch after this file
TWO_WORKERS = {"num_workers": 2, "pin_memory": False, "prefetch_factor": 2, "persistent_workers": False}


def test_a_loader_and_an_optimizer_from_the_top_level_have_their_line_and_take_settings(project: Project) -> None:
    project(**{"train.py": TOP_LEVEL})
    facts = facts_of("train.py")
    code = Code("train.py", Survey(facts))
    for site, text in (
        (facts.loader.site, "DataLoader(rows, 4)"),
        (facts.optimizer.site, "torch.optim.Adam(net.parameters())"),
    ):
        found = code.call(site)
        assert found is not None and found[0].text_of(found[1]) == text
    assert set_up("dataloader", TWO_WORKERS)["loader"]["num_workers"] == 2
    assert set_up("optimizer", {"update": "fused"})["optimizer"]["fused"] is True


def test_a_setting_that_cannot_take_effect_is_refused_and_not_measured(project: Project) -> None:
    project(**{"train.py": EARLY + TOP_LEVEL})
    with pytest.raises(ChildFailed, match="the optimizer has fused=None and cannot be built with True"):
        set_up("optimizer", {"update": "fused"})
    project(**{"train.py": EARLY + TOP_LEVEL[: TOP_LEVEL.index("optimizer =")] + TOP_LEVEL_FACTORIES + STEP})
    assert facts_of("train.py").loader.num_workers == 0
    why = "the DataLoader has num_workers=0 and cannot be built with 2: .* in the loader factory"
    with pytest.raises(ChildFailed, match=why):
        set_up("dataloader", TWO_WORKERS)


def set_up(name: str, settings: Json) -> Json:
    """What a child says of the training that it built with a knob's setting."""
    variant = Variant("one", name, settings, applied=knob(name).found_at)
    return Children(parse("train.py"), "cpu", Watch(), 60.0).ask(variant)[0]
