"""The rule contract as tests: subclass ``RuleContract``, give it a rule and jobs, run pytest."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tornasole.capture import Hook
from tornasole.rules import Finding, Report, StepRule, check
from tornasole.selection import SaveConfig
from tornasole.types import COUNTS, STATISTICS, Role

Job = Callable[[Hook], None]
"""Some steps of a training: calls ``hook.begin_step()`` and saves, or records by role."""


class RuleContract:
    """Inherit and override the three fixtures."""

    @pytest.fixture
    def rule(self) -> StepRule:
        raise NotImplementedError("Override the fixture 'rule' with the rule to test.")

    @pytest.fixture
    def faulty(self) -> Job:
        raise NotImplementedError("Override 'faulty' with a job at which the rule must fire.")

    @pytest.fixture
    def healthy(self) -> Job:
        raise NotImplementedError("Override 'healthy' with a job at which it must not.")

    def _report(self, rule: StepRule, job: Job, folder: Path) -> Report:
        every = SaveConfig(save_interval=1)
        with Hook(folder, save_all=True, save_config=every, on_error="raise") as hook:
            job(hook)
        return check(folder, [rule])

    def test_it_says_what_it_is(self, rule: StepRule) -> None:
        assert rule.name.isidentifier()
        title, _, rest = (type(rule).__doc__ or "").partition("\n")
        assert title.strip().endswith(".")
        assert rest.strip(), "the docstring says when it fires and when it is wrong"

    def test_its_parameters_are_frozen_and_documented(self, rule: StepRule) -> None:
        for each in rule.parameters():
            assert each.metadata.get("about"), f"{each.name} has no meaning: use parameter()"
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(rule, each.name, None)

    def test_its_needs_can_be_met(self, rule: StepRule) -> None:
        assert rule.needs()
        for need in rule.needs().values():
            assert need.what
            assert need.statistics <= {*STATISTICS, *COUNTS, "value"}
            assert need.roles or need.is_chosen

    def test_it_fires_where_it_must(self, rule: StepRule, faulty: Job, tmp_path: Path) -> None:
        found = self._report(rule, faulty, tmp_path / "trial").findings
        assert found
        for finding in found:
            assert finding.rule == rule.name
            assert "failed" not in finding.message
            assert finding.message.endswith(".")
            written = json.loads(json.dumps(finding.to_json_dict(), allow_nan=False))
            assert Finding.from_json_dict(written).key == finding.key

    def test_it_is_silent_where_it_must(self, rule: StepRule, healthy: Job, tmp_path: Path) -> None:
        report = self._report(rule, healthy, tmp_path / "trial")
        assert report.findings == []
        assert report.not_applicable == {}

    def test_it_says_what_it_lacks(self, rule: StepRule, tmp_path: Path) -> None:
        report = self._report(rule, _save_nothing_of_use, tmp_path / "trial")
        assert report.findings == []
        assert rule.name in report.not_applicable

    def test_numbers_that_are_not_finite_do_not_break_it(
        self, rule: StepRule, tmp_path: Path
    ) -> None:
        report = self._report(rule, _save_what_is_not_finite, tmp_path / "trial")
        assert not [f for f in report.findings if "The rule itself failed" in f.message]


def _save_nothing_of_use(hook: Hook) -> None:
    hook.begin_step()


def _save_what_is_not_finite(hook: Hook) -> None:
    values = [np.full((4, 3), value) for value in (np.nan, np.inf, -np.inf, 0.0)]
    values += [np.zeros((0, 3)), np.array(np.nan), np.array([[1e308, -1e308]])]
    for value in values * 4:
        hook.begin_step()
        for role in Role:
            hook._recorder.record(f"{role.value}_output_0", role, value)
