"""How hard it is to get a resource on a node that is used so much: a model of pressure stall.

Linux tells the share of time in which some task waited for a resource (PSI). Nodes that nobody
runs have no such figure, so it is drawn from their use. The curve is that of the Scheduler
Integration Summary's exporter, with the one part changed in which it fell (0.049 just below 0.7,
0 at 0.7): a node that is used more is never under less pressure.

    demand   pressure   between
    0        0          a straight line: nothing waits yet, or by chance
    0.7      0.049      a straight line: bursts begin to meet
    0.9      0.2        a parabola that leaves flat: what is left is taken quickly
    1.0      0.8        a straight line: more is wanted than there is
    1.4      1          and no more than that

Pure: a number in, a number out.
"""

_CALM, _CALM_PRESSURE = 0.7, 0.049
_BUSY, _BUSY_PRESSURE = 0.9, 0.2
_FULL, _FULL_PRESSURE = 1.0, 0.8
_SLOPE_BEYOND = 0.5


def pressure(demand: float) -> float:
    """Return the pressure, 0 to 1, of a resource of which this share of the whole is wanted."""
    if not demand > 0.0:
        return 0.0
    if demand <= _CALM:
        return _CALM_PRESSURE * demand / _CALM
    if demand <= _BUSY:
        share = (demand - _CALM) / (_BUSY - _CALM)
        return _CALM_PRESSURE + (_BUSY_PRESSURE - _CALM_PRESSURE) * share
    if demand <= _FULL:
        share = (demand - _BUSY) / (_FULL - _BUSY)
        return _BUSY_PRESSURE + (_FULL_PRESSURE - _BUSY_PRESSURE) * share * share
    return min(1.0, _FULL_PRESSURE + _SLOPE_BEYOND * (demand - _FULL))
