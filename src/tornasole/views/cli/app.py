"""The commands and their options; each imports what it needs when it runs."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tornasole._version import __version__
from tornasole.errors import MissingExtra
from tornasole.types import ModeKeys
from tornasole.views.cli import output

if TYPE_CHECKING:
    from tornasole.rules import Report

app = typer.Typer(
    name="tornasole",
    help="Look into trials: what a training run saved, while it runs or later.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Level(str, Enum):
    """Severities as they are typed."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class FailOn(str, Enum):
    """From which severity on a finding is a failure."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"
    NEVER = "never"

    def code(self, findings: Iterable[Any]) -> int:
        """The exit code for findings."""
        levels = [level.value for level in Level]
        if self is FailOn.NEVER:
            return 0
        least = levels.index(self.value)
        return int(any(finding.severity.rank >= least for finding in findings))


class Mode(str, Enum):
    """The modes as they are typed."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "predict"
    GLOBAL = "global"

    @property
    def key(self) -> ModeKeys:
        return ModeKeys[self.name]


TrialPath = Annotated[
    str, typer.Argument(metavar="PATH", help="The trial: a folder or an address.")
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON document; NaN and infinities come as strings in it."
    ),
]
ModeOption = Annotated[
    Mode, typer.Option("--mode", case_sensitive=False, help="Count in this mode's steps.")
]
Regex = Annotated[
    str | None, typer.Option("--regex", help="Only tensors in whose name it is found.")
]
CollectionOption = Annotated[
    str | None, typer.Option("--collection", help="Only tensors of this collection.")
]
RoleOption = Annotated[
    str | None, typer.Option("--role", help="Only tensors of this role, such as gradient.")
]

RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        metavar="NAME[:PARAM=VALUE]",
        help="Run this rule, with these parameters; may be given again. A file's: my.py:MyRule. "
        "Default: all rules that apply.",
    ),
]
FailOnOption = Annotated[
    FailOn,
    typer.Option(
        "--fail-on",
        case_sensitive=False,
        help="End with exit code 1 if something of this severity or above was found.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Leave nothing out.")]


@app.command()
def ls(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH]...", help="Trials, or folders of them.")
    ] = None,
    json: Json = False,
) -> None:
    """List trials: their state, steps, tensors and size."""
    from tornasole.views.cli.reports import listing

    found = [line for path in paths or ["."] for line in listing(path)]
    if json:
        output.show_json(found)
    elif found:
        columns = [
            "path",
            "state",
            "framework",
            "workers",
            "steps",
            "tensors",
            "size",
            "last write",
        ]
        lines = [
            line | {"size": output.size(line.get("bytes")), "last write": line.get("last_write")}
            for line in found
        ]
        output.show_table(lines, columns)
        for line in found:
            if line["state"] == "unreadable":
                output.show_note(line["reason"])
    else:
        output.show_line(f"No trials in {', '.join(paths or ['.'])}.")


