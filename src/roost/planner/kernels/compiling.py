"""The decorator that compiles kernels of the planner, with the flags of the engine's.

Their compiled code has a folder of its own, named after a digest of these sources: a change here
does not compile the engine anew, nor the reverse.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from roost.placement.kernels import compiling

F = TypeVar("F", bound=Callable[..., object])

_HERE = Path(__file__).resolve().parent
FOLDER = compiling.cache_folder([*sorted(_HERE.glob("*.py")), Path(compiling.__file__)])


def kernel(function: F) -> F:
    """Compile a function of arrays and numbers for other kernels to call."""
    return compiling.compiled(function, FOLDER, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def entry_point(function: F) -> F:
    """Compile a kernel that Python calls."""
    return compiling.compiled(function, FOLDER, no_cfunc_wrapper=True)


def inlined(function: F) -> F:
    """Compile a small function into each of its callers."""
    return compiling.compiled(
        function, FOLDER, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True
    )
