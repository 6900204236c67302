"""From findings and rules to plain values, and to lines that people read."""

from __future__ import annotations

import inspect
import logging
import re
import shutil
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING
from typing import Any, NamedTuple

from tornasole import registry
from tornasole.errors import SMDebugError
from tornasole.rules import Finding, Report, Severity, StepRule, load_rule, rule_names
from tornasole.rules.actions import load_actions
from tornasole.rules.checking import Checking, save_findings
from tornasole.rules.loading import ClassicRule
from tornasole.rules.sentences import number
from tornasole.rules.watching import Progress
from tornasole.types import ModeKeys
from tornasole.views.cli import output

_WIDEST = 100
_LABEL = 11
_MOST_OF_A_RULE = 3
_MOST_TENSORS = 4
_MOST_NUMBERS = 3
_MOST_HINTS = 3
_LONGEST_NAME = 60
_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold"}


class Line(NamedTuple):
    """One line, and how it looks on a terminal."""

    text: str
    style: str = ""


# -- check


def checked(path: str, rules: Sequence[str] | None, save: bool) -> Checking:
    """Runs rules over a trial. That it cannot be written to is a note, and no more."""
    run = Checking(path, rules)
    fresh = [finding for finding in run.advance() if finding.key not in run.known]
    if save:
        try:
            save_findings(run.trial, fresh)
        except OSError as error:
            output.show_note(f"The findings could not be written to the trial: {error}")
    return run


def is_judged(report: Report, asked: bool) -> bool:
    """Whether silence means something: every rule asked for, or else one at least, could judge."""
    silent = len(report.not_applicable)
    return report.steps > 0 and (silent == 0 if asked else silent < len(report.rules))


def report_dict(run: Checking) -> dict[str, Any]:
    """A report for programs."""
    report = run.report
    return {
        "trial": run.trial.path,
        "state": run.trial.state,
        "steps": report.steps,
        "rules": list(report.rules),
        "worst": report.worst.value if report.worst else None,
        "findings": [finding.to_json_dict() for finding in report.findings],
        "not_applicable": report.not_applicable,
    }


def report_lines(run: Checking, *, asked: bool, verbose: bool) -> Iterator[Line]:
    """A report for people, the worst first.

    Args:
        asked: Whether the rules were named, so that one that could say nothing is worth a word.
        verbose: Whether to leave nothing out.
    """
    report, path = run.report, output.safe(run.trial.path)
    judged = f"{counted(report.steps, 'step')} of {path}"
    able = [name for name in report.rules if name not in report.not_applicable]
    if report.findings:
        yield from _wrapped(f"{path}: {tally(report.findings)}", style="bold")
    elif not report.steps:
        yield Line(f"Nothing was judged: {path} has no complete steps yet.")
    elif not able:
        yield Line(f"Nothing was judged: no rule could say anything about {path}.")
    else:
        yield Line(f"Nothing found: {counted(len(able), 'rule')} judged {judged}.", "bold green")
    yield from Teller(run.trial.num_workers == 1, verbose).groups(report.findings)
    if report.findings:
        yield Line("")
        yield from _wrapped(f"{counted(len(able), 'rule')} judged {judged}.")
    if report.steps:
        yield from _silent_lines(report.not_applicable, in_full=asked or verbose)
    if run.trial.state == "running":
        yield from _wrapped(f"The run is still going on: tornasole watch {path} follows it.")


def _silent_lines(not_applicable: Mapping[str, str], in_full: bool) -> Iterator[Line]:
    if not not_applicable:
        return
    if in_full:
        for name, reason in not_applicable.items():
            yield from _wrapped(f"{name} could say nothing: {output.safe(reason)}.")
    else:
        names = ", ".join(sorted(not_applicable))
        many = counted(len(not_applicable), "rule")
        yield from _wrapped(f"{many} could say nothing (-v tells why): {names}.")


