"""What a compiler fuses: loops whose values need not lie in memory."""

from __future__ import annotations

from flowaware_core.graph.rules import ELEMENTWISE

# Loops that a compiler fuses with what reads them.
FUSIBLE = ELEMENTWISE | frozenset(
    "bitcast_convert_type broadcast_in_dim expand_dims iota pad reshape rev slice squeeze transpose".split()
)
# Loops that what they read is fused into.
CONSUMING = FUSIBLE | frozenset(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin".split()
)
# Elementwise, but too dear to be computed once per loop that reads them: they are written to memory if more than one does.
COSTLY = frozenset(
    "acos acosh asin asinh atan atan2 atanh cbrt digamma div erf erf_inv erfc exp exp2 expm1 lgamma log log1p logistic pow"
    " rsqrt sinh cosh sqrt tan tanh".split()
)
