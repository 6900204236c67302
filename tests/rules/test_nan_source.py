"""nan_source: which tensor was first, what fed it, and the step before."""

import numpy as np
import pytest

from tornasole.format import Record, StepRecords, segment
from tornasole.format.writer import TrialWriter
from tornasole.rules import Severity, check
from tornasole.rules.builtin.nan_source import (
    NanSource,
    Seen,
    execution_order,
    fed_by,
    growth,
    layer_of,
    listed_forwards,
    trace,
)
from tornasole.store import open_store
from tornasole.testing.rule import RuleContract
from tornasole.types import ModeKeys, Role

W, G, L = Role.WEIGHT, Role.GRADIENT, Role.LOSS
IN, OUT = Role.LAYER_INPUT, Role.LAYER_OUTPUT

PYTORCH = [
    ("Net_fc1.weight", W), ("Net_fc2.weight", W), ("Net_fc2.bias", Role.BIAS),
    ("Net_input_0", Role.INPUT), ("fc1_input_0", IN), ("fc1_output_0", OUT), ("fc2_input_0", IN),
    ("fc2_output_0", OUT), ("Net_output_0", Role.OUTPUT), ("Loss_input_0", Role.PREDICTION),
    ("Loss_input_1", Role.LABEL), ("Loss_output_0", L),
    ("gradient/Net_fc2.bias", G), ("gradient/Net_fc2.weight", G), ("gradient/Net_fc1.weight", G),
]  # fmt: skip
KERAS = [
    ("inputs", Role.INPUT), ("labels", Role.LABEL),
    ("dense/inputs", IN), ("dense/outputs", OUT), ("dense_1/inputs", IN), ("dense_1/outputs", OUT),
    ("predictions", Role.PREDICTION),
    ("gradients/m/dense/kernelGrad", G), ("gradients/m/dense_1/kernelGrad", G),
    ("dense/weights/m/dense/kernel", W), ("dense_1/weights/m/dense_1/kernel", W), ("loss", L),
]  # fmt: skip
MXNET = [
    ("dense0_weight", W), ("dense1_weight", W), ("net0_input_0", Role.INPUT),
    ("dense0_input_0", IN), ("dense0_relu_input_0", IN), ("dense0_relu_output_0", OUT),
    ("dense0_output_0", OUT), ("dense1_input_0", IN), ("dense1_output_0", OUT),
    ("net0_output_0", Role.OUTPUT), ("l2loss0_output_0", L),
    ("gradient/dense0_weight", G), ("gradient/dense1_weight", G),
]  # fmt: skip


def in_order(tensors):
    return [tensors[i] for i in execution_order(tensors)]


def test_what_is_recorded_in_order_stays_so():
    assert in_order(PYTORCH) == PYTORCH


def test_what_is_shown_late_is_put_where_it_was_computed():
    names = [name for name, _ in in_order(KERAS)]
    assert names[:2] == ["dense/weights/m/dense/kernel", "dense_1/weights/m/dense_1/kernel"]
    assert names[-3:] == ["loss", "gradients/m/dense_1/kernelGrad", "gradients/m/dense/kernelGrad"]


def test_what_is_saved_by_hand_stays_with_what_came_before():
    tensors = [("x_input_0", IN), ("mine", Role.CUSTOM), ("loss", L), ("later", Role.CUSTOM)]
    assert in_order(tensors) == tensors


@pytest.mark.parametrize(
    ("gradients", "parameters", "expected"),
    [
        (["gradient/a", "gradient/b"], ["a", "b"], True),
        (["gradient/b", "gradient/a"], ["a", "b"], False),
        (["gradients/m/a/kernelGrad", "gradients/m/b/kernelGrad"],
         ["a/weights/m/a/kernel:0", "b/weights/m/b/kernel:0"], True),
        (["gradient/a", "gradient/b"], [], False),
        (["something"], ["a"], False),
    ],
)  # fmt: skip
def test_whether_gradients_are_listed_forwards(gradients, parameters, expected):
    assert listed_forwards(gradients, parameters) is expected


