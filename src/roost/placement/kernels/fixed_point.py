"""Ratios as fixed-point integers: exact, and the same in every implementation."""

from roost.placement.kernels.compiling import kernel

#: Fraction bits of a ratio: 1.0 is 2^30.
RATIO_BITS = 30
RATIO_ONE = 1 << RATIO_BITS
_STEP = 15

#: The largest ratio: more than any host is of the reference host.
MOST_WHOLES = 1 << 24


@kernel
def ratio(part: int, whole: int) -> int:
    """Return floor(part x 2^30 / whole), and 0 when either is not positive.

    Long division in two steps of 15 bits: with `whole` up to 2^48 no step passes 2^63. A part of
    2^24 wholes and more counts as 2^24, so that a weighted sum of ratios cannot overflow either.
    """
    if whole <= 0 or part <= 0:
        return 0
    quotient = part // whole
    if quotient >= MOST_WHOLES:
        return MOST_WHOLES << RATIO_BITS
    rest = (part % whole) << _STEP
    quotient = (quotient << _STEP) + rest // whole
    rest = (rest % whole) << _STEP
    return (quotient << _STEP) + rest // whole
