"""The commands that judge runs: what people and programs get to see of findings."""

import json
import subprocess
import sys

import pytest

from tornasole.format import Record, StopSign
from tornasole.rules import Finding, Severity, findings_of
from tornasole.types import ModeKeys
from tornasole.views.cli.findings import Teller, duration, tally

COUNTS = {"count": 4, "nan_count": 0, "inf_count": 0, "zero_count": 0}
VANISHING = ["--rule", "vanishing_gradient"]


def gradients(*sizes, names="abcdefgh"):
    return [
        Record(
            f"gradient/{name}",
            "gradient",
            (),
            "float32",
            (4,),
            1e9,
            statistics=COUNTS | {"abs_mean": size},
        )
        for name, size in zip(names, sizes, strict=False)
    ]


@pytest.fixture
def faulty(write, tmp_path):
    """A gradient that vanishes at step 1, and another at step 3."""
    sizes = [(1, 1), (1e-9, 1), (1e-9, 1), (1e-9, 0)]
    return write(tmp_path / "job", [(ModeKeys.TRAIN, gradients(*each)) for each in sizes])


@pytest.fixture
def healthy(write, tmp_path):
    return write(tmp_path / "job", [(ModeKeys.TRAIN, gradients(1, 1))] * 3)


@pytest.fixture
def rule_file(tmp_path):
    """Writes a file with a rule in the older style."""

    def rule_file(body, arguments=""):
        (tmp_path / "mine.py").write_text(
            "from smdebug.rules import Rule\n"
            "class Mine(Rule):\n"
            '    """Fires at step 2."""\n'
            f"    def __init__(self, base_trial{arguments}):\n"
            "        super().__init__(base_trial, '')\n"
            "    def invoke_at_step(self, step):\n"
            f"        {body}\n"
        )
        return tmp_path / "mine.py"

    return rule_file


# -- check


def test_check_tells_what_is_wrong_and_what_to_try(tornasole, faulty):
    done = tornasole("check", faulty, *VANISHING)
    assert (done.code, done.err) == (1, "")
    first, _, heading, message, *rest = done.out.splitlines()
    assert first == f"{faulty}: 2 findings (2 warning)"
    assert heading == "WARNING  vanishing_gradient at step 1 (TRAIN)"
    assert message.startswith("  1 gradient is below 1.00e-07 in mean magnitude")
    assert "  likely     - saturating activations (sigmoid, tanh) in a deep network" in rest
    assert "  try        - use ReLU-like activations, normalisation layers or residual" in done.out
    assert "  again at step 3 (TRAIN): 1 gradient is below" in done.out
    assert f"1 rule judged 4 steps of {faulty}." in rest


def test_check_says_in_plain_words_that_nothing_was_found(tornasole, healthy):
    done = tornasole("check", healthy, *VANISHING)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"Nothing found: 1 rule judged 3 steps of {healthy}.\n"


def test_check_runs_all_rules_that_apply(tornasole, faulty):
    done = tornasole("check", faulty)
    assert "vanishing_gradient at step 1" in done.out
    (silent,) = [line for line in done.out.splitlines() if "could say nothing" in line]
    assert "(-v tells why)" in silent
    assert "dead_relu" in silent
    assert "dead_relu could say nothing: no" in tornasole("check", faulty, "-v").out


def test_programs_get_one_object_with_findings(tornasole, faulty):
    done = tornasole("check", faulty, *VANISHING, "--json")
    report = json.loads(done.out)
    assert (done.code, report["steps"], report["worst"]) == (1, 4, "warning")
    assert report["rules"] == ["vanishing_gradient"]
    first, second = report["findings"]
    assert first["evidence"]["threshold"] == 1e-7
    assert {name: first[name] for name in ("rule", "severity", "step", "mode", "tensors")} == {
        "rule": "vanishing_gradient",
        "severity": "warning",
        "step": 1,
        "mode": "TRAIN",
        "tensors": ["gradient/a"],
    }
    assert second["tensors"] == ["gradient/b"]
    assert first["message"].startswith("1 gradient is below")


def test_programs_learn_which_rules_could_say_nothing(tornasole, healthy):
    report = json.loads(tornasole("check", healthy, "--json").out)
    assert "include_collections" in report["not_applicable"]["dead_relu"]
    assert report["findings"] == []


@pytest.mark.parametrize(
    ("fail_on", "code"), [("info", 1), ("warning", 1), ("critical", 0), ("never", 0)]
)
def test_the_exit_code_is_for_who_automates(tornasole, faulty, fail_on, code):
    assert tornasole("check", faulty, *VANISHING, "--fail-on", fail_on).code == code


