"""The sections about predictions: confusion or residuals, and loss by label."""

from __future__ import annotations

import numpy as np

from tornasole.views import charts
from tornasole.views.charts import Line, number, percent
from tornasole.views.xgboost_report import errors_made as errors
from tornasole.views.xgboost_report.errors_made import Group
from tornasole.views.xgboost_report.outcome import (
    CLASSIFICATIONS,
    Compared,
    Incomparable,
    Judgement,
    Task,
    compared,
    levels_in,
    task_of,
)
from tornasole.views.xgboost_report.page import Section, figure, grid, nothing, say, table, tiles
from tornasole.views.xgboost_report.reading import Floats, Pair, Saved

_MOST_POINTS = 1500
_MOST_LINES = 6
_SAVE = "include the collections predictions and labels, and give the hook validation_data."


def prediction_sections(saved: Saved, hyperparameters: dict[str, str]) -> list[Section]:
    """What was predicted at the last saved round, and how the loss of each label came there."""
    lacking = saved.missing_for_comparison()
    if lacking:
        what = " and ".join(lacking)
        return _empty(f"No {what} were saved: {_SAVE}", what)
    steps = saved.compared_steps()
    last = saved.pair(steps[-1]) if steps else None
    if last is None:
        return _empty(
            f"Of predictions or labels, no values were saved, only statistics: {_SAVE}", ""
        )
    objective = hyperparameters.get("objective")
    judged = task_of(objective, last.predictions, last.labels)
    levels = levels_in(hyperparameters.get("quantile_alpha", ""))
    found = compared(judged.task, last.predictions, last.labels, levels)
    if isinstance(found, Incomparable):
        return _empty(found.reason, "")
    with np.errstate(over="ignore", invalid="ignore"):  # a loss may be too large for a number
        first = _outcome_section(found, judged, last, levels)
        if found.task in (Task.RANKING, Task.SURVIVAL):
            return [first]
        return [first, _loss_section(saved, found, last, steps, levels)]


def _empty(sentence: str, missing: str) -> list[Section]:
    return [Section("predictions", "Predictions and loss by label", nothing(sentence), missing)]


def _outcome_section(
    found: Compared, judged: Judgement, pair: Pair, levels: tuple[float, ...]
) -> Section:
    where = f"At round {pair.step}, the last one with predictions."
    if pair.labels_step != pair.step:
        where += f" Labels are those saved at round {pair.labels_step}."
    task = f"Taken as {judged.task.value}, because {judged.because}."
    notes = say([where, task, *found.notes], "soft")
    if found.task in CLASSIFICATIONS:
        return _confusion_section(found, notes)
    if found.task is Task.RANKING:
        return _ranking_section(found, notes)
    if found.task is Task.SURVIVAL:
        sentence = "Labels of a survival analysis may be censored: residuals would mean nothing."
        return Section("predictions", "Predictions", notes + nothing(sentence))
    return _residuals_section(found, notes, _coverage_table(pair, levels))


# -- classification


def _confusion_section(found: Compared, notes: str) -> Section:
    made = errors.confusion(found.labels.astype(np.int64), found.predicted.astype(np.int64))
    accuracy = made.right / made.samples
    facts = [
        ("samples", f"{made.samples:,}"),
        ("classes", f"{made.classes:,}"),
        ("accuracy", percent(accuracy)),
        ("share of the largest class", percent(made.largest / made.samples)),
    ]
    told = ["Rows are true classes, columns what was predicted; the shade is the share of the row."]
    if made.names[-1] == "other":
        shown = len(made.names) - 1
        told.append(
            f"The {shown} most frequent of {made.classes:,} classes, and the others together."
        )
    if made.worst is not None:
        true, taken, count = made.worst
        times = "once" if count == 1 else f"{count:,} times"
        told.append(f"Most often mistaken: {true} for {taken}, {times}.")
    if made.classes == 1:
        told.append("There is only one class, so nothing could be mistaken.")
    drawing = charts.matrix(
        made.counts,
        made.shades,
        made.names,
        title="Confusion matrix",
        description=f"{made.right:,} of {made.samples:,} samples lie on the diagonal.",
        row_label="true",
        column_label="predicted",
    )
    if found.task is Task.PROBABILITY:
        told.append("Predicted is 1 where the probability is above 0.5.")
    rows = [
        [name, f"{support:,}", percent(precision), percent(recall)]
        for name, support, precision, recall in zip(
            made.names,
            made.support.tolist(),
            made.precision.tolist(),
            made.recall.tolist(),
            strict=True,
        )
    ]
    by_class = table(
        ["class", "samples", "precision", "recall"],
        rows,
        caption="Precision: how often a prediction of the class is right. "
        "Recall: how much of the class is found.",
    )
    wide = len(made.names) > 12
    drawn = figure(drawing, "", told, "wide" if wide else "")
    body = notes + tiles(facts) + grid([drawn, by_class], "uneven" if wide else "")
    highlight = (
        f"{percent(accuracy)} of {made.samples:,} validation samples are classified rightly."
    )
    return Section("predictions", "Confusion matrix", body, "", (highlight,))


