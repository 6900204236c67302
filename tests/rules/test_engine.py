"""The engine: one pass, symptoms told once, faults of rules contained, silence explained."""

from dataclasses import dataclass

import numpy as np
import pytest

from tornasole import Hook, ReductionConfig, SaveConfig
from tornasole.rules import (
    Explanation,
    Finding,
    Need,
    Severity,
    StepRule,
    Symptom,
    check,
    findings_of,
    parameter,
)
from tornasole.trial import create_trial
from tornasole.types import ModeKeys, Role

EVERY = SaveConfig(save_interval=1)


@dataclass(frozen=True)
class Above(StepRule):
    """Losses above a limit.

    For these tests.
    """

    name = "above"
    limit: float = parameter(1.0, "what is too much")
    statistic: str = parameter("max", "of what")

    def needs(self):
        return {
            "losses": Need(
                "losses",
                roles=frozenset({Role.LOSS}),
                statistics=frozenset({self.statistic}),
                save=("losses",),
            )
        }

    def symptoms(self, step, memory):
        memory["seen"] = memory.get("seen", 0) + 1
        losses = step["losses"]
        numbers = losses.statistic(self.statistic)
        for i in np.flatnonzero(numbers > self.limit).tolist():
            yield Symptom(losses.names[i], {"loss": numbers[i], "seen": memory["seen"]})

    def explain(self, symptoms):
        return Explanation(f"{len(symptoms)} losses are above {self.limit:g}.", Severity.CRITICAL)


@pytest.fixture
def run(tmp_path):
    """Saves one dictionary of losses per step, and returns the path."""

    def save(*steps, folder="trial", modes=None, **options):
        with Hook(tmp_path / folder, save_all=True, save_config=EVERY, **options) as hook:
            for number, losses in enumerate(steps):
                if modes is not None:
                    hook.set_mode(modes[number])
                hook.begin_step()
                for name, value in losses.items():
                    hook._recorder.record(name, Role.LOSS, np.asarray(value, np.float64))
        return tmp_path / folder

    return save


def steps_of(report):
    return [finding.step for finding in report.findings]


def test_a_symptom_that_goes_on_is_told_where_it_begins(run):
    path = run({"a": 0.0}, {"a": 2.0}, {"a": 3.0}, {"a": 0.0}, {"a": 2.0})
    assert steps_of(check(path, [Above()])) == [1, 4]


def test_symptoms_that_begin_together_are_one_finding(run):
    [finding] = check(run({"a": 2.0, "b": 3.0, "c": 0.0}), [Above()]).findings
    assert finding.tensors == ("a", "b")
    assert finding.message == "2 losses are above 1."


def test_a_tensor_that_is_not_saved_at_a_step_has_not_recovered(run):
    path = run({"a": 2.0}, {"b": 0.0}, {"a": 2.0})
    assert steps_of(check(path, [Above()])) == [0]


def test_what_joins_later_is_told_without_what_went_before(run):
    first, second = check(run({"a": 2.0}, {"a": 2.0, "b": 2.0}), [Above()]).findings
    assert (first.tensors, second.tensors) == (("a",), ("b",))


def test_a_finding_says_where_and_when(run):
    modes = [ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.EVAL]
    [finding] = check(run({"a": 0.0}, {"a": 0.0}, {"a": 2.0}, modes=modes), [Above()]).findings
    assert (finding.rule, finding.severity) == ("above", Severity.CRITICAL)
    assert (finding.step, finding.mode, finding.mode_step) == (2, ModeKeys.EVAL, 1)
    assert finding.evidence["loss"] == 2.0


def test_a_rule_remembers_what_it_likes_from_step_to_step(run):
    [finding] = check(run({"a": 0.0}, {"a": 0.0}, {"a": 2.0}), [Above()]).findings
    assert finding.evidence["seen"] == 3


