"""PA104 of batches that a training loop asks an iterator for, and whether its copies may pass it by."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source


def told(folder: Path, files: dict[str, str], name: str) -> list[str]:
    """The lines of PA104's findings in one of these files."""
    for file, text in files.items():
        (folder / file).write_text(textwrap.dedent(text))
    source = Source(name, textwrap.dedent(files[name]), Project(sorted(folder.glob("*.py"))).seen_from(folder / name))
    found = run_checks(source, all_rules(), frozenset(["PA104"]))
    return [source.lines[f.location.line - 1].strip() for f in found if f.location]


SCRIPT = """
    from torch.utils.data import DataLoader
    from adapt import train

    train(
        Net().cuda(),
        DataLoader(Streets(), 4, pin_memory=True),
        DataLoader(Towns(), 4, pin_memory=True),
    )
"""
ADAPT = """
    import torch

    def draw(writer, shown, step):
        writer.add_image("input", shown[:3].clone().cpu(), step)

    def train(model, first, second):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        firsts, seconds = enumerate(first), enumerate(second)
        for step in range(100000):
            optimizer.zero_grad()
            _, batch = firsts.__next__()
            images, labels, _ = batch
            loss = model(images.cuda()).mean()
            loss.backward()
            _, batch = seconds.__next__()
            others, _, _ = batch
            model(others.cuda()).mean().backward()
            optimizer.step()
            draw(writer, images, step)
"""


@pytest.mark.parametrize(
    ("adapt", "script", "count"),
    [
        (ADAPT, SCRIPT, 2),
        (ADAPT.replace("enumerate(", "iter(").replace("_, batch =", "batch ="), SCRIPT, 2),
        (ADAPT.replace("firsts.__next__()", "next(firsts)").replace("seconds.__next__()", "next(seconds)"), SCRIPT, 2),
        (ADAPT, SCRIPT.replace("Towns(), 4, pin_memory=True", "Towns(), 4"), 0),
        (ADAPT.replace("shown[:3]", "shown[:3].mul_(255)").replace("others.cuda()", "others"), SCRIPT, 0),
        (
            ADAPT.replace("draw(writer, images, step)", "painter.draw(images)").replace("others.cuda()", "others"),
            SCRIPT,
            0,
        ),
        (ADAPT.replace("enumerate(first)", "shuffled(first)").replace("others.cuda()", "others"), SCRIPT, 0),
    ],
)
def test_an_iterator_over_a_loader_that_another_file_hands_in(
    tmp_path: Path, adapt: str, script: str, count: int
) -> None:
    assert len(told(tmp_path, {"adapt.py": adapt, "main.py": script}, "adapt.py")) == count


KEPT = """
    import torch
    from torch.utils.data import DataLoader

    def cycled(loader):
        while True:
            for batch in loader:
                yield batch

    class Trainer:
        def __init__(self, model, photos):
            self.model = model.cuda()
            self.optimizer = torch.optim.Adam(model.parameters())
            self.batches = cycled(DataLoader(photos, 16, pin_memory=True))

        def train(self):
            for step in range(100000):
                x = next(self.batches).cuda()
                self.model(x).mean().backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("kept", "is_told"),
    [
        (KEPT, True),
        (KEPT.replace(", pin_memory=True", ""), False),
        (KEPT.replace("yield batch", "yield batch * 2 - 1"), False),
    ],
)
def test_an_iterator_that_an_object_keeps(tmp_path: Path, kept: str, is_told: bool) -> None:
    assert told(tmp_path, {"kept.py": kept}, "kept.py") == (["x = next(self.batches).cuda()"] if is_told else [])


COLLATED = """
    import torch
    from torch.utils.data import DataLoader

    def join(batch):
        images, boxes = [], []
        for image, box in batch:
            images.append(image)
            boxes.append(torch.FloatTensor(box))
        return torch.stack(images, 0), boxes

    for images, boxes in DataLoader(streets, 4, collate_fn=join, pin_memory=True):
        images = images.cuda() if on_gpu else show(images)
        boxes = [box.cuda() for box in boxes] if on_gpu else [box for box in boxes]
        loss = criterion(model(images), boxes)
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("text", "copies"),
    [
        (COLLATED, "`images.cuda()` and 1 more:"),
        (COLLATED.replace("torch.FloatTensor(box)", "Boxes(box)"), "`images.cuda()`:"),  # may have a `cuda` of its own
        (COLLATED.replace("boxes.append(", "boxes.extend("), "`images.cuda()`:"),
        (COLLATED.replace("images.cuda() if on_gpu else show(images)", "show(images).cuda()"), "`box.cuda()`:"),
    ],
)
def test_a_list_of_tensors_and_a_copy_under_a_condition(text: str, copies: str) -> None:
    (found,) = run_checks(Source("a.py", textwrap.dedent(text)), all_rules(), frozenset(["PA104"]))
    assert found.message.startswith(copies)