class Teller:
    """Tells findings; what a rule has said before, it says shorter.

    Args:
        alone: Whether the run has one worker only, so that its name says nothing.
        verbose: Whether to tell all, and all of each.
    """

    def __init__(self, alone: bool, verbose: bool = False) -> None:
        self._alone, self._verbose = alone, verbose
        self._told: set[tuple[str, Severity]] = set()

    def groups(self, findings: Iterable[Finding]) -> Iterator[Line]:
        """Findings of a whole run, the worst first, and together what is of one kind."""
        groups: dict[tuple[str, Severity], list[Finding]] = {}
        for finding in sorted(findings, key=_worst_first):
            groups.setdefault((finding.rule, finding.severity), []).append(finding)
        for group in groups.values():
            if self._verbose:
                for finding in group:
                    yield from self.lines(finding)
                continue
            yield from self.lines(group[0])
            for finding in group[1:_MOST_OF_A_RULE]:
                again = f"again at {self._place(finding)}: {output.safe(finding.message)}"
                yield from _wrapped(again, 2, 4)
            if rest := group[_MOST_OF_A_RULE:]:
                steps = f"steps {rest[0].step} to {rest[-1].step}"
                yield from _wrapped(f"and {len(rest)} times more, at {steps} (-v tells all)", 2, 4)

    def lines(self, finding: Finding) -> Iterator[Line]:
        """A finding for people."""
        kind = finding.rule, finding.severity
        brief = kind in self._told or finding.severity is Severity.INFO
        self._told.add(kind)
        mark, verbose = finding.severity.value.upper(), self._verbose
        heading = f"{mark}  {output.safe(finding.rule)} at {self._place(finding)}"
        yield Line("")
        yield from _wrapped(heading, style=_STYLES[finding.severity])
        yield from _wrapped(output.safe(finding.message), 2)
        if finding.tensors and (len(finding.tensors) > 1 or not _tells_all(finding)):
            yield from _labelled("tensors", _names(finding.tensors, verbose))
        if verbose or not brief:
            if finding.evidence:
                yield from _labelled("evidence", _evidence(finding.evidence, verbose))
            most = None if verbose else _MOST_HINTS
            yield from _listed("likely", finding.causes[:most])
            yield from _listed("try", finding.remedies[:most])

    def _place(self, finding: Finding) -> str:
        worker = "" if self._alone else output.safe(finding.worker or "")
        inside = ", ".join(part for part in (_mode(finding), worker) if part)
        return f"step {finding.step}" + (f" ({inside})" if inside else "")


def _worst_first(finding: Finding) -> tuple[int, int, int]:
    """Of what is as bad and as early, first what points at the fewest tensors."""
    return -finding.severity.rank, finding.step, len(finding.tensors) or 1000


def _tells_all(finding: Finding) -> bool:
    """Whether the message names all tensors."""
    return all(name in finding.message for name in finding.tensors)


def _mode(finding: Finding) -> str:
    if finding.mode is ModeKeys.GLOBAL:
        return ""
    if finding.step == finding.mode_step:
        return finding.mode.name
    return f"{finding.mode.name} step {finding.mode_step}"


def _names(names: Sequence[str], verbose: bool) -> str:
    most = len(names) if verbose else _MOST_TENSORS
    shown = [output.shortened(output.safe(name), _LONGEST_NAME) for name in names[:most]]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def _evidence(evidence: Mapping[str, Any], verbose: bool) -> str:
    """The numbers: all of them, or as many as two lines hold."""
    if verbose:
        return "; ".join(_exhibit(name, value) for name, value in evidence.items())
    room = 2 * (_width() - _LABEL - 2) - 10  # lines are seldom full
    parts: list[str] = []
    for name, value in evidence.items():
        fitting = (_exhibit(name, value, most) for most in range(_MOST_NUMBERS, 0, -1))
        part = next((each for each in fitting if len(each) <= room), "")
        if not part:
            parts.append("…" if parts else output.shortened(_exhibit(name, value, 1), room))
            break
        parts.append(part)
        room -= len(part) + 2
    return "; ".join(parts)


def _exhibit(name: str, value: Any, most: int | None = None) -> str:
    if isinstance(value, Mapping):
        items = [f"{_short(key)} {_value(each)}" for key, each in value.items()]
    elif isinstance(value, (list, tuple)):
        items = [_value(each) for each in value]
    else:
        return f"{_short(name)} {_value(value)}"
    most = len(items) if most is None else most
    rest = f", … {len(items) - most} more" if len(items) > most else ""
    return f"{_short(name)}: {', '.join(items[:most])}{rest}"


def _short(name: object) -> str:
    return output.shortened(output.safe(str(name)), _LONGEST_NAME)


def _value(value: object) -> str:
    if hasattr(value, "tolist"):  # NumPy's
        value = value.tolist()
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_short(key)} {_value(each)}" for key, each in value.items())
        return f"({inside})"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    return _short(value)


def tally(findings: Iterable[Finding], noun: str = "finding") -> str:
    """How many findings of which severity, the worst first."""
    counts = Counter(finding.severity for finding in findings)
    parts = [f"{counts[s]} {s.value}" for s in reversed(Severity) if counts[s]]
    total = counted(sum(counts.values()), noun)
    return f"{total} ({', '.join(parts)})" if parts else f"no {noun}s"


def counted(many: int, noun: str) -> str:
    """``1 step``, ``1,200 steps``."""
    return f"{many:,} {noun}" if many == 1 else f"{many:,} {noun}s"


