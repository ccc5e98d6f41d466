"""What a run says of biases before norms: findings confirmed, counted, taken back, and those that reading alone missed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from perfaudit.findings import Finding, Fix, Location
from perfaudit.knobs._code import Site, call_at, read_project
from perfaudit.static import edit
from perfaudit.static.checks.conv_bias_before_norm import BIAS, CONVOLUTIONS
from perfaudit.static.checks.conv_bias_before_norm.bias_uses import (
    freezes_norms,
    needs_bias,
    sets_biases_of,
    unseen_initialiser,
)
from perfaudit.static.checks.conv_bias_before_norm.flow import Layer as Written
from perfaudit.static.checks.conv_bias_before_norm.redundant_bias import kind_of, true_or_absent
from perfaudit.static.checks.linear_bias_before_norm import BIAS as LINEAR_BIAS
from perfaudit.static.registry import Proposal, Seen, catalogue, finding_of
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.branches import branches
from perfaudit.static.understanding.members import attributes

RULES = ("PA201", "PA202")
LAYERS_NAMED = 3  # of those that a call has built
_POSITIONS = {**dict.fromkeys(CONVOLUTIONS, BIAS), "torch.nn.Linear": LINEAR_BIAS}

Json = dict[str, Any]  # Any: nested JSON
Verdict = Literal["pair", "shared", "alone", "unknown"]


@dataclass(frozen=True, slots=True)
class ReadOnce:
    """The project's files, each read once."""

    known: dict[str, Source | None] = field(default_factory=dict)

    def source(self, path: str) -> Source | None:
        """A file of the project, None for one that is none or cannot be read."""
        if path not in self.known:
            self.known[path] = read_project(path, {})
        return self.known[path]

    def call(self, site: Site | None) -> tuple[Source, ast.Call] | None:
        """The call that stands at exactly this place; None where it cannot be found or is not the project's."""
        return call_at(self.source(site[0]), site) if site is not None else None

    def place(self, site: Site | None) -> Location | None:
        """Where reports show a call of the project."""
        found = self.call(site)
        return found[0].location(found[1]) if found is not None else None


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of the model and what became of its output: a norm and nothing else, more than that, no norm, or not known."""

    name: str
    kind: str
    shape: tuple[int, ...]
    site: Site | None
    stack: tuple[Site, ...]
    alike: int  # objects that the same call built outside of the model
    verdict: Verdict
    norm: str = ""  # its name


def layers_of(seen: Json) -> list[Layer]:
    """The layers with a bias, those that a child listed or else those of which it only said that a norm follows."""
    pairs: dict[str, list[Json]] = {}
    for pair in seen.get("pairs") or []:
        pairs.setdefault(pair["layer"], []).append(pair)
    listed = [entry for entry in seen.get("layers") or [] if "Norm" not in entry["kind"]]
    known = {entry["layer"] for entry in listed}
    listed += [{**p[0], "ran": True, "alike": 1, "shape": []} for name, p in pairs.items() if name not in known]
    return [_layer(entry, pairs.get(entry["layer"], [])) for entry in listed if entry["bias"]]


def _layer(entry: Json, pairs: list[Json]) -> Layer:
    verdict: Verdict = "unknown" if not entry["ran"] else "alone" if not pairs else "pair"
    if any(pair["consumers"] != 1 for pair in pairs):
        verdict = "shared"
    norm = pairs[0]["norm"] if pairs else ""
    stack = tuple(entry.get("stack") or ())
    return Layer(
        entry["layer"], entry["kind"], tuple(entry["shape"]), entry["site"], stack, entry["alike"], verdict, norm
    )


# ---- findings of the scanner -----------------------------------------------------------------------------------------


def judge_bias(finding: Finding, layers: list[Layer], code: ReadOnce) -> tuple[Finding, bool]:
    """A finding of the scanner with what was seen of the layers that its call builds, and whether it is withdrawn."""
    here = [layer for layer in layers if finding.location in _places(layer, code)]
    good = [layer for layer in here if layer.verdict == "pair"]
    bad = [layer for layer in here if layer.verdict == "shared" or (layer.verdict == "alone" and _is_plain(finding))]
    is_all = not any(layer.alike for layer in here)
    if not here or (not good and not bad):
        return finding, False
    if bad and len(bad) == len(here) and is_all:
        is_shared = any(layer.verdict == "shared" for layer in bad)
        reason = "not only a norm takes the output" if is_shared else "no norm follows"
        why = f"observed: {_layers_in_words(bad)}; {reason}, so the bias is not subtracted again"
        return with_advice_only(finding, why), True
    if bad and _is_plain(finding):
        return with_advice_only(
            finding, f"observed: of {_layers_in_words(here)}; {_layer_names(bad)} cannot do without the bias"
        ), False
    subtracted = f"{len(good)} of them with" if len(good) < len(here) else "with"
    return append_note(
        finding, f"observed: {_layers_in_words(here)}, {subtracted} a norm behind and nothing else"
    ), False


def _places(layer: Layer, code: ReadOnce) -> list[Location | None]:
    return [code.place(site) for site in (layer.site, *layer.stack) if site is not None]


def _is_plain(finding: Finding) -> bool:
    """Whether the fix, if there is one, takes the bias away from everything that the call builds."""
    return finding.fix is None or finding.fix.title.startswith("pass `bias=False`")


def append_note(finding: Finding, note: str) -> Finding:
    """The finding with one more note."""
    return finding.with_(note=f"{finding.note}; {note}" if finding.note else note)


def with_advice_only(finding: Finding, note: str) -> Finding:
    """The finding with one more note and its fix as advice."""
    fix = Fix(finding.fix.title, "manual") if finding.fix is not None else None
    return append_note(finding.with_(fix=fix), note)


def _layers_in_words(layers: list[Layer]) -> str:
    built = "1 layer is built here" if len(layers) == 1 else f"{len(layers)} layers are built here"
    return f"{built} ({_layer_names(layers)})"


def _layer_names(layers: list[Layer]) -> str:
    names = [f"`{layer.name}`" for layer in layers[:LAYERS_NAMED]]
    return ", ".join([*names, "…"] if len(layers) > LAYERS_NAMED else names)


# ---- what reading alone missed ---------------------------------------------------------------------------------------


def missed_findings(
    layers: list[Layer], norms: dict[str, Json], known: Iterable[Finding], code: ReadOnce
) -> Iterator[Finding]:
    """Calls that the scanner was silent about, where every layer they built has a norm behind and nothing else.

    norms: what was seen of each norm, by name. A fix is offered only where the text shows nothing that speaks against it;
    else the finding carries advice.
    """
    reported = {finding.location for finding in known if finding.rule in RULES}
    by_site: dict[str, list[Layer]] = {}
    for layer in layers:
        if layer.site is not None:
            by_site.setdefault(str(layer.site), []).append(layer)
    for here in by_site.values():
        found = code.call(here[0].site)
        if found is None or any(place in reported for layer in here for place in _places(layer, code)):
            continue
        source, call = found
        kind = kind_of(source, call)
        if kind not in _POSITIONS or not _is_always_a_pair(here, layers):
            continue
        if true_or_absent(source, call, _POSITIONS[kind]) is not None and not _spreads(call):
            yield _new(source, call, kind, here, norms, code)


def _is_always_a_pair(here: list[Layer], layers: list[Layer]) -> bool:
    """Whether all that a call built was seen to be a pair, and so were copies that may stem from it."""
    one = here[0]
    copies = [x for x in layers if x.site is None and (x.kind, x.shape) == (one.kind, one.shape)]
    return all(layer.verdict == "pair" and not layer.alike for layer in (*here, *copies))


def _spreads(call: ast.Call) -> bool:
    """`Conv2d(*args)` or `Conv2d(**options)`: what is passed is not seen."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)


