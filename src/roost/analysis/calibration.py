"""Calibration of confidence: how often patterns of such evidence held on, counted on made series.

Written by `python -m benchmarks.analysis.calibrate`; do not edit by hand.
"""

#: By kind: edges of evidence, and the share that held on at each (never falling).
TABLES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "bursty": (
        (
            0.289,
            0.369,
            0.426,
        ),
        (
            0.853,
            0.857,
            0.857,
        ),
    ),  # 210 seen
    "change_point": (
        (
            5.185,
            8.811,
        ),
        (
            0.565,
            0.591,
        ),
    ),  # 41 seen
    "cyclic": (
        (
            -3.781,
            0.034,
            0.216,
            0.435,
            0.665,
            0.866,
        ),
        (
            0.361,
            0.599,
            0.812,
            0.834,
            0.879,
            0.946,
        ),
    ),  # 2496 seen
    "growing": (
        (
            0.304,
            0.438,
            0.482,
            0.545,
            0.687,
        ),
        (
            0.170,
            0.623,
            0.745,
            0.755,
            0.764,
        ),
    ),  # 406 seen
    "level_shift": (
        (
            5.422,
            8.835,
            15.068,
            25.263,
        ),
        (
            0.250,
            0.422,
            0.524,
            0.624,
        ),
    ),  # 236 seen
    "steady": (
        (
            0.100,
            0.280,
            0.416,
            0.516,
            0.600,
            0.698,
            0.847,
        ),
        (
            0.852,
            0.959,
            0.983,
            0.996,
            0.996,
            0.996,
            0.996,
        ),
    ),  # 1812 seen
}
