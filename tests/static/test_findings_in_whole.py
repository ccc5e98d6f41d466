"""Findings as they are told, whole: message, places, fix and heat; and texts that are just not one."""

from __future__ import annotations

import pytest

from perfaudit.rules import all_rules
from perfaudit.static import edit
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

Told = tuple[int, list[int], str, str, tuple[str, ...], bool, bool]


def told(rule: str, text: str) -> list[Told]:
    """Line, other places, message, title of the fix, what it changes, whether it is written, whether it runs every step."""
    found = run_checks(Source("t.py", text), all_rules(), frozenset([rule]))
    return [
        (f.location.line, [p.line for p in f.places], f.message, f.fix.title, f.fix.changes, bool(f.fix.edits), f.hot)
        for f in found
        if f.location is not None and f.fix is not None
    ]


STORE = "store the score of every pair of positions, and keep it for backward"
ATTEND = """import torch.nn.functional as F
from torch import nn

class A(nn.Module):
    def forward(self, q, k, v):
        s = {scores}
        w = F.softmax(s, dim=-1)
        return {output}
"""


@pytest.mark.parametrize(
    ("text", "output", "title", "changes", "is_written"),
    [
        (
            ATTEND.format(scores="q @ k.transpose(-2, -1)", output="w @ v"),
            "w @ v",
            "compute it in one operator, `F.scaled_dot_product_attention`",
            ("rounding",),
            True,
        ),
        (
            ATTEND.format(scores="q @ k.transpose(-2, -1)", output="F.dropout(w, 0.1, self.training) @ v"),
            "F.dropout(w, 0.1, self.training) @ v",
            "compute it in one operator, `F.scaled_dot_product_attention`",
            ("rounding", "rng"),
            True,
        ),
        (
            ATTEND.format(scores="q @ k.transpose(-2, -1) * self.scale + bias", output="w @ v"),
            "w @ v",
            "compute it in one operator, `F.scaled_dot_product_attention(q, k, v, attn_mask=..., scale=...)`, with axes "
            "(..., positions, width); a boolean attn_mask is True where a position is seen",
            (),
            False,
        ),
        (
            ATTEND.format(scores="torch.bmm(q, k.transpose(1, 2).contiguous())", output="torch.bmm(w, v)").replace(
                "import torch.nn", "import torch\nimport torch.nn", 1
            ),
            "torch.bmm(w, v)",
            "compute it in one operator, `F.scaled_dot_product_attention(q, k, v, scale=...)`, with axes (batch, heads, "
            "positions, width): give the heads an axis of their own, the fused kernels take four axes only",
            (),
            False,
        ),
    ],
)
def test_attention(text: str, output: str, title: str, changes: tuple[str, ...], is_written: bool) -> None:
    (found,) = told("PA203", text)
    line, places, message, *fix = found
    assert message.endswith(f"a softmax and `{output}` {STORE}")
    assert places == [line + 1, line + 2]
    assert fix == [title, changes, is_written, True]


ADVICE = "compute it in one operator, `F.scaled_dot_product_attention({0}, attn_mask=..., {1}scale=...)`, with axes "


@pytest.mark.parametrize(
    ("values", "called"),
    [
        ("v.transpose(1, 2)", "v"),
        ("v.permute(0, 2, 1, 3)", "v"),
        ("v.swapaxes(1, 2)", "v"),
        ("v.t()", "v"),
        ("v.T", "v"),
        ("v.mT", "v"),
        ("v.transpose(1, 2).contiguous()", "v"),
        ("v.flatten(1, 2)", "v.flatten(1, 2)"),
        ("v.of_the_twenty_four_char", "v.of_the_twenty_four_char"[:23] + "…"),  # of 25
        ("v.of_the_twenty_four_cha", "v.of_the_twenty_four_cha"),
    ],
)
def test_advice_names_what_attention_is_made_of_without_its_turning(values: str, called: str) -> None:
    (found,) = told("PA203", ATTEND.format(scores="q @ k.mT * self.scale + bias", output=f"w @ {values}"))
    assert found[3].startswith(ADVICE.format(f"q, k, {called}", ""))


def test_advice_names_the_dropout_too() -> None:
    text = ATTEND.format(scores="q @ k.mT * self.scale + bias", output="F.dropout(w, 0.1, self.training) @ v")
    assert told("PA203", text)[0][3].startswith(ADVICE.format("q, k, v", "dropout_p=..., "))


