"""What a module binds is read from its text as the tree tells it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from perfaudit.static.bare_code import bare_code
from perfaudit.static.module_names import ModuleNames
from perfaudit.static.source.plain_subclass import same_signature

PACKAGE = Path(__file__).parent.parent.parent / "perfaudit"


def test_our_own_modules() -> None:
    for path in sorted((PACKAGE / "static").rglob("*.py")):
        check_names(path)


def check_names(path: Path) -> None:
    text = path.read_text()
    names, imports = ModuleNames(text), {}
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.ImportFrom):
            imports.update(
                {alias.asname or alias.name: f"{statement.module}.{alias.name}" for alias in statement.names}
            )
        elif isinstance(statement, ast.Import):
            imports.update({a.asname or a.name: a.name for a in statement.names if "." not in a.name})
        elif isinstance(statement, ast.ClassDef):
            base = ast.unparse(statement.bases[0]) if len(statement.bases) == 1 else ""
            place = f"{path}:{statement.lineno}"
            assert names.base_of(statement.name, plain=False) == base, place
            assert names.base_of(statement.name, plain=True) == (base if same_signature(statement) else ""), place
    assert imports.items() <= names.imports.items(), path  # those under TYPE_CHECKING are in it too


@pytest.mark.parametrize(
    ("text", "imports"),
    [
        ("import a.b", {"a": "a"}),
        ("import a.b as c", {"c": "a.b"}),
        ("from . import a\nfrom ..b import c as d", {"a": ".a", "d": "..b.c"}),
        ("from a import (\n    b,  # not c\n)\n", {"b": "a.b"}),
        ("from a import (\nb,\nc)\n", {"b": "a.b", "c": "a.c"}),  # the text does not tell where statements begin
        ("from a import \\\nb", {"b": "a.b"}),
        ("x = 1; import a", {"a": "a"}),
        ("try:\n    import a\nexcept ImportError:\n    a = None\nelse:\n    import b\n", {"a": "a", "b": "b"}),
        (
            "if fast:\n    import a\n# a comment at the margin\nelif slow:\n    import b\nelse:\n    import c",
            {"a": "a", "b": "b", "c": "c"},
        ),
        ("def f():\n    import a\n", {}),
        ("@decorator\ndef f():\n    import a\n", {}),
        ("class A:\n    import a\n", {}),
        ('"""\nimport a\n"""\n', {}),
        ("text = '''\nimport a\n'''; import b", {"b": "b"}),
        ("import a\r\nimport b\r\n", {"a": "a", "b": "b"}),
        ('name = "ä"\nimport ä', {"ä": "ä"}),
    ],
)
def test_imports(text: str, imports: dict[str, str]) -> None:
    assert ModuleNames(text).imports == imports


def test_stars() -> None:
    assert ModuleNames("from .a import *\nif x:\n    from b import *\n").stars == [".a", "b"]


@pytest.mark.parametrize(
    ("text", "base", "plain"),
    [
        ("class A(nn.Linear): ...", "nn.Linear", "nn.Linear"),
        ("class A(nn.Linear):\n    def extra(self): ...", "nn.Linear", "nn.Linear"),
        ("class A(nn.Linear):\n    def forward(self, x): ...", "nn.Linear", ""),
        ("class A(nn.Linear):\n    class B:\n        def forward(self, x): ...", "nn.Linear", "nn.Linear"),
        ("class A(B):\n    def __init__(self, *a, **k):\n        super().__init__(*a, **k)", "B", "B"),
        ("class A(B):\n    def __init__(self, *a, **k):\n        super().__init__(*a, x=1, **k)", "B", ""),
        ("class A(B):\n    def __init__(self, *a: f(), **k):\n        super().__init__(*a, **k)", "B", "B"),
        ("class A(B):\n    def __init__(self, n, **k):\n        super().__init__(n, **k)", "B", ""),
        ("class A(B):\n    def __init__(self, n=f(1)):\n        super().__init__(n)", "B", ""),
        ("class A(B):\n    # first\n\n    x = 1\n    async def __call__(self): ...", "B", ""),
        ("class A(B):\n    if fast:\n        def forward(self, x): ...", "B", "B"),
        ("class A(B):\n    def other(self):\n        def forward(x): ...", "B", "B"),
        ("class A(B): ...\n@decorator\nclass A(C): ...", "C", "B"),
        ("@decorator\nclass A(B): ...", "B", ""),
        ("class A(B, C): ...", "", ""),
        ("class A: ...", "", ""),
        ("class A(B, metaclass=C): ...", "B", "B"),
        ("if x:\n    class A(B): ...\nelse:\n    class A(C): ...", "C", "C"),
        ("class A(\n    B,  # for now\n): ...", "B", "B"),
        ("class A(Base[int]): ...", "Base[int]", "Base[int]"),
    ],
)
def test_classes(text: str, base: str, plain: str) -> None:
    names = ModuleNames(text)
    assert names.base_of("A", plain=False) == base
    assert names.base_of("A", plain=True) == plain


def test_what_does_not_parse() -> None:
    with pytest.raises(SyntaxError):
        ModuleNames("import a\nfrom import b")


@pytest.mark.parametrize(
    ("text", "code", "is_sure"),
    [
        ('a("(", b)  # c(', "a('' , b)  ", True),
        ("""a = "x""y" """, "a = '' ''  ", True),
        ("a = 'it\\'s'", "a = '' ", True),
        ('a = """b"\nc"""', "a = '' ", True),
        ("a = 'b", "a = 'b", False),
        ("ä = 1", "ä = 1", False),
        ('f"{a["b"]}"', "f'' b'' ", False),  # as Python 3.12 allows it
    ],
)
def test_bare_code(text: str, code: str, is_sure: bool) -> None:
    bare = bare_code(text)
    assert (bare.code, bare.is_sure) == (code, is_sure)
