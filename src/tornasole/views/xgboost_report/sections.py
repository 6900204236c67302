"""The sections about training: each copes with nothing, and says what to save."""

from __future__ import annotations

import numpy as np

from tornasole.views import charts
from tornasole.views.charts import Line, Mark, number, percent
from tornasole.views.xgboost_report import metrics as curves
from tornasole.views.xgboost_report.importance import MOST_FEATURES, Ranking, ranked
from tornasole.views.xgboost_report.page import (
    Section,
    figure,
    grid,
    nothing,
    say,
    table,
    tabs,
    tiles,
)
from tornasole.views.xgboost_report.reading import Floats, Ints, Series, TreeTable
from tornasole.views.xgboost_report.trees import tree_sizes

_MOST_CHARTS = 16
_MOST_CURVES = 12
_MOST_ROWS = 300
_MOST_IN_COLUMN = 14
_LONGEST = 300
_ROUND = "round"

_MEANING = {
    "weight": "How many splits use the feature.",
    "gain": "How much a split on the feature lowers the loss, on average.",
    "cover": "How many samples (by their second-order gradient) a split on it sees, on average.",
    "total_gain": "How much all splits on the feature lower the loss together.",
    "total_cover": "How many samples (by their second-order gradient) all splits on it see.",
}
_SUMS = ("weight", "total_gain", "total_cover")


# -- metrics


def metrics_section(metrics: dict[str, Series]) -> Section:
    """Metrics over rounds, one chart for each, with the best round marked."""
    key, title = "metrics", "Metrics over rounds"
    if not metrics:
        sentence = (
            "No metrics were saved: train with evals (or eval_set) and a hook that saves the "
        )
        return Section(key, title, nothing(sentence + "collection metrics."), "metrics")
    found = curves.charts(metrics)
    sets = sorted({curve.of for chart in found for curve in chart.curves})
    # The first colour is for what counts most: data that the model was not trained on.
    sets.sort(key=curves.is_training)
    colours = {of: place for place, of in enumerate(sets)}
    figures = [_metric_figure(chart, colours) for chart in found[:_MOST_CHARTS]]
    notes = [_sampling([series.steps for series in metrics.values()])]
    if len(found) > _MOST_CHARTS:
        notes.append(f"{len(found) - _MOST_CHARTS} more metrics are not shown.")
    highlights = [
        curves.verdict(chart, curve)
        for chart in found
        for curve in chart.curves
        if not curve.is_training
    ]
    if not highlights:
        highlights = [curves.verdict(chart, curve) for chart in found for curve in chart.curves]
    return Section(key, title, say(notes, "soft") + grid(figures), "", tuple(highlights[:3]))


def _sampling(columns: list[Ints]) -> str:
    steps = np.unique(np.concatenate(columns))
    distances = np.unique(np.diff(steps))
    if len(distances) == 1 and distances[0] > 1:
        return f"Saved every {distances[0]} rounds: the best round is the best of those saved."
    return ""


def _metric_figure(chart: curves.Chart, colours: dict[str, int]) -> str:
    lines, marks, sentences = [], [], []
    shown = chart.curves[:_MOST_CURVES]
    watched = [curve for curve in shown if not curve.is_training] or list(shown[:1])
    for curve in shown:
        colour = colours[curve.of]
        low = high = None
        if curve.spread is not None:
            low, high = curve.values - curve.spread, curve.values + curve.spread
        lines.append(Line(curve.of or curve.name, curve.steps, curve.values, low, high, colour))
    best = curves.best_of(watched[-1], chart.higher_is_better)
    if best is not None and len(watched[-1].steps) > 1:
        text = f"best: {number(best.value)} at {best.step}"
        marks.append(Mark(best.step, best.value, text, colours[watched[-1].of]))
    better = "higher" if chart.higher_is_better else "lower"
    sentences += [curves.verdict(chart, curve) for curve in watched[:4]]
    if any(curve.spread is not None for curve in shown):
        sentences.append("The band is one standard deviation over the folds to either side.")
    sentences += curves.gaps_in_words(shown)[:4]
    if len(chart.curves) > len(shown):
        sentences.append(f"{len(chart.curves) - len(shown)} more evaluation sets are not drawn.")
    drawing = charts.line_chart(
        lines,
        title=f"{chart.metric} over rounds",
        description=" ".join(curves.verdict(chart, curve) for curve in shown[:4]),
        x_label=_ROUND,
        y_label=f"{better} is better",
        marks=marks,
    )
    return figure(drawing, charts.shortened(chart.metric, 80), sentences)


