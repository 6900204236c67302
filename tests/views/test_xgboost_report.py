"""The report of an XGBoost training: right numbers, no holes, nothing from outside."""

import os
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from tornasole import create_trial
from tornasole.capture import Hook
from tornasole.errors import SMDebugError, SMDebugValueError, TrialNotFound
from tornasole.format import Record
from tornasole.types import ModeKeys
from tornasole.views.xgboost_report import create_xgboost_report
from tornasole.views.xgboost_report.errors_made import (
    confusion,
    coverage,
    grades,
    label_edges,
    losses,
    residuals,
)
from tornasole.views.xgboost_report.importance import ranked
from tornasole.views.xgboost_report.metrics import best_of, charts, parts_of, verdict
from tornasole.views.xgboost_report.outcome import (
    Compared,
    Incomparable,
    Task,
    compared,
    levels_in,
    task_of,
)
from tornasole.views.xgboost_report.reading import Series, thinned
from tornasole.views.xgboost_report.trees import depth

KINDS = ("weight", "gain", "cover", "total_gain", "total_cover")
MISSING = {
    "metrics": "No metrics were saved",
    "predictions": "No predictions and labels were saved",
    "feature_importance": "include the collection feature_importance",
    "average_shap": "include the collection average_shap",
    "trees": "include the collection trees",
    "hyperparameters": "include the collection hyperparameters",
}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=http://evil.example/x.png>',
    "a/b/c",
    "특징",
    "</title></svg></style>",
    "\u202eevil\x00",
    "x" * 3000,
]
VOID = {"meta", "link", "input", "br"}


# -- trials and pages


def collection_of(name):
    stem = name.partition("/")[0]
    return stem if stem in {*MISSING, "labels"} else "metrics"


def save(path, rounds):
    """A trial with these tensors, by name, in each round."""
    hook = Hook(path)
    for tensors in rounds:
        hook.begin_step()
        for name, value in tensors.items():
            hook.save_tensor(name, value, collections_to_write=[collection_of(name)])
    hook.close()
    return path


def a_tree(step):
    return {
        "trees/Tree": np.full(5, step),
        "trees/ID": np.array([f"{step}-{node}" for node in range(5)]),
        "trees/Feature": np.array(["f0", "Leaf", "f1", "Leaf", "Leaf"]),
        "trees/Yes": np.array([f"{step}-1", "", f"{step}-3", "", ""]),
        "trees/No": np.array([f"{step}-2", "", f"{step}-4", "", ""]),
    }


def a_round(step, seed=0):
    """All that a binary classification may save."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(50) % 3 == 0).astype(np.float32)
    shares = np.clip(0.25 + 0.4 * labels + rng.normal(size=50) * 0.2, 0, 1).astype(np.float32)
    importance = {
        f"feature_importance/{kind}/f{i}": float(i + step) for kind in KINDS for i in range(4)
    }
    return {
        "train-logloss": 1.0 / (step + 1),
        "validation-logloss": 0.5 + 0.1 * abs(step - 2),
        "hyperparameters/objective": "binary:logistic",
        "hyperparameters/eta": 0.3,
        "hyperparameters/max_depth": 2,
        "predictions": shares,
        "labels": labels,
        "average_shap/f0": 0.5,
        "average_shap/f1": -0.25,
        **importance,
        **a_tree(step),
    }


class Page(HTMLParser):
    """The elements and words of a page; refuses one that is not well formed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.text, self.words, self.elements, self._open = text, "", [], []
        self.styles, self.scripts = [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] in ("style", "script"):
            self.scripts.append(data) if self._open[-1] == "script" else self.styles.append(data)
        else:
            self.words += data

    def count(self, tag, kind=None):
        return sum(
            name == tag and (kind is None or kind in attributes.get("class", "").split())
            for name, attributes in self.elements
        )


def page_of(path):
    written = create_xgboost_report(path)
    with open(written, encoding="utf-8") as file:
        text = file.read()
    assert len(text) < 5_000_000
    return Page(text)


