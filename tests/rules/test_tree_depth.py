"""tree_depth: along links where they are known, by numbers of nodes where not."""

import numpy as np
import pytest

from tornasole import Hook, SaveConfig
from tornasole.errors import SMDebugValueError
from tornasole.rules import Severity, check
from tornasole.rules.builtin.tree_depth import linked_depth, numbered_depth
from tornasole.types import Role


@pytest.fixture
def run(tmp_path):
    """Saves columns of trees, step by step; returns what the rule says of them."""

    def make(steps, rule="tree_depth"):
        hook = Hook(tmp_path / "t", save_all=True, save_config=SaveConfig(save_interval=1))
        for columns in steps:
            hook.begin_step()
            for name, value in columns.items():
                hook._recorder.record(f"trees/{name}", Role.TREE, np.asarray(value))
        hook.close()
        return check(tmp_path / "t", [rule])

    return make


def chain(depth):
    """A tree whose every other child is a leaf, numbered as XGBoost does: one after the other."""
    nodes, yes, no = ["0-0"], [], []
    for level in range(depth):
        nodes += [f"0-{2 * level + 1}", f"0-{2 * level + 2}"]
        yes += [nodes[-2], *([""] if level else [])]
        no += [nodes[-1], *([""] if level else [])]
    ends = [""] * (len(nodes) - len(yes))
    return {"ID": nodes, "Yes": yes + ends, "No": no + ends, "Node": list(range(len(nodes)))}


@pytest.mark.parametrize(
    ("largest", "expected"),
    [(0, 0), (2, 1), (6, 2), (14, 3), (15, 3), (16, 4), (30, 4), (np.nan, None), (np.inf, None)],
)
def test_the_depth_by_numbers(largest, expected):
    assert numbered_depth(largest) == expected


@pytest.mark.parametrize(
    ("nodes", "yes", "no", "expected"),
    [
        (["0-0"], [""], [""], 0),
        (["0-0", "0-1", "0-2"], ["0-1", "", ""], ["0-2", "", ""], 1),
        (["0-0", "1-0", "1-1", "1-2"], ["", "1-1", "", ""], ["", "1-2", "", ""], 1),
        (["a", "b"], ["b", "a"], ["b", "a"], 0),  # a circle has no root
        ([], [], [], None),
        (["0-0"], ["", ""], [""], None),
    ],
)
def test_the_depth_along_links(nodes, yes, no, expected):
    columns = (np.array(each, dtype="U8") for each in (nodes, yes, no))
    assert linked_depth(*columns) == expected


def test_without_links_there_is_no_such_depth():
    assert linked_depth(np.array(["0-0"]), None, None) is None


def test_a_deep_tree_fires_once(run):
    [finding] = run([chain(3), chain(5), chain(5)]).findings
    assert finding.step == 1
    assert finding.severity is Severity.INFO
    assert finding.tensors == ("trees/Node",)
    assert finding.message == "A tree of this round has depth 5; from 4 on it counts as deep."


def test_numbers_of_nodes_do_where_there_are_no_links(run):
    [finding] = run([{"Node": np.arange(31)}]).findings
    assert finding.evidence == {"limit": 4, "depth": 4, "counted along links": False}


def test_shallow_trees_are_silent(run):
    assert not run([chain(3)] * 3).findings


def test_the_depth_can_be_chosen(run):
    assert not run([chain(5)], "tree_depth:depth=6").findings


def test_trees_of_xgboost(tmp_path):
    xgb = pytest.importorskip("xgboost")
    pytest.importorskip("pandas")
    import tornasole.xgboost as smd

    x = np.random.RandomState(0).rand(300, 4)
    data = xgb.DMatrix(x, label=np.sin(20 * x[:, 0]) + x[:, 1] * x[:, 2])
    for depth, expected in ((2, []), (5, [5])):
        path = tmp_path / str(depth)
        every = smd.SaveConfig(save_interval=1)
        with smd.Hook(path, include_collections=["trees"], save_config=every) as hook:
            xgb.train({"max_depth": depth, "nthread": 1}, data, 2, callbacks=[hook])
        findings = check(path, ["tree_depth"]).findings
        assert [finding.evidence["depth"] for finding in findings] == expected


def test_a_depth_that_makes_no_sense_is_refused(run):
    with pytest.raises(SMDebugValueError, match="depth"):
        run([], "tree_depth:depth=0")
