"""The page as a document: its frame, its looks, and the few kinds of blocks it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tornasole.views import charts
from tornasole.views.charts import escape


@dataclass(frozen=True)
class Section:
    """One part of the page.

    Attributes:
        missing: What was not saved, if the section is empty for that.
        highlights: Sentences for the top of the page.
    """

    key: str
    title: str
    body: str
    missing: str = ""
    highlights: tuple[str, ...] = ()


def document(title: str, header: str, sections: Sequence[Section]) -> str:
    """The whole page, which asks nothing of the outside."""
    links = "".join(f'<li><a href="#{s.key}">{escape(s.title)}</a></li>' for s in sections)
    parts = "".join(
        f'<section id="{s.key}"><h2>{escape(s.title)}</h2>{s.body}</section>' for s in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{charts.STYLE}{_STYLE}</style>\n</head>\n<body>\n"
        f"<header>{header}</header>\n"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n<main>{parts}</main>\n'
        f"<script>{charts.SCRIPT}</script>\n</body>\n</html>\n"
    )


# -- blocks


def say(sentences: Iterable[str], kind: str = "") -> str:
    """A paragraph of sentences."""
    text = " ".join(escape(sentence) for sentence in sentences if sentence)
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{text}</p>" if text else ""


def nothing(sentence: str) -> str:
    """Why there is nothing to see, and what to do about it."""
    return say([sentence], "nothing")


def figure(chart: str, heading: str = "", sentences: Iterable[str] = (), kind: str = "") -> str:
    """A chart with its heading and what it says."""
    told = " ".join(escape(sentence) for sentence in sentences if sentence)
    caption = f"<figcaption>{told}</figcaption>" if told else ""
    head = f"<h3>{escape(heading)}</h3>" if heading else ""
    attribute = f' class="{kind}"' if kind else ""
    return f'<figure{attribute}>{head}<div class="drawing">{chart}</div>{caption}</figure>'


def grid(figures: Iterable[str], kind: str = "") -> str:
    """Figures side by side where there is room."""
    return f'<div class="{f"grid {kind}".strip()}">{"".join(figures)}</div>'


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1, caption: str = ""
) -> str:
    """A table; all columns after the first ones, of words, are of numbers."""
    kinds = ["" if place < words else ' class="n"' for place in range(len(head))]
    titles = "".join(
        f'<th scope="col"{kind}>{escape(each)}</th>' for kind, each in zip(kinds, head, strict=True)
    )
    lines = []
    for row in rows:
        first = f'<th scope="row">{escape(row[0])}</th>'
        cells = "".join(
            f"<td{kind}>{escape(each)}</td>" for kind, each in zip(kinds[1:], row[1:], strict=True)
        )
        lines.append(f"<tr>{first}{cells}</tr>")
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="table"><table>{named}<thead><tr>{titles}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def tiles(facts: Iterable[tuple[str, str]]) -> str:
    """A few numbers that stand out, each under its name."""
    each = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts
    )
    return f'<dl class="tiles">{each}</dl>'


def tabs(name: str, panels: Sequence[tuple[str, str]], chosen: int = 0) -> str:
    """Panels of which one is seen, without any script: radio buttons choose it."""
    inputs = "".join(
        f'<input type="radio" name="{name}" id="{name}-{place}"{" checked" * (place == chosen)}>'
        f'<label for="{name}-{place}">{escape(title)}</label>'
        for place, (title, _) in enumerate(panels)
    )
    shown = ",".join(
        f"#{name}-{place}:checked~#{name}-panel-{place}" for place in range(len(panels))
    )
    bodies = "".join(
        f'<div class="panel" id="{name}-panel-{place}">{body}</div>'
        for place, (_, body) in enumerate(panels)
    )
    return (
        f"<style>{shown}{{display:block}}</style>"
        f'<div class="tabs" role="group" aria-label="Which {escape(name)}">{inputs}{bodies}</div>'
    )


_STYLE = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:1120px;padding:40px 28px 64px;background:var(--paper);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
h1,h2,h3{line-height:1.25;margin:0;font-weight:650;letter-spacing:-.011em}
h1{font-size:28px}h2{font-size:20px}h3{font-size:15px;letter-spacing:0}
p{margin:.6em 0;max-width:76ch}
a{color:var(--c0);text-decoration:none}a:hover{text-decoration:underline}
header .kicker{color:var(--soft);font-size:13px;margin:0 0 4px}
header h1{overflow-wrap:anywhere}
header dl.about{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:18px 0 0;
font-size:14px}
header dl.about dt{color:var(--soft)}header dl.about dd{margin:0;overflow-wrap:anywhere}
.short{margin:22px 0 0;padding:14px 18px 14px 34px;border-left:3px solid var(--c0);
background:color-mix(in srgb,var(--c0) 7%,transparent);border-radius:0 4px 4px 0}
.short li{margin:.2em 0;max-width:88ch}
nav{margin:24px 0 0;border-bottom:1px solid var(--faint);padding-bottom:12px;font-size:14px}
nav ul{display:flex;flex-wrap:wrap;gap:4px 20px;margin:0;padding:0;list-style:none}
section{padding:36px 0 4px;border-bottom:1px solid var(--faint)}
section:last-child{border:0}
section>h2{margin-bottom:6px}
.soft,figcaption,caption{color:var(--soft)}
.nothing{color:var(--soft);border-left:3px solid var(--base);padding:2px 0 2px 14px;
margin:12px 0 28px}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:8px 44px;
align-items:start}
figure{margin:18px 0 22px;max-width:520px;min-width:0}
figure.wide{max-width:760px}
figure h3{margin-bottom:10px;overflow-wrap:anywhere}
figcaption{font-size:14px;margin-top:8px;max-width:70ch;overflow-wrap:anywhere}
.drawing{overflow:visible}
.table{overflow-x:auto;margin:16px 0 24px}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:0 0 6px;font-size:14px}
th,td{padding:5px 22px 5px 0;text-align:left;vertical-align:top;
border-bottom:1px solid var(--faint)}
th:last-child,td:last-child{padding-right:0}
thead th{color:var(--soft);font-weight:600;font-size:13px;border-color:var(--base);
white-space:nowrap}
tbody th{font-weight:500;overflow-wrap:anywhere}
td{overflow-wrap:anywhere}
.n{text-align:right;white-space:nowrap}
.tiles{display:flex;flex-wrap:wrap;gap:10px 40px;margin:16px 0 6px}
.tiles div{min-width:84px}
.tiles dt{color:var(--soft);font-size:13px}
.tiles dd{margin:0;font-size:22px;font-weight:600;letter-spacing:-.01em;line-height:1.3;
font-variant-numeric:tabular-nums}
.tabs{margin-top:14px}
.tabs>input{position:absolute;opacity:0;width:1px;height:1px}
.tabs>label{display:inline-block;padding:4px 12px;margin:0 6px 6px 0;border:1px solid var(--base);
border-radius:999px;font-size:13px;cursor:pointer;color:var(--soft)}
.tabs>input:checked+label{background:var(--ink);border-color:var(--ink);color:var(--paper)}
.tabs>input:focus-visible+label{outline:2px solid var(--c0);outline-offset:2px}
.panel{display:none}
.state{display:inline-block;width:8px;height:8px;border-radius:50%;margin-right:7px;
background:var(--c5)}
.state.finished{background:var(--c2)}.state.failed,.state.interrupted{background:var(--c1)}
@media (min-width:960px){.uneven{grid-template-columns:minmax(0,1fr) 340px}}
@media (max-width:640px){body{padding:22px 16px 40px}h1{font-size:23px}
header dl.about{grid-template-columns:1fr;gap:0}header dl.about dd{margin-bottom:6px}
.wide .drawing{overflow-x:auto}.wide svg{min-width:540px}
section{padding-top:26px}.tiles{gap:8px 26px}th,td{padding-right:14px}}
@media print{body{max-width:none;padding:0;font-size:11pt}nav,.tabs>label,#values{display:none}
.panel{display:block!important}figure,tr,.tiles{break-inside:avoid}h2,h3{break-after:avoid}
section{border:0;padding-top:18pt}.grid{grid-template-columns:1fr 1fr}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""
