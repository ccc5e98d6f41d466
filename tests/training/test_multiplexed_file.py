"""A text with switches runs as the user's text, and as each patched one, whatever stands in the loop."""

from __future__ import annotations

import builtins
import re
import textwrap
import types

import pytest

from perfaudit.training.code_change import NotSwappable
from perfaudit.training.edited_places import edited_places
from perfaudit.training.mixed_steps import numbers_to_put_back
from perfaudit.training.multiplexed_file import SWITCHES, Multiplexed, multiplex, multiplex_files

PATH = "train.py"


def text(body: str) -> str:
    return textwrap.dedent(body).lstrip()


def ran(file: Multiplexed, version: int) -> list[object]:
    """What a program appends to `out` with every switch at this version; a region with fewer runs its copy."""
    values = [min(version, region.control) for region in file.regions]
    setattr(builtins, SWITCHES, values)
    try:
        found: dict[str, object] = {"out": [], "__name__": "program"}
        exec(file.code(), found)
    finally:
        delattr(builtins, SWITCHES)
    out = found["out"]
    assert isinstance(out, list)
    return out


def ran_plainly(source: str) -> list[object]:
    found: dict[str, object] = {"out": [], "__name__": "program"}
    exec(compile(source, PATH, "exec", dont_inherit=True), found)
    out = found["out"]
    assert isinstance(out, list)
    return out


STEP = """
    class Step:
        def step(self): pass
    o = Step()
"""
# Programs with one change: [[as it is | as patched]].
PROGRAMS = {
    "a statement in a loop of a function": """
        def f():
            for i in range(3):
                out.append([[i | -i]])
                o.step()
        f()""",
    "a loop at the top level": """
        for i in range(3):
            out.append([[i | i * 2]])
            o.step()""",
    "continue": """
        for i in range(4):
            o.step()
            if i % 2:
                [[continue | out.append(7)]]
            out.append(i)""",
    "break": """
        for i in range(4):
            o.step()
            if i > 1:
                [[pass | break]]
            out.append(i)
        else:
            out.append("all")""",
    "return": """
        def f():
            for i in range(4):
                o.step()
                if i == 2:
                    return [[i | i * 10]]
        out.append(f())""",
    "yield": """
        def f():
            for i in range(3):
                o.step()
                x = yield [[i | i + 5]]
        out.extend(f())""",
    "await": """
        async def f():
            for i in range(2):
                o.step()
                await g([[i | i + 1]])
        async def g(i):
            out.append(i)
        try:
            f().send(None)
        except StopIteration:
            pass""",
    "global": """
        def f():
            global n
            for i in range(3):
                o.step()
                n = [[i | -i]]
        f()
        out.append(n)""",
    "nonlocal": """
        def f():
            n = 0
            def g():
                nonlocal n
                o.step()
                n += [[1 | 2]]
            for i in range(3):
                g()
            out.append(n)
        f()""",
    "an f-string": """
        def f():
            for i in range(2):
                o.step()
                out.append(f"{i!r:>4} {[[i + 1 | i - 1]]:{i + 3}}")
        f()""",
    "a comprehension and a lambda": """
        def f():
            for i in range(2):
                o.step()
                out.extend([(lambda: [[i + j | i - j]])() for j in range(2)])
        f()""",
    "a type comment": """
        def f():
            for i in range(2):  # type: int
                o.step()
                x = [[i | i + 1]]  # type: int
                out.append(x)
        f()""",
    "a future import": """
        def f():
            for i in range(2):
                o.step()
                x: Missing = [[i | i + 1]]
                out.append(x)
        f()""",
    "wrapped statements": """
        import contextlib
        def f():
            for i in range(2):
                [[if i: | with contextlib.nullcontext():]]
                    a = i
                    out.append(a)
                o.step()
        f()""",
    "a statement added and one taken out": """
        def f():
            for i in range(2):
                o.step()
                out.append(i)[[; out.append(i) | ]]
            [[ | out.append("more"); ]]out.append("end")
        f()""",
    "before a statement and in it": """
        def f():
            for i in range(3):
                o.step()
                [[ | out.append("more")]]
                if i:
                    out.append([[i | -i]])
                [[ | out.append("end")]]
        f()""",
    "try, with and match": """
        def f():
            for i in range(3):
                o.step()
                try:
                    match i:
                        case 1:
                            raise ValueError
                        case _:
                            out.append([[i | -i]])
                except ValueError:
                    out.append([["no" | "yes"]])
                finally:
                    out.append("end")
        f()""",
    "a method": """
        class T:
            "Text."
            def fit(self):
                "Text."
                for i in range(2):
                    self.one(i)
            def one(self, i):
                out.append([[i | -i]])
                o.step()
        T().fit()
        out.append(T.fit.__doc__)""",
}
CHANGE = re.compile(r"\[\[(.*?) ?\| ?(.*?)\]\]")


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_both_versions_do_what_their_texts_do(program: str) -> None:
    whole = "from __future__ import annotations\n" + text(STEP) + text(program)
    before, after = CHANGE.sub(r"\1", whole), CHANGE.sub(r"\2", whole)
    file = multiplex(PATH, before, [after])
    assert file.regions
    assert ran(file, 0) == ran(file, 2) == ran_plainly(before)  # as it is, and its copy
    assert ran(file, 1) == ran_plainly(after) != ran_plainly(before)