def report_of(tmp_path, rounds):
    return page_of(save(tmp_path / "job", rounds))


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The page of a training that saved everything."""
    path = save(tmp_path_factory.mktemp("full") / "job", [a_round(step) for step in range(6)])
    return page_of(path)


# -- the call


def test_the_page_lies_in_the_folder_of_its_trial_and_does_not_disturb_it(tmp_path, tornasole):
    path = save(tmp_path / "job", [a_round(0)])
    before = create_trial(path).tensor_names()
    written = create_xgboost_report(path)
    assert written == str(path / "xgboost_report.html")
    assert sorted(os.listdir(path)) == ["trial.json", "worker_0", "xgboost_report.html"]
    trial = create_trial(path)
    assert (trial.tensor_names(), trial.state) == (before, "finished")
    assert tornasole("ls", tmp_path).code == 0
    assert create_xgboost_report(path) == written


def test_the_page_goes_where_it_is_asked_to(tmp_path):
    path = save(tmp_path / "job", [a_round(0)])
    assert create_xgboost_report(path, tmp_path / "page.html") == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 1000
    assert not (path / "xgboost_report.html").exists()


def test_an_open_trial_will_do(tmp_path):
    trial = create_trial(save(tmp_path / "job", [a_round(0)]))
    assert os.path.isfile(create_xgboost_report(trial))
    assert trial.dynamic_refresh


def test_a_trial_that_still_runs_is_reported_as_far_as_it_is(tmp_path):
    hook = Hook(tmp_path / "job")
    hook.begin_step()
    hook.save_tensor("train-rmse", 1.0, collections_to_write=["metrics"])
    hook.begin_step()
    create_trial(tmp_path / "job").wait_for_steps([0], timeout=30)
    assert "running" in page_of(tmp_path / "job").words
    hook.close()


def test_a_missing_trial_is_the_trials_own_error(tmp_path):
    with pytest.raises(TrialNotFound, match="no trial"):
        create_xgboost_report(tmp_path / "nowhere")


def test_the_trial_of_something_else_is_refused_with_what_it_is(trial):
    with pytest.raises(
        SMDebugValueError, match=r"trial of pytorch, with 3 tensors.*tornasole show"
    ):
        create_xgboost_report(trial)
    assert not (trial / "xgboost_report.html").exists()


def test_tensors_are_found_by_role(write, tmp_path):
    records = [
        Record("train-rmse", "metric", (), "float64", (), 1e9, value=0.75),
        Record("validation-rmse", "loss", (), "float64", (), 1e9, value=0.875),
        Record(
            "feature_importance/gain/f0", "feature_importance", (), "float64", (), 1e9, value=2.0
        ),
    ]
    page = page_of(write(tmp_path / "job", [(ModeKeys.TRAIN, records)]))
    assert "validation-rmse was 0.875 at round 0" in page.words
    assert "most important feature is f0" in page.words


def test_the_command_tells_where_the_page_is(tornasole, tornasole_json, tmp_path):
    path = save(tmp_path / "job", [a_round(0)])
    assert f"The report is now in {path}/xgboost_report.html." in tornasole("report", path).out
    out = tmp_path / "page.html"
    assert tornasole_json("report", path, "--out", out) == {"written": str(out)}


def test_the_command_refuses_other_trials_in_one_line(tornasole, trial):
    done = tornasole("report", trial)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "XGBoost" in done.err


# -- the page


def test_the_page_asks_nothing_of_the_outside(full):
    for tag, attributes in full.elements:
        assert tag not in {"img", "iframe", "object", "embed", "video", "audio", "base", "form"}
        for name in ("href", "src", "srcset", "action", "data", "xlink:href", "poster"):
            assert attributes.get(name, "#").startswith(("#", "data:,"))
    style = "".join(full.styles)
    assert "url(" not in style
    assert "@import" not in style
    assert "://" not in full.text


def test_the_page_forbids_what_it_does_not_need(full):
    (policy,) = [a["content"] for t, a in full.elements if a.get("http-equiv")]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert ("link", {"rel": "icon", "href": "data:,"}) in full.elements


def test_every_link_and_label_leads_somewhere(full):
    ids = [attributes["id"] for _, attributes in full.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [a["href"][1:] for t, a in full.elements if t == "a"]
    labels = [a["for"] for t, a in full.elements if t == "label"]
    assert links
    assert set(links + labels) <= set(ids)


def test_every_chart_has_a_title_and_a_description_and_every_table_a_head(full):
    charts_drawn = full.count("svg", "chart")
    assert charts_drawn > 10
    assert full.count("desc") == charts_drawn
    assert full.count("thead") == full.count("table") > 0


def test_the_kinds_of_importance_are_chosen_without_a_script(full):
    radios = [a for t, a in full.elements if t == "input"]
    assert len(radios) == 5
    assert sum("checked" in a for a in radios) == 1
    assert "#kind-1:checked~#kind-panel-1" in "".join(full.styles)


def test_the_header_tells_what_the_trial_is(full):
    for words in ("finished", "6 saved, from 0 to 5", "numpy", "job"):
        assert words in full.words
    assert "Not saved" not in full.words


def test_the_page_says_when_validation_began_to_suffer(full):
    assert (
        "validation-logloss was best at round 2 (0.5) and is 60.0\u00a0% worse at the end "
        "(0.8 at round 5): overfitting since then, as train-logloss went on improving."
    ) in full.words


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_and_values_are_words(tmp_path, name):
    tensors = a_round(0) | {
        f"feature_importance/gain/{name}": 9.0,
        f"average_shap/{name}": 9.0,
        f"{name}-rmse": 1.0,
        f"hyperparameters/{name}": name,
    }
    page = report_of(tmp_path, [tensors, tensors])
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"img", "b"}
    assert page.count("script") == 1
    assert page.count("title") > 0
    assert not set("\x00\u202e") & set(page.text)
    shown = name[:20].replace("\u202e", "�").replace("\x00", "�")
    assert shown in page.words


@pytest.mark.parametrize("stem", MISSING)
def test_a_section_without_data_says_what_to_save(tmp_path, stem):
    wanted = {"predictions", "labels"} if stem == "predictions" else {stem}
    tensors = {k: v for k, v in a_round(0).items() if collection_of(k) not in wanted}
    page = report_of(tmp_path, [tensors, tensors])
    assert MISSING[stem] in page.words
    assert page.count("p", "nothing") == 1
    assert "Not saved" in page.words


@pytest.mark.parametrize("stem", MISSING)
def test_a_section_may_be_all_there_is(tmp_path, stem):
    tensors = {k: v for k, v in a_round(0).items() if collection_of(k) == stem}
    assert MISSING[stem] not in report_of(tmp_path, [tensors]).words or stem == "predictions"


def test_labels_alone_are_missing_their_predictions(tmp_path):
    page = report_of(tmp_path, [{"labels": np.zeros(3)}])
    assert "No predictions were saved" in page.words


# -- metrics


@pytest.mark.parametrize(
    ("name", "of", "metric"),
    [
        ("train-rmse", "train", "rmse"),
        ("validation_0-logloss", "validation_0", "logloss"),
        ("train-error@0.3", "train", "error@0.3"),
        ("train-ndcg@8-", "train", "ndcg@8-"),
        ("train-poisson-nloglik", "train", "poisson-nloglik"),
        ("a-tweedie-nloglik@1.5", "a", "tweedie-nloglik@1.5"),
        ("train-custom", "train", "custom"),
        ("loss", "", "loss"),
        ("-odd", "", "odd"),
    ],
)
def test_a_name_parts_into_set_and_metric(name, of, metric):
    assert parts_of(name) == (of, metric)


def curve_of(values, name="validation-rmse", **others):
    metrics = {name: values} | others
    series = {k: Series(np.arange(len(v)), np.array(v, np.float64)) for k, v in metrics.items()}
    (chart,) = charts(series)
    return chart, next(curve for curve in chart.curves if curve.name == name)


@pytest.mark.parametrize(
    ("values", "name", "step"),
    [
        ([3, 1, 2], "validation-rmse", 1),
        ([3, 1, 2], "validation-auc", 0),
        ([0.1, 0.9, 0.9], "x-ndcg@5", 1),
        ([3, np.nan, -np.inf, 2], "a-rmse", 3),
    ],
)
def test_the_best_round_is_the_first_with_the_best_value(values, name, step):
    chart, curve = curve_of(values, name)
    assert best_of(curve, chart.higher_is_better).step == step


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, 0.5], "best at the last saved round, 1 (0.5), and still improving"),
        ([0.5, 0.5], "stayed at 0.5"),
        ([0.5], "was 0.5 at round 0, the only one saved"),
        ([np.nan, np.inf], "has no finite value"),
        ([1.0, 0.5, 0.501], "ended about there"),
        ([1.0, 0.5, 0.6, 0.5], "is the same at the end"),
        ([1.0, 0.5, 0.75], "best at round 1 (0.5) and is 50.0\u00a0% worse at the end (0.75"),
        ([1.0, 0.0, 0.75], "best at round 1 (0) and is worse at the end"),
    ],
)
def test_a_curve_is_told_in_a_sentence(values, said):
    assert said in verdict(*curve_of(values))


def test_what_gets_worse_with_its_training_set_is_not_called_overfitting():
    chart, curve = curve_of([1.0, 0.5, 0.8], **{"train-rmse": [1.0, 0.4, 0.6]})
    assert "overfitting" not in verdict(chart, curve)


def test_nan_and_infinity_are_gaps_and_told(tmp_path):
    rounds = [{"train-rmse": value} for value in (3.0, np.nan, np.inf, 1.0)]
    page = report_of(tmp_path, rounds)
    assert "train-rmse is NaN or infinite at 2 rounds, first 1" in page.words


def test_cross_validation_is_drawn_with_its_spread(tmp_path):
    rounds = [
        {f"{of}-rmse-{part}": 1.0 / (i + 1) for of in ("train", "test") for part in ("mean", "std")}
        for i in range(4)
    ]
    page = report_of(tmp_path, rounds)
    assert page.count("path", "band") == 2
    assert "test-rmse was best" in page.words
    assert "one standard deviation" in page.words


def test_many_metrics_and_sets_are_cut_off_and_counted(tmp_path):
    tensors = {f"set{i}-m{j}": 1.0 for i in range(20) for j in range(20)}
    page = report_of(tmp_path, [tensors])
    assert "4 more metrics are not shown" in page.words
    assert "8 more evaluation sets are not drawn" in page.words


# -- features


def test_a_feature_that_is_absent_counts_as_zero():
    a = Series(np.array([0, 1, 2]), np.array([5.0, 5.0, 5.0]))
    b = Series(np.array([0, 2]), np.array([1.0, 9.0]))
    c = Series(np.array([1]), np.array([100.0]))
    found = ranked({"a": a, "b": b, "c": c})
    assert (found.step, found.names, found.values.tolist()) == (2, ["b", "a", "c"], [9, 5, 0])
    assert found.moved["b"].tolist() == [1, 0, 9]
    assert found.total == 14


def test_of_many_features_the_largest_are_shown_and_the_rest_counted(tmp_path):
    tensors = {f"feature_importance/gain/feature {i}": float(i) for i in range(300)}
    page = report_of(tmp_path, [tensors, tensors])
    assert "The top 20 of 300 features; 280 more are not shown." in page.words
    assert "feature 299" in page.words
    assert "feature 279" not in page.words


def test_importance_that_is_not_finite_does_no_harm():
    values = {
        name: Series(np.array([0]), np.array([v]))
        for name, v in [("nan", np.nan), ("inf", np.inf), ("one", 1.0)]
    }
    found = ranked(values)
    assert found.names == ["inf", "one", "nan"]
    assert found.total == 1


def test_the_bias_is_told_and_not_ranked(tmp_path):
    page = report_of(tmp_path, [{"average_shap/bias": 7.5, "average_shap/f0": -1.0}])
    assert "The bias, which all samples share, is 7.5." in page.words
    assert "to the left it lowers them" in page.words


# -- the task


@pytest.mark.parametrize(
    ("objective", "predictions", "labels", "task"),
    [
        ("binary:logistic", [0.2, 0.7], [0, 1], Task.PROBABILITY),
        ("binary:hinge", [0, 1], [0, 1], Task.CLASSES),
        ("multi:softmax", [0, 2], [0, 1], Task.CLASSES),
        ("multi:softprob", [[0.5, 0.5]], [0], Task.PROBABILITIES),
        ("rank:ndcg", [0.5], [3], Task.RANKING),
        ("reg:quantileerror", [0.5], [3.5], Task.QUANTILE),
        ("survival:cox", [0.5], [-3], Task.SURVIVAL),
        ("reg:squarederror", [0, 1], [0, 1], Task.REGRESSION),
        ("binary:logistic", [0.2, 0.7], [0.1, 0.9], Task.REGRESSION),
        (None, [0.2, 0.7], [0, 1], Task.PROBABILITY),
        (None, [0, 1], [0, 1], Task.CLASSES),
        (None, [0.0, 5.0], [1, 5], Task.CLASSES),
        (None, [[0.5, 0.5], [0.1, 0.9]], [0, 1], Task.PROBABILITIES),
        (None, [1.5, 2.5], [1, 3], Task.REGRESSION),
        (None, [0.5, 0.5], [0.5, 3.5], Task.REGRESSION),
        ("my_own", [0.2, 0.7], [0, 1], Task.PROBABILITY),
    ],
)
def test_the_task_is_known_from_the_objective_or_the_numbers(objective, predictions, labels, task):
    judged = task_of(objective, np.array(predictions), np.array(labels))
    assert judged.task is task
    assert ("no objective was saved" in judged.because) == (objective is None)


@pytest.mark.parametrize(
    ("predictions", "labels", "reason"),
    [
        (np.zeros(3), np.zeros(4), "3 predictions but 4 labels"),
        (np.zeros((3, 2)), np.zeros(3), "cannot be compared"),
        (np.zeros((2, 2, 2)), np.zeros((2, 2, 2)), "cannot be compared"),
        (np.zeros(0), np.zeros(0), "empty"),
        (np.array(["a"]), np.zeros(1), "arrays of numbers"),
        (np.array(1.0), np.array(1.0), "arrays of numbers"),
        (np.array([np.nan]), np.array([1.0]), "No sample"),
    ],
)
def test_what_cannot_be_compared_is_said(tmp_path, predictions, labels, reason):
    found = compared(Task.REGRESSION, predictions, labels)
    assert isinstance(found, Incomparable)
    assert reason in found.reason
    if predictions.size:
        page = report_of(tmp_path, [{"predictions": predictions, "labels": labels}])
        assert page.count("p", "nothing") > 0


def test_levels_are_read_from_a_hyperparameter():
    assert levels_in("[0.1, 0.5, 0.9]") == (0.1, 0.5, 0.9)
    assert levels_in("0.5") == (0.5,)


# -- confusion


def random_classes(n=5000, classes=7, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    shares = rng.random((n, classes)).astype(np.float32) + 2 * (
        labels[:, None] == np.arange(classes)
    )
    return labels, (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)


def test_confusion_is_counted_rightly():
    labels, shares = random_classes()
    found = compared(Task.PROBABILITIES, shares, labels.astype(np.float32))
    guessed = shares.argmax(axis=1)
    made = confusion(found.labels, found.predicted)
    expected = np.array(
        [[np.sum((labels == i) & (guessed == j)) for j in range(7)] for i in range(7)]
    )
    assert (made.counts == expected).all()
    assert made.recall == pytest.approx(np.diag(expected) / expected.sum(axis=1))
    assert made.precision == pytest.approx(np.diag(expected) / expected.sum(axis=0))
    assert made.right == (labels == guessed).sum()


@pytest.mark.parametrize("shift", [0, 20_000, -5])
def test_of_many_classes_the_most_frequent_are_shown(shift):
    rng = np.random.default_rng(0)
    labels = np.minimum(rng.integers(0, 1000, 20_000), rng.integers(0, 1000, 20_000)) + shift
    guessed = np.where(rng.random(20_000) < 0.7, labels, rng.integers(0, 1000, 20_000) + shift)
    made = confusion(labels, guessed)
    assert len(made.names) == 21
    assert made.names[-1] == "other"
    assert made.counts.sum() == 20_000
    classes, counts = np.unique(labels, return_counts=True)
    top = set(classes[np.argsort(-counts, kind="stable")[:20]].tolist())
    assert {int(name) for name in made.names[:-1]} == top
    assert made.largest == counts.max()
    first = int(made.names[0])
    assert made.recall[0] == pytest.approx(np.mean(guessed[labels == first] == first))


def test_the_page_shows_the_counts_of_a_binary_classification(tmp_path):
    labels = np.array([0] * 60 + [1] * 40)
    shares = np.concatenate([np.full(53, 0.1), np.full(7, 0.6), np.full(31, 0.9), np.full(9, 0.5)])
    page = report_of(tmp_path, [{"predictions": shares, "labels": labels}])
    cells = re.findall(r'<g class="cell[^"]*"><title>([^<]*)</title>', page.text)
    counts = [re.search(r": ([\d,]+) \(", cell)[1] for cell in cells]
    assert counts == ["53", "7", "9", "31"]
    assert "84.0\u00a0%" in page.words
    assert "Most often mistaken: 1 for 0, 9 times." in page.words


def test_log_odds_are_taken_as_such():
    found = compared(Task.PROBABILITY, np.array([-3.0, 2.0]), np.array([0, 1]))
    assert found.predicted.tolist() == [0, 1]
    assert found.likelihood == pytest.approx([1 / (1 + np.exp(-3)), 1 / (1 + np.exp(-2))])


def test_margins_of_classes_are_taken_as_such():
    margins = np.array([[1.0, 3.0], [2.0, -1.0]])
    found = compared(Task.PROBABILITIES, margins, np.array([1, 0]))
    assert found.likelihood == pytest.approx([1 / (1 + np.exp(-2)), 1 / (1 + np.exp(-3))])
    assert "margins" in found.notes[0]


def test_a_flat_list_of_probabilities_has_a_row_for_each_label():
    found = compared(Task.PROBABILITIES, np.array([0.9, 0.1, 0.2, 0.8]), np.array([0, 1]))
    assert found.predicted.tolist() == [0, 1]


def test_several_outputs_are_taken_together():
    predictions = np.array([[0.9, 0.1], [0.8, 0.7]])
    found = compared(Task.PROBABILITY, predictions, np.array([[1, 0], [0, 1]]))
    assert found.predicted.tolist() == [1, 0, 1, 1]
    assert found.labels.tolist() == [1, 0, 0, 1]


def test_labels_that_are_nan_are_left_out_and_told(tmp_path):
    labels = np.array([0, 1, np.nan, 1])
    page = report_of(tmp_path, [{"predictions": np.array([0.1, 0.9, 0.5, 0.2]), "labels": labels}])
    assert "1 of 4 samples have no finite label or prediction" in page.words
    assert "66.7\u00a0%" in page.words


@pytest.mark.parametrize(
    ("predictions", "labels"),
    [
        (np.array([0.5]), np.array([1.0])),
        (np.array([0.7, 0.2]), np.array([0, 0])),
        (np.array([1.5]), np.array([2.5])),
        (np.full(10, 3.5), np.full(10, 3.5)),
        (np.array([1e300, -1e300]), np.array([0.5, 0.25])),
        (np.zeros((4, 1)), np.zeros(4)),
        (np.array([True, False]), np.array([True, True])),
        (np.array([[0.5, 0.5]] * 3), np.array([0, 1, 7])),
    ],
)
@pytest.mark.filterwarnings("error")
def test_odd_data_make_a_page(tmp_path, predictions, labels):
    report_of(tmp_path, [{"predictions": predictions, "labels": labels}] * 2)


def test_a_thousand_classes_make_a_small_page(tmp_path):
    labels, shares = random_classes(3000, 1000)
    page = report_of(tmp_path, [{"predictions": shares, "labels": labels}])
    assert re.search(r"The 20 most frequent of [\d,]+ classes, and the others together", page.words)
    assert len(page.text) < 300_000


# -- residuals


def test_residuals_are_computed_rightly():
    rng = np.random.default_rng(1)
    labels = rng.normal(size=3000) * 5
    predicted = labels + rng.normal(size=3000) + 0.5
    made = residuals(labels, predicted)
    rest = predicted - labels
    assert made.rmse == pytest.approx(np.sqrt(np.mean(rest**2)))
    assert made.mae == pytest.approx(np.mean(np.abs(rest)))
    assert made.bias == pytest.approx(np.mean(rest))
    assert made.counts.sum() == made.field.sum() == 3000
    inside, _ = np.histogram(rest, made.edges)
    assert made.counts[1:-1] == pytest.approx(inside[1:-1], abs=1)
    assert sum(made.beyond) == 3000 - inside.sum()


def test_the_page_shows_the_residuals_in_numbers(tmp_path):
    labels = np.linspace(0, 10, 101)
    page = report_of(
        tmp_path,
        [
            {
                "predictions": labels + 0.25,
                "labels": labels,
                "hyperparameters/objective": "reg:squarederror",
            }
        ],
    )
    assert "Predictions are too high on average, by 0.25." in page.words
    assert "because of the objective reg:squarederror" in page.words
    assert "RMSE on 101 validation samples is 0.25" in page.words


def test_many_samples_are_drawn_as_a_field(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.normal(size=200_000).astype(np.float32)
    page = report_of(tmp_path, [{"predictions": labels * 0.9, "labels": labels}])
    assert page.count("svg", "density") == 1
    assert page.count("svg", "scatter") == 0
    assert len(page.text) < 100_000


def test_a_quantile_is_judged_by_how_many_labels_lie_below(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.random(1000)
    predictions = np.stack([np.full(1000, 0.1), np.full(1000, 0.5), np.full(1000, 0.9)], axis=1)
    assert coverage(labels, predictions) == pytest.approx(
        [np.mean(labels <= each) for each in (0.1, 0.5, 0.9)]
    )
    page = report_of(
        tmp_path,
        [
            {
                "predictions": predictions,
                "labels": labels,
                "hyperparameters/objective": "reg:quantileerror",
                "hyperparameters/quantile_alpha": "[0.1, 0.5, 0.9]",
            }
        ],
    )
    assert "and should be 50.0\u00a0%" in page.words
    assert "labels below, found" in page.words


def test_a_ranking_has_no_residuals(tmp_path):
    tensors = {
        "predictions": np.array([0.1, 0.9, 2.5]),
        "labels": np.array([0, 1, 1]),
        "hyperparameters/objective": "rank:ndcg",
    }
    page = report_of(tmp_path, [tensors])
    assert "residuals would mean nothing" in page.words
    (low, high) = grades(np.array([0.0, 1, 1]), np.array([0.1, 0.9, 2.5]))
    assert (low.mean, high.mean, high.samples) == (0.1, 1.7, 2)


# -- loss by label


def test_log_loss_by_class_is_computed_rightly():
    labels, shares = random_classes()
    found = compared(Task.PROBABILITIES, shares, labels)
    for i, group in enumerate(losses(found)):
        mine = shares[labels == i, i].astype(np.float64)
        assert group.name == str(i)
        assert group.samples == len(mine)
        assert group.loss == pytest.approx(-np.log(mine).mean())


def test_a_class_that_was_ruled_out_costs_much_but_not_infinitely():
    found = compared(Task.PROBABILITY, np.array([0.0, 1.0]), np.array([1, 1]))
    (group,) = losses(found)
    assert group.loss == pytest.approx(-np.log(1e-15) / 2)


def test_error_rate_by_class_is_computed_rightly():
    labels, guessed = np.array([0, 0, 0, 5, 5]), np.array([0, 5, 0, 5, 0])
    found = compared(Task.CLASSES, guessed, labels)
    assert [(g.name, g.loss) for g in losses(found)] == [("0", pytest.approx(1 / 3)), ("5", 0.5)]


def test_squared_error_by_group_of_labels_is_computed_rightly():
    rng = np.random.default_rng(0)
    labels = rng.random(1000)
    predicted = labels + rng.normal(size=1000) * labels
    found = Compared(Task.REGRESSION, labels, predicted)
    edges = label_edges(labels)
    groups = losses(found, edges)
    assert [group.samples for group in groups] == [200] * 5
    for group, low, high in zip(groups, edges[:-1], edges[1:], strict=True):
        inside = (labels >= low) & ((labels < high) | (high == edges[-1]))
        assert group.loss == pytest.approx(np.mean((predicted - labels)[inside] ** 2))


def test_the_loss_of_each_label_is_followed_over_the_rounds(full):
    assert "Compared at 6 rounds." in full.words


def test_labels_that_were_saved_once_serve_all_rounds(tmp_path):
    labels = {"labels": np.array([0, 1, 1])}
    rounds = [{"predictions": np.array([0.1, 0.5 + 0.1 * i, 0.9])} for i in range(4)]
    page = report_of(tmp_path, [rounds[0] | labels, *rounds[1:]])
    assert "Labels are those saved at round 0." in page.words
    assert "Compared at 4 rounds." in page.words


@pytest.mark.parametrize("most", [1, 2, 7, 100])
def test_steps_are_thinned_evenly_and_keep_the_last(most):
    steps = list(range(0, 300, 10))
    chosen = thinned(steps, most)
    assert len(chosen) <= most
    assert chosen[-1] == 290
    assert chosen == sorted(set(chosen))


# -- trees


def test_trees_are_measured(full):
    assert "Every tree has 3 leaves." in full.words
    assert "The deepest tree has 2 levels below its root. 100\u00a0% of rounds" in full.words


def test_depth_follows_the_links():
    names = np.array(["0-0", "0-1", "0-2", "0-7", "0-8"])
    yes, no = np.array(["0-1", "", "0-7", "", ""]), np.array(["0-2", "", "0-8", "", ""])
    assert depth(names, yes, no) == 2
    assert depth(names[:1], yes[1:2], no[1:2]) == 0


def test_depth_of_links_that_are_missing_or_go_in_circles():
    circle = np.array(["a", "b"])
    assert depth(circle, circle[::-1], circle) == 0
    assert np.isnan(depth(circle, circle[:0], circle[:0]))


def test_trees_without_links_are_still_counted(tmp_path):
    page = report_of(tmp_path, [{"trees/Feature": np.array(["f0", "Leaf", "Leaf"])}])
    assert "Every tree has 2 leaves." in page.words


def test_trees_that_are_no_words_are_not_measured(tmp_path):
    page = report_of(tmp_path, [{"trees/Feature": np.zeros(3), "train-rmse": 1.0}])
    assert "No trees were saved" in page.words


# -- odd trials


def test_an_empty_trial_is_no_xgboost_trial(tmp_path):
    Hook(tmp_path / "job").close()
    with pytest.raises(SMDebugError, match="no tensors"):
        create_xgboost_report(tmp_path / "job")


def test_reductions_without_values_are_said(write, tmp_path):
    counts = {"count": 2, "nan_count": 0, "inf_count": 0, "zero_count": 0, "mean": 1.0}
    records = [
        Record(name, role, (), "float32", (2,), 1e9, statistics=counts)
        for name, role in (("predictions", "prediction"), ("labels", "label"))
    ]
    records.append(Record("hyperparameters/eta", "hyperparameter", (), "float64", (), 1e9, value=1))
    page = page_of(write(tmp_path / "job", [(ModeKeys.TRAIN, records)]))
    assert "no values were saved, only statistics" in page.words
