"""The style sheet of reports. It is a Python module, so that it is included in the package, zipped or not."""

from typing import Final

STYLE: Final = """\
:root { color-scheme: light dark; --page: #f6f8fa; --card: #fff; --line: #d8dee4; --ink: #1f2328; --soft: #59636e; --blue: #2f7bdc;
  --pale: #9cc6f7;
  --red: #cf222e; --amber: #f6c76b; --amber-ink: #8a5a00; --green: #1a7f37; --grey: #8c959f; --heat0: #eef4fb; --heat1: #0b57b7;
  --over: #cf222e }
@media (prefers-color-scheme: dark) { :root { --page: #010409; --card: #0d1117; --line: #30363d; --ink: #f0f6fc; --soft: #9198a1;
  --blue: #58a6ff;
  --pale: #1f4a80; --red: #ff7b72; --amber: #5c4106; --amber-ink: #e3b341; --green: #3fb950; --grey: #6e7681; --heat0: #121d2f;
  --heat1: #58a6ff;
  --over: #ff7b72 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 56px }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px } h2 { font-size: 18px; margin: 0 0 2px } p { margin: 0 }
  .soft { color: var(--soft) }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(136px, 1fr)); gap: 12px; margin: 22px 0 }
.figure, section { background: var(--card); border: 1px solid var(--line); border-radius: 10px }
.figure { padding: 12px 16px } .figure b { display: block; font-size: 22px; line-height: 1.25; font-variant-numeric: tabular-nums }
.figure span { color: var(--soft); font-size: 13px } .good b { color: var(--green) } .bad b { color: var(--red) }
section { padding: 18px 20px 16px; margin: 16px 0 } section > p.soft { font-size: 14px; margin-bottom: 12px; max-width: 86ch }
svg { display: block; width: 100%; height: auto } svg text { fill: var(--soft); font-size: 12px }
svg .name { fill: var(--ink); font-weight: 600; font-size: 14px }
svg .value { fill: var(--ink) }
svg .bad { fill: var(--red); font-weight: 600 } svg .good { fill: var(--green) }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 13px; white-space: nowrap }
td, th { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line) }
td.number, th.number { text-align: right; white-space: nowrap }
tr:last-child td { border-bottom: 0 } details { margin-top: 10px } summary { cursor: pointer; color: var(--soft) }
.grid { stroke: var(--line) } .base { stroke: var(--grey) } .area { fill: var(--pale) } .observed { fill: none; stroke: var(--blue);
  stroke-width: 1.8; stroke-linejoin: round }
.bound { stroke: var(--red); stroke-width: 1.6; stroke-dasharray: 7 4; fill: none } .waiting { fill: var(--amber); opacity: .55 }
  .would { fill: var(--grey); opacity: .28 }
  .bar { fill: var(--blue) }
.before { fill: var(--grey) } .after { fill: var(--blue) }
.worse { fill: var(--red) } .better { fill: var(--green) } .stem { stroke-width: 3; stroke: var(--grey); opacity: .5 }
footer { color: var(--soft); font-size: 13px; margin-top: 22px }
"""
