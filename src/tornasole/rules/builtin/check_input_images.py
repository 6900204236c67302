"""Images that are not centred around zero when they enter the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tornasole.errors import SMDebugValueError
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.finding import Severity
from tornasole.rules.needs import Need
from tornasole.rules.parameters import Texts
from tornasole.rules.sentences import number
from tornasole.rules.standing import Standing
from tornasole.rules.view import Array, Floats, Group, StepView
from tornasole.types import ModeKeys, Role

_DIMENSIONS = 4  # of a batch of images
_COLOURS = (1, 3, 4)  # how many channels a picture may have
_MOST_CHANNELS = 64  # more are no colours: one mean over all will do


@dataclass(frozen=True)
class CheckInputImages(StepRule):
    """Images that are not centred around zero when they enter the model.

    Looks at model inputs with four dimensions. Takes the mean of each channel over
    ``threshold_samples`` images and fires when one is further than ``threshold_mean`` from zero;
    then begins anew. Where only statistics were saved, it takes the mean over all channels: an
    estimate that misses channels which cancel out. Wrong about models that do this by themselves,
    in their first layer, and harmless for many that have images between 0 and 1: such a finding is
    worth knowing, while one about images between 0 and 255 is a warning.
    """

    name = "check_input_images"
    threshold_mean: float = parameter(0.2, "how far from zero the mean of a channel may be")
    threshold_samples: int = parameter(500, "how many images to see before judging")
    regex: Texts | None = parameter(
        None, "which tensors are images; default: model inputs with four dimensions"
    )
    channel: int = parameter(
        1,
        "the dimension of the channels, counted from 0; the last is taken instead where only that "
        "one can be colours",
    )

    def __post_init__(self) -> None:
        if not self.threshold_mean >= 0:
            raise SMDebugValueError(
                f"threshold_mean must not be negative; it is {self.threshold_mean}."
            )
        if self.threshold_samples < 1:
            raise SMDebugValueError(
                f"threshold_samples must be at least 1, not {self.threshold_samples}."
            )
        if self.channel < -1 or self.channel == 0:
            raise SMDebugValueError(
                "channel is the dimension of the channels: 1 or more, as 0 is that of the samples, "
                f"or -1 for the last; not {self.channel}."
            )

    def needs(self) -> Mapping[str, Need]:
        return {
            "images": Need(
                "model inputs",
                roles=frozenset({Role.INPUT}),
                statistics=frozenset({"mean"}),
                save=("inputs",),
            ).chosen_by(self.regex, None)
        }

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        images = step["images"]
        standing: Standing = memory.setdefault("standing", Standing())
        gathered: dict[tuple[ModeKeys, str], tuple[int, Floats]]
        gathered = memory.setdefault("gathered", {})
        for i, name in enumerate(images.names):
            fresh = self._means(images, i)
            if fresh is None:
                continue
            samples, means = images.shape(i)[0], fresh
            before = gathered.get((step.mode, name))
            if before is not None and len(before[1]) == len(means):
                samples, means = mixed(before, (samples, means))
            if samples >= self.threshold_samples:
                off = off_centre(means, self.threshold_mean)
                numbers = {
                    "means": means.tolist(),
                    "furthest": off,
                    "images": samples,
                    "estimate": images.array(i) is None,
                }
                standing.set(name, step.mode, None if off is None else numbers)
                gathered.pop((step.mode, name), None)
            else:
                gathered[step.mode, name] = samples, means
        yield from standing.symptoms(images.names, step.mode)

    def _means(self, images: Group, i: int) -> Floats | None:
        """The mean of each channel, or of all; ``None`` if the tensor is no batch of images."""
        shape = images.shape(i)
        if not shape or not shape[0] or (self.regex is None and len(shape) != _DIMENSIONS):
            return None
        array = images.array(i)
        if array is None:
            means = images.statistic("mean")[i : i + 1].copy()
        elif array.dtype.kind in "biuf":
            means = channel_means(array, self.channel)
        else:
            return None
        return means if np.isfinite(means).all() else None

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        worst = max(symptoms, key=lambda each: abs(each.numbers["furthest"]))
        furthest, means = worst.numbers["furthest"], worst.numbers["means"]
        which = f"in channel {means.index(furthest)}" if len(means) > 1 else "of all values"
        estimate = " (an estimate: only statistics were saved)" if worst.numbers["estimate"] else ""
        return Explanation(
            f"Images that enter as {worst.tensor} are not centred: the mean {which} is "
            f"{number(furthest)} over {worst.numbers['images']} images, further than "
            f"{number(self.threshold_mean)} from zero{estimate}.",
            severity=Severity.WARNING if abs(furthest) > 1 else Severity.INFO,
            evidence={
                "threshold": self.threshold_mean,
                "mean by channel": {each.tensor: each.numbers["means"] for each in symptoms[:20]},
                "images": worst.numbers["images"],
                "from statistics": worst.numbers["estimate"],
            },
            causes=(
                "pixels that come as they are stored, from 0 to 255"
                if abs(furthest) > 1
                else "pixels that were scaled to lie between 0 and 1, but not centred",
                "a normalisation with the mean of other data",
            ),
            remedies=(
                "subtract the mean of each channel, over the training data, and divide by its "
                "standard deviation",
                "let the model begin with a normalisation layer",
            ),
        )


def channel_axis(shape: tuple[int, ...], channel: int) -> int | None:
    """The dimension of the channels; ``None`` if there is none that could be.

    Args:
        channel: Where it should be. Where that cannot be colours and the last dimension can, the
            last it is.
    """
    if len(shape) < 3:
        return None
    wanted = channel if 0 < channel < len(shape) else len(shape) - 1
    if shape[wanted] not in _COLOURS and shape[-1] in _COLOURS:
        wanted = len(shape) - 1
    return wanted if shape[wanted] <= _MOST_CHANNELS else None


def channel_means(images: Array, channel: int) -> Floats:
    """The mean of each channel, or of all if there are no channels; of the finite values."""
    axis = channel_axis(images.shape, channel)
    others = tuple(each for each in range(images.ndim) if each != axis)
    where: Any = np.isfinite(images) if images.dtype.kind == "f" else True
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        if where is not True and not where.all():
            total = np.sum(images, axis=others, where=where, dtype=np.float64)
            return np.atleast_1d(total / where.sum(axis=others))
        return np.atleast_1d(images.mean(axis=others, dtype=np.float64))


def mixed(some: tuple[int, Floats], more: tuple[int, Floats]) -> tuple[int, Floats]:
    """How many samples there are together, and their means."""
    samples = some[0] + more[0]
    return samples, (some[0] * some[1] + more[0] * more[1]) / samples


def off_centre(means: Floats, threshold: float) -> float | None:
    """The mean that is furthest from zero, if it is further than it may be."""
    furthest = float(means[np.abs(means).argmax()])
    return furthest if abs(furthest) > threshold else None