GROWS = "`x` grows piece by piece: `torch.{0}` copies the whole tensor again in each turn"
ONCE = "append the pieces to a list and call `torch.{0}` once behind the loop"
LOOP = "import torch\n\ndef f(x, model, loader):\n    for y in {over}:\n        x = {value}\n    return x\n"


@pytest.mark.parametrize(
    ("over", "value", "name"),
    [
        ("loader", "torch.cat([x, y])", "cat"),
        ("loader", "torch.vstack((y, x))", "vstack"),
        ("loader", "torch.hstack((y, x))", "hstack"),
        ("loader", "torch.concatenate((y, x))", "concatenate"),
        ("loader", "torch.cat([x, y, y])", "cat"),
        ("loader", "y if x is None else torch.concat([x, y])", "concat"),
        ("loader", "torch.cat([x, y]) if x is not None else y", "cat"),
        ("range(8)", "torch.cat([x, y])", "cat"),
        ("range(n)", "torch.cat([x, y])", "cat"),
        ("range(0, 8)", "torch.cat([x, y])", "cat"),
        ("range(7, 100)", "torch.cat([x, y])", "cat"),
        ("enumerate(loader)", "torch.cat([x, y])", "cat"),
        ("range(0, 9, 2)", "torch.cat([x, y])", "cat"),
        ("reversed(loader)", "torch.cat([x, y], dim=1)", "cat"),
    ],
)
def test_a_tensor_that_grows(over: str, value: str, name: str) -> None:
    (found,) = told("PA207", LOOP.format(over=over, value=value))
    assert found == (5, [], GROWS.format(name), ONCE.format(name), (), False, False)


@pytest.mark.parametrize(
    ("over", "value"),
    [
        ("range(7)", "torch.cat([x, y])"),
        ("range(0, 7)", "torch.cat([x, y])"),
        ("range(0, 7, 1)", "torch.cat([x, y])"),
        ("[1, 2, 3]", "torch.cat([x, y])"),
        ("enumerate((1, 2))", "torch.cat([x, y])"),
        ("reversed({1, 2})", "torch.cat([x, y])"),
        ("{1: 2}", "torch.cat([x, y])"),
        ("loader", "torch.cat([x])"),  # one piece
        ("loader", "torch.cat([x, x])"),  # doubles
        ("loader", "torch.cat([y, y])"),
        ("loader", "torch.cat(x)"),
        ("loader", "torch.cat([x, y], out=z)"),
        ("loader", "torch.cat([x, y], **options)"),
        ("loader", "z = torch.cat([x, y])"),  # two targets
        ("loader", "model(torch.cat([x, y]))"),
        ("loader", "torch.cat([x, model(x)])"),  # read on every turn
        ("loader", "torch.cat([x, y]) if x else y"),
    ],
)
def test_a_tensor_that_does_not_grow_or_only_a_little(over: str, value: str) -> None:
    assert told("PA207", LOOP.format(over=over, value=value)) == []


def test_a_tensor_that_grows_as_long_as_there_is_more() -> None:
    assert told("PA207", "import torch\n\nwhile more():\n    x = torch.cat([x, y()])\n")


@pytest.mark.parametrize(
    "body",
    [
        "def append(x):\n            x = torch.cat([x, y])",  # another tensor for each call
        "pass\n    else:\n        x = torch.cat([x, x0])",  # once, behind the loop
        "x = torch.cat([x, y])\n        if y.is_last:\n            x = y",  # begun anew
        "if x is None:\n            x = x0(x)\n        else:\n            x = torch.cat([x, y])",
        "if x is None:\n            x += y\n        else:\n            x = torch.cat([x, y])",
        "if x is None:\n            x = z = y\n        else:\n            x = torch.cat([x, y])",
    ],
)
def test_a_tensor_that_does_not_only_grow(body: str) -> None:
    assert (
        told("PA207", f"import torch\n\ndef f(x, x0, loader):\n    for y in loader:\n        {body}\n    return x\n")
        == []
    )


def test_a_tensor_that_grows_in_a_training_loop_is_hot() -> None:
    text = (
        "import torch\nfrom torch.utils.data import DataLoader\n\nloader = DataLoader(d)\nx = torch.empty(0)\n"
        "for y in loader:\n    x = torch.cat([x, y])\n"
    )
    assert [found[-1] for found in told("PA207", text)] == [True]


