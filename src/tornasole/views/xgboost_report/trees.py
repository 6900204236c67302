"""Tree sizes: nodes, leaves and depth of the trees that each saved round added."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tornasole.views.xgboost_report.reading import Array, Floats, Ints, TreeTable

LEAF = "Leaf"


@dataclass(frozen=True)
class TreeSizes:
    """Sizes by round.

    Attributes:
        trees: How many trees the round added.
        nodes: Of all of them together; so ``leaves``.
        depth: Of the deepest; NaN where the links between nodes were not saved.
    """

    steps: Ints
    trees: Ints
    nodes: Ints
    leaves: Ints
    depth: Floats


def tree_sizes(tables: Iterable[TreeTable]) -> TreeSizes | None:
    """The sizes of trees; ``None`` if there are none."""
    rows = [
        (
            table.step,
            max(1, len(np.unique(table.tree))),
            len(table.feature),
            int(np.count_nonzero(table.feature == LEAF)),
            depth(table.node, table.yes, table.no),
        )
        for table in tables
        if len(table.feature) and table.feature.dtype.kind in "US"
    ]
    if not rows:
        return None
    steps, trees, nodes, leaves = np.array([row[:4] for row in rows], np.int64).T
    return TreeSizes(steps, trees, nodes, leaves, np.array([row[4] for row in rows], np.float64))


def depth(node: Array, yes: Array, no: Array) -> float:
    """The most links from a root to a leaf; NaN if the links are not known.

    Args:
        node: The name of each node.
        yes: The name of each node's one child, something that names no node if it has none.
        no: The name of its other child.
    """
    if not len(node) or not len(node) == len(yes) == len(no):
        return float("nan")
    rows = {name: row for row, name in enumerate(node.tolist())}
    children = [
        [rows[child] for child in pair if child in rows]
        for pair in zip(yes.tolist(), no.tolist(), strict=True)
    ]
    seen = {child for pair in children for child in pair}
    level = [row for row in range(len(children)) if row not in seen]
    deepest, reached = 0, set(level)
    while True:
        level = [child for row in level for child in children[row] if child not in reached]
        if not level:
            return float(deepest)
        reached.update(level)  # a damaged table may link in circles
        deepest += 1