LOOP = text("""
    import torch

    def train(model, optimizer, batches):
        total, seen = 0.0, 0
        for x, y in batches:
            optimizer.zero_grad(set_to_none=False)
            loss = model(x, y)
            loss.backward()
            optimizer.step()
            total += loss.item()
            seen += 1
        print(total / seen)
        return total
""")


def test_patches_of_several_statements_share_a_switch_each_and_turn_by_themselves() -> None:
    sums = LOOP.replace("loss.item()", "loss.detach()").replace("    print", "    total = float(total)\n    print")
    grads, wrapped = (
        LOOP.replace("set_to_none=False", ""),
        LOOP.replace(
            "        loss = model(x, y)\n", "        with torch.autocast('cpu'):\n            loss = model(x, y)\n"
        ),
    )
    file = multiplex(PATH, LOOP, [sums, grads, wrapped])
    turns = {}
    for name, after in {"sums": sums, "grads": grads, "wrapped": wrapped}.items():
        places, left = file.split(edited_places(LOOP, after))
        turns[name] = [(turn.region.lines[0], turn.version) for turn in file.turns(places)]
        assert not left
    assert turns == {"sums": [(10, 1), (11, 1)], "grads": [(6, 1)], "wrapped": [(7, 1)]}


def test_two_patches_of_the_same_statements_need_their_combination() -> None:
    one = LOOP.replace(
        "        loss = model(x, y)\n        loss.backward()\n",
        "        if x:\n            loss = model(x, y)\n            loss.backward()\n",
    )
    other, both = LOOP.replace("model(x, y)", "model(y, x)"), one.replace("model(x, y)", "model(y, x)")
    places = edited_places(LOOP, both).places
    with pytest.raises(NotSwappable, match="changed by several patches"):
        multiplex(PATH, LOOP, [one, other]).turns(places)
    (turn,) = multiplex(PATH, LOOP, [one, other, both]).turns(places)
    assert (turn.version, turn.region.lines) == (3, (7, 8))


REFUSED = {
    "the head of a loop that makes steps": ("for x, y in batches", "for y, x in batches", "the loop at line 5"),
    "a statement nobody announced": ("seen += 1", "seen += 2", "line 11 .* was not known"),
}


@pytest.mark.parametrize(("old", "new", "why"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_switched_is_refused_with_the_reason(old: str, new: str, why: str) -> None:
    known = LOOP.replace("set_to_none=False", "")
    file = multiplex(PATH, LOOP, [known, LOOP.replace("for x, y in batches", "for y, x in batches")])
    places, _ = file.split(edited_places(LOOP, LOOP.replace(old, new)))
    with pytest.raises(NotSwappable, match=why):
        file.turns(places)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("seen += 1", "print = seen"),  # the builtin would become a local name, unset in the user's statements
        ("seen += 1", "yield seen"),  # the function would become a generator
        ("def train(model, optimizer, batches):\n", "def train(model, optimizer, batches):\n    return\n    yield\n"),
    ],
)
def test_a_statement_that_would_change_what_the_function_is_has_no_switch(old: str, new: str) -> None:
    good = LOOP.replace("set_to_none=False", "")
    assert [region.lines for region in multiplex(PATH, LOOP, [LOOP.replace(old, new), good]).regions] == [(6, 6)]