# -- regression


def _coverage_table(pair: Pair, levels: tuple[float, ...]) -> str:
    """Of a regression that predicts several quantiles: how many labels lie below each."""
    if pair.predictions.ndim != 2 or len(levels) < 2 or len(levels) != pair.predictions.shape[1]:
        return ""
    shares = errors.coverage(pair.labels, pair.predictions).tolist()
    rows = [
        [number(level), percent(level), percent(share)]
        for level, share in zip(levels, shares, strict=True)
    ]
    return table(["quantile", "labels below, wanted", "labels below, found"], rows)


def _residuals_section(found: Compared, notes: str, coverage: str) -> Section:
    labels, predicted = found.labels.astype(np.float64), found.predicted.astype(np.float64)
    made = errors.residuals(labels, predicted)
    facts = [
        ("samples", f"{made.samples:,}"),
        ("RMSE", number(made.rmse)),
        ("MAE", number(made.mae)),
        ("bias", number(made.bias)),
    ]
    if found.task is Task.QUANTILE:
        facts.append(("labels at or below", percent(made.coverage)))
    elif made.spread > 0:
        facts.append(("R²", number(round(1 - (made.rmse / made.spread) ** 2, 3))))
    if made.samples <= _MOST_POINTS:
        field = charts.scatter(
            labels,
            predicted,
            title="Predicted by actual",
            description=f"{made.samples} samples; on the dashed line both are the same.",
            x_label="actual",
            y_label="predicted",
        )
        points = "Each point is a sample."
    else:
        field = charts.density(
            made.field,
            made.low,
            made.high,
            title="Predicted by actual",
            description=f"{made.samples:,} samples in cells; on the dashed line both are the same.",
            x_label="actual",
            y_label="predicted",
        )
        points = "The stronger its colour, the more samples a cell holds."
    drawing = charts.histogram(
        made.counts,
        made.edges,
        title="Residuals",
        description=f"Mean {number(made.bias)}, root mean square {number(made.rmse)}.",
        x_label="predicted − actual",
        height=320,
    )
    told = [_bias_in_words(found, made)]
    if any(made.beyond):
        told.append(
            f"{made.beyond[0]:,} lie before the first bar and {made.beyond[1]:,} after the last: "
            "they are counted there."
        )
    figures = [
        figure(field, "Predicted by actual", [points, "On the dashed line both are the same."]),
        figure(drawing, "Residuals", told),
    ]
    body = notes + tiles(facts) + coverage + grid(figures)
    against = (
        f"; always predicting the mean would give {number(made.spread)}" if made.spread > 0 else ""
    )
    highlight = f"RMSE on {made.samples:,} validation samples is {number(made.rmse)}{against}."
    if found.task is Task.QUANTILE:
        highlight = _coverage_in_words(found, made)
    return Section("predictions", "Residuals", body, "", (highlight,))


def _bias_in_words(found: Compared, made: errors.Residuals) -> str:
    if found.task is Task.QUANTILE:
        return f"{_coverage_in_words(found, made)} Quantiles are not meant to lie in the middle."
    doubt = made.rmse / np.sqrt(made.samples)
    if abs(made.bias) < 2 * doubt:
        return f"They are centred on zero, as far as {made.samples:,} samples can tell."
    way = "too high" if made.bias > 0 else "too low"
    return f"Predictions are {way} on average, by {number(abs(made.bias))}."


def _coverage_in_words(found: Compared, made: errors.Residuals) -> str:
    wanted = f", and should be {percent(found.level)}" if found.level is not None else ""
    return f"{percent(made.coverage)} of labels are at or below what was predicted{wanted}."


# -- ranking