CHECKPOINT = "from torch.utils.checkpoint import checkpoint, checkpoint_sequential\n\ndef f(x, flag):\n{0}\n"
RECOMPUTES = "recomputes its whole function in backward, in a backward pass of its own"


@pytest.mark.parametrize(
    ("body", "how", "fixed"),
    [
        (
            "    return checkpoint(block, x)",
            "without `use_reentrant`",
            "    return checkpoint(block, x, use_reentrant=False)",
        ),
        (
            "    return checkpoint(block, x, use_reentrant=True)",
            "with `use_reentrant=True`",
            "    return checkpoint(block, x, use_reentrant=False)",
        ),
        ("    use = True\n    return checkpoint(block, x, use_reentrant=use)", "with `use_reentrant=True`", None),
        (
            "    def g():\n        return checkpoint(block, x, use_reentrant=False)\n    return checkpoint(block, x)",
            "without `use_reentrant`",
            "    def g():\n        return checkpoint(block, x, use_reentrant=False)\n"
            "    return checkpoint(block, x, use_reentrant=False)",
        ),
        (
            "    options = {'use_reentrant': True}\n    return checkpoint(block, x, **options)",
            "with `use_reentrant=True`",
            None,  # who else has the dict?
        ),
    ],
)
def test_a_checkpoint(body: str, how: str, fixed: str | None) -> None:
    text = CHECKPOINT.format(body)
    (found,) = run_checks(Source("t.py", text), all_rules(), frozenset(["PA802"]))
    assert found.message == f"`checkpoint` {how} {RECOMPUTES}"
    assert found.fix is not None
    assert found.fix.title == "recompute only what backward needs, without a backward pass inside backward"
    assert (edit.apply(text, found.fix.edits) if found.fix.edits else None) == (fixed and CHECKPOINT.format(fixed))


@pytest.mark.parametrize(
    "body",
    [
        "    if flag:\n        return checkpoint(block, x, use_reentrant=False)\n    return checkpoint(block, x)",
        "    if flag:\n        return checkpoint(block, x, use_reentrant=flag)\n    return checkpoint(block, x)",
        "    return checkpoint(block, x, use_reentrant=flag)",
        "    return checkpoint(block, x, **options)",
        "    return checkpoint(block, x, use_reentrant=None)",
        "    return checkpoint_sequential(layers, 2, x, False)",
    ],
)
def test_a_checkpoint_that_is_left_alone(body: str) -> None:
    assert told("PA802", CHECKPOINT.format(body)) == []


FILLED = "is filled in one dtype and converted by a second kernel"
FORWARD = "import torch\n\ndef forward(x):\n    return x + {0}\n"


@pytest.mark.parametrize(
    ("built", "cast", "dtype"),
    [
        ("torch.zeros(3)", ".half()", "float16"),
        ("torch.zeros(3)", ".bfloat16()", "bfloat16"),
        ("torch.ones(3)", ".double()", "float64"),
        ("torch.eye(3)", ".long()", "int64"),
        ("torch.eye(3)", ".short()", "int16"),
        ("torch.empty(3)", ".to(torch.int)", "int"),
        ("torch.arange(len(x))", ".to(torch.float)", "float"),
        ("torch.empty(3)", ".type(torch.half)", "half"),
        ("torch.arange(len(x))", ".to(torch.double)", "double"),
        ("torch.full((3,), 256)", ".float()", "float32"),
        ("torch.full((3,), -256)", ".float()", "float32"),
        ("torch.full((3,), 256.0)", ".half()", "float16"),
        ("torch.full((3,), True)", ".float()", "float32"),
        ("torch.full((3,), fill_value=1)", ".float()", "float32"),
        ("torch.arange(len(x))", ".float()", "float32"),
        ("torch.arange(0, len(x))", ".double()", "float64"),
        ("torch.arange(0, len(x), 2)", ".float()", "float32"),
    ],
)
def test_a_tensor_that_is_converted(built: str, cast: str, dtype: str) -> None:
    (found,) = told("PA106", FORWARD.format(built + cast))
    title = f"build it with `dtype=torch.{dtype}`"
    assert found == (4, [], f"`{built}` {FILLED}, on every step", title, (), True, True)


