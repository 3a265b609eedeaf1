"""Calibration of confidence: how often patterns of such evidence held on, counted on made series.

Written by `python -m benchmarks.analysis.calibrate`; do not edit by hand.
"""

#: By kind: edges of evidence, and the share that held on at each (never falling).
TABLES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "bursty": ((0.289, 0.399), (0.861, 0.875)),  # 213 seen
    "change_point": ((5.185, 8.811), (0.565, 0.591)),  # 41 seen
    "cyclic": (
        (-3.808, 0.043, 0.224, 0.441, 0.669, 0.868),
        (0.366, 0.617, 0.825, 0.838, 0.880, 0.948),
    ),  # 2449 seen
    "growing": (
        (0.304, 0.438, 0.482, 0.545, 0.687),
        (0.170, 0.623, 0.745, 0.755, 0.764),
    ),  # 406 seen
    "level_shift": ((5.422, 8.835, 15.068, 25.263), (0.250, 0.422, 0.524, 0.624)),  # 236 seen
    "steady": (
        (0.100, 0.280, 0.416, 0.516, 0.600, 0.698, 0.847),
        (0.852, 0.959, 0.983, 0.996, 0.996, 0.996, 0.996),
    ),  # 1812 seen
}
