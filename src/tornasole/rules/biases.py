"""Gradients of biases: of some, none is meant to arrive."""

from __future__ import annotations

import re
from functools import lru_cache

_SAYS_SO = re.compile(r"bias(es)?(_\w+)?(:\d+)?(Grad)?$")


@lru_cache(maxsize=1 << 14)
def is_of_bias(gradient: str) -> bool:
    """Whether a gradient is that of a bias, as its name says.

    A bias that is taken out again, by a normalisation right after its layer or by the softmax of an
    attention, has a gradient of zero but for rounding, in the best of networks. Where gradients
    vanish indeed, those of the weights beside it do, too.
    """
    return _SAYS_SO.search(gradient) is not None
