"""The contract that rules inherit, on rules of ours."""

import numpy as np
import pytest

from tornasole.rules import load_rule
from tornasole.testing import RuleContract
from tornasole.types import Role


def saved(role, name, values):
    def job(hook):
        for value in values:
            hook.begin_step()
            hook._recorder.record(name, role, np.asarray(value))

    return job


class TestVanishingGradient(RuleContract):
    @pytest.fixture
    def rule(self):
        return load_rule("vanishing_gradient")

    @pytest.fixture
    def faulty(self):
        return saved(Role.GRADIENT, "gradient/w", [np.full((3, 2), 1e-9)] * 4)

    @pytest.fixture
    def healthy(self):
        return saved(Role.GRADIENT, "gradient/w", [np.full((3, 2), 1e-2)] * 4)


class TestUnchangedTensor(RuleContract):
    @pytest.fixture
    def rule(self):
        return load_rule("unchanged_tensor")

    @pytest.fixture
    def faulty(self):
        return saved(Role.WEIGHT, "w", [np.ones((3, 2))] * 4)

    @pytest.fixture
    def healthy(self):
        return saved(Role.WEIGHT, "w", [np.full((3, 2), step) for step in range(4)])


class TestLossNotDecreasing(RuleContract):
    @pytest.fixture
    def rule(self):
        return load_rule("loss_not_decreasing:num_steps=3")

    @pytest.fixture
    def faulty(self):
        return saved(Role.LOSS, "loss", [1.0] * 8)

    @pytest.fixture
    def healthy(self):
        return saved(Role.LOSS, "loss", [1 / (step + 1) for step in range(8)])


class TestExplodingTensor(RuleContract):
    @pytest.fixture
    def rule(self):
        return load_rule("exploding_tensor")

    @pytest.fixture
    def faulty(self):
        return saved(Role.WEIGHT, "w", [np.array([1.0, np.inf])])

    @pytest.fixture
    def healthy(self):
        return saved(Role.WEIGHT, "w", [np.array([1.0, 1e30])])


def test_no_rule_fails_on_numbers_that_are_not_finite(tmp_path):
    from tornasole import Hook, SaveConfig
    from tornasole.rules import check

    values = [np.full((4, 3), v) for v in (np.nan, np.inf, -np.inf, 0.0)]
    values += [np.zeros((0, 3)), np.array(np.nan), np.array([[1e308, -1e308]]), np.ones(3, bool)]
    values += [np.ones((2, 2, 4, 4), np.float16), np.arange(6, dtype=np.uint8), np.array(["a"])]
    values += [np.ones((2, 3), np.complex64), np.array([[1, 2]], np.int64)]
    with Hook(tmp_path / "t", save_all=True, save_config=SaveConfig(save_interval=1)) as hook:
        for value in values * 3:
            hook.begin_step()
            for role in Role:
                hook._recorder.record(f"{role.value}_output_0", role, value)
    assert [f.message for f in check(tmp_path / "t").findings if f.rule_failed] == []