@pytest.mark.parametrize(
    "built",
    [
        "torch.zeros(3).float()",  # the default
        "torch.ones(3).to(torch.float)",
        "torch.zeros(0).half()",  # nothing to fill
        "torch.zeros(3).half(memory_format=f)",
        "torch.full((3,), 257).half()",  # not exact in every floating type
        "torch.full((3,), 257.0).half()",
        "torch.full((3,), 0.5).half()",
        "torch.full((3,), 1).long()",
        "torch.full((3,), 1.0).float()",
        "torch.full((3,), True).bool()",
        "torch.full((3,), y).half()",
        "torch.arange(3).half()",
        "torch.arange(3).long()",
        "torch.arange(len(x) / 2).float()",
        "torch.arange(len(x) * 0.5).float()",
        "torch.arange(y, len(x)).float()",
        "torch.arange(0, len(x), y).float()",
        "torch.arange(end=3).float()",
        "torch.arange(0, end=y).float()",
        "torch.arange(0, len(x), 1, 2).float()",
        "torch.arange(len(x), start=y).float()",
        "torch.arange(len(x), step=y).float()",
        "torch.zeros(3).to(other=torch.half)",
        "torch.arange().float()",
        "torch.zeros(3, out=y).half()",
        "torch.zeros(3, names=y).half()",
        "torch.zeros(3, layout=y).half()",
        "torch.zeros(3).to(torch.half, copy=True)",
        "torch.zeros(3).to(y)",
        "torch.rand(3).half()",
        "zeros(3).half()",
    ],
)
def test_a_tensor_that_is_not_converted_or_gets_other_values(built: str) -> None:
    assert told("PA106", FORWARD.format(built)) == []


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("if self.x is not None: return self.x", False),
        ("if x.is_cuda: return x", True),
        ("if self.x is not None: x = self.x", True),
    ],
)
def test_a_tensor_behind_a_return_where_it_is_kept(before: str, found: bool) -> None:
    head = "import torch\n\nclass A(torch.nn.Module):\n    def forward(self, x):\n"
    text = f"{head}        {before}\n        return x + torch.ones(3).half()\n"
    assert bool(told("PA106", text)) is found


@pytest.mark.parametrize("what", ["dtype(torch.half)", "tensor_type(torch.HalfTensor)"])
def test_where_the_default_type_is_changed_nothing_is_said_of_tensors_built_in_it(what: str) -> None:
    text = FORWARD.format("torch.ones(3).half()")
    assert told("PA106", text) and told("PA106", f"{text}\ntorch.set_default_{what}\n") == []


def test_a_tensor_built_in_a_loop_outside_functions_with_a_comment_in_its_cast() -> None:
    """A comment would be lost, so nothing is written."""
    head = "import torch\n\nfor x in loader:\n    loss = model(x, torch.ones(3).half({0})).mean()\n"
    rest = "    loss.backward()\n    optimizer.step()\n"
    found = [told("PA106", head.format(inside) + rest) for inside in ("", "  # as the weights are\n    ")]
    assert [[one[5] for one in each] for each in found] == [[True], [False]]


PAGEABLE = "its batches are copied to the GPU from pageable memory"
LOADER = "from torch.utils.data import DataLoader\n\n{0}\nfor x in loader:\n    y = x.cuda()\n"


@pytest.mark.parametrize(
    ("loader", "how", "title", "is_written"),
    [
        ("loader = DataLoader(d, num_workers=2)", "without `pin_memory`", "pin the memory of the batches", True),
        (
            "loader = DataLoader(d, num_workers=2, pin_memory=False)",
            "with `pin_memory=False`",
            "pin the memory of the batches",
            True,
        ),
        (
            "loader = DataLoader(d, 8, False, None, None, 2, None, False)",
            "with `pin_memory=False`",
            "pin the memory of the batches",
            True,
        ),
        (
            "loader = DataLoader(d, 8, False, None, None, 2)",
            "without `pin_memory`",
            "pin the memory of the batches",
            True,
        ),
        (
            "def make(pin=False):\n    return DataLoader(d, num_workers=2, pin_memory=pin)\nloader = make()",
            "with `pin_memory=pin`, which is False unless a caller says otherwise",
            "pin the memory of the batches",
            False,
        ),
        (
            "def make(workers=0):\n    return DataLoader(d, num_workers=workers)\nloader = make()",
            "without `pin_memory`",
            "pin where a measurement shows that it pays: without workers the training process pins, which costs time itself",
            False,
        ),
        (
            "loader = DataLoader(d)",
            "without `pin_memory`",
            "pin where a measurement shows that it pays: without workers the training process pins, which costs time itself",
            False,
        ),
        (
            "loader = DataLoader(d, 8, False, None, None, 0)",
            "without `pin_memory`",
            "pin where a measurement shows that it pays: without workers the training process pins, which costs time itself",
            False,
        ),
    ],
)
def test_a_loader_that_does_not_pin(loader: str, how: str, title: str, is_written: bool) -> None:
    (found,) = told("PA102", LOADER.format(loader))
    assert found[2:6] == (f"`DataLoader` {how}: {PAGEABLE}", title, (), is_written)