@pytest.mark.parametrize(
    ("name", "role", "layer"),
    [
        ("layer1.0.conv_output_0", OUT, "layer1.0.conv"),
        ("fc_input_12", IN, "fc"),
        ("dense/outputs", OUT, "dense"),
        ("dense/outputs_1", OUT, "dense"),
        ("dense/outputs/Relu:0", OUT, "dense"),
        ("gradient/Net_fc.weight", G, "Net_fc.weight"),
        ("gradients/m/dense/kernelGrad", G, "m/dense/kernel"),
        ("mine", Role.CUSTOM, ""),
    ],
)
def test_the_layer_is_in_the_name(name, role, layer):
    assert layer_of(name, role) == layer


@pytest.mark.parametrize(
    ("tensors", "name", "fed"),
    [
        (PYTORCH, "fc2_output_0", ["fc2_input_0", "Net_fc2.weight", "Net_fc2.bias"]),
        (PYTORCH, "fc1_output_0", ["fc1_input_0", "Net_fc1.weight"]),
        (PYTORCH, "fc2_input_0", ["fc1_output_0"]),
        (PYTORCH, "Net_output_0", ["fc2_output_0"]),
        (PYTORCH, "Loss_output_0", ["Loss_input_0", "Loss_input_1"]),
        (PYTORCH, "Net_input_0", []),
        (PYTORCH, "gradient/Net_fc2.bias", ["Loss_output_0", "Net_fc2.bias"]),
        (PYTORCH, "gradient/Net_fc1.weight",
         ["Loss_output_0", "gradient/Net_fc2.weight", "Net_fc1.weight"]),
        (PYTORCH, "Net_fc2.weight", ["gradient/Net_fc2.weight"]),
        (KERAS, "dense_1/outputs", ["dense_1/inputs", "dense_1/weights/m/dense_1/kernel"]),
        (KERAS, "loss", ["predictions"]),
        (KERAS, "dense/weights/m/dense/kernel", ["gradients/m/dense/kernelGrad"]),
        (MXNET, "dense0_relu_output_0", ["dense0_relu_input_0"]),
        (MXNET, "dense0_output_0", ["dense0_relu_output_0", "dense0_input_0", "dense0_weight"]),
        (MXNET, "l2loss0_output_0", ["net0_output_0"]),
    ],
)  # fmt: skip
def test_what_fed_a_tensor(tensors, name, fed):
    ordered = in_order(tensors)
    place = [each for each, _ in ordered].index(name)
    source = Seen(name, dict(tensors)[name], 1, 0, 4, np.nan, True)
    assert fed_by(source, ordered, place) == fed


def test_the_longer_layer_name_has_the_parameter():
    tensors = [("Net_my_fc.weight", W), ("my_fc_output_0", OUT), ("fc_output_0", OUT)]
    source = Seen("fc_output_0", OUT, 1, 0, 4, np.nan, True)
    assert "Net_my_fc.weight" not in fed_by(source, tensors, 2)


def test_growth_is_from_the_first_value_that_is_known_and_not_zero():
    steps = [(0, {"a": 0.0, "b": 2.0}), (5, {"a": 1.0, "b": 2.0}), (10, {"a": 50.0})]
    found = growth(steps)
    assert found["a"] == (50.0, 5, 1.0, 10, 50.0)
    assert found["b"] == (1.0, 0, 2.0, 5, 2.0)