def test_findings_are_saved_once(tornasole, faulty):
    tornasole("check", faulty, *VANISHING, "--no-save")
    assert findings_of(faulty) == []
    tornasole("check", faulty, *VANISHING)
    done = tornasole("check", faulty, *VANISHING)
    assert "2 findings" in done.out
    assert [finding.step for finding in findings_of(faulty)] == [1, 3]


def test_a_trial_that_cannot_be_written_to_is_judged_all_the_same(tornasole, faulty, monkeypatch):
    def refuse(trial, findings):
        raise PermissionError("read-only")

    monkeypatch.setattr("tornasole.views.cli.findings.save_findings", refuse)
    done = tornasole("check", faulty, *VANISHING)
    assert (done.code, "vanishing_gradient at step 1" in done.out) == (1, True)
    assert "could not be written to the trial: read-only" in done.err


def test_a_trial_without_the_needed_tensors_is_no_success(tornasole, healthy):
    done = tornasole("check", healthy, "--rule", "dead_relu", *VANISHING)
    assert done.code == 2
    assert "dead_relu could say nothing: no" in done.out
    assert "include_collections=" in done.out


def test_a_trial_without_steps_is_no_success(tornasole, write, tmp_path):
    done = tornasole("check", write(tmp_path / "job", []))
    assert done.code == 2
    assert "has no complete steps yet" in done.out


def test_a_rule_of_a_file_is_run(tornasole, faulty, rule_file):
    done = tornasole("check", faulty, "--rule", f"{rule_file('return step == 2')}:Mine")
    assert (done.code, "WARNING  Mine at step 2 (TRAIN)" in done.out) == (1, True)


def test_a_rule_that_fails_does_not_hide_the_others(tornasole, faulty, rule_file):
    done = tornasole("check", faulty, "--rule", f"{rule_file('return 1 / 0')}:Mine", *VANISHING)
    assert "The rule itself failed and is left out from here on: ZeroDivisionError" in done.out
    assert "vanishing_gradient at step 1" in done.out


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("vanishing_gradiant", "Did you mean 'vanishing_gradient'"),
        ("vanishing_gradient:treshold=1", "Did you mean 'threshold'"),
        ("vanishing_gradient:threshold=low", "must be a number"),
        ("none.py:Mine", "There is no file 'none.py'"),
        ("{file}", "names a file but no class"),
        ("{file}:Yours", "its rules are: Mine"),
        ("{file}:Mine:limit=1", "has no parameter 'limit'"),
    ],
)
@pytest.mark.parametrize("command", ["check", "watch"])
def test_a_mistake_in_a_rule_is_one_line_and_exit_code_2(
    tornasole, faulty, rule_file, command, rule, told
):
    rule = rule.format(file=rule_file("return False"))
    done = tornasole(command, faulty, "--rule", rule)
    assert (done.code, done.out) == (2, "")
    assert told in done.err.splitlines()[-1]


def test_a_rule_file_that_does_not_import_says_why(tornasole, faulty, tmp_path):
    (tmp_path / "bad.py").write_text("import no_such_thing")
    done = tornasole("check", faulty, "--rule", f"{tmp_path / 'bad.py'}:Rule")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "bad.py cannot be imported: ModuleNotFoundError" in done.err


def test_a_rule_that_cannot_be_made_says_why(tornasole, faulty, rule_file):
    done = tornasole("check", faulty, "--rule", f"{rule_file('pass', ', limit')}:Mine")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "Rule 'Mine' cannot be made: TypeError" in done.err


@pytest.mark.parametrize("command", ["check", "watch"])
def test_a_path_without_a_trial_is_exit_code_2(tornasole, tmp_path, command):
    done = tornasole(command, tmp_path / "none")
    assert (done.code, done.out) == (2, "")
    assert "There is no trial at" in done.err


# -- for people


@pytest.mark.parametrize("columns", [40, 60, 100, 200])
def test_no_line_is_wider_than_the_terminal(tornasole, faulty, monkeypatch, columns):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    for arguments in (["check", faulty, "--no-save"], ["rules"], ["rules", "overfit"]):
        out = tornasole(*arguments).out.replace("\x1b[1m", "").replace("\x1b[0m", "")
        path = str(faulty)
        long = [line for line in out.splitlines() if len(line) > min(columns, 100)]
        assert [line for line in long if path not in line and "--rule" not in line] == []