@pytest.mark.parametrize(
    ("statistic", "saved"),
    [
        ("abs_mean", ReductionConfig(norms=["l1"])),
        ("l2", ReductionConfig(reductions=["mean", "std"])),
        ("variance", ReductionConfig(reductions=["std"])),
        ("std", ReductionConfig(reductions=["mean"], norms=["l2"])),
        ("abs_max", ReductionConfig(reductions=["min", "max"])),
        ("sum", ReductionConfig(reductions=["mean"])),
        ("mean", ReductionConfig(reductions=["sum"])),
        ("l1", ReductionConfig(abs_reductions=["mean"])),
    ],
)
def test_a_statistic_that_was_not_saved_follows_from_others(tmp_path, statistic, saved):
    values = np.array([-3.0, 1.0, 2.5, 9.0])
    with Hook(tmp_path / "t", save_all=True, save_config=EVERY, reduction_config=saved) as hook:
        hook.begin_step()
        hook._recorder.record("x", Role.WEIGHT, values)

    @dataclass(frozen=True)
    class OfWeights(Above):
        name = "of_weights"

        def needs(self):
            roles, names = frozenset({Role.WEIGHT}), frozenset({statistic})
            return {"losses": Need("weights", roles=roles, statistics=names)}

    whole = {
        "abs_mean": np.abs(values).mean(), "l2": np.linalg.norm(values), "variance": values.var(),
        "std": values.std(), "abs_max": 9.0, "sum": values.sum(), "mean": values.mean(),
        "l1": np.abs(values).sum(),
    }[statistic]  # fmt: skip
    [finding] = check(tmp_path / "t", [OfWeights(-1.0, statistic)]).findings
    assert finding.evidence["loss"] == pytest.approx(whole)


def test_each_raw_value_is_read_once_for_all_rules(run, monkeypatch):
    from tornasole.format import TrialReader

    path = run({"a": [1.0, 2.0]}, {"a": [3.0, 4.0]})
    reads = []
    raw = TrialReader.raw
    monkeypatch.setattr(TrialReader, "raw", lambda self, row: reads.append(row) or raw(self, row))
    rules = [Above(), Above(5.0), Above(0.0, "mean"), Above(0.0, "std"), Above(0.0, "l2")]
    check(path, rules)
    assert len(reads) == 2


def test_a_rule_that_raises_is_a_finding_and_the_others_go_on(run):
    @dataclass(frozen=True)
    class Broken(Above):
        name = "broken"

        def symptoms(self, step, memory):
            raise KeyError("on purpose")

    report = check(run({"a": 2.0}, {"a": 2.0}), [Broken(), Above()])
    broken, above = report.findings
    assert (broken.rule, above.rule) == ("broken", "above")
    assert "KeyError" in broken.message
    assert "on purpose" in broken.message


def test_a_rule_without_its_tensors_says_what_to_save(tmp_path):
    with Hook(tmp_path / "t", save_config=EVERY) as hook:
        hook.begin_step()
        hook.save_scalar("lr", 0.1)
    report = check(tmp_path / "t", [Above()])
    assert report.findings == []
    assert "no losses were saved" in report.not_applicable["above"]
    assert "losses" in report.not_applicable["above"].split("add")[1]


def test_what_was_saved_by_hand_is_known_by_its_collection(tmp_path):
    with Hook(tmp_path / "t", save_config=EVERY) as hook:
        hook.begin_step()
        hook.save_tensor("mine", np.array([5.0, 6.0]), collections_to_write="losses")
    [finding] = check(tmp_path / "t", [Above()]).findings
    assert finding.tensors == ("mine",)


def test_findings_are_written_once_and_read_back(run):
    path = run({"a": 2.0})
    report = check(path, [Above()])
    assert check(path, [Above()]).findings == report.findings
    assert findings_of(path) == report.findings


def test_findings_are_not_written_if_not_wanted(run):
    path = run({"a": 2.0})
    assert check(path, [Above()], save=False).findings
    assert findings_of(path) == []


def test_findings_do_not_disturb_the_trial(run):
    path = run({"a": 2.0})
    check(path, [Above()])
    assert create_trial(path).steps() == [0]
    assert create_trial(path).workers() == ["worker_0"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, np.float32(1.5), np.int64(3)])