# -- watch


def beginning(path: str, actions: Sequence[str], at: str) -> str:
    """What is going to happen."""
    load_actions(actions)  # a mistake in them is told before anything else
    names = ", ".join(dict.fromkeys(action.partition(":")[0] for action in actions))
    todo = f"; on findings of severity {at} and up: {names}" if actions else ""
    return f"Watching {path} until the run is over{todo}. Ctrl-C ends the watch, not the run."


class ProgressLine:
    """One line on a terminal's stderr that says how far a watch has come; nothing in a pipe."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty()
        self._began = time.monotonic()
        self._is_there = False

    def show(self, progress: Progress, findings: int) -> None:
        """Writes the line anew."""
        if not self._shows:
            return
        parts = [
            "asked to stop" if progress.stopping else progress.state,
            f"step {progress.last_step}" if progress.steps else "no steps yet",
            counted(findings, "finding"),
            f"watched {duration(time.monotonic() - self._began)}",
        ]
        if progress.quiet >= 10:
            parts.append(f"no new step for {duration(progress.quiet)}")
        line = " · ".join(parts)[: shutil.get_terminal_size().columns - 1]
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
        self._is_there = True

    def clear(self) -> None:
        """Makes room for other lines."""
        if self._is_there:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_there = False


class Telling:
    """What a watch tells while it goes on.

    Args:
        alone: Whether the run has one worker only.
        as_json: Whether to tell it to programs, in lines of JSON.

    Attributes:
        progress: The line that says how far it has come.
    """

    def __init__(self, alone: bool, as_json: bool) -> None:
        self._as_json = as_json
        self.progress = ProgressLine()
        self._teller = Teller(alone)
        self._found: list[Finding] = []
        self._last: Progress | None = None

    def tell(self, finding: Finding) -> None:
        """Shows a new finding."""
        self.progress.clear()
        self._found.append(finding)
        if self._as_json:
            output.show_json(finding.to_json_dict())
            sys.stdout.flush()
        else:
            show(self._teller.lines(finding))

    def show_progress(self, progress: Progress) -> None:
        """Shows how far it has come."""
        self._last = progress
        self.progress.show(progress, len(self._found))

    def end(self, report: Report | None) -> None:
        """Says how it ended.

        Args:
            report: What the watch returned; ``None``: somebody ended it.
        """
        self.progress.clear()
        if self._as_json or self._last is None:
            return
        state, steps = self._last.state, self._last.steps
        known = 0 if report is None else len(report.findings) - len(self._found)
        before = f" {known} were known before." if known else ""
        why = "" if state == "running" else f": {output.safe(self._last.reason).rstrip('.')}"
        show([Line("")])
        show(_wrapped(f"The run is {'still running' if state == 'running' else state}{why}."))
        found = tally(self._found, "new finding")
        show(_wrapped(f"{counted(steps, 'step')} judged; {found}.{before}"))


def duration(seconds: float) -> str:
    """``42 s``, ``3 min``, ``2 h 5 min``."""
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


@contextmanager
def log_as_notes(progress: ProgressLine | None = None) -> Iterator[None]:
    """Shows what the library logs as notes on stderr; not findings, which are shown themselves."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not hasattr(record, "finding"):
                if progress is not None:
                    progress.clear()
                output.show_note(record.getMessage())

    logger, handler = logging.getLogger("tornasole"), Notes(logging.WARNING)
    logger.addHandler(handler)
    before, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(handler)


# -- rules


def rule_list() -> list[dict[str, Any]]:
    """All rules that can be had by name. One that cannot be loaded does not hide the others."""
    found = []
    for name in rule_names():
        try:
            found.append(rule_dict(name))
        except SMDebugError as error:
            found.append({"name": name, "title": f"cannot be loaded: {error}"})
    return found