def test_the_trace_of_a_beginning():
    tensors = [
        Seen("Net_fc.weight", W, 0, 0, 4, 2.0, False),
        Seen("fc_input_0", IN, 0, 0, 4, 3.0, False),
        Seen("fc_output_0", OUT, 2, 0, 4, np.nan, True),
        Seen("loss", L, 1, 0, 1, np.nan, True),
    ]
    before = [(1, {"fc_output_0": 1.0}), (2, {"fc_output_0": 100.0})]
    found = trace(tensors, 9, before)
    assert (found["tensor"], found["layer"], found["hit"]) == ("fc_output_0", "fc", 2)
    assert list(found["fed"]) == ["fc_input_0", "Net_fc.weight"]
    assert found["fed"]["fc_input_0"] == {"largest": 3.0, "at step": 9}
    assert found["loss hit"] == "loss"
    assert (found["before"]["step"], found["before"]["steps between"]) == (2, 6)
    assert found["before"]["grew"]["times"] == 100


def step(weight=1.0, data=1.0, output=1.0, loss=1.0, gradient=1.0):
    return [
        ("Net_fc.weight", W, np.array([0.5, weight])),
        ("Net_input_0", Role.INPUT, np.array([0.5, data])),
        ("fc_input_0", IN, np.array([0.5, data])),
        ("fc_output_0", OUT, np.array([0.5, output])),
        ("loss", L, loss),
        ("gradient/Net_fc.weight", G, np.array([0.5, gradient])),
    ]


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("reduced", [False, True])
def test_a_layer_that_makes_nan(save_run, statistics, reduced):
    steps = [step(), step(), step(output=NAN, loss=NAN, gradient=NAN), step(NAN, 1, NAN, NAN, NAN)]
    path = save_run(steps, statistics if reduced else None)
    (finding,) = check(path, "nan_source").findings
    assert (finding.step, finding.severity) == (2, Severity.CRITICAL)
    assert finding.tensors == ("fc_output_0",)
    assert finding.message == (
        "NaN begins at step 2 in fc_output_0, the output of layer fc: 1 of 2 values are NaN. "
        "It was computed from fc_input_0 (finite, up to 1) and Net_fc.weight (finite, up to 1). "
        "At the saved step before, 1, it was finite, up to 1. "
        "At this step it has reached 2 other tensors, the loss among them."
    )
    assert "log(0)" in finding.causes[0]


def test_values_that_grow_until_they_overflow(save_run):
    steps = [step(output=10.0**i, loss=10.0**i) for i in range(0, 30, 10)]
    (finding,) = check(save_run([*steps, step(output=INF, loss=INF)]), "nan_source").findings
    assert finding.message.startswith("Infinities begin at step 3 in fc_output_0")
    assert "it was finite, up to 1.00e+20, and growing: 1 at step 0." in finding.message
    assert "learning rate" in finding.causes[0]
    assert "learning rate" in finding.remedies[0]


def test_bad_data(save_run):
    bad = step(data=NAN, output=NAN, loss=NAN, gradient=NAN)
    (finding,) = check(save_run([step(), bad]), "nan_source").findings
    assert finding.tensors == ("Net_input_0",)
    assert "that is, the data" in finding.message
    assert "data" in finding.causes[0]


def test_a_weight_that_an_update_spoiled(save_run):
    path = save_run([step(gradient=1e30), step(NAN, 1.0, NAN, NAN, NAN)])
    (finding,) = check(path, "nan_source").findings
    assert finding.tensors == ("Net_fc.weight",)
    assert (
        "last updated with gradient/Net_fc.weight (finite, up to 1.00e+30, at step 0)"
        in finding.message
    )
    assert "an update with a gradient" in finding.causes[0]


def test_a_gradient_after_a_finite_forward_pass(save_run):
    (finding,) = check(save_run([step(), step(gradient=INF)]), "nan_source").findings
    assert finding.tensors == ("gradient/Net_fc.weight",)
    assert "The forward pass was finite" in finding.message
    assert any("scaler" in remedy for remedy in finding.remedies)


def test_the_first_saved_step(save_run):
    (finding,) = check(save_run([step(loss=NAN)]), "nan_source").findings
    assert "No step was saved before this one." in finding.message