def test_any_number_of_the_evidence_survives_json(value):
    import json

    finding = Finding(
        "rule", Severity.INFO, 1, ModeKeys.TRAIN, 1, ("a",), "It is.", {"n": value, "all": [value]}
    )
    text = json.dumps(finding.to_json_dict(), allow_nan=False)
    assert Finding.from_json_dict(json.loads(text)).key == finding.key


def test_all_workers_are_looked_at_if_the_rule_says_so(tmp_path, monkeypatch):
    for rank, value in enumerate((0.0, 2.0)):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        with Hook(tmp_path / "t", save_all=True, save_config=EVERY, include_workers="all") as hook:
            hook.begin_step()
            hook._recorder.record("a", Role.LOSS, np.asarray(value))

    @dataclass(frozen=True)
    class Everywhere(Above):
        name = "everywhere"

        def needs(self):
            from dataclasses import replace

            return {"losses": replace(super().needs()["losses"], every_worker=True)}

    report = check(tmp_path / "t", [Above(), Everywhere()])
    assert [finding.rule for finding in report.findings] == ["everywhere"]


def test_a_long_run_is_judged_in_blocks(run, monkeypatch):
    monkeypatch.setattr("tornasole.rules.checking._ROWS_AT_A_TIME", 3)
    path = run(*({"a": 2.0 if step == 7 else 0.0, "b": 0.0} for step in range(10)))
    report = check(path, [Above()])
    assert (report.steps, steps_of(report)) == (10, [7])


@dataclass(frozen=True)
class Odd(Above):
    """A rule that fails in a way of its own."""

    name = "odd"
    way: str = parameter("", "which")

    def needs(self):
        if self.way == "needs":
            raise ValueError("on purpose")
        statistics = frozenset({"p99"} if self.way == "statistic" else {"max"})
        return {"losses": Need("losses", roles=frozenset({Role.LOSS}), statistics=statistics)}

    def symptoms(self, step, memory):
        if self.way == "exit":
            raise SystemExit(3)
        yield Symptom("a", {"loss": 1.0})

    def explain(self, symptoms):
        if self.way == "evidence":
            return Explanation("It is.", evidence=[1, 2])
        return Explanation("It is.", "loud" if self.way == "severity" else "critical")


@pytest.mark.parametrize("way", ["needs", "statistic", "exit", "evidence", "severity"])
def test_however_a_rule_fails_the_others_go_on_and_findings_stay_readable(run, way):
    path = run({"a": 2.0}, {"a": 2.0})
    report = check(path, [Odd(way=way), Above()])
    assert [(f.rule, f.rule_failed) for f in report.findings] == [("odd", True), ("above", False)]
    assert [f.key for f in findings_of(path)] == [f.key for f in report.findings]


def test_a_severity_may_be_a_word(run):
    [finding] = check(run({"a": 2.0}), [Odd()]).findings
    assert finding.severity is Severity.CRITICAL


def test_two_of_a_name_with_other_parameters_are_told_apart(run):
    path = run({"a": 2.0})
    check(path, [Above(1.5)])
    first, second = check(path, [Above(1.5), Above(0.5)]).findings
    assert first.key != second.key
    assert first.parameters == {"limit": 1.5}
    assert len(findings_of(path)) == 2


def test_a_damaged_finding_is_passed_over(run, caplog):
    path = run({"a": 2.0})
    check(path, [Above()])
    (path / "findings" / "0-damaged.jsonl").write_text("{'not': JSON\n\n[1]\n")
    assert len(findings_of(path)) == 1
    assert "passed over" in caplog.text


def test_a_rule_cannot_change_what_others_see(run):
    @dataclass(frozen=True)
    class Writing(Above):
        name = "writing"

        def needs(self):
            roles = frozenset({Role.LOSS})
            return {"losses": Need("losses", roles=roles, raw=True)}

        def symptoms(self, step, memory):
            step["losses"].array(0)[...] = 0
            return ()

    writing, above = check(run({"a": [2.0, 3.0]}), [Writing(), Above()]).findings
    assert writing.rule_failed
    assert above.evidence["loss"] == 3.0