def _new(
    source: Source, call: ast.Call, kind: str, here: list[Layer], norms: dict[str, Json], code: ReadOnce
) -> Finding:
    rule = catalogue().rules["PA202" if kind == "torch.nn.Linear" else "PA201"]
    what = f"the bias of `{source.brief(call)}` is subtracted again by `{here[0].norm}`"
    doubt = _doubt(source, call, kind, here, norms, code)
    proposal = Proposal(f"pass `bias=False`, if {doubt}")
    if not doubt:
        value = true_or_absent(source, call, _POSITIONS[kind])
        is_written = isinstance(value, ast.expr)
        edits = edit.set_keyword(source, call, "bias", "False")
        if is_written and edit.keyword(call, "bias") is None:  # by position
            edits = edit.replace(source, value, "False")  # type: ignore[arg-type]  # is_written says so
        proposal = Proposal("pass `bias=False`", edits)
    found = finding_of(source, rule, Seen(call, f"{what}: it costs memory traffic and changes nothing", proposal))
    return append_note(found, f"observed: {_layers_in_words(here)}, with a norm behind and nothing else")


def _doubt(source: Source, call: ast.Call, kind: str, here: list[Layer], norms: dict[str, Json], code: ReadOnce) -> str:
    """What has to hold so that the bias can go, where the text does not show it; "" where it does."""
    name = next((part for part in reversed(here[0].name.split(".")) if not part.isdigit()), "")
    if freezes_norms(source):
        return "the norms behind are not put into evaluation mode while training goes on"
    if needs_bias(source, Written(call, name), kind) or sets_biases_of(kind)(source):
        return "code that reads or sets this bias can do without it"
    if (initialiser := unseen_initialiser(source)) is not None:
        return f"`{initialiser}` leaves a missing bias alone"
    for layer in here:
        norm = norms.get(layer.norm, {})
        found = code.call(norm.get("site"))
        if norm.get("alike", 1) or found is None or not _is_bound_to(source, call, *found):
            return "a norm follows wherever else this code is used"
    return ""