def test_a_terminal_gets_colours(tornasole, terminal, faulty):
    assert "\x1b[1;33mWARNING  vanishing_gradient" in tornasole("check", faulty).out


def finding(step=0, severity=Severity.WARNING, rule="a_rule", **more):
    given = {"mode": ModeKeys.TRAIN, "mode_step": step, "tensors": (), "message": "Bad.", **more}
    return Finding(rule, severity, step, **given)


def told(*findings, alone=True, verbose=False):
    return "\n".join(line.text for line in Teller(alone, verbose).groups(findings))


def test_the_worst_comes_first_then_what_points_at_the_fewest_tensors():
    text = told(
        finding(0, Severity.INFO, "info"),
        finding(5, Severity.CRITICAL, "late"),
        finding(4, Severity.CRITICAL, "wide", tensors=("a", "b")),
        finding(4, Severity.CRITICAL, "narrow", tensors=("a",)),
        finding(1, Severity.WARNING, "warning"),
    )
    words = text.split()
    rules = [word for word in words if word in ("info", "late", "wide", "narrow", "warning")]
    assert rules == ["narrow", "wide", "late", "warning", "info"]


def test_what_a_rule_says_again_and_again_is_told_short():
    many = [finding(step, causes=("a bug",)) for step in range(0, 100, 10)]
    text = told(*many)
    assert text.count("a bug") == 1
    assert text.count("again at") == 2
    assert "and 7 times more, at steps 30 to 90 (-v tells all)" in text
    assert told(*many, verbose=True).count("a bug") == 10


def test_long_lists_are_shortened_unless_told():
    names = tuple(f"t{i}" for i in range(9))
    long = finding(tensors=names, evidence={"means": dict.fromkeys(names, 1e-9)})
    assert "t0, t1, t2, t3 and 5 more" in told(long)
    assert "means: t0 1.00e-09, t1 1.00e-09, t2 1.00e-09, … 6 more" in told(long)
    assert "t8 1.00e-09" in told(long, verbose=True)


def test_places_name_mode_and_worker_where_they_tell_something():
    assert "at step 8 (EVAL step 3)" in told(finding(8, mode=ModeKeys.EVAL, mode_step=3))
    assert "at step 8\n" in told(finding(8, mode=ModeKeys.GLOBAL))
    assert "(TRAIN, worker_1)" in told(finding(8, worker="worker_1"), alone=False)
    assert "worker_1" not in told(finding(8, worker="worker_1"))


@pytest.mark.parametrize("name", ["\x1b[2Jgone", "two\nlines", "[red]x[/red]", "\u202eevil"])
def test_hostile_names_are_shown_and_not_obeyed(tornasole, terminal, write, tmp_path, name):
    path = write(tmp_path / "job", [(ModeKeys.TRAIN, gradients(0, names=[name]))])
    out = tornasole("check", path, *VANISHING, "-v").out
    assert "\x1b[2J" not in out
    assert "\u202e" not in out
    assert "two\nlines" not in out
    if "red" in name:
        assert "gradient/[red]x[/red]" in out


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (200, "3 min"), (7500, "2 h 5 min")]
)
def test_durations_are_written_as_people_would(seconds, text):
    assert duration(seconds) == text


def test_a_tally_names_the_worst_first():
    assert tally([]) == "no findings"
    assert tally([finding()]) == "1 finding (1 warning)"
    mixed = [finding(severity=severity) for severity in Severity]
    assert tally(mixed) == "3 findings (1 critical, 1 warning, 1 info)"


# -- watch


def test_watch_tells_what_is_new_and_how_it_ended(tornasole, faulty):
    done = tornasole("watch", faulty, *VANISHING)
    assert done.code == 1
    assert done.out.count("WARNING  vanishing_gradient") == 2
    assert "The run is finished: All workers ended cleanly." in done.out
    assert "4 steps judged; 2 new findings (2 warning)." in done.out
    assert done.err.count("\n") == 1


def test_watch_does_not_repeat_itself(tornasole, faulty):
    tornasole("watch", faulty, *VANISHING)
    done = tornasole("watch", faulty, *VANISHING)
    assert "WARNING" not in done.out
    assert "no new findings. 2 were known before." in done.out
    assert done.code == 1


def test_programs_get_a_line_for_each_finding(tornasole, faulty):
    done = tornasole("watch", faulty, *VANISHING, "--json")
    assert [json.loads(line)["step"] for line in done.out.splitlines()] == [1, 3]
    assert done.err == ""


