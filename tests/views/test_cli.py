"""The command line: what each command tells people and programs."""

import json
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from tornasole._version import __version__
from tornasole.format import Record
from tornasole.types import ModeKeys
from tornasole.views.cli.reports import ranges

READING = [["ls"], ["show"], ["show", "loss"], ["steps"], ["tensors"]]
HOSTILE = ["[red]x[/red]", "\x1b[2Jgone", "two\nlines", "tab\tbed", "x" * 10_000, "\u202eevil"]


def rows_of(done):
    """The rows of a piped table, by column."""
    head, *lines = done.out.splitlines()
    return [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]


# -- ls


def test_ls_lists_the_trials_of_a_folder(tornasole, trial, write, tmp_path):
    write(tmp_path / "deep" / "er" / "other", [])
    rows = rows_of(tornasole("ls", tmp_path))
    assert [row["path"] for row in rows] == [str(tmp_path / "deep/er/other"), str(trial)]
    assert rows[1]["state"] == "finished"
    assert rows[1]["framework"] == "pytorch"
    assert (rows[1]["steps"], rows[1]["tensors"]) == ("5", "3")


def test_ls_of_a_trial_lists_it(tornasole_json, trial):
    (found,) = tornasole_json("ls", trial)
    assert found["path"] == str(trial)
    assert found["bytes"] == sum(f.stat().st_size for f in trial.rglob("*") if f.is_file())
    assert found["last_write"].startswith("2001-09-09T01:46:40")


def test_ls_takes_several_paths(tornasole_json, trial, write, tmp_path):
    other = write(tmp_path / "other", [])
    assert len(tornasole_json("ls", trial, other)) == 2


def test_ls_without_a_path_looks_here(tornasole_json, trial, monkeypatch):
    monkeypatch.chdir(trial.parent)
    assert len(tornasole_json("ls")) == 1


def test_ls_of_a_folder_without_trials_says_so(tornasole, tmp_path):
    done = tornasole("ls", tmp_path)
    assert done.code == 0
    assert f"No trials in {tmp_path}" in done.out


def test_a_damaged_trial_does_not_hide_the_others(tornasole, trial, tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "trial.json").write_text("{")
    done = tornasole("ls", tmp_path)
    assert [row["state"] for row in rows_of(done)] == ["unreadable", "finished"]
    assert "bad/trial.json is damaged" in done.err


# -- show


def test_show_tells_what_is_in_a_trial(tornasole_json, trial):
    shown = tornasole_json("show", trial)
    assert shown["state"] == "finished"
    assert shown["modes"]["TRAIN"] == {"count": 4, "first": 0, "last": 3, "ranges": "0–3"}
    assert shown["collections"] == {"losses": 1, "weights": 1}
    assert shown["roles"] == {"gradient": 1, "loss": 1, "weight": 1}


def test_show_names_the_first_tensor_that_is_not_finite(tornasole, trial):
    done = tornasole("show", trial)
    assert "loss at step 3 (TRAIN 3), worker_0: 1 NaN, 0 infinite" in done.out


def test_show_gives_programs_the_first_tensor_that_is_not_finite(tornasole_json, trial):
    found = tornasole_json("show", trial)["first_nonfinite"]
    assert (found["name"], found["step"], found["mode"]) == ("loss", 3, "TRAIN")


def test_show_can_leave_raw_values_unread(tornasole, trial):
    done = tornasole("show", trial, "--no-scan")
    assert "not looked for: 32 B" in done.out


def test_show_tells_why_a_run_failed(tornasole, write, tmp_path):
    write(tmp_path / "job", [], clean=False)
    assert (
        "failed: worker_0 did not end cleanly: out of memory"
        in tornasole("show", tmp_path / "job").out
    )


def test_show_a_tensor_with_saved_statistics(tornasole, trial):
    rows = rows_of(tornasole("show", trial, "fc.grad"))
    assert [(row["step"], row["mean"], row["l2"]) for row in rows] == [
        ("0", "0", "0"),
        ("1", "0.5", "1"),
        ("2", "1", "2"),
        ("3", "1.5", "3"),
    ]


def test_show_a_raw_tensor_computes_statistics(tornasole, trial):
    rows = rows_of(tornasole("show", trial, "fc.weight"))
    assert [(row["min"], row["max"]) for row in rows][3] == ("-3", "3")


def test_show_a_scalar_shows_its_values(tornasole_json, trial):
    rows = tornasole_json("show", trial, "loss")["rows"]
    assert [row["value"] for row in rows] == [3, 2, 1, "NaN", 0.5]


