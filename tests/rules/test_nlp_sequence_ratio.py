"""nlp_sequence_ratio: the share of a token in what embedding layers are given."""

import numpy as np
import pytest

from tornasole import Hook, ReductionConfig, SaveConfig
from tornasole.errors import SMDebugValueError
from tornasole.rules import check
from tornasole.rules.builtin.nlp_sequence_ratio import token_shares, too_much
from tornasole.types import Role

STATISTICS = ReductionConfig(reductions=["min", "max"])


@pytest.fixture
def run(tmp_path):
    """Saves tensors, step by step; returns what the rule says of them."""

    def make(steps, rule="nlp_sequence_ratio", reduction=None):
        hook = Hook(
            tmp_path / "t",
            save_all=True,
            save_config=SaveConfig(save_interval=1),
            reduction_config=reduction,
        )
        for tensors in steps:
            hook.begin_step()
            for name, value in tensors.items():
                role = Role.INPUT if name.startswith("Net") else Role.LAYER_INPUT
                hook._recorder.record(name, role, value)
        hook.close()
        return check(tmp_path / "t", [rule])

    return make


def padded(share, dtype=np.int64):
    """Sequences of 100 tokens, of which a share is 0."""
    tokens = np.arange(1, 801).reshape(8, 100).astype(dtype)
    tokens[:, 100 - round(100 * share) :] = 0
    return tokens


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [([[0, 0, 0, 7]], {0: 0.75, 7: 0.25}), ([[1, 2]], {0: 0, 7: 0}), ([], {})],
)
def test_the_share_of_each_token(tokens, expected):
    assert token_shares(np.array(tokens), (0, 7)) == expected


@pytest.mark.parametrize(
    ("share", "before", "expected"),
    [(0.5, False, False), (0.51, False, True), (0.45, True, True), (0.4, True, False)],
)
def test_what_has_begun_goes_on_for_a_while(share, before, expected):
    assert too_much(share, 0.5, before) is expected


@pytest.mark.parametrize("reduction", [None, STATISTICS])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_too_much_padding_fires_once(run, reduction, dtype):
    steps = [{"embedding0_input_0": padded(share, dtype)} for share in (0.2, 0.8, 0.45, 0.8)]
    [finding] = run(steps, reduction=reduction).findings
    assert finding.step == 1
    assert finding.message == (
        "Token 0 makes up 80 % of what enters as embedding0_input_0, more than 50 %."
    )


@pytest.mark.parametrize("reduction", [None, STATISTICS])
def test_little_padding_is_silent(run, reduction):
    assert not run([{"embedding0_input_0": padded(0.4)}] * 3, reduction=reduction).findings


def test_other_tokens_have_their_own_limits(run):
    rule = "nlp_sequence_ratio:token_values=0,1;token_thresholds_percent=90,5"
    tokens = padded(0.8)
    tokens[:, 0] = 1
    tokens[:, :9] = 1
    [finding] = run([{"embedding0_input_0": tokens}], rule).findings
    assert finding.evidence["embedding0_input_0"]["token"] == 1


def test_model_inputs_stand_in_for_layers_whose_name_says_nothing(run):
    [finding] = run([{"Net_input_0": padded(0.8), "fc_input_0": np.zeros((8, 5))}]).findings
    assert finding.tensors == ("Net_input_0",)


def test_types_of_words_and_masks_beside_words_are_no_words(run):
    steps = [{"embed.word_input_0": padded(0.1), "embed.type_input_0": np.zeros((8, 100), int)}]
    assert not run(steps).findings


def test_activations_and_images_are_no_tokens(run):
    steps = [{"embedding.norm_input_0": np.zeros((8, 5, 4)), "Net_input_0": np.zeros((8, 5))}]
    assert not run(steps).findings


def test_a_regex_decides_alone(run):
    rule = "nlp_sequence_ratio:tensor_regex=^fc_"
    [finding] = run([{"embedding0_input_0": padded(0.8), "fc_input_0": np.zeros(9)}], rule).findings
    assert finding.tensors == ("fc_input_0",)


@pytest.mark.parametrize(
    "given",
    ["token_values=", "token_values=0,1;token_thresholds_percent=1,2,3",
     "token_thresholds_percent=200"],
)  # fmt: skip
def test_a_parameter_that_makes_no_sense_is_refused(run, given):
    with pytest.raises(SMDebugValueError, match="token_"):
        run([{}], f"nlp_sequence_ratio:{given}")