def test_steps_that_were_not_saved_are_asked_for(save_run):
    (finding,) = check(save_run([step(), None, None, step(loss=NAN)]), "nan_source").findings
    assert finding.remedies[0] == (
        "2 steps between 0 and 3 were not saved: "
        "run again with SaveConfig(start_step=0, save_interval=1)"
    )


def test_what_is_missing_is_said(save_run):
    path = save_run([[("w", W, np.ones(2)), ("loss", L, value)] for value in (1.0, NAN)])
    (finding,) = check(path, "nan_source").findings
    assert "What it was computed from was not saved; just before it came w" in finding.message
    assert "save_all=True" in finding.remedies[0]


def test_it_is_told_again_only_after_all_was_finite(save_run):
    steps = [step(), step(loss=NAN), step(gradient=NAN), step(), step(gradient=INF), step()]
    found = check(save_run(steps), "nan_source").findings
    assert [finding.step for finding in found] == [1, 4]


def test_evaluation_in_between_does_not_make_it_new(save_run):
    bad = step(NAN, 1.0, NAN, NAN, NAN)
    few = [("val_loss", L, 1.0)]
    modes = [ModeKeys.TRAIN, ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.TRAIN]
    path = save_run([step(), bad, few, bad], modes=modes)
    assert [finding.step for finding in check(path, "nan_source").findings] == [1]


def test_masks_are_no_source(save_run):
    mask = ("mask", Role.BUFFER, np.triu(np.full((3, 3), -INF), 1))
    path = save_run([[mask, *step()], [mask, *step(loss=NAN)]])
    (finding,) = check(path, "nan_source").findings
    assert (finding.step, finding.tensors) == (1, ("loss",))


def test_it_is_silent_while_all_is_finite(save_run):
    report = check(save_run([step()] * 3), "nan_source")
    assert (report.findings, report.not_applicable) == ([], {})


def test_of_several_workers_the_first_to_fail_is_named(tmp_path):
    store = open_store(str(tmp_path / "trial"))
    for worker, bad in (("worker_0", {"loss"}), ("worker_1", {"x", "loss"})):
        writer = TrialWriter(store, worker)
        if worker == "worker_0":
            writer.claim({"workers": 2, "framework": "none"})
        records = [
            Record(
                name, role.value, ("all",), "float64", (), 0.0, value=NAN if name in bad else 1.0
            )
            for name, role in (("w", W), ("x", OUT), ("loss", L))
        ]
        segment.write(store, worker, 0, [StepRecords(0, ModeKeys.GLOBAL, 0, records)])
        writer.put_end({"clean": True, "reason": None, "last_step": 0, "lost": {}})
    (finding,) = check(str(tmp_path / "trial"), "nan_source").findings
    assert (finding.tensors, finding.worker) == (("x",), "worker_1")
    assert "at step 0 on worker_1 in x" in finding.message
    assert finding.evidence["workers"] == {"first": "worker_1", "hit": 2, "all": 2}


class TestContract(RuleContract):
    @pytest.fixture
    def rule(self):
        return NanSource()

    @pytest.fixture
    def faulty(self):
        return lambda hook: _job(hook, [step(), step(output=NAN)])

    @pytest.fixture
    def healthy(self):
        return lambda hook: _job(hook, [step(), step()])


def _job(hook, steps):
    for tensors in steps:
        hook.begin_step()
        hook._recorder.record_many([(name, role, np.asarray(v)) for name, role, v in tensors])


def test_nan_that_enters_the_first_layer_is_in_the_data(save_run):
    bad = np.array([[1.0, np.nan]])
    step = [
        ("fc1_input_0", Role.LAYER_INPUT, bad),
        ("fc1_output_0", Role.LAYER_OUTPUT, bad),
        ("fc2_input_0", Role.LAYER_INPUT, bad),
    ]
    [finding] = check(save_run([step]), ["nan_source"]).findings
    assert finding.tensors == ("fc1_input_0",)
    assert "the data" in finding.message
    assert any("data" in cause for cause in finding.causes)
