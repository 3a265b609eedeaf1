"""Breaks kernels of the analysis on purpose and says which were noticed; run with the compiler off.

    NUMBA_DISABLE_JIT=1 python -m tests.property.broken_analysis

A mutant is one line of a kernel's source that is replaced, and the property that must notice.
Prints one line of JSON per mutant: its name, and whether the property failed.
"""

import importlib
import json
from pathlib import Path
from types import ModuleType

from hypothesis import Phase, settings

# Before the properties are imported, for they take the profile along: a failure is enough here, the
# smallest example of it is not looked for.
settings.register_profile(
    "broken", phases=(Phase.generate,), derandomize=True, database=None, deadline=None
)
AS_IT_IS = "the kernels as they are"

#: By name: the module, a line of it, what it becomes, and the property.
MUTANTS = {
    "a gap counts as zero": (
        "flattening", "mean /= max(count, 1)", "mean /= points", "flatten_equals_its_twin",
    ),
    "the background takes the next rank": (
        "lines", "int(share * (count - 1))", "min(count - 1, 1 + int(share * count))",
        "find_lines_equals_its_twin",
    ),
    "a peak's neighbours are its background": (
        "lines", "<= reach:", "<= 0.0:", "find_lines_equals_its_twin",
    ),
    "every multiple is an overtone": (
        "cycles", "return own < (6.0 if multiple == 2.0 else 4.0) * beside", "return True",
        "fundamentals_equal_their_twin",
    ),
    "frequencies are left as they were": (
        "refining", "lines[row, number, 0] = right[UNKNOWNS + line]", "pass",
        "refine_finds_the_frequency_that_least_squares_does",
    ),
    "a profile has seen the cycle that it tells": (
        "folding", "until = cut if part == 0 else upto[number]", "until = upto[number]",
        "fold_equals_its_twin",
    ),
    "a model sees the value that it tells": (
        "backtest", "if at < origin:", "if at <= origin:",
        "forecast_and_advance_say_what_the_model_says",
    ),
    "profiles of a back-test know all": (
        "backtest", "set_profiles(values, row, first,", "set_profiles(values, row, points,",
        "the_back_test_chooses_as_its_twin",
    ),
    "errors are taken in gaps too": (
        "backtest", "there = target < points and known[row, min(target, points - 1)]",
        "there = target < points", "the_back_test_chooses_as_its_twin",
    ),
    "the second best model is taken": (
        "backtest", "total / count < least:", "total / count < 0.5 * least:",
        "the_back_test_chooses_as_its_twin",
    ),
    "intervals are one error too narrow": (
        "backtest", "high = int(np.ceil((count + 1) * (1.0 - tail))) - 1",
        "high = int(np.ceil((count + 1) * (1.0 - tail))) - 2", "the_back_test_chooses_as_its_twin",
    ),
    "one origin is enough for an interval": (
        "backtest", "seen >= LEAST_ORIGINS:", "seen >= 1:", "the_back_test_chooses_as_its_twin",
    ),
    "a sample is smoothed before it is there": (
        "backtest", "smooth(value, kept[1][row])", "smooth(0.0, kept[1][row])",
        "forecast_and_advance_say_what_the_model_says",
    ),
}  # fmt: skip


def noticed(module: ModuleType, text: str, name: str) -> bool:
    """Tell whether a property fails when a module has another text."""
    properties = importlib.import_module("tests.property.test_analysis_kernels")
    before = {name: dict(vars(one)) for name, one in (("m", module), ("p", properties))}
    exec(compile(text, str(module.__file__), "exec"), vars(module))
    for key, value in before["p"].items():
        if key in vars(module) and value is before["m"].get(key):
            setattr(properties, key, vars(module)[key])
    try:
        getattr(properties, f"test_{name}")()
    except (AssertionError, IndexError):
        return True
    finally:
        vars(module).update(before["m"])
        vars(properties).update(before["p"])
    return False


def main() -> None:
    """Try all mutants, and every property on the kernels as they are."""
    settings.load_profile("broken")
    passed = set()
    for mutant, (where, old, new, name) in MUTANTS.items():
        module = importlib.import_module(f"roost.analysis.kernels.{where}")
        text = Path(str(module.__file__)).read_text()
        assert text.count(old) >= 1, (mutant, old)
        print(json.dumps([mutant, noticed(module, text.replace(old, new), name)]), flush=True)
        if name not in passed and not noticed(module, text, name):
            passed.add(name)
    names = {name for _, _, _, name in MUTANTS.values()}
    print(json.dumps([AS_IT_IS, passed != names]), flush=True)


if __name__ == "__main__":
    main()