@pytest.mark.parametrize(
    "loader",
    [
        "loader = DataLoader(d, num_workers=2, pin_memory=True)",
        "loader = DataLoader(d, num_workers=2, pin_memory=pin)",
        "loader = DataLoader(d, num_workers=2, **options)",
        "loader = DataLoader(d, 8, False, None, None, 2, None, True)",
        "torch.set_default_device('cuda')\nloader = DataLoader(d, num_workers=2)".replace(
            "torch.", "import torch\ntorch."
        ),
    ],
)
def test_a_loader_that_pins_or_may(loader: str) -> None:
    assert told("PA102", LOADER.format(loader)) == []


GPU = "from torch.utils.data import DataLoader\nimport torch\n\n{0}\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("trainer = Trainer(accelerator='gpu')\ndef make():\n    return DataLoader(d, num_workers=2)", True),
        ("trainer = Trainer(accelerator='cuda')\ndef make():\n    return DataLoader(d, num_workers=2)", True),
        ("trainer = Trainer(accelerator='cpu')\ndef make():\n    return DataLoader(d, num_workers=2)", False),
        ("trainer = Trainer(gpus=1)\ndef make():\n    return DataLoader(d, num_workers=2)", True),
        ("trainer = Trainer(gpus=0)\ndef make():\n    return DataLoader(d, num_workers=2)", False),
        ("trainer = Trainer(gpus='')\ndef make():\n    return DataLoader(d, num_workers=2)", False),
        ("net.cuda()\ndef make():\n    yield DataLoader(d, num_workers=2)", True),
        ("net.cuda()\nfit(data=DataLoader(d, num_workers=2))", True),
        ("net.cuda()\nfit(DataLoader(d, num_workers=2))", True),
        ("net.cuda()\nself.loader = DataLoader(d, num_workers=2)", True),
        ("net.cuda()\nloaders['a'] = DataLoader(d, num_workers=2)", True),
        ("net.cuda()\na, self.b = 1, DataLoader(d, num_workers=2)", True),
        ("net.cuda()\nloader = DataLoader(d, num_workers=2)\nfit(enumerate(loader))", True),
        ("net.cuda()\nloader: DataLoader = DataLoader(d, num_workers=2)\nfit({'a': loader})", True),
        ("net.cuda()\nloader = DataLoader(d, num_workers=2)\nprint(len(loader))", False),
        ("net.cuda()\nloader = DataLoader(d, num_workers=2)\nfor x in loader:\n    show(x)", False),
        ("net.cuda()\nloader = DataLoader(d, num_workers=2)\nfor x in loader:\n    y = net(x)", True),
        ("net.cuda()\nloader = DataLoader(d, num_workers=2)\nfor x in loader:\n    y = net.parse(batch=x)", True),
        ("net.cuda()\nloader = DataLoader(d, num_workers=2)\nfor x in loader:\n    y = net(z)", False),
        ("net.cuda()\nloader = DataLoader(d, num_workers=2)\nfor x in loader:\n    x = to_device(x)", True),
        ("net.cuda()\nloader = DataLoader(d, num_workers=2)\nfor x in loader:\n    x = send_batch_to_gpu(x)", True),
        ("net.cuda()\nloader = DataLoader(d, num_workers=2)\nfor x in loader:\n    x = into_device(x)", False),
        (
            "net.cuda()\nloader = DataLoader(d, num_workers=2)\nother = DataLoader(d, num_workers=2)\n"
            "for x in loader:\n    show(x)\nfor x in other:\n    y = net(x)",
            True,
        ),
        (
            "def move(x):\n    return x.cuda()\nloader = DataLoader(d, num_workers=2)\n"
            "for x in loader:\n    show(x)\ny = move(z)",
            False,
        ),
        (
            "loader = DataLoader(d, num_workers=2)\nnet.cuda()\n"
            "for x in loader:\n    x = x.type(torch.cuda.FloatTensor, True)",
            True,
        ),
        ("net.cuda()\nDataLoader(d, num_workers=2)", False),
        ("Loader(accelerator='gpu')\ndef make():\n    return DataLoader(d, num_workers=2)", False),
        ("net.cuda()\nd = 'cpu'\nfit(DataLoader(d, num_workers=2))", True),
        ("net.cuda()\nd = 'mps'\nfit(DataLoader(d, num_workers=2))", False),
        ("net.cuda()\na = self.b = DataLoader(d, num_workers=2)", True),
        ("net.cuda()\n*a, b = 1, DataLoader(d, num_workers=2)", False),
        ("net.cuda()\nloader = DataLoader(d, num_workers=2)\nprint(len(loader))\nfit(loader)", True),
        (
            "net.cuda()\nloader = DataLoader(d, num_workers=2) if a else DataLoader(e, num_workers=2)\n"
            "for x in loader:\n    y = net(x)",
            True,
        ),
        (
            "net.cuda()\nloader = DataLoader(d, num_workers=2)\n"
            "for x in loader:\n    x = x.type('torch.cuda.FloatTensor')",
            True,
        ),
        (
            "net.cuda()\nclass Loader(DataLoader):\n    def __init__(self, d):\n"
            "        super().__init__(d, num_workers=2)",
            True,
        ),
        ("fit(DataLoader(d, num_workers=2))", False),
    ],
)
def test_where_the_batches_go(text: str, found: bool) -> None:
    assert bool(told("PA102", GPU.format(text))) is found


