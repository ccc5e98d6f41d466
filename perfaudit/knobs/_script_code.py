"""A script's text as a knob edits it: lines about its models where they are built, and what stands around its forward pass."""

from __future__ import annotations

from perfaudit.findings import Edit
from perfaudit.knobs._code import Code, Patch
from perfaudit.static import edit
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
    """The forward pass and the loss of a script's loop under `with {context}:`; None where the text does not make plain which
    statements those are.

    documented: names of torch that `{0}`, `{1}` … in the context stand for, written as the file imports them.
    """
    from perfaudit.static.around_forward import enclosing_names, put_forward_under

    script = code.survey.facts.script
    found = code.call(script.backward[0]) if script is not None and len(script.backward) == 1 else None
    if script is None or found is None:
        return None
    source, backward = found
    around = enclosing_names(source, backward)
    names = {held.name for model in script.models for held in model if _is_known(held, script.backward[0].path, around)}
    written = [edit.name_for(source, name) for name in documented]
    header = f"with {context.format(*(name for name, _ in written))}:"
    done = put_forward_under(source, backward, names, header)
    if done is None:
        return None
    edits, first = done
    imports = dict.fromkeys(each for _, imported in written for each in imported)
    return code.patch(source, first, (*imports, *edits))


def _is_known(held: Held, path: str, around: set[tuple[str, int]]) -> bool:
    """Whether a name of a running function is one of those of a place: of the file, or of a function around it."""
    of_file = held.function == "<module>"
    return held.path == path and (of_file or (held.function.rpartition(".")[2], held.first_line) in around)