def test_show_a_tensor_in_one_mode(tornasole_json, trial):
    rows = tornasole_json("show", trial, "loss", "--mode", "eval")["rows"]
    assert [(row["step"], row["mode_step"]) for row in rows] == [(4, 0)]


def test_show_thins_out_long_tensors_evenly(tornasole, write, tmp_path):
    losses = [[Record("loss", "loss", (), "float32", (), 1e9, value=i)] for i in range(100)]
    path = write(tmp_path / "job", [(ModeKeys.TRAIN, records) for records in losses])
    rows = rows_of(tornasole("show", path, "loss", "--limit", "3"))
    assert [row["value"] for row in rows] == ["0", "50", "99"]
    assert "--limit 0" in tornasole("show", path, "loss").err
    assert len(rows_of(tornasole("show", path, "loss"))) == 20
    assert len(rows_of(tornasole("show", path, "loss", "--limit", "0"))) == 100


# -- steps and tensors


def test_steps_are_told_by_mode(tornasole, trial):
    rows = rows_of(tornasole("steps", trial))
    assert [(row["mode"], row["count"], row["steps"]) for row in rows] == [
        ("GLOBAL", "5", "0–4"),
        ("TRAIN", "4", "0–3"),
        ("EVAL", "1", "0"),
    ]


def test_programs_get_every_step(tornasole_json, trial):
    assert tornasole_json("steps", trial, "--mode", "TRAIN") == {"TRAIN": [0, 1, 2, 3]}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], ""),
        ([7], "7"),
        ([1, 2], "1, 2"),
        (range(10), "0–9"),
        (range(0, 100, 10), "0–90 by 10"),
        ([0, 10, 20, 21, 22, 30], "0–20 by 10, 21, 22, 30"),
        ([1, 2, 4, 8, 16, 32, 64, 128], "1, 2, 4, 8, 16, 32, … 2 more"),
    ],
)
def test_ranges_are_written_as_people_would(steps, expected):
    assert ranges(list(steps)) == expected


def test_tensors_lists_each_with_what_it_is(tornasole, trial):
    rows = rows_of(tornasole("tensors", trial))
    assert [row["name"] for row in rows] == ["fc.grad", "fc.weight", "loss"]
    assert rows[2] == {
        "name": "loss",
        "role": "loss",
        "dtype": "float32",
        "shape": "scalar",
        "saved": "5",
        "first": "0",
        "last": "4",
    }


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (["--regex", "^fc"], ["fc.grad", "fc.weight"]),
        (["--collection", "weights"], ["fc.weight"]),
        (["--role", "gradient"], ["fc.grad"]),
        (["--step", "4"], ["loss"]),
        (["--mode", "eval"], ["loss"]),
        (["--step", "3", "--regex", "fc", "--role", "weight"], ["fc.weight"]),
        (["--regex", "nothing"], []),
    ],
)
def test_tensors_can_be_filtered(tornasole_json, trial, filters, names):
    assert [line["name"] for line in tornasole_json("tensors", trial, *filters)] == names


# -- export


def test_export_to_parquet_keeps_all_rows(tornasole, trial, tmp_path):
    done = tornasole("export", trial, tmp_path / "out.parquet")
    assert done.out == f"13 rows of 3 tensors are now in {tmp_path / 'out.parquet'}.\n"
    table = pq.read_table(tmp_path / "out.parquet")
    assert (table.num_rows, "payload" in table.column_names) == (13, False)


def test_export_to_csv_has_a_header(tornasole, trial, tmp_path):
    tornasole("export", trial, tmp_path / "out.csv", "--regex", "loss")
    head, first, *rest = (tmp_path / "out.csv").read_text().splitlines()
    assert head.startswith('"worker","step","mode"')
    assert first.startswith('"worker_0",0,"TRAIN",0,2,"loss"')
    assert len(rest) == 4


def test_export_to_jsonl_is_valid_json(tornasole, trial, tmp_path):
    tornasole("export", trial, tmp_path / "out.jsonl", "--regex", "loss")
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["value"] for line in lines] == [3, 2, 1, "NaN", 0.5]


def test_export_to_npz_has_values_by_step_and_name(tornasole_json, trial, tmp_path):
    done = tornasole_json(
        "export", trial, tmp_path / "values", "--format", "npz", "--role", "weight"
    )
    assert done["values"] == 4
    with np.load(tmp_path / "values") as values:
        assert values["3/fc.weight"].tolist() == [3, -3]