# -- features


def importance_section(importance: dict[str, dict[str, Series]]) -> Section:
    """Feature importance of each kind at the last saved round, and how it came there."""
    key, title = "importance", "Feature importance"
    rankings = {kind: ranked(features) for kind, features in list(importance.items())[:8]}
    found = {kind: ranking for kind, ranking in rankings.items() if ranking is not None}
    if not found:
        sentence = "No feature importance was saved: include the collection feature_importance."
        return Section(key, title, nothing(sentence), "feature importance")
    kinds = list(found)
    panels = [(kind.replace("_", " "), _kind_panel(kind, found[kind])) for kind in kinds]
    chosen = kinds.index("gain") if "gain" in kinds else 0
    first = found[kinds[chosen]]
    top = first.names[0]
    share = f", {percent(first.values[0] / first.total)} of the total" if first.total > 0 else ""
    if kinds[chosen] not in _SUMS:
        share = ""
    name = charts.shortened(top, 60)
    highlight = (
        f"By {kinds[chosen].replace('_', ' ')}, the most important feature is {name}{share}."
    )
    return Section(key, title, tabs("kind", panels, chosen), "", (highlight,))


def _kind_panel(kind: str, ranking: Ranking) -> str:
    told = [_MEANING.get(kind, ""), f"At round {ranking.step}, the last one saved."]
    told.append(_how_many_more(ranking))
    shares = ranking.values / ranking.total if ranking.total > 0 else np.zeros(len(ranking.values))
    notes = [f"({percent(share)} of all)" for share in shares.tolist()] if kind in _SUMS else []
    if kind in _SUMS and ranking.total > 0 and ranking.count > len(ranking.names):
        told.append(f"Those shown make up {percent(float(shares.sum()))} of the total.")
    name = kind.replace("_", " ")
    bars = charts.bar_chart(
        ranking.names,
        ranking.values,
        title=f"Feature importance by {name}",
        description=f"The {len(ranking.names)} features with the largest {name}.",
        notes=notes,
    )
    return grid([figure(bars, name.capitalize(), told), _moved_figure(ranking, name)])


def _how_many_more(ranking: Ranking) -> str:
    more = ranking.count - len(ranking.names)
    if not more:
        return ""
    return f"The top {MOST_FEATURES} of {ranking.count:,} features; {more:,} more are not shown."


def _moved_figure(ranking: Ranking, what: str) -> str:
    if len(ranking.steps) < 2:
        return ""
    steps = ranking.steps
    lines = [
        Line(name, steps, values, colour=place)
        for place, (name, values) in enumerate(ranking.moved.items())
    ]
    drawing = charts.line_chart(
        lines,
        title=f"How {what} of the top features moved",
        description=f"The {len(lines)} features that are largest at round {ranking.step}.",
        x_label=_ROUND,
        y_label=what,
        height=300,
        from_zero=True,
    )
    told = [f"The first {len(lines)} of the features on the same scale, over {len(steps)} rounds."]
    return figure(drawing, "How it moved", told)


def shap_section(shap: dict[str, Series]) -> Section:
    """The average SHAP contribution of each feature."""
    key, title = "shap", "Average SHAP"
    features = {name: series for name, series in shap.items() if name != "bias"}
    ranking = ranked(features)
    if ranking is None:
        sentence = "No SHAP values were saved: include the collection average_shap."
        return Section(key, title, nothing(sentence), "SHAP")
    signed = bool((ranking.values < 0).any())
    meaning = "How far each feature moves the margin of a prediction, on average over samples"
    told = [
        f"{meaning}: to the right it raises predictions, to the left it lowers them."
        if signed
        else f"{meaning}.",
        f"At round {ranking.step}, the last one saved.",
        _how_many_more(ranking),
    ]
    if "bias" in shap:
        told.append(f"The bias, which all samples share, is {number(shap['bias'].values[-1])}.")
    bars = charts.bar_chart(
        ranking.names,
        ranking.values,
        title="Average SHAP by feature",
        description=f"The {len(ranking.names)} features with the largest average contribution.",
        colour=2,
    )
    moved = _moved_figure(ranking, "average SHAP")
    return Section(key, title, grid([figure(bars, "At the end", told), moved]))


