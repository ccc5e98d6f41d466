"""Arguments of an optimizer that a library builds, in the user's own call that hands them on to it."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from perfaudit.findings import Edit
from perfaudit.knobs._code import Code, built_at
from perfaudit.measure.facts import HandedOn
from perfaudit.measure.facts import Optimizer as OptimizerFacts
from perfaudit.static.given_arguments import give
from perfaudit.static.nested_arguments import as_dict, give_inside
from perfaudit.static.source import Source


def call_of(code: Code, handed: HandedOn) -> tuple[Source, ast.Call] | None:
    """The user's call that builds the object of the library, or calls its function; None where it does not name either."""
    found = code.call(handed.site)
    return found if found is not None and builds(*found, handed.owner) else None


def builds(source: Source, call: ast.Call, owner: str) -> bool:
    """Whether a call names the class that it builds an object of, or builds one of the class of the user's in which it stands.

    Another call may have the library copy one.
    """
    written = ast.unparse(call.func)
    names = (written, source.qualified_name(call.func) or "")  # which is that of the base for a class of the user's
    if any(owner in name.split(".")[-2:] for name in names):  # `NBeats(...)`, and `NBeats.from_dataset(...)`
        return True
    around = source.enclosing(call, ast.ClassDef)
    return written == "super().__init__" and around is not None and around.name == owner


def edits_of(source: Source, call: ast.Call, handed: HandedOn, arguments: Mapping[str, str]) -> tuple[Edit, ...] | None:
    """The call with these arguments for the optimizer; None where they cannot be put there without a doubt."""
    if handed.path:
        return give_inside(source, call, handed.path, arguments, handed.kept, handed.is_given)
    return give(source, call, {f"{handed.prefix}{name}": value for name, value in arguments.items()})


def text_of(handed: HandedOn, arguments: Mapping[str, str]) -> str:
    """These arguments as the call takes them: `optimizer__fused=True`."""
    if not handed.path:
        return ", ".join(f"{handed.prefix}{name}={value}" for name, value in arguments.items())
    kept = {} if handed.is_given else handed.kept
    return f"{handed.path[0]}={as_dict(handed.path[1:], {**kept, **arguments})}"


def why_not(code: Code, optimizer: OptimizerFacts, arguments: Mapping[str, str]) -> str:
    """Why no call of the user's is edited for an optimizer that no line of theirs builds, "" where one is."""
    handed, whose = optimizer.handed_on, f"the {optimizer.name}"
    if not optimizer.library_line:
        return f"no line of your files builds {whose}{built_at(optimizer.site)}"
    built = f"no line of your files builds {whose}: {optimizer.library_line} does"
    if handed is None:
        return f"{built}, and it is not known to take this argument from a call of yours"
    found = call_of(code, handed)
    if found is not None and edits_of(*found, handed, arguments) is not None:
        return ""
    return (
        f"{built}. {handed.owner} hands {text_of(handed, arguments)} on to it, and your call{built_at(handed.site)} is not "
        "written so that this can be added without a doubt: add it by hand"
    )


def lost_options(before: Sequence[OptimizerFacts], after: Sequence[OptimizerFacts]) -> str:
    """Which options of optimizers a patch of a library's arguments has changed besides the one that it sets, "" for none."""
    for old, new in zip(before, after, strict=False):
        if old.handed_on is None:
            continue
        names = [name for name in {**old.options, **new.options} if old.options.get(name) != new.options.get(name)]
        if names:
            changed = ", ".join(
                f"{name}={new.options.get(name)} in the place of {old.options.get(name)}" for name in names
            )
            return f"the {new.name} of the patched source has {changed}"
    return ""