def list_lines(found: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    """Rules for people."""
    longest = max(len(each["name"]) for each in found) + 2
    for each in found:
        yield from _wrapped(f"{each['name']:<{longest}}{each['title']}", 0, longest)
    others = [each["name"] for each in found if each.get("runs_by_default") is False]
    yield Line("")
    if others:
        yield from _wrapped(f"Run only when named: {', '.join(others)}.")
    yield from _wrapped("tornasole rules NAME explains one; tornasole check PATH runs them.")


def rule_dict(name: str) -> dict[str, Any]:
    """What there is to know about a rule.

    Args:
        name: A name, or a file and a class.
    """
    kind = registry.load("rule", name) if ":" not in name else load_rule(name)
    if isinstance(kind, ClassicRule):
        kind = kind.kind
    elif isinstance(kind, StepRule):
        kind = type(kind)
    title, _, about = (inspect.getdoc(kind) or "").partition("\n")
    found = {"name": name, "title": _plain(title), "about": about.strip()}
    if not isinstance(kind, type) or not issubclass(kind, StepRule):
        return found
    return {
        **found,
        "runs_by_default": kind.runs_by_default,
        "parameters": [
            {
                "name": each.name,
                "default": None if each.default is MISSING else each.default,
                "required": each.default is MISSING,
                "type": str(each.type),
                "about": each.metadata.get("about", ""),
            }
            for each in kind.parameters()
        ],
        "needs": _needs(kind),
    }


def _needs(kind: type[StepRule]) -> list[dict[str, Any]] | None:
    """What a rule needs by default; nobody knows where that depends on a parameter."""
    try:
        needs = kind.configured().needs()
    except SMDebugError:
        return None
    return [
        {
            "what": need.what,
            "roles": sorted(role.value for role in need.roles),
            "statistics": sorted(need.statistics),
            "raw": need.raw,
            "required": need.required,
            "save": list(need.save),
        }
        for need in needs.values()
    ]


def rule_lines(about: Mapping[str, Any]) -> Iterator[Line]:
    """A rule for people."""
    yield from _wrapped(f"{about['name']}: {about['title']}", style="bold")
    for paragraph in re.split(r"\n\s*\n", about["about"]):
        if paragraph.strip():
            yield Line("")
            if paragraph.startswith((" ", "\t")):  # an example: lines mean something
                yield from (Line(line) for line in paragraph.splitlines())
            else:
                yield from _wrapped(_plain(" ".join(paragraph.split())))
    if "parameters" not in about:
        return
    yield Line("")
    if not about["parameters"]:
        yield Line("Parameters: none")
    else:
        yield Line("Parameters", "bold")
        for each in about["parameters"]:
            default = "must be given" if each["required"] else f"default {_default(each)}"
            yield from _wrapped(f"{each['name']} ({default}): {each['about']}", 2, 6)
    yield Line("")
    yield Line("Looks at", "bold")
    if about["needs"] is None:
        yield Line("  what its parameters say")
    for need in about["needs"] or ():
        yield from _wrapped(_need_text(need), 2, 6)
    yield Line("")
    yield Line("To run it", "bold")
    needed = [each for each in about["parameters"] if each["required"]]
    useful = [each for each in about["parameters"] if each["default"] is not None]
    shown = [(each["name"], "…") for each in needed]
    shown = shown or [(each["name"], _default(each)) for each in useful[:1]]
    example = [f":{name}={value}" for name, value in shown]
    yield Line(f"  tornasole check PATH --rule {about['name']}{''.join(example)}")
    if not about["runs_by_default"]:
        yield from _wrapped("It is not among the rules that run when none is named.", 2)


def _default(parameter: Mapping[str, Any]) -> str:
    value = parameter["default"]
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)


def _need_text(need: Mapping[str, Any]) -> str:
    numbers = ", ".join(need["statistics"])
    of_what = "their values" if need["raw"] else f"{numbers}, saved or from their values"
    rest = "" if need["required"] else "; can do without"
    save = f"; include_collections={need['save']} saves them" if need["save"] else ""
    return f"{need['what']} ({of_what}{rest}){save}"


def _plain(text: str) -> str:
    return text.replace("``", "")


# -- lines


def show(lines: Iterable[Line]) -> None:
    """Prints lines: with their looks on a terminal, without in a pipe."""
    if not output.is_terminal():
        for line in lines:
            sys.stdout.write(line.text + "\n")
        sys.stdout.flush()
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines:
        console.print(Text(line.text, style=line.style), soft_wrap=True)


def _width() -> int:
    return max(30, min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns))


def _wrapped(text: str, indent: int = 0, further: int | None = None, style: str = "") -> list[Line]:
    """The text in lines as wide as the terminal; in a pipe, in one."""
    first, rest = " " * indent, " " * (indent if further is None else further)
    if not output.is_terminal():
        return [Line(first + text, style)]
    lead = len(text) - len(text.lstrip())  # which textwrap would drop
    first, text = first + " " * lead, text[lead:]
    lines = textwrap.wrap(
        text,
        _width(),
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
    )
    return [Line(line, style) for line in lines]


def _labelled(label: str, text: str, further: int = 0) -> list[Line]:
    """A text beside its label."""
    return _wrapped(f"{label:<{_LABEL}}{text}", 2, _LABEL + 2 + further)


def _listed(label: str, items: Sequence[str]) -> Iterator[Line]:
    """Texts one below the other, beside their label."""
    for position, item in enumerate(items):
        yield from _labelled("" if position else label, f"- {output.safe(item)}", 2)