# -- trees


def trees_section(tables: list[TreeTable], hyperparameters: dict[str, str]) -> Section:
    """Leaves and depth of the trees by round."""
    key, title = "trees", "Tree sizes"
    sizes = tree_sizes(tables)
    if sizes is None:
        sentence = "No trees were saved: include the collection trees."
        return Section(key, title, nothing(sentence), "trees")
    leaves = sizes.leaves / sizes.trees
    low, middle, high = leaves.min(), float(np.median(leaves)), leaves.max()
    several = sizes.trees.max() > 1
    told = [
        f"A tree has {number(low)} to {number(high)} leaves (median {number(middle)})."
        if low < high
        else f"Every tree has {number(low)} leaves."
    ]
    if several:
        told.append(f"A round adds {sizes.trees.max()} trees; leaves are their average.")
    stumps = int(np.count_nonzero(sizes.leaves <= sizes.trees))
    if stumps:
        told.append(f"{stumps} of {len(leaves)} rounds added nothing but single leaves.")
    told_depth = _depth_in_words(sizes.depth, hyperparameters.get("max_depth", ""))
    figures = [
        figure(
            charts.line_chart(
                [Line("leaves", sizes.steps, leaves)],
                title="Leaves per tree over rounds",
                description=told[0],
                x_label=_ROUND,
                y_label="leaves per tree",
                from_zero=True,
            ),
            "Leaves",
            told,
        )
    ]
    if np.isfinite(sizes.depth).any():
        figures.append(
            figure(
                charts.line_chart(
                    [Line("depth", sizes.steps, sizes.depth, colour=1)],
                    title="Depth of the deepest tree over rounds",
                    description=told_depth,
                    x_label=_ROUND,
                    y_label="depth of the deepest tree",
                    from_zero=True,
                    whole=True,
                ),
                "Depth",
                [told_depth],
            )
        )
    facts = [
        ("rounds looked at", f"{len(sizes.steps):,}"),
        ("trees", f"{int(sizes.trees.sum()):,}"),
        ("nodes", f"{int(sizes.nodes.sum()):,}"),
        ("leaves", f"{int(sizes.leaves.sum()):,}"),
    ]
    return Section(key, title, tiles(facts) + grid(figures))


def _depth_in_words(depth: Floats, limit: str) -> str:
    known = depth[np.isfinite(depth)]
    if not len(known):
        return ""
    sentence = f"The deepest tree has {int(known.max())} levels below its root."
    if limit.isdecimal() and int(limit) > 0:
        share = float(np.mean(known >= int(limit)))
        sentence += f" {percent(share)} of rounds reach max_depth, {limit}."
    return sentence


# -- hyperparameters


def hyperparameters_section(found: dict[str, str]) -> Section:
    """The hyperparameters as they were saved."""
    key, title = "hyperparameters", "Hyperparameters"
    if not found:
        sentence = "No hyperparameters were saved: include the collection hyperparameters."
        return Section(key, title, nothing(sentence), "hyperparameters")
    shown = sorted(found.items())[:_MOST_ROWS]
    rows = [[charts.shortened(k, 100), charts.shortened(v, _LONGEST)] for k, v in shown]
    more = len(found) - len(shown)
    note = say([f"{more:,} more are not shown."], "soft") if more else ""
    half = len(rows) if len(rows) <= _MOST_IN_COLUMN else (len(rows) + 1) // 2
    columns = [part for part in (rows[:half], rows[half:]) if part]
    tables = grid(table(["name", "value"], part, words=2) for part in columns)
    return Section(key, title, tables + note)