def _ranking_section(found: Compared, notes: str) -> Section:
    labels, scores = found.labels.astype(np.float64), found.predicted.astype(np.float64)
    found_grades = errors.grades(labels, scores)
    scored = np.array([[grade.mean, *grade.quartiles] for grade in found_grades])
    columns = [charts.numbers(column) for column in scored.T]
    rows = [
        [grade.name, f"{grade.samples:,}", *(column[place] for column in columns)]
        for place, grade in enumerate(found_grades)
    ]
    head = ["label", "samples", "mean score", "lower quartile", "median", "upper quartile"]
    sentence = (
        "The scores of a ranking have no unit, so residuals would mean nothing. "
        "A good ranking gives higher scores to higher labels."
    )
    return Section("predictions", "Scores by label", notes + say([sentence]) + table(head, rows))


# -- loss by label


def _loss_section(
    saved: Saved, found: Compared, last: Pair, steps: list[int], levels: tuple[float, ...]
) -> Section:
    edges = None
    if found.task not in CLASSIFICATIONS:
        edges = errors.label_edges(found.labels.astype(np.float64))
    groups = errors.losses(found, edges)
    name = errors.loss_name(found.task, found.likelihood is not None)
    shown = sorted(groups, key=lambda group: -group.samples)[: errors.MOST_CLASSES]
    shown = [group for group in groups if group in shown]
    share = name == "error rate"
    bars = charts.bar_chart(
        [group.name for group in shown],
        np.array([group.loss for group in shown]),
        title=f"{name.capitalize()} by label",
        description=f"The {name} of {len(shown)} groups of labels at round {last.step}.",
        notes=[f"({group.samples:,} samples)" for group in shown],
        values_as=[percent(group.loss) for group in shown] if share else (),
        colour=1,
    )
    worst = max(groups, key=lambda group: group.loss)
    show = percent if share else number
    what = "Class" if found.task in CLASSIFICATIONS else "Labels from"
    told = [f"At round {last.step}: {name} of the samples with each label."]
    if found.task not in CLASSIFICATIONS:
        told = [f"At round {last.step}: {name} of samples by label, in groups of about one size."]
    if len(groups) > 1:
        verb = "has" if found.task in CLASSIFICATIONS else "have"
        count = "1 sample" if worst.samples == 1 else f"{worst.samples:,} samples"
        told.append(f"{what} {worst.name} {verb} the highest, {show(worst.loss)} ({count}).")
    if len(groups) > len(shown):
        told.append(f"The {len(shown)} most frequent of {len(groups):,} labels.")
    figures = [figure(bars, f"{name.capitalize()} at the end", told)]
    history = _history(saved, found, steps[:-1], levels, edges)
    if history:
        history[last.step] = groups
        figures.append(_history_figure(history, shown, name))
    return Section("loss", "Loss by label", grid(figures))


def _history(
    saved: Saved,
    last: Compared,
    steps: list[int],
    levels: tuple[float, ...],
    edges: Floats | None,
) -> dict[int, list[Group]]:
    """The groups at earlier rounds; one at which nothing can be compared is left out."""
    found: dict[int, list[Group]] = {}
    for step in steps:
        pair = saved.pair(step)
        if pair is None:
            continue
        now = compared(last.task, pair.predictions, pair.labels, levels)
        if isinstance(now, Compared) and now.task is last.task:
            found[step] = errors.losses(now, edges)
    return found


def _history_figure(history: dict[int, list[Group]], shown: list[Group], name: str) -> str:
    chosen = sorted(shown, key=lambda group: -group.loss)[:_MOST_LINES]
    steps = np.array(sorted(history), np.int64)
    by_step = [{group.name: group.loss for group in history[step]} for step in steps.tolist()]
    lines = [
        Line(
            group.name,
            steps,
            np.array([losses.get(group.name, np.nan) for losses in by_step]),
            colour=place,
        )
        for place, group in enumerate(chosen)
    ]
    drawing = charts.line_chart(
        lines,
        title=f"{name.capitalize()} by label over rounds",
        description=f"The {len(lines)} labels with the highest {name} at the end.",
        x_label="round",
        y_label=name,
        height=300,
        from_zero=True,
    )
    few = "" if len(lines) == len(shown) else f"The {len(lines)} labels that are worst at the end. "
    told = f"{few}Compared at {len(steps)} rounds."
    return figure(drawing, "How it moved", [told])