def test_watch_acts(tornasole, faulty, tmp_path):
    out = tmp_path / "out"
    tornasole("watch", faulty, *VANISHING, "--action", f"command:cat >> {out}")
    assert len(out.read_text().splitlines()) == 2


def test_watch_acts_from_a_severity_on(tornasole, faulty, tmp_path):
    out = tmp_path / "out"
    action = ["--action", f"command:cat >> {out}", "--action", "stop"]
    tornasole("watch", faulty, *VANISHING, *action, "--at", "critical")
    assert not out.exists()
    assert StopSign.of(str(faulty)).look() is None


def test_an_action_that_fails_is_a_note(tornasole, faulty):
    done = tornasole("watch", faulty, *VANISHING, "--action", "command:exit 3")
    assert "was not done: exit 3 ended with code 3" in done.err
    assert "4 steps judged" in done.out


def test_watch_ends_when_its_time_is_over(tornasole, faulty):
    (faulty / "worker_0" / "end.json").unlink()
    done = tornasole("watch", faulty, *VANISHING, "--timeout", "0")
    assert "The run is still running." in done.out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--action", "stpo"], "Did you mean 'stop'"),
        (["--action", "webhook:here"], "A webhook needs an address"),
        (["--action", "email:me"], "goes to an address"),
    ],
)
def test_a_mistake_in_an_action_is_one_line_and_exit_code_2(tornasole, faulty, options, told):
    done = tornasole("watch", faulty, *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert told in done.err


def test_watch_can_wait_for_a_trial(tornasole, tmp_path):
    done = tornasole("watch", tmp_path / "none", "--wait", "0.01")
    assert done.code == 2
    assert "No trial appeared" in done.err


def test_ctrl_c_ends_the_watch_and_says_how_far_it_came(tornasole, faulty, monkeypatch):
    (faulty / "worker_0" / "end.json").unlink()

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("tornasole.rules.watching.time.sleep", interrupt)
    done = tornasole("watch", faulty, *VANISHING)
    assert done.code == 130
    assert "The run is still running." in done.out
    assert len(findings_of(faulty)) == 2


# -- rules


def test_rules_lists_each_with_what_it_is(tornasole):
    lines = tornasole("rules").out.splitlines()
    assert lines[0] == "name\ttitle"
    assert "vanishing_gradient\tGradients that are too small to learn from." in lines


def test_a_rule_is_explained(tornasole):
    out = tornasole("rules", "vanishing_gradient").out
    assert out.startswith("vanishing_gradient: Gradients that are too small to learn from.\n")
    assert "Fires when the mean magnitude of a gradient is below threshold" in out
    assert "  threshold (default 1e-07): mean magnitude below which" in out
    assert "include_collections=['gradients'] saves them" in out
    assert "tornasole check PATH --rule vanishing_gradient:threshold=1e-07" in out


def test_programs_get_all_about_rules(tornasole_json):
    rules = {rule["name"]: rule for rule in tornasole_json("rules")}
    one = tornasole_json("rules", "vanishing_gradient")
    assert rules["vanishing_gradient"] == one
    assert one["parameters"][0] == {
        "name": "threshold",
        "default": 1e-7,
        "required": False,
        "type": "float",
        "about": "mean magnitude below which a gradient is too small",
    }
    assert one["needs"][0]["save"] == ["gradients"]
    assert one["runs_by_default"] is True


def test_every_rule_can_be_explained(tornasole, tornasole_json):
    for rule in tornasole_json("rules"):
        done = tornasole("rules", rule["name"])
        assert (done.code, done.err) == (0, "")
        assert all(each["about"] for each in rule["parameters"]), rule["name"]


def test_a_rule_of_a_file_is_explained(tornasole, rule_file):
    done = tornasole("rules", f"{rule_file('return False')}:Mine")
    assert (done.code, "Fires at step 2." in done.out) == (0, True)


def test_a_rule_that_does_not_exist_is_one_line_and_exit_code_2(tornasole):
    done = tornasole("rules", "overfti")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "Did you mean 'overfit'" in done.err


def test_the_commands_are_there_for_a_shell(faulty):
    command = [sys.executable, "-m", "tornasole", "check", str(faulty), *VANISHING]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("command", ["check", "watch"])
def test_a_named_rule_that_could_say_nothing_is_no_all_clear(tornasole, faulty, command):
    done = tornasole(command, faulty, "--rule", "tree_depth")
    assert done.code == 2