@app.command()
def show(
    path: TrialPath,
    tensor: Annotated[str | None, typer.Argument(help="Show this tensor over the steps.")] = None,
    mode: ModeOption = Mode.GLOBAL,
    worker: Annotated[str | None, typer.Option(help="Only what this worker wrote.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help="Steps of a tensor to show, evenly thinned out; 0: all.  [20]"),
    ] = None,
    scan: Annotated[
        bool | None,
        typer.Option(
            "--scan/--no-scan",
            help="Read raw values in search of the first NaN, however many; by default up to 1 GB.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show what is in a trial, or one of its tensors over the steps."""
    from tornasole.views.cli import reports

    trial = reports.opened(path)
    if tensor is None:
        overview = reports.overview(trial, scan)
        output.show_json(overview) if json else _show_overview(overview)
        return
    if limit is None and not json:
        limit = 20
    report = reports.tensor_report(trial, tensor, mode.key, worker, limit or None)
    output.show_json(report) if json else _show_tensor(report)


def _show_overview(about: dict[str, Any]) -> None:
    bad = about["first_nonfinite"]
    if bad is not None:
        where = f"step {bad['step']} ({bad['mode'].name} {bad['mode_step']}), {bad['worker']}"
        counts = f"{bad['nan_count']} NaN, {bad['inf_count']} infinite"
        nonfinite = f"{bad['name']} at {where}: {counts}"
    elif about["unscanned_bytes"]:
        amount = output.size(about["unscanned_bytes"])
        nonfinite = f"not looked for: {amount} of raw values without counts (--scan reads them)"
    else:
        nonfinite = "none"
    collections = about["collections"]
    lines = {
        "trial": about["path"],
        "state": f"{about['state']}: {about['reason']}",
        "framework": about["framework"],
        "workers": about["workers"],
        "tensors": about["tensors"],
        "roles": about["roles"],
        "collections": "the run left none" if collections is None else collections,
        "size": output.size(about["bytes"]),
        "last write": about["last_write"],
        "first non-finite": nonfinite,
    }
    for name, value in lines.items():
        if shown := output.text(value):
            output.show_line(f"{name:<17} {shown}")
    output.show_line("")
    _show_steps(about["modes"])


# Columns that go into the heading when they are the same in all rows.
_HEADING = ("worker", "mode", "dtype", "shape", "count")


def _show_tensor(report: dict[str, Any]) -> None:
    rows = report["rows"]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    if output.is_terminal():
        same = [c for c in _HEADING if len({str(row.get(c)) for row in rows}) == 1]
        if all(row["step"] == row["mode_step"] for row in rows):
            same.append("mode_step")
        head = [output.text(rows[0][c]) for c in same if c in ("mode", "dtype", "shape", "worker")]
        name = output.shortened(report["name"], 200)
        output.show_line(f"{name}: {', '.join([report['role'], *filter(None, head)])}")
        empty = [c for c in columns if all(row.get(c) is None for row in rows)]
        columns = [column for column in columns if column not in (*same, *empty)]
    output.show_table(rows, columns)
    if len(rows) < report["saved"]:
        thinned = f"{len(rows)} of {report['saved']} rows, evenly thinned out; --limit 0 shows all"
        output.show_note(thinned)


@app.command()
def steps(
    path: TrialPath,
    mode: Annotated[
        Mode | None, typer.Option("--mode", case_sensitive=False, help="Only this mode's.")
    ] = None,
    json: Json = False,
) -> None:
    """Show which steps were saved, by mode."""
    from tornasole.views.cli import reports

    trial = reports.opened(path)
    modes = [mode.key] if mode else [ModeKeys.GLOBAL, *trial.modes()]
    if json:
        output.show_json({each.name: trial.steps(each) for each in modes})
    else:
        _show_steps(reports.step_ranges(trial, modes))


def _show_steps(modes: dict[str, Any]) -> None:
    lines = [{"mode": mode, **about, "steps": about["ranges"]} for mode, about in modes.items()]
    output.show_table(lines, ["mode", "count", "first", "last", "steps"])


@app.command()
def tensors(
    path: TrialPath,
    regex: Regex = None,
    collection: CollectionOption = None,
    role: RoleOption = None,
    step: Annotated[int | None, typer.Option(help="Only tensors of this step.")] = None,
    mode: ModeOption = Mode.GLOBAL,
    json: Json = False,
) -> None:
    """List the tensors of a trial."""
    from tornasole.views.cli import reports

    trial = reports.opened(path)
    names = reports.chosen_names(
        trial, regex=regex, collection=collection, role=role, step=step, mode=mode.key
    )
    lines = reports.tensor_lines(trial, names, mode.key)
    if json:
        output.show_json(lines)
    else:
        output.show_table(lines, ["name", "role", "dtype", "shape", "saved", "first", "last"])


@app.command()
def export(
    path: TrialPath,
    out: Annotated[Path, typer.Argument(help="The file to write.")],
    form: Annotated[
        str | None,
        typer.Option("--format", help="csv, parquet, jsonl or npz (values); else by OUT's ending."),
    ] = None,
    regex: Regex = None,
    collection: CollectionOption = None,
    role: RoleOption = None,
    force: Annotated[bool, typer.Option("--force", help="Write over OUT if it is there.")] = False,
    json: Json = False,
) -> None:
    """Write a trial's rows, or its values as npz, to a file."""
    from tornasole.views.cli import reports
    from tornasole.views.cli.export import export

    trial = reports.opened(path)
    names = reports.chosen_names(trial, regex=regex, collection=collection, role=role)
    done = export(trial, names, out, form, force)
    if json:
        output.show_json(done)
    else:
        count = f"{done['rows']} rows" if "rows" in done else f"{done['values']} values"
        output.show_line(f"{count} of {done['tensors']} tensors are now in {done['written']}.")


@app.command()
def report(
    path: TrialPath,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The file to write; else xgboost_report.html in the trial."),
    ] = None,
    json: Json = False,
) -> None:
    """Write a page about an XGBoost training: one HTML file that needs nothing else."""
    from tornasole.views.xgboost_report import create_xgboost_report

    written = create_xgboost_report(path, out)
    if json:
        output.show_json({"written": written})
    else:
        output.show_line(f"The report is now in {written}.")


@app.command()
def check(
    path: TrialPath,
    rule: RuleOption = None,
    fail_on: FailOnOption = FailOn.WARNING,
    no_save: Annotated[
        bool, typer.Option("--no-save", help="Do not write what is found to the trial.")
    ] = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Judge a run by rules: what went wrong, where, and what to try.

    Exit code 0: nothing of severity --fail-on; 1: something; 2: it could not be judged.
    """
    from tornasole.views.cli import findings

    with findings.log_as_notes():
        run = findings.checked(path, rule or None, save=not no_save)
    if json:
        output.show_json(findings.report_dict(run))
    else:
        findings.show(findings.report_lines(run, asked=bool(rule), verbose=verbose))
    raise typer.Exit(_exit_code(fail_on, run.report, asked=bool(rule)))


def _exit_code(fail_on: FailOn, report: Report, asked: bool) -> int:
    from tornasole.views.cli import findings

    code = fail_on.code(report.findings)
    return code or (0 if findings.is_judged(report, asked) else 2)


@app.command()
def watch(
    path: TrialPath,
    rule: RuleOption = None,
    action: Annotated[
        list[str] | None,
        typer.Option(
            "--action",
            help="What to do about findings; may be given again: stop, webhook:URL, "
            "email:ADDRESS, command:LINE, sms:NUMBER.",
        ),
    ] = None,
    at: Annotated[
        Level,
        typer.Option("--at", case_sensitive=False, help="Act on findings of this severity or up."),
    ] = Level.WARNING,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for a trial that is not there yet.")
    ] = 0,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds to watch; default: until the run is over."),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds after which a job on this machine that was asked to stop, and has not, "
            "is sent SIGTERM.",
        ),
    ] = 30,
    fail_on: FailOnOption = FailOn.WARNING,
    json: Annotated[
        bool, typer.Option("--json", help="Print each finding as one line of JSON.")
    ] = False,
) -> None:
    """Follow a live run with rules, and act on what they find; what is known is not repeated.

    Exit codes as those of check. Ctrl-C ends the watch, not the run.
    """
    from tornasole.rules.watching import watch
    from tornasole.trial import create_trial
    from tornasole.views.cli import findings

    if not json:
        output.show_note(findings.beginning(path, action or (), at.value))
    trial = create_trial(path, wait=wait)
    telling = findings.Telling(trial.num_workers == 1, json)
    with findings.log_as_notes(telling.progress):
        try:
            report = watch(
                trial,
                rule or None,
                action or (),
                at=at.value,
                timeout=timeout,
                grace=grace,
                on_finding=telling.tell,
                on_progress=telling.show_progress,
            )
        except KeyboardInterrupt:
            telling.end(None)
            raise typer.Exit(130) from None
    telling.end(report)
    raise typer.Exit(_exit_code(fail_on, report, asked=bool(rule)))


@app.command()
def rules(
    name: Annotated[
        str | None, typer.Argument(help="Explain this rule: what it looks at, its parameters.")
    ] = None,
    json: Json = False,
) -> None:
    """List the rules, or explain one."""
    from tornasole.views.cli import findings

    if name is not None:
        about = findings.rule_dict(name)
        output.show_json(about) if json else findings.show(findings.rule_lines(about))
        return
    found = findings.rule_list()
    if json:
        output.show_json(found)
    elif output.is_terminal():
        findings.show(findings.list_lines(found))
    else:
        output.show_table(found, ["name", "title"])


@app.command()
def version(json: Json = False) -> None:
    """Print the version."""
    output.show_json({"version": __version__}) if json else output.show_line(__version__)


@app.command()
def demo(
    out_dir: Annotated[
        Path | None, typer.Argument(help="Where to keep the demo's trial; else a new folder.")
    ] = None,
) -> None:
    """Train a small model with a hook and show what it saved."""
    try:
        from tornasole.demo import run
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"The demo needs {error.name!r}. To install it: pip install 'tornasole[demo]'"
        ) from error
    run(out_dir)
