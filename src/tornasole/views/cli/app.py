"""The commands and their options; each imports what it needs when it runs."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from tornasole._version import __version__
from tornasole.errors import MissingExtra
from tornasole.types import ModeKeys
from tornasole.views.cli import output

app = typer.Typer(
    name="tornasole",
    help="Look into trials: what a training run saved, while it runs or later.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