def test_functions_that_make_no_steps_and_statements_on_import_are_left_to_swapping() -> None:
    before = text("""
        LIMIT = 1
        def forward(x):
            return x + LIMIT
        def run(step):
            return step()
    """)
    assert multiplex(PATH, before, [before.replace("= 1", "= 2").replace("x +", "x -")]).regions == []


def test_a_function_that_calls_one_of_another_file_that_steps_may_be_running() -> None:
    inner = "def epoch(o):\n    o.step()\n"
    outer = "from inner import epoch\ndef main(o):\n    for i in range(9):\n        print(i)\n        epoch(o)\n"
    files = multiplex_files({"inner.py": (inner, [inner]), "main.py": (outer, [outer.replace("print(i)", "pass")])})
    assert [(file.path, len(file.regions)) for file in files] == [("main.py", 1)]


def lines_of(code: types.CodeType) -> set[int | None]:
    inner = [lines_of(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return {line for *_, line in code.co_lines() if line}.union(*inner)


def test_lines_are_those_of_the_users_file() -> None:
    after = "import os\n\n" + LOOP.replace(
        "        loss = model(x, y)\n", "        if x:\n            loss = model(y, x)\n"
    )
    file = multiplex(PATH, LOOP, [after])
    assert lines_of(file.code()) == lines_of(compile(LOOP, PATH, "exec"))
    assert edited_places(LOOP, after).imports


# ---- what statements of one kind leave for the other ------------------------------------------------------------------


def put_back(before: str, after: str) -> list[tuple[object, list[str]]]:
    file = multiplex(PATH, before, [after])
    places, _ = file.split(edited_places(before, after))
    return [(numbers.function, sorted(numbers.names)) for numbers in numbers_to_put_back(file, places)]


def test_a_sum_that_becomes_a_tensor_is_made_a_number_again() -> None:
    sums = LOOP.replace("loss.item()", "loss.detach().float()").replace(
        "    print", "    total = float(total)\n    print"
    )
    assert put_back(LOOP, sums) == [(("train", 3), ["total"])]
    assert put_back(LOOP, LOOP.replace("set_to_none=False", "")) == []


@pytest.mark.parametrize("call", ["model.eval()", "show(vars(model), dir(model))"])
def test_a_function_that_looks_at_something_else_sees_no_names_by_that(call: str) -> None:
    evaluates = LOOP.replace("    print", f"    {call}\n    print")
    sums = evaluates.replace("loss.item()", "loss.detach().float()").replace(
        "    print", "    total = float(total)\n    print"
    )
    assert put_back(evaluates, sums) == [(("train", 3), ["total"])]


MIXED = {
    "kept in a list": ("kept.append([[loss.item() | loss.detach()]])", "leaves a tensor"),
    "kept in an object": ("meter.last = [[loss.item() | loss.detach()]]", "leaves a tensor"),
    "read in the loop": ("last = [[loss.item() | loss.detach()]]; show(last)", "line 11 .* reads it"),
    "seen among all names by vars": ("last = [[loss.item() | loss.detach()]]; show(vars())", "may look at it by vars"),
    "seen among all names": ("last = [[loss.item() | loss.detach()]]; show(locals())", "may look at it by locals"),
    "read as a tensor": (
        "last = [[loss.item() | loss.detach()]]; print([[last | last.item()]])",
        "takes last for a tensor",
    ),
    "set by the patch alone": ("[[pass | scaled = 2]]; print([[seen | scaled]])", "reads scaled, which only it sets"),
    "set without the patch alone": ("[[last = seen | seen += 1]]; print(last)", "does not set last"),
}


@pytest.mark.parametrize(("program", "why"), MIXED.values(), ids=MIXED)
def test_statements_that_cannot_take_turns_are_refused(program: str, why: str) -> None:
    whole = LOOP.replace("seen += 1", program)
    before, after = CHANGE.sub(r"\1", whole), CHANGE.sub(r"\2", whole)
    with pytest.raises(NotSwappable, match=why):
        put_back(before, after)
