"""PA101 and PA102 in files that only evaluate: information where a whole set of files is read on a GPU, else a hint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

PHOTOS = """
from PIL import Image
from torch.utils.data import Dataset

class Photos(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __getitem__(self, index):
        return self.transform(Image.open(self.paths[index]))
"""
EVALUATION = """
import torch
from photos import Photos
from torch.utils.data import DataLoader, Subset

def main(model, args):
    photos = Photos(args.paths)
    loader = DataLoader(photos, batch_size=args.batch_size)
    model.cuda().eval()
    with torch.no_grad():
        for images in loader:
            scores = model(images.cuda())

main(load(), parse())
"""
FIRST_ALONE = """
import torch
from photos import Photos
from torch.utils.data import DataLoader

class Evaluation:
    def __init__(self, paths, size):
        self.loader = DataLoader(Photos(paths), batch_size=size)
        self.model = load().cuda().eval()

    def run(self):
        with torch.no_grad():
            images = next(iter(self.loader))
            return self.model(images.cuda())

Evaluation(parse().paths, parse().size).run()
"""
TIMED = (
    "for images in loader:",
    """for turn, images in tqdm(enumerate(loader)):
            if turn >= 300:
                break""",
)
OPENED = "self.transform(Image.open(self.paths[index]))"
BEFORE = f"""# was: {OPENED}
        return augment(self.images[index])"""
ONCE = """if self.images is None:
            self.fill()
        return augment(self.images[index])

    def fill(self):
        self.images = [Image.open(path) for path in self.paths]"""
KEPT = f"""if index in self.images:
            return self.images[index]
        return {OPENED}"""
TWO_KINDS = """path = self.paths[index]
        if path.endswith(".npy"):
            image = np.load(path)
        elif path.endswith(".png"):
            image = Image.open(path)
        else:
            raise ValueError(path)
        return self.transform(image)"""
ON_HOST = (
    """    model.cuda().eval()
    with torch.no_grad():
        for images in loader:
            scores = model(images.cuda())""",
    """    model = torch.load(args.checkpoint, map_location="cuda").cpu().eval()
    with torch.no_grad():
        for images in loader:
            scores = model(images)""",
)
ELSEWHERE = """
from photos import Photos
from torch.utils.data import DataLoader
from scores import write_scores

write_scores(load().cuda().eval(), DataLoader(Photos(parse().paths), batch_size=parse().size))
"""
PICTURE = """
    def picture(self, index):
        return self.transform(Image.open(self.paths[index]))
"""


@pytest.mark.parametrize(
    ("photos", "evaluation", "severity"),
    [
        (PHOTOS, EVALUATION, "info"),
        (PHOTOS, EVALUATION.replace("DataLoader(photos", "DataLoader(Subset(photos, range(8))"), "hint"),
        (PHOTOS, EVALUATION.replace("DataLoader(photos", "DataLoader(Subset(photos, few)"), "hint"),
        (
            PHOTOS,
            EVALUATION.replace("DataLoader(photos", "DataLoader(Subset(photos, list(range(photos.count)))"),
            "info",
        ),
        (PHOTOS, EVALUATION.replace("DataLoader(photos", "DataLoader(Subset(photos, range(len(photos) - 8))"), "hint"),
        (PHOTOS, EVALUATION.replace("for images", "for photos").replace("images.cuda", "photos.cuda"), "info"),
        (PHOTOS, EVALUATION.replace("    loader", "    if args.few: photos = photos.few()\n    loader"), "hint"),
        (PHOTOS, EVALUATION.replace("batch_size=args.batch_size", "batch_size=1"), "hint"),
        (PHOTOS, EVALUATION.replace(", batch_size=args.batch_size", ""), "hint"),  # which is one
        (PHOTOS, EVALUATION.replace(".cuda()", ""), "hint"),
        (PHOTOS, EVALUATION.replace("images.cuda()", "images"), "info"),  # the model is moved
        (PHOTOS, EVALUATION.replace("main(model, args):", "main(args):").replace(*ON_HOST), "hint"),
        (PHOTOS, ELSEWHERE, "hint"),
        (PHOTOS, EVALUATION.replace("scores =", "plt.imshow(images[0]); scores ="), "hint"),  # takes longer
        (PHOTOS, EVALUATION.replace("Photos(args.paths)", "build(args.paths)"), "hint"),
        (PHOTOS.replace("Image.open(self.paths[index])", "self.images[index]"), EVALUATION, "hint"),
        (PHOTOS, FIRST_ALONE, "hint"),
        (PHOTOS.replace(f"return {OPENED}", BEFORE), EVALUATION, "hint"),
        (PHOTOS.replace(f"return {OPENED}", ONCE), EVALUATION, "hint"),
        (PHOTOS.replace(f"return {OPENED}", KEPT), EVALUATION, "hint"),
        (PHOTOS.replace(f"return {OPENED}", TWO_KINDS), EVALUATION, "info"),
        (
            PHOTOS.replace(f"return {OPENED}", TWO_KINDS.replace("np.load(path)", "self.arrays[path]")),
            EVALUATION,
            "hint",
        ),
        (
            PHOTOS.replace("self.transform(Image.open(self.paths[index]))", "self.picture(index)") + PICTURE,
            EVALUATION,
            "info",
        ),
        (
            PHOTOS.replace("self.transform(Image.open(self.paths[index]))", "self.pictures[index]") + PICTURE,
            EVALUATION,
            "hint",
        ),
        (PHOTOS, EVALUATION.replace(*TIMED).replace("import torch\n", "import torch\nfrom tqdm import tqdm\n"), "hint"),
        (
            PHOTOS,
            EVALUATION.replace("scores = model(images.cuda())", "model(images.cuda()).sum().backward()"),
            "warning",
        ),
    ],
)
def test_severity_of_a_loader_that_only_evaluates(
    project: Callable[..., Path], photos: str, evaluation: str, severity: str
) -> None:
    folder = project(**{"photos.py": photos, "evaluate.py": evaluation})
    path = folder / "evaluate.py"
    neighbours = Project(sorted(folder.rglob("*.py"))).seen_from(path)
    found = run_checks(Source("evaluate.py", evaluation, neighbours), all_rules(), frozenset(["PA101"]))
    assert [finding.severity for finding in found] == [severity]


def test_the_message_speaks_of_no_training(project: Callable[..., Path]) -> None:
    folder = project(**{"photos.py": PHOTOS, "evaluate.py": EVALUATION})
    neighbours = Project(sorted(folder.rglob("*.py"))).seen_from(folder / "evaluate.py")
    (found,) = run_checks(Source("evaluate.py", EVALUATION, neighbours), all_rules(), frozenset(["PA101"]))
    assert found.message == (
        "`DataLoader` without `num_workers` reads the files of every batch in the evaluating process, while the device waits"
    )


@pytest.mark.parametrize(
    ("changed", "severity"),
    [
        (("batch_size=args.batch_size", "batch_size=args.batch_size, num_workers=4"), "info"),
        (("batch_size=args.batch_size", "batch_size=1, num_workers=4"), "hint"),
        (("photos, batch_size=args.batch_size", "Subset(photos, range(8)), batch_size=4, num_workers=4"), "hint"),
        (("photos, batch_size=args.batch_size", "build(args), batch_size=args.batch_size, num_workers=4"), "hint"),
        (("", ""), "hint"),  # the evaluating process would pin
    ],
)
def test_severity_of_pageable_batches_of_an_evaluation(
    project: Callable[..., Path], changed: tuple[str, str], severity: str
) -> None:
    evaluation = EVALUATION.replace(*changed)
    folder = project(**{"photos.py": PHOTOS, "evaluate.py": evaluation})
    neighbours = Project(sorted(folder.rglob("*.py"))).seen_from(folder / "evaluate.py")
    found = run_checks(Source("evaluate.py", evaluation, neighbours), all_rules(), frozenset(["PA102"]))
    assert [finding.severity for finding in found] == [severity]


def test_methods_that_call_each_other_are_asked_once(project: Callable[..., Path]) -> None:
    names = [f"step{n}" for n in range(40)]
    calls = "; ".join(f"self.{name}(index)" for name in names)
    methods = "".join(f"\n    def {name}(self, index):\n        {calls}\n" for name in names)
    photos = PHOTOS.replace(f"return {OPENED}", f"{calls}; return self.images[index]") + methods
    folder = project(**{"photos.py": photos, "evaluate.py": EVALUATION})
    neighbours = Project(sorted(folder.rglob("*.py"))).seen_from(folder / "evaluate.py")
    found = run_checks(Source("evaluate.py", EVALUATION, neighbours), all_rules(), frozenset(["PA101"]))
    assert [finding.severity for finding in found] == ["hint"]
