"""The style of HTML pages: two themes, and for each use of time a colour and a pattern.

Hues are those that Okabe and Ito chose for colour-blind readers (https://jfly.uni-koeln.de/color/), darkened on white until each
has a contrast of 3 with the page; the tests compute it, and 4.5 for texts. No line may begin with two colons: the log of a CI
would take it for a command.
"""

from __future__ import annotations

LIGHT = {
    "page": "#ffffff",
    "track": "#eef0f2",
    "line": "#c9ced4",
    "text": "#1a1d21",
    "dim": "#545b63",
    "link": "#0b57a4",
    "mark": "#ffffff",
    "compute": "#0072b2",
    "communication_exposed": "#2e8fc7",
    "memory_exposed": "#b8608f",
    "idle_data": "#c95500",
    "idle_sync": "#b37400",
    "idle_allocation": "#8f8000",
    "idle_launch": "#00875f",
    "idle_other": "#7d848c",
    "wait0": "#ffffff",
    "wait1": "#e3eefa",
    "wait2": "#b9d5f0",
    "wait3": "#86b6e0",
    "wait4": "#2565a8",
    "wait5": "#0b3d75",
    "on-wait4": "#ffffff",
}
DARK = {
    "page": "#14171a",
    "track": "#23282d",
    "line": "#454c54",
    "text": "#e8eaec",
    "dim": "#aab2ba",
    "link": "#7cb8f2",
    "mark": "#14171a",
    "compute": "#2b8fd0",
    "communication_exposed": "#7cc4ee",
    "memory_exposed": "#d793b8",
    "idle_data": "#ee7a2c",
    "idle_sync": "#e8a723",
    "idle_allocation": "#efe45a",
    "idle_launch": "#22b98a",
    "idle_other": "#9aa1a9",
    "wait0": "#14171a",
    "wait1": "#1a2836",
    "wait2": "#1f4060",
    "wait3": "#295a8a",
    "wait4": "#8fbfea",
    "wait5": "#d3e6f8",
    "on-wait4": "#14171a",
}
KINDS = tuple(name for name in LIGHT if name.startswith(("compute", "communication", "memory", "idle")))
WAITS = 5  # classes of a map from "nothing" to "the longest"

_RULES = """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.5 system-ui,sans-serif}
main{max-width:70rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1rem;font-weight:600;margin:0;color:var(--dim)}
h2{font-size:1.2rem;margin:2.5rem 0 .5rem}
h3{font-size:1rem;margin:0}
p{margin:.4rem 0;overflow-wrap:anywhere}
a{color:var(--link)}
a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-99rem}
.skip:focus{left:1rem;top:.5rem;background:var(--page);padding:.3rem .6rem}
.verdict{font-size:1.35rem;line-height:1.35;font-weight:600;margin:.4rem 0 .6rem}
.dim,caption,figcaption{color:var(--dim)}
code,pre{font:.9em ui-monospace,monospace}
code{overflow-wrap:anywhere}
pre{background:var(--track);padding:.7rem;overflow-x:auto}
ol.findings{list-style:none;padding:0;margin:0}
ol.findings>li{border:1px solid var(--line);border-radius:.4rem;padding:.8rem 1rem;margin:.8rem 0}
.saving{font-weight:700}
.place{font-weight:400;color:var(--dim)}
ul.plain{padding-left:1.1rem}
ul.plain li{overflow-wrap:anywhere}
details{margin:.6rem 0}
summary{cursor:pointer}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:.3rem 0}
th,td{padding:.2rem .6rem;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}
thead th{vertical-align:bottom}
tbody th,thead th:first-child{text-align:left}
tbody th{font-weight:400;white-space:nowrap}
.names tbody th{white-space:normal;overflow-wrap:anywhere;min-width:14rem}
.places th:nth-child(n+3),td.words{text-align:left}
td{white-space:nowrap}
td.words{white-space:normal;overflow-wrap:anywhere;min-width:9rem}
svg{display:block;width:100%}
.defs{position:absolute;width:0;height:0}
figure{margin:.6rem 0}
.bars{list-style:none;padding:0;margin:.6rem 0}
.bars li{margin:.5rem 0}
.bars svg{height:1.5rem;background:var(--track)}
.bars rect{height:100%;stroke:var(--page);stroke-width:1px}
.bars .figures{font-size:.85rem;color:var(--dim);overflow-wrap:anywhere}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;list-style:none;padding:0;margin:.4rem 0;font-size:.9rem}
.legend svg{display:inline-block;width:1.6rem;height:1rem;vertical-align:-.15rem;margin-right:.4rem}
.legend rect{width:100%;height:100%}
.lanes{list-style:none;padding:0;margin:.4rem 0}
.lanes li{display:grid;grid-template-columns:15.5rem 1fr 4.5rem;gap:.6rem;align-items:center;margin:.15rem 0;font-size:.85rem}
.lanes li>:last-child{text-align:right;font-variant-numeric:tabular-nums}
.lanes svg{height:1.3rem;background:var(--track)}
.scale span{display:flex;justify-content:space-between;color:var(--dim)}
.map{font-size:.8rem}
.map td,.map thead th{min-width:2.6rem;padding:.2rem .3rem}
.map thead th{max-width:5rem;overflow-wrap:break-word;font-weight:400}
.better{font-weight:700}
.mark{stroke:var(--mark);fill:none;stroke-width:1.6}
.dot{fill:var(--mark)}
@media(max-width:40rem){
.lanes li{grid-template-columns:1fr 4.5rem;row-gap:0}
.lanes li>:first-child{grid-column:1/3}
.lanes li.scale>:first-child{display:none}
main{padding:1rem .8rem 3rem}
}
@media print{.scroll{overflow:visible}}
"""


def style() -> str:
    """The whole style sheet."""
    light, dark = _variables(LIGHT), _variables(DARK)
    themes = f":root{{color-scheme:light dark;{light}}}\n@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    kinds = [
        f".{name}{{fill:url(#pattern-{name})}}\n.lanes .{name},.base-{name}{{fill:var(--{name})}}" for name in KINDS
    ]
    waits = [
        f".wait{n}{{background:var(--wait{n});color:var(--{'on-wait4' if n >= 4 else 'text'})}}"
        for n in range(WAITS + 1)
    ]
    return "\n".join([themes, _RULES.strip(), *kinds, *waits])


def _variables(theme: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in theme.items())
