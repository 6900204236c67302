"""Where NaN or infinity began: which tensor was first, what fed it, and the step before."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tornasole.rules.builtin.exploding_tensor import (
    ROLES,
    STATISTICS,
    find_nonfinite,
    how_many,
    kinds,
    whole,
)
from tornasole.rules.contract import Explanation, StepRule, Symptom
from tornasole.rules.finding import Severity
from tornasole.rules.needs import Need
from tornasole.rules.sentences import number
from tornasole.rules.view import Group, Ints, StepView
from tornasole.types import Role

_STEPS_BEFORE = 4  # that are remembered, of each mode
_GREW = 10.0  # times: from here on values count as growing
_HALF = 65504.0  # the largest float16
_MOST_FED = 4  # tensors that a sentence names

_DATA = frozenset({Role.INPUT, Role.LABEL})
_FORWARD = _DATA | {Role.LAYER_INPUT, Role.LAYER_OUTPUT, Role.OUTPUT, Role.PREDICTION}
_PARAMETERS = frozenset({Role.WEIGHT, Role.BIAS, Role.BUFFER})
_INPUTS = frozenset({Role.LAYER_INPUT, Role.INPUT, Role.PREDICTION, Role.LABEL})
_GROWING = _PARAMETERS | _FORWARD - _DATA | {Role.GRADIENT, Role.LOSS}

# Tensors are recorded in the order in which a framework shows them, which is that of execution but
# for what it shows late: a loss after its gradients, or the weights that the step began with.
_PHASES = {
    **dict.fromkeys(_PARAMETERS, 0),
    **dict.fromkeys(_FORWARD, 1),
    Role.LOSS: 2,
    Role.GRADIENT: 3,
    **dict.fromkeys((Role.METRIC, Role.SCALAR, Role.OPTIMIZER_VARIABLE), 4),
}

# The layer in the name of its input or output: fc1_output_0, dense/outputs, dense/outputs/Relu:0.
_OF_LAYER = re.compile(r"^(.+?)(?:_(?:input|output)_\d+|/(?:inputs|outputs)(?:_\d+)?(?:/.*)?)$")
_OF_GRADIENT = re.compile(r"^gradients?/(.+?)(?:Grad)?$")


@dataclass(frozen=True)
class NanSource(StepRule):
    """Where NaN or infinity began.

    Looks at everything that was saved, of every worker, at the first step at which something is not
    finite. Names the tensor that was first in the order of execution, the tensors that it was
    computed from and how large they were, and what it was like at the saved step before. As long as
    it goes on, it is told once; if everything is finite again and it comes back, once more.

    It sees what was saved, no more: save the inputs and outputs of layers, and every step around
    the accident (``SaveConfig(when_nan=…)`` saves everything at a bad step), and it is exact.
    Tensors of zeros and minus infinity only are attention masks and are passed over. With a
    gradient scaler a step with infinite gradients now and then is normal.
    """

    name = "nan_source"

    def needs(self) -> Mapping[str, Need]:
        return {
            "tensors": Need(
                "tensors",
                roles=ROLES,
                statistics=STATISTICS | {"abs_max"},
                save=("weights", "gradients", "losses", "layers"),
                every_worker=True,
            )
        }

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        group = step["tensors"]
        bad = find_nonfinite(group, only_nan=False, masks_too=False)
        source: Symptom | None = memory.get("source")
        if len(bad):
            if source is None:
                history = memory.get(step.mode.name, ())
                source = memory["source"] = _traced(group, bad, step.step, history)
            yield source
            return
        if source is not None and source.tensor in group.names:
            del memory["source"]
        past: deque[_Past] = memory.setdefault(step.mode.name, deque(maxlen=_STEPS_BEFORE))
        past.append(_Past(step.step, group.names, group.workers, group.statistic("abs_max")))

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        symptom = symptoms[0]
        found = symptom.numbers
        role = Role(found["role"])
        return Explanation(
            " ".join(part for part in _sentences(symptom.tensor, role, found) if part),
            Severity.CRITICAL,
            evidence=found,
            causes=_causes(role, found),
            remedies=_remedies(role, found),
        )


@dataclass(frozen=True)
class Seen:
    """A tensor of one worker at the step at which NaN began.

    Attributes:
        nan: How many of its values are NaN.
        infinite: How many are infinite.
        size: How many values it has; -1 if that is not known.
        largest: The largest magnitude among them; NaN if it is not known.
        bad: Whether it is not finite, and not meant to be so.
    """

    name: str
    role: Role
    nan: int
    infinite: int
    size: int
    largest: float
    bad: bool


@dataclass(frozen=True)
class _Past:
    """The largest magnitudes at an earlier step."""

    step: int
    names: Sequence[str]
    workers: Sequence[str]
    largest: Any

    def of(self, worker: str) -> dict[str, float]:
        return {
            name: float(value)
            for name, who, value in zip(self.names, self.workers, self.largest, strict=True)
            if who == worker and np.isfinite(value)
        }


# -- from tensors to what is told about them -------------------------------------------------------


def _traced(group: Group, bad: Ints, step: int, history: Iterable[_Past]) -> Symptom:
    """The symptom: of all workers, the one whose bad tensor came first."""
    statistics = [group.statistic(n) for n in ("nan_count", "inf_count", "count", "abs_max")]
    is_bad, by_worker = set(bad.tolist()), dict[str, list[Seen]]()
    for i, (name, worker) in enumerate(zip(group.names, group.workers, strict=True)):
        nan, infinite, size, largest = (float(numbers[i]) for numbers in statistics)
        by_worker.setdefault(worker, []).append(
            Seen(
                name, group.role(i), whole(nan), whole(infinite), whole(size), largest, i in is_bad
            )
        )
    traces = {}
    for worker, tensors in by_worker.items():
        if any(tensor.bad for tensor in tensors):
            before = [(past.step, past.of(worker)) for past in history]
            traces[worker] = trace(tensors, step, before)
    worker = min(traces, key=lambda who: (traces[who]["place"], who))
    found = traces[worker]
    if len(by_worker) > 1:
        found["workers"] = {"first": worker, "hit": len(traces), "all": len(by_worker)}
    return Symptom(found["tensor"], found, worker)


def trace(
    tensors: Sequence[Seen], step: int, before: Sequence[tuple[int, Mapping[str, float]]]
) -> dict[str, Any]:
    """What is known about the beginning.

    Args:
        tensors: The tensors of the step, as recorded; at least one of them is bad.
        before: Earlier saved steps, oldest first: the largest magnitude of each finite tensor.

    Returns:
        Plain numbers: ``tensor``, its ``role``, ``layer`` and counts, its ``place`` in the order of
        execution, what it was ``fed`` with, what was ``recorded before`` it, how many tensors are
        ``hit``, the step ``before``.
    """
    ordered = [tensors[i] for i in execution_order([(t.name, t.role) for t in tensors])]
    place = next(i for i, tensor in enumerate(ordered) if tensor.bad)
    source = ordered[place]
    if source.role is Role.LAYER_INPUT and not any(
        tensor.role is Role.LAYER_OUTPUT for tensor in ordered[:place]
    ):
        source = replace(source, role=Role.INPUT)  # no layer has run yet: it is what came in
    earlier = {tensor.name: tensor for tensor in ordered[:place]}
    last: Mapping[str, float] = before[-1][1] if before else {}
    fed: dict[str, Any] = {}
    for name in fed_by(source, [(t.name, t.role) for t in ordered], place):
        if name in earlier:
            fed[name] = {"largest": earlier[name].largest, "at step": step}
        elif name in last:  # not known at this step before the accident, but at the step before
            fed[name] = {"largest": last[name], "at step": before[-1][0]}
    hit = [tensor for tensor in ordered if tensor.bad]
    roles = {tensor.name: tensor.role for tensor in tensors}
    now = {name: t.largest for name, t in earlier.items() if np.isfinite(t.largest)}
    return {
        "tensor": source.name,
        "step": step,
        "role": source.role.value,
        "layer": layer_of(source.name, source.role),
        "nan": source.nan,
        "infinite": source.infinite,
        "size": source.size,
        "place": place,
        "fed": fed,
        "recorded before": _recorded_before(ordered, place),
        "inputs saved": any(tensor.role is Role.INPUT for tensor in tensors),
        "hit": len(hit),
        "loss hit": next((t.name for t in hit if t.role is Role.LOSS), None),
        "before": _step_before(source, step, before, now, roles),
    }


def _recorded_before(ordered: Sequence[Seen], place: int) -> dict[str, Any] | None:
    if place == 0:
        return None
    return {"tensor": ordered[place - 1].name, "largest": ordered[place - 1].largest}


def _step_before(
    source: Seen,
    step: int,
    before: Sequence[tuple[int, Mapping[str, float]]],
    now: Mapping[str, float],
    roles: Mapping[str, Role],
) -> dict[str, Any] | None:
    if not before:
        return None
    number_of, last = before[-1]
    found: dict[str, Any] = {"step": number_of, "steps between": step - number_of - 1}
    if source.name in last:
        found["largest"] = last[source.name]
    grown = growth([*before, (step, now)])
    if source.name in grown:
        found["grew"] = grown[source.name]._asdict()
    fastest = max(
        (name for name in grown if roles.get(name) in _GROWING),
        key=lambda name: grown[name].times,
        default=None,
    )
    if fastest is not None and grown[fastest].times >= _GREW:
        found["fastest"] = {"tensor": fastest, **grown[fastest]._asdict()}
    largest = sorted((n for n in last if roles.get(n) in _GROWING), key=lambda n: -last[n])
    found["largest tensors"] = {name: last[name] for name in largest[:3]}
    return found


class Growth(NamedTuple):
    """How many times larger a tensor is than at an earlier step."""

    times: float
    since: int
    first: float
    at: int
    largest: float


def growth(steps: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, Growth]:
    """How the largest magnitudes of tensors have changed, from where they are known and not zero.

    Args:
        steps: Step numbers, in order, each with the largest magnitude of each tensor.
    """
    first: dict[str, tuple[int, float]] = {}
    found = {}
    for step, values in steps:
        for name, value in values.items():
            if name in first:
                since, was = first[name]
                found[name] = Growth(value / was, since, was, step, value)
            elif value > 0:
                first[name] = (step, value)
    return found


def execution_order(tensors: Sequence[tuple[str, Role]]) -> list[int]:
    """The places of tensors, recorded as frameworks show them, in the order of computation."""
    roles = [role for _, role in tensors]
    phases: list[int] = []
    for role in roles:  # what is saved by hand comes with what was recorded before it
        phases.append(_PHASES.get(role, phases[-1] if phases else 0))
    order = sorted(range(len(roles)), key=lambda i: phases[i])
    gradients = [i for i in order if roles[i] is Role.GRADIENT]
    parameters = [name for name, role in tensors if role in _PARAMETERS]
    if listed_forwards([tensors[i][0] for i in gradients], parameters):
        places = [place for place, i in enumerate(order) if roles[i] is Role.GRADIENT]
        for place, i in zip(places, reversed(gradients), strict=True):
            order[place] = i
    return order


def listed_forwards(gradients: Sequence[str], parameters: Sequence[str]) -> bool:
    """Whether gradients are in the order of their parameters: against that of execution."""
    places = [place for name in gradients if (place := _parameter_of(name, parameters)) is not None]
    return len(places) > 1 and places[0] < places[-1]


def _parameter_of(gradient: str, parameters: Sequence[str]) -> int | None:
    match = _OF_GRADIENT.match(gradient)
    if match is None:
        return None
    ending = match[1]
    for i, name in enumerate(parameters):
        if name == ending or name.partition(":")[0].endswith(f"/{ending}"):
            return i
    return None


def fed_by(source: Seen, ordered: Sequence[tuple[str, Role]], place: int) -> list[str]:
    """The tensors that a tensor was computed from, as far as they can be known.

    Args:
        source: The tensor.
        ordered: Names and roles of all, in the order of execution.
        place: Its place among them.
    """
    earlier = ordered[:place]

    def nearest(*roles: Role) -> list[str]:
        return next(([name] for name, role in reversed(earlier) if role in roles), [])

    parameters = [name for name, role in ordered if role in _PARAMETERS]
    if source.role in _DATA:
        return []
    if source.role in _PARAMETERS or source.role is Role.OPTIMIZER_VARIABLE:
        gradients = [name for name, role in ordered if role is Role.GRADIENT]
        own = [g for g in gradients if _parameter_of(g, [source.name]) is not None]
        return own or nearest(Role.GRADIENT, Role.LOSS)
    if source.role is Role.GRADIENT:
        place_of = _parameter_of(source.name, parameters)
        own = [] if place_of is None else [parameters[place_of]]
        return _unique(nearest(Role.LOSS) + nearest(Role.GRADIENT) + own)
    layer = layer_of(source.name, source.role)
    found = nearest(*(_FORWARD - {Role.LABEL}), Role.LOSS)
    own = [
        name
        for name, role in earlier
        if role in _INPUTS and layer and layer_of(name, role) == layer
    ]
    if source.role is Role.LOSS and own:
        found = own  # the prediction, and the label
    elif source.role is Role.LAYER_OUTPUT:
        found += own
    layers = {layer_of(name, role) for name, role in ordered if role in _FORWARD}
    if source.role in (Role.LAYER_OUTPUT, Role.OUTPUT):
        found += [name for name in parameters if _belongs(name, layer, layers)]
    return _unique(found)


def layer_of(name: str, role: Role) -> str:
    """The layer whose input or output a tensor is; of a parameter or gradient, what it is of."""
    if role is Role.GRADIENT:
        gradient = _OF_GRADIENT.match(name)
        return gradient[1] if gradient else name
    match = _OF_LAYER.match(name)
    return match[1] if match else ""


def _belongs(parameter: str, layer: str, layers: Iterable[str]) -> bool:
    """Whether a parameter is one of a layer: fc1: Net_fc1.weight, dense: dense/weights/…/kernel."""

    def fits(name: str) -> bool:
        stem = parameter.partition("/weights/")[0] if "/weights/" in parameter else (
            parameter.rpartition(".")[0] or parameter.rpartition("_")[0]
        )  # fmt: skip
        return bool(name) and (stem == name or ("." in parameter and stem.endswith(f"_{name}")))

    return fits(layer) and not any(fits(other) and len(other) > len(layer) for other in layers)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


# -- in words --------------------------------------------------------------------------------------

_WHAT = {
    Role.WEIGHT: "a weight",
    Role.BIAS: "a bias",
    Role.BUFFER: "a buffer",
    Role.LOSS: "the loss",
    Role.INPUT: "the input of the model, that is, the data",
    Role.LABEL: "the labels, that is, the data",
    Role.OUTPUT: "the output of the model",
    Role.PREDICTION: "the prediction",
    Role.METRIC: "a metric",
    Role.OPTIMIZER_VARIABLE: "a variable of the optimizer",
}


def _what_it_is(role: Role, layer: str) -> str:
    if role is Role.GRADIENT:
        return f"the gradient of {layer}"
    if role in (Role.LAYER_INPUT, Role.LAYER_OUTPUT) and layer:
        side = "input" if role is Role.LAYER_INPUT else "output"
        return f"the {side} of layer {layer}"
    return _WHAT.get(role, "")


def _sentences(tensor: str, role: Role, found: Mapping[str, Any]) -> Iterable[str]:
    what = _what_it_is(role, found["layer"])
    kind = kinds(found["nan"] > 0, found["infinite"] > 0)
    verb = "begins" if kind == "NaN" else "begin"
    share = how_many(found["nan"], found["infinite"], found["size"])
    who = f" on {found['workers']['first']}" if "workers" in found else ""
    of = f", {what}" if what else ""
    kind = kind[0].upper() + kind[1:]
    yield f"{kind} {verb} at step {found['step']}{who} in {tensor}{of}: {share}."
    yield _fed_sentence(role, found)
    yield _before_sentence(role, found)
    others = found["hit"] - 1
    if others:
        loss = ", the loss among them" if found["loss hit"] not in (None, tensor) else ""
        many = f"{others:,} other tensor{'s' if others > 1 else ''}"
        yield f"At this step it has reached {many}{loss}."


def _fed_sentence(role: Role, found: Mapping[str, Any]) -> str:
    if role in _DATA:
        return "Nothing was computed yet: the model was given it."
    named = list(found["fed"].items())[:_MOST_FED]
    words = [
        f"{name} (finite{_up_to(about['largest'])}"
        + (f", at step {about['at step']})" if about["at step"] != found["step"] else ")")
        for name, about in named
    ]
    if role in _PARAMETERS or role is Role.OPTIMIZER_VARIABLE:
        return f"It was last updated with {_listed(words)}." if words else ""
    if role is Role.GRADIENT:
        return (
            f"The forward pass was finite, as far as it was saved; before it came {_listed(words)}."
            if words
            else ""
        )
    if words:
        return f"It was computed from {_listed(words)}."
    last = found["recorded before"]
    if last is None:
        return "What it was computed from was not saved."
    return (
        f"What it was computed from was not saved; just before it came {last['tensor']} "
        f"(finite{_up_to(last['largest'])})."
    )


def _before_sentence(role: Role, found: Mapping[str, Any]) -> str:
    before = found["before"]
    if before is None:
        return "No step was saved before this one."
    when = f"At the saved step before, {before['step']},"
    if role in _DATA:
        return f"{when} all was finite."
    text = f"{when} all was finite"
    if "largest" in before:
        text = f"{when} it was finite{_up_to(before['largest'])}"
        if _grew(before):
            grew = before["grew"]
            return f"{text}, and growing: {number(grew['first'])} at step {grew['since']}."
    fastest = before.get("fastest")
    if fastest is not None:
        until = "then" if fastest["at"] == before["step"] else "now"
        return (
            f"{text}, but {fastest['tensor']} grew from {number(fastest['first'])} at step "
            f"{fastest['since']} to {number(fastest['largest'])} {until}."
        )
    largest = next(iter(before["largest tensors"].items()), None)
    if largest is not None and "largest" not in before:
        text += f"; the largest value was {number(largest[1])}, in {largest[0]}"
    return f"{text}."


def _grew(before: Mapping[str, Any]) -> bool:
    return "grew" in before and before["grew"]["times"] >= _GREW


def _up_to(largest: float) -> str:
    return "" if largest != largest else f", up to {number(largest)}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _causes(role: Role, found: Mapping[str, Any]) -> tuple[str, ...]:
    before = found["before"] or {}
    causes: list[str] = []
    sizes = [about["largest"] for about in found["fed"].values()] + [before.get("largest", 0.0)]
    if role in _DATA:
        return (
            "the data hold missing values, or were divided by a standard deviation of zero",
            "an augmentation or a tokenizer that makes such values now and then",
        )
    if any(_HALF / 20 < size <= _HALF for size in sizes) and found["infinite"]:
        causes.append("overflow in float16, which ends at 65,504")
    if _grew(before) or "fastest" in before:
        causes.append(
            "values that grow from step to step until they overflow: the learning rate is too high"
        )
    if role in _PARAMETERS or role is Role.OPTIMIZER_VARIABLE:
        if not before.get("steps between") and all(size < 1e3 for size in sizes) and found["fed"]:
            causes.append("the optimizer: a state or a learning rate that is not finite, or x/0")
            causes.append("code that writes parameters itself")
        else:
            causes.append("an update with a gradient that was not finite, or much too large")
    elif role is Role.GRADIENT:
        causes += [
            "an operation whose slope is infinite where it is used: sqrt(0), log(0), x/0, the norm "
            "of a zero vector",
            "a scaled loss that overflows in mixed precision: the scaler skips such a step",
        ]
        if not found["inputs saved"]:
            causes.append("NaN in the data that an activation hid; the inputs were not saved")
    elif role is Role.LOSS:
        causes += [
            "log(0): a probability of exactly 0 or 1, or softmax applied twice",
            "a mean over nothing: an empty batch, or a mask that hides everything",
        ]
    elif role is Role.LAYER_INPUT:
        causes.append("an operation between the layers: log(0), 0/0, a root of a negative number")
    else:
        causes.append("an operation without a result: log(0), 0/0, a root of a negative number")
        causes.append("softmax over a row that is masked completely, or a variance of zero")
    return tuple(causes)


def _remedies(role: Role, found: Mapping[str, Any]) -> tuple[str, ...]:
    before = found["before"] or {}
    remedies: list[str] = []
    if before.get("steps between"):
        remedies.append(
            f"{before['steps between']:,} steps between {before['step']} and {found['step']} were "
            f"not saved: run again with SaveConfig(start_step={before['step']}, save_interval=1)"
        )
    if role in _DATA:
        return (*remedies, "check the batch of this step for NaN before it enters the model")
    if not found["fed"] or (role is Role.GRADIENT and not found["inputs saved"]):
        remedies.append("save the inputs and outputs of layers too: save_all=True")
    if _grew(before) or "fastest" in before or role in _PARAMETERS:
        remedies.append("lower the learning rate, warm up, clip gradients")
    if role is Role.GRADIENT:
        remedies.append("put a small epsilon under roots and divisors; clip before logarithms")
        remedies.append("with a gradient scaler: nothing, if it is rare and weights stay finite")
    elif role not in _PARAMETERS:
        remedies.append("put a small epsilon into logarithms and divisions; use log_softmax")
    if found["infinite"]:
        remedies.append("in float16: use bfloat16, or compute this part in float32")
    return tuple(remedies)