def test_export_does_not_write_over_a_file_unless_told(tornasole, trial, tmp_path):
    (tmp_path / "out.csv").write_text("precious")
    done = tornasole("export", trial, tmp_path / "out.csv")
    assert (done.code, (tmp_path / "out.csv").read_text()) == (2, "precious")
    assert "--force" in done.err
    assert tornasole("export", trial, tmp_path / "out.csv", "--force").code == 0


def test_export_to_an_unknown_format_says_which_there_are(tornasole, trial, tmp_path):
    done = tornasole("export", trial, tmp_path / "out.xls")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "csv, parquet, jsonl, npz" in done.err


def test_export_to_a_missing_folder_leaves_nothing(tornasole, trial, tmp_path):
    done = tornasole("export", trial, tmp_path / "none" / "out.csv")
    assert done.code == 2
    assert done.err.startswith("tornasole: ")


# -- the rest


def test_version(tornasole, tornasole_json):
    assert tornasole("version").out == f"{__version__}\n"
    assert tornasole_json("version") == {"version": __version__}


def test_version_loads_neither_arrow_nor_numpy():
    script = (
        "import sys; sys.argv = ['tornasole', 'version']\n"
        "from tornasole.views.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'pyarrow', 'numpy', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@pytest.mark.parametrize("command", ["ls", "show", "steps", "tensors"])
def test_a_missing_trial_is_one_line_and_exit_code_2(tornasole, tmp_path, command):
    done = tornasole(command, tmp_path / "none")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("tornasole: There is no trial at")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show", "losss"], "Did you mean 'loss'"),
        (["tensors", "--regex", "("], "not a valid regular expression"),
        (["tensors", "--role", "hero"], "There is no role 'hero'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tornasole, trial, arguments, told):
    command, *rest = arguments
    done = tornasole(command, trial, *rest)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert told in done.err


def test_a_wrong_option_is_exit_code_2(tornasole, trial):
    assert tornasole("steps", trial, "--mode", "sideways").code == 2


def test_a_damaged_trial_is_one_line_that_names_the_file(tornasole, trial):
    (trial / "worker_0" / "000000000000.parquet").write_bytes(b"noise")
    done = tornasole("show", trial)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "worker_0/000000000000.parquet" in done.err


def test_a_reader_that_leaves_early_is_no_error(trial):
    script = f"import sys; sys.argv = ['tornasole', 'tensors', {str(trial)!r}]\n"
    script += "from tornasole.views.cli import main; main()"
    command = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    command.stdout.close()
    assert command.stderr.read() == b""
    command.stderr.close()
    command.wait()


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_terminal_gets_aligned_tables(tornasole, terminal, trial, command):
    name, *rest = command
    done = tornasole(name, trial, *rest)
    assert (done.code, done.err) == (0, "")
    assert "\t" not in done.out


def test_a_terminal_gets_what_is_the_same_in_all_rows_as_heading(tornasole, terminal, trial):
    first = tornasole("show", trial, "fc.grad").out.splitlines()[0]
    assert first == "fc.grad: gradient, worker_0, TRAIN, float32, 2"


@pytest.mark.parametrize("where", ["terminal", "pipe"])
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_shown_and_not_obeyed(
    tornasole, write, tmp_path, monkeypatch, name, where
):
    if where == "terminal":
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "200")
    loss = Record(name, "loss", (), "float32", (), 1e9, value=1)
    path = write(tmp_path / "job", [(ModeKeys.TRAIN, [loss])])
    for arguments in (["tensors", path], ["show", path], ["show", path, name]):
        out = tornasole(*arguments).out
        assert "\x1b[2J" not in out
        assert "\u202e" not in out
        assert "two\nlines" not in out
        if "red" in name and arguments[0] == "tensors":
            assert name in out
        if where == "terminal":
            assert max(map(len, out.splitlines())) < 400


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_programs_get_hostile_names_as_they_are(tornasole_json, write, tmp_path, name):
    loss = Record(name, "loss", (), "float32", (), 1e9, value=1)
    path = write(tmp_path / "job", [(ModeKeys.TRAIN, [loss])])
    assert tornasole_json("tensors", path)[0]["name"] == name


def test_the_module_runs_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "tornasole", "version"], check=True, capture_output=True, text=True
    )
    assert done.stdout == f"{__version__}\n"


def test_a_demo_without_its_extra_says_what_to_install(tornasole, monkeypatch):
    monkeypatch.setitem(sys.modules, "tornasole.demo", None)
    done = tornasole("demo")
    assert done.code == 2
    assert "pip install 'tornasole[demo]'" in done.err