def _is_bound_to(source: Source, call: ast.Call, other: Source, norm: ast.Call) -> bool:
    """Whether layer and norm are built side by side, a norm by its own name, and its use hangs on no condition."""
    around = source.enclosing(call, *FUNCTIONS)
    if source is not other or source.enclosing(norm, *FUNCTIONS) is not around:
        return False
    if "Norm" not in kind_of(source, norm):
        return False
    mine = {(id(node), side) for node, side in branches(source, call)}
    if any((id(node), side) not in mine for node, side in branches(source, norm) if side is not None):
        return False
    return all(_always_used(source, built, around) for built in (call, norm))


def _always_used(source: Source, built: ast.Call, around: ast.AST | None) -> bool:
    """Whether the attributes that hold what a call builds are used in its class, and never under a condition."""
    owner = source.enclosing(built, ast.ClassDef)
    held = _held_by(source, built)
    uses = [use for name in held for use in attributes(source).get(name, [])]
    outside = [use for use in uses if source.enclosing(use, *FUNCTIONS) is not around]
    is_own = all(source.enclosing(use, ast.ClassDef) is owner for use in outside)
    return bool(outside) and is_own and all(side is None for use in outside for _, side in branches(source, use))


def _held_by(source: Source, built: ast.Call) -> set[str]:
    """Attributes that a statement puts something into: `self.bns.append(nn.BatchNorm2d(8))`, `self.bns[k] = …`."""
    statement = source.statement(built)
    if isinstance(statement, ast.Assign):
        places: list[ast.expr] = statement.targets
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        places = [statement.value.func.value] if isinstance(statement.value.func, ast.Attribute) else []
    else:
        places = []
    return {node.attr for place in places for node in ast.walk(place) if isinstance(node, ast.Attribute)}
