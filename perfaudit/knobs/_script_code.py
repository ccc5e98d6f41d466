"""A script's text as a knob edits it: lines about its models where they are built, and what stands around its forward pass."""

from __future__ import annotations

import ast

from perfaudit.findings import Edit
from perfaudit.knobs._code import Code, Patch, call_at
from perfaudit.static import edit
from perfaudit.static.source import Source
from perfaudit.training.held_names import Held

NO_NAME = "no function of yours that runs gives each model a name by a plain `name = ...` that holds it in every branch"


def about_models(code: Code, line: str, documented: str = "", initialised: bool = False) -> Patch | None:
    """The line behind the statement that gives each of a script's models its name; `{}` in it stands for the name.

    documented: the name of torch that `{torch}` stands for, written as the file imports it. initialised: behind what gives the
    model its first values, too. None where one of the models has no such place, or not all have it in one file.
    """
    from perfaudit.static.behind_binding import state_behind

    script = code.survey.facts.script
    models = script.models if script is not None else ()
    found, source, place = list[tuple[Edit, ...]](), None, None
    for names in models:
        for held in names:
            text = code.source(held.path)
            if text is None or (source is not None and text.path != source.path):
                continue
            name, imported = edit.name_for(text, documented) if documented else ("", ())
            said = line.replace("{torch}", name)
            behind = state_behind(text, held.function, held.first_line, held.name, held.line, said, initialised)
            if behind is not None:
                source, place = text, place or behind[1]
                found.append((*imported, *behind[0]))
                break
        else:
            return None
    if source is None or place is None:
        return None
    return code.patch(source, place, edit.together(*found))


def forward_under(code: Code, context: str, documented: tuple[str, ...]) -> Patch | None:
    """The forward pass and the loss of each backward pass of a script's step under `with {context}:`.

    None where the text does not make plain which statements those are, or where they are of several files.

    documented: names of torch that `{0}`, `{1}` … in the context stand for, written as the file imports them.
    """
    from perfaudit.static.around_forward import Begun, put_forwards_under

    script = code.survey.facts.script
    backwards = script.backward if script is not None else ()
    paths = {each.site.path for each in backwards}
    source = code.source(next(iter(paths))) if len(paths) == 1 else None
    if script is None or source is None:
        return None
    held = [each for model in script.models for each in model if each.path in paths]
    begun: list[Begun] = []
    for each in backwards:
        found = call_at(source, each.site)
        if found is None:
            return None
        names = frozenset(name.name for name in held if _is_known(source, name, found[1]))
        begun.append(Begun(found[1], names, frozenset(each.forwards), frozenset(each.others)))
    written = [edit.name_for(source, name) for name in documented]
    header = f"with {context.format(*(name for name, _ in written))}:"
    off = {site.line for site in script.autocasts_off if site.path in paths}
    done = put_forwards_under(source, begun, header, off)
    if done is None:
        return None
    edits, first = done
    imports = dict.fromkeys(each for _, imported in written for each in imported)
    return code.patch(source, first, (*imports, *edits))


def _is_known(source: Source, held: Held, place: ast.Call) -> bool:
    """Whether a name of a running function is one of those of a place in the file: of the file itself, of a function around it,
    or of the object whose other method it is.
    """
    from perfaudit.static.around_forward import enclosing_names

    owner, _, function = held.function.rpartition(".")
    if held.function == "<module>" or (function, held.first_line) in enclosing_names(source, place):
        return True
    methods = [each for each in source.ancestors(place) if isinstance(each, ast.ClassDef)]
    return held.name.startswith("self.") and bool(methods) and methods[0].name == owner.rpartition(".")[2]
