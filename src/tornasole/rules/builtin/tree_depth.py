"""Trees that grow deep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tornasole.errors import SMDebugValueError
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.finding import Severity
from tornasole.rules.needs import Need
from tornasole.rules.view import Array, Ints, StepView
from tornasole.types import Role


@dataclass(frozen=True)
class TreeDepth(StepRule):
    """Trees that grow deep.

    Fires when a tree that XGBoost added in a round is at least ``depth`` deep: counted along the
    links between its nodes or, if those were not saved, as the base 2 logarithm of the largest
    number of a node, which is exact for trees that are full. Worth knowing rather than bad: deep
    trees may fit what is particular to single samples, but large data sets need them.
    """

    name = "tree_depth"
    depth: int = parameter(4, "depth from which on a tree is deep")

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise SMDebugValueError(f"depth must be at least 1, not {self.depth}.")

    def needs(self) -> Mapping[str, Need]:
        return {
            "trees": Need(
                "trees",
                roles=frozenset({Role.TREE}),
                statistics=frozenset({"max"}),
                save=("trees",),
            )
        }

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        trees = step["trees"]
        columns = {name.rpartition("/")[2]: i for i, name in enumerate(trees.names)}
        wanted = [columns.get(column) for column in ("ID", "Yes", "No")]
        arrays = [None if i is None else trees.array(i) for i in wanted]
        depth = linked_depth(*arrays)
        exact = depth is not None
        if depth is None and "Node" in columns:
            node = columns["Node"]
            array = trees.array(node)
            largest = trees.statistic("max")[node] if array is None else _largest(array)
            depth = numbered_depth(float(largest))
        if depth is not None and depth >= self.depth:
            tensor = trees.names[columns["Node" if "Node" in columns else "ID"]]
            yield Symptom(tensor, {"depth": depth, "counted along links": exact})

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        depth, exact = (symptoms[0].numbers[key] for key in ("depth", "counted along links"))
        about = "" if exact else " (by the numbers of its nodes)"
        return Explanation(
            f"A tree of this round has depth {depth}{about}; from {self.depth} on it counts as "
            "deep.",
            severity=Severity.INFO,
            evidence={"limit": self.depth, **symptoms[0].numbers},
            causes=(
                "max_depth allows it (XGBoost's default is 6), and splits still lower the loss",
            ),
            remedies=(
                "compare the loss on training and validation data: if they part, use a smaller "
                "max_depth, or a larger min_child_weight or gamma",
                "say tree_depth:depth=7 if such trees are meant to be",
            ),
        )


def numbered_depth(largest: float) -> int | None:
    """The depth of a full tree whose nodes are numbered level by level, the root being 0."""
    if not 0 <= largest < float("inf"):
        return None
    return int(np.floor(np.log2(largest))) if largest >= 1 else 0


def linked_depth(nodes: Array | None, yes: Array | None, no: Array | None) -> int | None:
    """The most links from a root to a leaf; ``None`` if the links are not known.

    Args:
        nodes: The name of each node.
        yes: The name of one child of each; something that names no node, if there is none.
        no: That of its other child.
    """
    if nodes is None or yes is None or no is None:
        return None
    if not len(nodes) or not nodes.shape == yes.shape == no.shape or nodes.ndim != 1:
        return None
    order = np.argsort(nodes)
    children = [_places(nodes, order, links) for links in (yes, no)]
    is_child = np.zeros(len(nodes), np.bool_)
    for places in children:
        is_child[places[places >= 0]] = True
    level = np.flatnonzero(~is_child)
    for depth in range(len(nodes)):  # as no tree has more levels than nodes, circles end, too
        below = np.concatenate([places[level] for places in children])
        level = np.unique(below[below >= 0])
        if not len(level):
            return depth
    return None


def _places(nodes: Array, order: Ints, links: Array) -> Ints:
    """Where the nodes are that links name; -1 for those that name none."""
    found = order[np.searchsorted(nodes, links, sorter=order).clip(max=len(nodes) - 1)]
    return np.where(nodes[found] == links, found, -1)


def _largest(array: Array) -> float:
    return float(array.max()) if array.size and array.dtype.kind in "iuf" else float("nan")
