"""Train the classes of workloads with scikit-learn, and write them as numbers into the package.

    python -m benchmarks.analysis.train

The same seeds give the same file. The confusion matrix on unseen series is in the benchmark.
"""

from pathlib import Path

import numpy as np
from sklearn.neural_network import MLPClassifier

from benchmarks.analysis.labelled import DAY, draw
from benchmarks.analysis.synthetic import TRAINING
from roost.analysis import features

TARGET = Path(features.__file__).with_name("class_weights.py")
HEAD = '''"""The numbers of the classes' network: scale of features, hidden layer, output.

Written by `python -m benchmarks.analysis.train`; do not edit by hand.
"""

'''


def literal(array: np.ndarray) -> str:
    """Write an array of one or two axes as nested tuples."""
    if array.ndim == 1:
        return "(" + ", ".join(f"{value:.4g}" for value in array) + ",)"
    return "(\n" + "".join(f"    {literal(row)},\n" for row in array) + ")"


def main() -> None:
    """Train and write."""
    values, kinds = draw(TRAINING, 250)
    told = features.features(values, np.ones(len(values)), DAY)
    mean, scale = told.mean(axis=0), told.std(axis=0) + 1e-6
    model = MLPClassifier((12,), activation="tanh", alpha=1.0, max_iter=800, random_state=7)
    model.fit(np.clip((told - mean) / scale, -8, 8), kinds)
    parts = {
        "MEAN": mean, "SCALE": scale,
        "HIDDEN": model.coefs_[0], "HIDDEN_BIAS": model.intercepts_[0],
        "OUT": model.coefs_[1], "OUT_BIAS": model.intercepts_[1],
    }  # fmt: skip
    text = "\n".join(f"{name} = {literal(array)}" for name, array in parts.items())
    TARGET.write_text(HEAD + text + "\n")


if __name__ == "__main__":
    main()
