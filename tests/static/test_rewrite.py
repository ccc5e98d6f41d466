# ruff: noqa: E501 - a row of a table is one line, so that texts can be compared
"""Settings as source text: the new tree is the old one plus what was meant, and no comment is lost, in every layout."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Callable

import pytest

from perfaudit.static import edit, process_settings, rewrite
from perfaudit.static.edit import Edits
from perfaudit.static.source import Source

TO = ".to(memory_format=torch.channels_last)"


def comments(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    return Counter(token.string.strip() for token in tokens if token.type == tokenize.COMMENT)


def line_ends(text: str) -> set[str]:
    return {line[len(line.rstrip("\r\n")) :] for line in text.splitlines(keepends=True)[:-1]}


def check(source: Source, edits: Edits | None, after: str | None) -> None:
    """The edits give this text (None: there are none), which parses; comments and line ends are those of before."""
    if after is None:
        assert edits is None
        return
    assert edits is not None
    assert edit.apply(source.text, edits) == after
    ast.parse(after)
    assert comments(after) == comments(source.text)
    assert line_ends(after) <= (line_ends(source.text) or {"\n"})


def the_function(source: Source, name: str = "f") -> ast.FunctionDef:
    return next(function for function in source.nodes(ast.FunctionDef) if function.name == name)


class Returns(ast.NodeTransformer):
    """Replaces each return of one function, not of those nested in it."""

    def __init__(self, change: Callable[[ast.expr], list[ast.stmt]]) -> None:
        self.change, self.depth = change, 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name == "f" and not self.depth:
            self.depth = 1
            return self.generic_visit(node)
        return node if self.depth else self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        assert node.value is not None
        return self.change(node.value)


def same_tree(after: str, expected: ast.AST) -> bool:
    return ast.dump(ast.parse(after)) == ast.dump(ast.parse(ast.unparse(expected)))


# ---- which function ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "dotted", "line"),
    [
        ("def f(): ...", "f", 1),
        ("@a\n@b(c)\ndef f(): ...", "f", 3),
        ("if x:\n    def f(): ...", "f", 2),
        ("try:\n    import g\nexcept ImportError:\n    def f(): ...", "f", 4),
        ("class A:\n    def f(self): ...\ndef f(): ...", "A.f", 2),
        ("class A:\n    def f(self): ...\ndef f(): ...", "f", 3),
        ("class A:\n    class B:\n        def f(self): ...", "A.B.f", 3),
        ("def f():\n    def g():\n        yield 1\n    return g", "f", 1),
        ("def f():\n    return lambda: (yield)", "f", 1),
        ("def g():\n    f = 1\ndef f(): ...", "f", 3),
        ("def f(): ...\ndef f(): ...", "f", None),
        ("if x:\n    def f(): ...\nelse:\n    def f(): ...", "f", None),
        ("def f(): ...\nf = g(f)", "f", None),
        ("from a import f\ndef f(): ...", "f", None),
        ("def f(): ...\ndef g():\n    global f\n    f = 1", "f", None),
        ("async def f(): ...", "f", None),
        ("def f():\n    yield 1", "f", None),
        ("def f():\n    if x:\n        return (yield from y)", "f", None),
        ("def g():\n    def f(): ...", "f", None),
        ("for i in x:\n    def f(): ...", "f", None),
        ("f = lambda: 1", "f", None),
        ("class f: ...", "f", None),
        ("class A: ...\nclass A:\n    def f(self): ...", "A.f", None),
        ("A = 1", "A.f", None),
        ("", "f", None),
    ],
)
def test_function_named(text: str, dotted: str, line: int | None) -> None:
    function = rewrite.function_named(Source("a.py", text), dotted)
    assert (function and function.lineno) == line


# ---- what it returns ---------------------------------------------------------------------------------------------

WRAPPED = [  # text, and with `.to(...)` behind what `f` returns, and with `torch.compile(...)` around it
    ("def f():\n    return G(n)\n", f"def f():\n    return G(n){TO}\n", "def f():\n    return torch.compile(G(n))\n"),
    ("def f():\n    return G(n)  # small\n", f"def f():\n    return G(n){TO}  # small\n", "def f():\n    return torch.compile(G(n))  # small\n"),
    ("def f(): return G(n)", f"def f(): return G(n){TO}", "def f(): return torch.compile(G(n))"),
    ("def f(): return G(n);", f"def f(): return G(n){TO};", "def f(): return torch.compile(G(n));"),
    ("def f(): a = 1; return a", f"def f(): a = 1; return a{TO}", "def f(): a = 1; return torch.compile(a)"),
    ("def f():\n\treturn self.g\n", f"def f():\n\treturn self.g{TO}\n", "def f():\n\treturn torch.compile(self.g)\n"),
    ("def f():\n    return A() if x else B()\n", f"def f():\n    return (A() if x else B()){TO}\n", "def f():\n    return torch.compile(A() if x else B())\n"),
    ("def f():\n    return a or B()\n", f"def f():\n    return (a or B()){TO}\n", "def f():\n    return torch.compile(a or B())\n"),
    ("def f():\n    return a @ b\n", f"def f():\n    return (a @ b){TO}\n", "def f():\n    return torch.compile(a @ b)\n"),
    ("def f():\n    return -a\n", f"def f():\n    return (-a){TO}\n", "def f():\n    return torch.compile(-a)\n"),
    ("def f():\n    return-a\n", f"def f():\n    return(-a){TO}\n", "def f():\n    return torch.compile(-a)\n"),
    ("def f():\n    return(a)\n", f"def f():\n    return(a){TO}\n", "def f():\n    return torch.compile(a)\n"),
    ("def f():\n    return (m := G())\n", f"def f():\n    return (m := G()){TO}\n", "def f():\n    return torch.compile(m := G())\n"),
    ("def f():\n    return (a).b\n", f"def f():\n    return (a).b{TO}\n", "def f():\n    return torch.compile((a).b)\n"),
    ("def f():\n    return (a)(b)\n", f"def f():\n    return (a)(b){TO}\n", "def f():\n    return torch.compile((a)(b))\n"),
    ("def f():\n    return (a) + (b)\n", f"def f():\n    return ((a) + (b)){TO}\n", "def f():\n    return torch.compile((a) + (b))\n"),
    ("def f():\n    return (  # why\n        G(n)  # (n\n    )  # end\n", f"def f():\n    return (  # why\n        G(n)  # (n\n    ){TO}  # end\n", "def f():\n    return torch.compile(  # why\n        G(n)  # (n\n    )  # end\n"),
    ("def f():\n    return G(\n        n,  # small\n    )\n", f"def f():\n    return G(\n        n,  # small\n    ){TO}\n", "def f():\n    return torch.compile(G(\n        n,  # small\n    ))\n"),
    ("def f():\n    return \\\n        G(n)\n", f"def f():\n    return \\\n        G(n){TO}\n", "def f():\n    return \\\n        torch.compile(G(n))\n"),
    ("é = 'ü'\ndef f(): x = 'é'; return G('日', x)  # ö\n", f"é = 'ü'\ndef f(): x = 'é'; return G('日', x){TO}  # ö\n", "é = 'ü'\ndef f(): x = 'é'; return torch.compile(G('日', x))  # ö\n"),
    ("def f():\r\n    # é\r\n    return G(n)\r\n", f"def f():\r\n    # é\r\n    return G(n){TO}\r\n", "def f():\r\n    # é\r\n    return torch.compile(G(n))\r\n"),
    ("def f():\n    if x:\n        return A()\n    else: return B()\n", f"def f():\n    if x:\n        return A(){TO}\n    else: return B(){TO}\n", "def f():\n    if x:\n        return torch.compile(A())\n    else: return torch.compile(B())\n"),
    ("def f():\n    def g(): return 1\n    class C:\n        def h(self): return 2\n    return G(lambda: 3)\n", f"def f():\n    def g(): return 1\n    class C:\n        def h(self): return 2\n    return G(lambda: 3){TO}\n", "def f():\n    def g(): return 1\n    class C:\n        def h(self): return 2\n    return torch.compile(G(lambda: 3))\n"),
    ("class A:\n    @staticmethod\n    def f():\n        'doc'\n        return super().f()\n", f"class A:\n    @staticmethod\n    def f():\n        'doc'\n        return super().f(){TO}\n", "class A:\n    @staticmethod\n    def f():\n        'doc'\n        return torch.compile(super().f())\n"),
    ("def f():\n    return (\n        A()\n        if x\n        else B()\n    )\n", f"def f():\n    return (\n        A()\n        if x\n        else B()\n    ){TO}\n", "def f():\n    return torch.compile(\n        A()\n        if x\n        else B()\n    )\n"),
]  # fmt: skip

NOT_ONE_OBJECT = [  # functions whose returns are left alone
    "def f(): ...",
    "def f():\n    return\n",
    "def f():\n    return None\n",
    "def f():\n    if x: return\n    return G()\n",
    "def f():\n    return a, b\n",
    "def f():\n    return (a, b)\n",
    "def f():\n    return *a, b\n",
    "def f():\n    return A() if x else None\n",
    "def f():\n    return A() if x else (B(), C())\n",
    "def f():\n    return x and G()\n",
    "def f():\n    return not x\n",
    "def f():\n    return a < b\n",
    "def f():\n    return [G()]\n",
    "def f():\n    return {'model': G()}\n",
    "def f():\n    return (G() for x in y)\n",
    "def f():\n    return lambda: G()\n",
    "def f():\n    return 'a'\n",
    "def f():\n    return f'{G()}'\n",
    "def f():\n    yield 1\n    return G()\n",
    "def f(n):\n    if n: return f(0)\n    return G()\n",
    "class A:\n    def f(self, n):\n        return self.f(0) if n else G()\n",
    "def f():\n    g = lambda: G()\n    def h(): return G()\n",
]


@pytest.mark.parametrize(("text", "behind", "around"), WRAPPED)
def test_wrap_returned(text: str, behind: str, around: str) -> None:
    for before, after, expected in [("", TO, behind), ("torch.compile(", ")", around)]:
        source = Source("a.py", text)
        check(source, rewrite.wrap_returned(source, the_function(source), before, after), expected)

        def wrapped(value: ast.expr, before: str = before, after: str = after) -> list[ast.stmt]:
            return ast.parse(f"if 1: return {before}({ast.unparse(value)}){after}").body[0].body  # type: ignore[attr-defined]

        assert same_tree(expected, Returns(wrapped).visit(ast.parse(text)))
        again = Source("a.py", expected)
        assert rewrite.wrap_returned(again, the_function(again), before, after) is None


@pytest.mark.parametrize("text", NOT_ONE_OBJECT)
def test_returns_left_alone(text: str) -> None:
    source = Source("a.py", text)
    assert rewrite.wrap_returned(source, the_function(source), "", TO) is None
    assert rewrite.change_returned(source, the_function(source), ["{}.compile()"]) is None


def test_wrapping_that_does_not_parse() -> None:
    source = Source("a.py", "def f(): return G()")
    assert rewrite.wrap_returned(source, the_function(source), "g(", "") is None


def test_other_arguments_behind_what_is_wrapped() -> None:
    source = Source("a.py", "def f():\n    return A() if x else B()\n")
    edits = rewrite.wrap_returned(source, the_function(source), "torch.compile(", ', mode="max-autotune")')
    check(source, edits, 'def f():\n    return torch.compile(A() if x else B(), mode="max-autotune")\n')


CHANGED = [  # text, and with `.compile()` called on what `f` returns
    ("def f():\n    return G(n)\n", "def f():\n    model = G(n)\n    model.compile()\n    return model\n"),
    ("def f():\n    return G(n)", "def f():\n    model = G(n)\n    model.compile()\n    return model"),
    ("def f():\n    # the best\n    return G(n)  # small\n\nx = 1\n", "def f():\n    # the best\n    model = G(n)  # small\n    model.compile()\n    return model\n\nx = 1\n"),
    ("def f():\n\treturn G(n)\n", "def f():\n\tmodel = G(n)\n\tmodel.compile()\n\treturn model\n"),
    ("def f():\r\n  return G('é')\r\n", "def f():\r\n  model = G('é')\r\n  model.compile()\r\n  return model\r\n"),
    ("def f():\n    m = G(n)\n    return m\n", "def f():\n    m = G(n)\n    m.compile()\n    return m\n"),
    ("def f():\n    m = G(n)\n    # all\n    return (m)  # done\n", "def f():\n    m = G(n)\n    # all\n    m.compile()\n    return (m)  # done\n"),
    ("def f(m): return m\n", "def f(m):\n    m.compile()\n    return m\n"),
    ("def f(m): return m", "def f(m):\n    m.compile()\n    return m"),
    ("def f(): return G(n)  # small\n", "def f():\n    model = G(n)  # small\n    model.compile()\n    return model\n"),
    ("def f(a,\n      b): return G(n)\n", "def f(a,\n      b):\n    model = G(n)\n    model.compile()\n    return model\n"),
    ("class A:\n  def f(self): return G(n)\n", "class A:\n  def f(self):\n    model = G(n)\n    model.compile()\n    return model\n"),
    ("def f(): 'doc'; return G(n)\n", "def f(): 'doc'; model = G(n); model.compile(); return model\n"),
    ("def f(): m = G(n); return m  # m\n", "def f(): m = G(n); m.compile(); return m  # m\n"),
    ("def f():\n    a = 'é'; return G(a)  # b\n", "def f():\n    a = 'é'; model = G(a); model.compile(); return model  # b\n"),
    ("def f():\n    return G(n);\n", "def f():\n    model = G(n); model.compile(); return model;\n"),
    ("def f():\n    return G(n); g()\n", "def f():\n    model = G(n); model.compile(); return model; g()\n"),
    ("def f():\n    return(G(n))\n", "def f():\n    model = (G(n))\n    model.compile()\n    return model\n"),
    ("def f():\n    return-a\n", "def f():\n    model = -a\n    model.compile()\n    return model\n"),
    ("def f():\n    return (m := G(n))\n", "def f():\n    model = (m := G(n))\n    model.compile()\n    return model\n"),
    ("def f():\n    return A() if x else B()\n", "def f():\n    model = A() if x else B()\n    model.compile()\n    return model\n"),
    ("def f():\n    return (\n        G(n)  # (\n    )  # end\n", "def f():\n    model = (\n        G(n)  # (\n    )  # end\n    model.compile()\n    return model\n"),
    ("def f():\n    return \\\n        G(n)\n", "def f():\n    model = \\\n        G(n)\n    model.compile()\n    return model\n"),
    ("def f():\n    return\\\n        G(n)\n", "def f():\n    model =\\\n        G(n)\n    model.compile()\n    return model\n"),
    ('def f():\n    return G("""\n  a\n""")\n', 'def f():\n    model = G("""\n  a\n""")\n    model.compile()\n    return model\n'),
    ("def f():\n    if x: return A()  # a\n    elif y: return B()\n    else: return C()\n", "def f():\n    if x:\n        model = A()  # a\n        model.compile()\n        return model\n    elif y:\n        model = B()\n        model.compile()\n        return model\n    else:\n        model = C()\n        model.compile()\n        return model\n"),
    ("def f():\n    try: return A()\n    except E: return B()\n", "def f():\n    try:\n        model = A()\n        model.compile()\n        return model\n    except E:\n        model = B()\n        model.compile()\n        return model\n"),
    ("def f():\n    with x:\n        return A()\n    return m\n    m = 1\n", "def f():\n    with x:\n        model = A()\n        model.compile()\n        return model\n    m.compile()\n    return m\n    m = 1\n"),
    ("def f():\n    match x:\n        case 1: return A()\n        case _:\n            return B()\n", "def f():\n    match x:\n        case 1: model = A(); model.compile(); return model\n        case _:\n            model = B()\n            model.compile()\n            return model\n"),
    ("def f():\n    '''The model.'''\n    return G(model=n)\n", "def f():\n    '''The model.'''\n    model = G(model=n)\n    model.compile()\n    return model\n"),
    ("def f(model):\n    return G(model)\n", "def f(model):\n    model_2 = G(model)\n    model_2.compile()\n    return model_2\n"),
    ("def f():\n    model_2 = model\n    return G(model_2)\n", "def f():\n    model_2 = model\n    model_3 = G(model_2)\n    model_3.compile()\n    return model_3\n"),
    ("def f():\n    import model.a\n    return G()\n", "def f():\n    import model.a\n    model_2 = G()\n    model_2.compile()\n    return model_2\n"),
    ("def f():\n    def g():\n        return model\n    return G(g)\n", "def f():\n    def g():\n        return model\n    model_2 = G(g)\n    model_2.compile()\n    return model_2\n"),
    ("@a\n@b(c)  # d\ndef f():\n    return G(lambda: 1)\n", "@a\n@b(c)  # d\ndef f():\n    model = G(lambda: 1)\n    model.compile()\n    return model\n"),
    ("def f():\n    return m\n", None),  # a global
    ("def f():\n    global m\n    m = G()\n    return m\n", None),
    ("class A:\n    def f(self):\n        return self.m\n", None),
    ("def f():\n    m = G()\n    m.compile()\n    return m\n", None),  # it is there
]  # fmt: skip


@pytest.mark.parametrize(("text", "after"), CHANGED)
def test_change_returned(text: str, after: str | None) -> None:
    source = Source("a.py", text)
    check(source, rewrite.change_returned(source, the_function(source), ["{}.compile()"]), after)
    if after is None:
        return
    name = next(name for name in ("model_3", "model_2", "model") if f"{name}.compile()" in after or name == "model")

    def changed(value: ast.expr) -> list[ast.stmt]:
        if isinstance(value, ast.Name):
            return ast.parse(f"if 1:\n {value.id}.compile()\n return {value.id}").body[0].body  # type: ignore[attr-defined]
        lines = f"if 1:\n {name} = ({ast.unparse(value)})\n {name}.compile()\n return {name}"
        return ast.parse(lines).body[0].body  # type: ignore[attr-defined]

    assert same_tree(after, Returns(changed).visit(ast.parse(text)))
    again = Source("a.py", after)
    assert rewrite.change_returned(again, the_function(again), ["{}.compile()"]) is None


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("def f():\n    return G()\n", "def f():\n    m = G()\n    for p in m.parameters(): p.g()  # all\n    m.h()\n    return m\n"),
        ("def f(): return G()\n", "def f():\n    m = G()\n    for p in m.parameters(): p.g()  # all\n    m.h()\n    return m\n"),
        ("def f(): a; return G()\n", None),  # no block stands behind a semicolon
    ],
)  # fmt: skip
def test_change_returned_by_a_loop(text: str, after: str | None) -> None:
    source = Source("a.py", text)
    lines = ["for p in {}.parameters(): p.g()  # all", "{}.h()"]
    edits = rewrite.change_returned(source, the_function(source), lines, name="m")
    assert (edits and edit.apply(text, edits)) == after


# ---- decorators --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("def f(): ...", "@torch.compile\ndef f(): ..."),
        ("# of f\ndef f(): ...\n", "# of f\n@torch.compile\ndef f(): ...\n"),
        ("@a\n@b(c)  # d\n# e\ndef f(): ...\n", "@a\n@b(c)  # d\n# e\n@torch.compile\ndef f(): ...\n"),
        ("class A:\r\n\t@staticmethod\r\n\tdef f(): ...\r\n", "class A:\r\n\t@staticmethod\r\n\t@torch.compile\r\n\tdef f(): ...\r\n"),
        ("é = 'ü'\nif é:\n  def f(): ...\n", "é = 'ü'\nif é:\n  @torch.compile\n  def f(): ...\n"),
        ("@torch.compile\ndef f(): ...", None),
        ("@torch.compile(mode='x')\ndef f(): ...", None),
        ("import torch\n@a\n@torch.compile()\ndef f(): ...", None),
        ("from torch import compile as c\n@c\ndef f(): ...", None),
        ("@a.torch.compile\ndef f(): ...", "@a.torch.compile\n@torch.compile\ndef f(): ..."),
        ("import torch\nfrom torch import compile as c\n@c\ndef f(): ...", None),
        ("import torch\n@functools.partial(torch.compile, mode='x')\ndef f(): ...", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("sign", ["", "@"])
def test_decorate(text: str, after: str | None, sign: str) -> None:
    source = Source("a.py", text)
    check(source, rewrite.decorate(source, the_function(source), f"{sign}torch.compile"), after)


# ---- settings of the process -------------------------------------------------------------------------------------

SET = 'torch.set_float32_matmul_precision("high")'
AT_START = [  # text, and with `SET` in it
    ("import torch\n", f"import torch\n{SET}\n"),
    ("import torch", f"import torch\n{SET}"),
    ("import torch  # 2.4\n\n\ndef f(): ...\n", f"import torch  # 2.4\n{SET}\n\n\ndef f(): ...\n"),
    ('"""Doc."""\nfrom __future__ import annotations\n\nimport os\nimport torch\n\nx = 1\n', f'"""Doc."""\nfrom __future__ import annotations\n\nimport os\nimport torch\n{SET}\n\nx = 1\n'),
    ("import torch\nfrom torch import (\n    nn,  # layers\n)\nx = 1\n", f"import torch\nfrom torch import (\n    nn,  # layers\n)\n{SET}\nx = 1\n"),
    ("import torch\n# of x\nx = 1\nimport y\n", f"import torch\n{SET}\n# of x\nx = 1\nimport y\n"),
    ("import torch\ntry:\n    import apex\n    HAS = True\nexcept ImportError:  # no\n    HAS = False\n\nx = 1\n", f"import torch\ntry:\n    import apex\n    HAS = True\nexcept ImportError:  # no\n    HAS = False\n{SET}\n\nx = 1\n"),
    ("import torch\nif TYPE_CHECKING:\n    from a import b\n\nx = 1\n", f"import torch\nif TYPE_CHECKING:\n    from a import b\n{SET}\n\nx = 1\n"),
    ("import torch, sys\nif sys.version_info > (3, 11): import tomllib\nelse: import tomli\nx = 1\n", f"import torch, sys\nif sys.version_info > (3, 11): import tomllib\nelse: import tomli\n{SET}\nx = 1\n"),
    ("import os\nos.environ['A'] = 'é'\nimport torch\nimport g\nx = 1\n", f"import os\nos.environ['A'] = 'é'\nimport torch\nimport g\n{SET}\nx = 1\n"),
    ("import torch; x = 1\n", f"import torch; {SET}; x = 1\n"),
    ("import os; import torch  # both\nx = 1\n", f"import os; import torch  # both\n{SET}\nx = 1\n"),
    ("# é\r\nimport torch\r\nx = 1\r\n", f"# é\r\nimport torch\r\n{SET}\r\nx = 1\r\n"),
    ("import torch as t\nx = 1\n", "import torch as t\nt.set_float32_matmul_precision(\"high\")\nx = 1\n"),
    ("from torch import set_float32_matmul_precision as s\n", "from torch import set_float32_matmul_precision as s\ns(\"high\")\n"),
    ("x = 1\n", f"import torch\n{SET}\nx = 1\n"),
    ("@a\ndef f(): ...\n", f"import torch\n{SET}\n@a\ndef f(): ...\n"),
    ('"""Doc."""\n\nx = 1\n', f'"""Doc."""\n\nimport torch\n{SET}\nx = 1\n'),
    ('"""Doc."""; x = 1\n', f'"""Doc."""; import torch; {SET}; x = 1\n'),
    ("from __future__ import annotations\n\nx = 1\n", f"from __future__ import annotations\n\nimport torch\n{SET}\nx = 1\n"),
    ("from __future__ import annotations\n", f"from __future__ import annotations\nimport torch\n{SET}\n"),
    ("# nothing", f"# nothing\nimport torch\n\n{SET}\n"),
    ("if True: import torch\n", f"if True: import torch\n{SET}\n"),
    ("try:\n    import torch\nexcept ImportError:\n    raise SystemExit('no torch')\nx = 1\n", f"try:\n    import torch\nexcept ImportError:\n    raise SystemExit('no torch')\n{SET}\nx = 1\n"),
    ('"""Doc."""', f'"""Doc."""\nimport torch\n{SET}'),
    ("", f"import torch\n{SET}\n"),
    ("from torch import nn\n", f"import torch\nfrom torch import nn\n{SET}\n"),
    ("def f():\n    import torch\n", f"import torch\n{SET}\ndef f():\n    import torch\n"),
    ("if x:\n    import torch\n    y = 1\n", None),  # may not be imported
    ("import os\nos.environ['OMP_NUM_THREADS'] = '4'\nfrom net import build\n", None),  # torch would read it too early
    ("import os\nif 'A' not in os.environ: os.environ['A'] = '4'\nfrom net import build\n", None),
    ("from os import environ\nenviron.setdefault('MKL_NUM_THREADS', '4')\nfrom net import build\n", None),
    ("import os\nos.environ.update(OMP_NUM_THREADS='4')\nfrom torch import nn\n", None),
    ("import os\nclass A:\n    os.environ.pop('A', None)\n", None),
    ("import os\nfrom torch import nn\nos.environ['A'] = '4'\n", f"import torch\nimport os\nfrom torch import nn\n{SET}\nos.environ['A'] = '4'\n"),
    ("import os\nos.environ |= {'A': '4'}\nfrom net import build\n", None),
    ("import os\nos.putenv('A', '4')\nfrom net import build\n", None),
    ("import os\nprint(os.environ['A'])\n", f"import torch\nimport os\n{SET}\nprint(os.environ['A'])\n"),
    ("def f():\n    import os\n    os.environ['A'] = '4'\n", f"import torch\n{SET}\ndef f():\n    import os\n    os.environ['A'] = '4'\n"),
    (f"import torch\nx = 1\n{SET}\n", None),
    ("import torch\ndef main():\n    torch.set_float32_matmul_precision('highest')\n", None),
    ("from torch import set_float32_matmul_precision as s\ns('highest')\n", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "after"), AT_START)
def test_set_at_start(text: str, after: str | None) -> None:
    source = Source("a.py", text)
    check(source, process_settings.set_at_start(source, SET), after)
    if after is not None:
        old = [ast.dump(statement) for statement in source.tree.body]
        new = [ast.unparse(s) for s in ast.parse(after).body if ast.dump(s) not in old]
        assert [ast.dump(s) for s in ast.parse(after).body if ast.dump(s) in old] == old
        assert len(new) - new.count("import torch") == 1
        assert process_settings.set_at_start(Source("a.py", after), SET) is None


@pytest.mark.parametrize(
    ("text", "statement", "after"),
    [
        ("import torch\n", "torch.set_default_dtype(torch.bfloat16)", "import torch\ntorch.set_default_dtype(torch.bfloat16)\n"),
        ("from torch import bfloat16\n", "torch.set_default_dtype(torch.bfloat16)", "import torch\nfrom torch import bfloat16\ntorch.set_default_dtype(bfloat16)\n"),
        ("import torch\n", "os.environ.setdefault('é', torch.__version__)", "import os\nimport torch\nos.environ.setdefault('é', torch.__version__)\n"),
        ("import torch\n", "x = 1", None),
        ("import torch\n", "f()", None),
        ("import torch\n", "if x: torch.f()", None),
        ("import torch\n", "torch.f(); torch.g()", None),
    ],
)  # fmt: skip
def test_statements_at_the_start(text: str, statement: str, after: str | None) -> None:
    source = Source("a.py", text)
    check(source, process_settings.set_at_start(source, statement), after)


def test_two_settings_go_together() -> None:
    source = Source("a.py", "import torch\n\nx = 1\n")
    first = process_settings.set_or_replace_call(source, "torch.set_num_threads", "4")
    second = process_settings.set_or_replace_attribute(source, "torch.backends.cudnn.benchmark", "True")
    assert first and second and not edit.overlap(first, second)
    expected = "import torch\ntorch.set_num_threads(4)\ntorch.backends.cudnn.benchmark = True\n\nx = 1\n"
    assert edit.apply(source.text, (*first, *second)) == expected


CALL = "torch.set_float32_matmul_precision"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        (f"import torch\n{CALL}('highest')  # é\n", f'import torch\n{CALL}("high")  # é\n'),
        (f"import torch\n{CALL}(\n    precision='highest',  # why\n)\n", f'import torch\n{CALL}(\n    precision="high",  # why\n)\n'),
        (f"import torch\nx = 'é'; {CALL}('highest'); y = 1\n", f"import torch\nx = 'é'; {CALL}(\"high\"); y = 1\n"),
        (f"import torch\nif torch.cuda.is_available():\n\t{CALL}('medium')\n", f'import torch\nif torch.cuda.is_available():\n\t{CALL}("high")\n'),
        ("from torch import set_float32_matmul_precision\nset_float32_matmul_precision('highest')", 'from torch import set_float32_matmul_precision\nset_float32_matmul_precision("high")'),
        ("import torch\n", f'import torch\n{CALL}("high")\n'),
        (f"import torch\n{CALL}('high')\n", None),  # it is so
        (f"import torch\n{CALL}(precision)\n", None),
        (f"import torch\n{CALL}()\n", None),
        (f"import torch\n{CALL}(*a)\n", None),
        (f"import torch\nx = {CALL}('highest')\n", None),
        (f"import torch\nif x:\n    {CALL}('highest')\n", None),
        (f"import torch\nif torch.cuda.is_available(): ...\nelse: {CALL}('highest')\n", None),
        (f"import torch\ndef main():\n    {CALL}('highest')\n", None),
        (f"import torch\n{CALL}('highest')\n{CALL}('medium')\n", None),
    ],
)  # fmt: skip
def test_set_or_replace_call(text: str, after: str | None) -> None:
    source = Source("a.py", text)
    check(source, process_settings.set_or_replace_call(source, CALL, '"high"'), after)


ATTRIBUTE = "torch.backends.cudnn.benchmark"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("import torch\n\nx = 1\n", f"import torch\n{ATTRIBUTE} = True\n\nx = 1\n"),
        ("import torch.backends.cudnn as cudnn\n", "import torch.backends.cudnn as cudnn\ncudnn.benchmark = True\n"),
        ("import torch\nx = 1\nfrom torch.backends import cudnn\n", "import torch\nx = 1\nfrom torch.backends import cudnn\ncudnn.benchmark = True\n"),
        ("from torch.backends.cudnn import benchmark\n", f"import torch\nfrom torch.backends.cudnn import benchmark\n{ATTRIBUTE} = True\n"),
        (f"import torch\nif x: print({ATTRIBUTE})\n", f"import torch\n{ATTRIBUTE} = True\nif x: print({ATTRIBUTE})\n"),
        (f"import torch\n{ATTRIBUTE} = False  # é\n", f"import torch\n{ATTRIBUTE} = True  # é\n"),
        (f"import torch\n{ATTRIBUTE}=(False); x = 1\n", f"import torch\n{ATTRIBUTE}=(True); x = 1\n"),
        ("from torch.backends import cudnn\ncudnn.benchmark = False\n", "from torch.backends import cudnn\ncudnn.benchmark = True\n"),
        (f"import torch\n{ATTRIBUTE} = 1\n", f"import torch\n{ATTRIBUTE} = True\n"),
        (f"import torch\n{ATTRIBUTE} = True\n", None),
        (f"import torch\n{ATTRIBUTE} = flag\n", None),
        (f"import torch\n{ATTRIBUTE} = x = False\n", None),
        (f"import torch\n{ATTRIBUTE}, x = False, 1\n", None),
        (f"import torch\n{ATTRIBUTE} |= True\n", None),
        (f"import torch\ndef main():\n    {ATTRIBUTE} = False\n", None),
        (f"import torch\nif __name__ == '__main__':\n    {ATTRIBUTE} = False\n", None),
        (f"import torch\n{ATTRIBUTE} = False\n{ATTRIBUTE} = False\n", None),
    ],
)  # fmt: skip
def test_set_or_replace_attribute(text: str, after: str | None) -> None:
    source = Source("a.py", text)
    check(source, process_settings.set_or_replace_attribute(source, ATTRIBUTE, "True"), after)
