"""Activations and norms written out operator by operator: the library's function, or torch.compile of that function."""

from __future__ import annotations

import ast

from perfaudit.findings import Finding
from perfaudit.knobs import Bench, Survey
from perfaudit.knobs._code import Code, Patch, inside_project
from perfaudit.knobs._source_knobs import Rewritten, by_hand
from perfaudit.knobs.compile import no_compiler
from perfaudit.measurements import Settings
from perfaudit.static.source import Source

# Of the knob's time; at load 8 the first generation, compiling, took 73 s to open (digits_cnn).
COMPILING_SECONDS = 180.0
COMPILED = "compiled"


class Fusion(Rewritten):
    name = "fusion"
    title = "activations and norms as you wrote them, from the library, and compiled"
    tries = "Try the library's functions, and compiled ones, for activations and norms that are written out."
    usual_gain = 0.2
    rules = ("PA204", "PA205")
    column = "pointwise"
    after = "library"
    sought = "hand-written activation or norm"
    changes_always = ("rounding",)

    def not_applicable(self, survey: Survey) -> str:
        """What has no function in the library can still be compiled."""
        if by_hand(survey, self.rules) and not no_compiler(survey) and not survey.facts.model.compiled:
            return ""
        return super().not_applicable(survey)

    def candidates(self, bench: Bench) -> list[Settings]:
        found: list[Settings] = [{self.column: self.after}] if bench.survey.patchable(*self.rules) else []
        already = no_compiler(bench.survey) or bench.survey.facts.model.compiled
        if not already and bench.seconds >= COMPILING_SECONDS:
            found.append({self.column: COMPILED})
        return found

    def size(self, settings: Settings) -> int:
        """One kernel of the library before a compiler at every start."""
        return [self.before, self.after, COMPILED].index(str(settings[self.column]))

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        if settings[self.column] == COMPILED:
            return _compile_patch(code, [f for f in code.survey.findings if f.rule in self.rules])
        return super().patch(code, settings)

    def words(self, settings: Settings, survey: Survey) -> str:
        if settings[self.column] == COMPILED:
            return "put @torch.compile above the function that writes the activation or norm out"
        return "replace the activation or norm that is written out by the library's function"


def _compile_patch(code: Code, findings: list[Finding]) -> Patch | None:
    """`@torch.compile` above every plain function of one file (the first that has any) that holds one of the findings."""
    from perfaudit.static import edit
    from perfaudit.static.rewrite import decorate

    places = [f.location for f in findings if f.location is not None and inside_project(f.location.path)]
    source = code.source(places[0].path) if places else None
    if source is None:
        return None
    lines = [place.line for place in places if place.path == places[0].path]
    functions = list(dict.fromkeys(f for line in lines if (f := _plain_function_around(source, line)) is not None))
    name, imported = edit.name_for(source, "torch")
    decorated = [decorate(source, f, f"{name.rstrip('.')}.compile") for f in functions]
    edits = edit.together(imported, *decorated) if functions and None not in decorated else None
    done = code.patch(source, functions[0] if functions else None, edits)
    drops = any("drop" in source.text_of(f) for f in functions)  # compiled, dropout draws other numbers
    changes = ("rounding", "rng") if drops else ("rounding",)
    return Patch(done.path, done.edits, done.before, done.after, done.location, changes) if done else None


def _plain_function_around(source: Source, line: int) -> ast.FunctionDef | None:
    """The function or method that holds a line, if it is no closure, is not decorated, and neither waits nor yields."""
    around = [f for f in source.nodes(ast.FunctionDef) if f.lineno <= line <= (f.end_lineno or f.lineno)]
    if not around or any(a.lineno <= line <= (a.end_lineno or 0) for a in source.nodes(ast.AsyncFunctionDef)):
        return None
    inner = max(around, key=lambda f: f.lineno)
    yields = [*source.nodes(ast.Yield), *source.nodes(ast.YieldFrom)]
    if inner.decorator_list or any(source.scope(node) is inner for node in yields):
        return None
    return inner if isinstance(source.parent(inner), (ast.Module, ast.ClassDef)) else None


KNOB = Fusion()