@pytest.mark.parametrize(
    "given",
    [
        *("iter", "enumerate", "tqdm", "trange", "cycle", "zip", "islice", "track", "progress_bar", "reversed"),
        *("len", "next", "print", "isinstance", "type", "id", "repr", "str"),
    ],
)
def test_a_loader_that_is_looked_at_goes_nowhere(given: str) -> None:
    assert told("PA102", GPU.format(f"net.cuda()\nfor x in {given}(DataLoader(d, num_workers=2)):\n    show(x)")) == []


@pytest.mark.parametrize(("depth", "found"), [(5, True), (6, False)])
@pytest.mark.parametrize("form", ["lists", "iterators", "names"])
def test_how_far_a_loader_is_followed(form: str, depth: int, found: bool) -> None:
    made = "DataLoader(d, num_workers=2)"
    text = {
        "lists": f"fit({'[' * depth}{made}{']' * depth})",
        "iterators": f"fit({'iter(' * depth}{made}{')' * depth})",
        "names": f"a0 = {made}\n" + "".join(f"a{n} = a{n - 1}\n" for n in range(1, depth)) + f"fit(a{depth - 1})",
    }[form]
    assert bool(told("PA102", GPU.format(f"net.cuda()\n{text}"))) is found


@pytest.mark.parametrize(("carried", "found"), [("accelerator", True), ("loop", False)])
def test_a_loader_that_leaves_a_file_whose_program_uses_an_accelerator(carried: str, found: bool) -> None:
    class Others:
        """What the other files of the program say: nothing but this."""

        def program_carries(self, what: str) -> bool:
            return what == carried

        def __getattr__(self, name: str) -> object:
            return lambda *_: None

    text = GPU.format("def make():\n    return DataLoader(d, num_workers=2)")
    source = Source("t.py", text, Others())  # type: ignore[arg-type]
    assert bool(run_checks(source, all_rules(), frozenset(["PA102"]))) is found


WIDE = """import torch
from torch import nn
model = nn.Sequential(nn.Conv2d(3, 512, 3), nn.Conv2d(512, 512, 3)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    out = model(x.cuda())
    {loss}
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ("loss = criterion(out, y)", "`loss = criterion(out, y)` and its backward pass run in float32"),
        (
            "loss = 0\n    for each in out:\n        loss += f(each)",
            "`loss.backward()` and the forward pass before it run in float32",
        ),
    ],
)
def test_where_mixed_precision_is_missing(loss: str, said: str) -> None:
    ((_, _, message, *_),) = told("PA304", WIDE.format(loss=loss))
    assert message.startswith(said)
