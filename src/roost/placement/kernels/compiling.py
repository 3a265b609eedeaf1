"""The decorators that compile, and where compiled code is kept.

Numba notices a change of the file a function is in, not of the functions it calls. The folder of
compiled code is therefore named after a digest of all sources that take part: a changed line
anywhere means a new folder and never a stale kernel. It lies in the user's cache and knows nothing
of where roost is installed, so a second checkout or virtual environment with the same sources
compiles nothing. When no folder can be written the kernels compile anew in every process; that is
slow and nothing worse.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TypeVar, cast

import numba
import numpy as np
from numba import njit
from numba.core.caching import UserProvidedCacheLocator
from numba.core.event import Event, Listener, register

from roost.base.cachefolder import cache_folders, is_ours
from roost.fleet import assign, groups, layout

F = TypeVar("F", bound=Callable[..., object])


def _without_linear_algebra() -> None:
    """Load what Numba needs of arrays without SciPy's linear algebra, which no kernel calls.

    Numba asks whether that is installed by importing it, before it loads any compiled code: about
    a second of every start where SciPy is there. It finds names that stand for it instead, only
    while it asks; code that does call it loads it then.
    """
    names = ("scipy.linalg", "scipy.linalg.cython_blas")
    if "scipy" not in sys.modules or names[0] in sys.modules:
        return
    sys.modules.update((name, ModuleType(name)) for name in names)
    try:
        import_module("numba.np.arraymath")
    finally:
        for name in names:
            del sys.modules[name]


_without_linear_algebra()

#: Makes a constant an ordinary integer: Numba would compile a callee anew for each literal.
int64 = cast(Callable[[int], int], np.int64)

_HERE = Path(__file__).resolve().parent
_PACKAGE = _HERE.parents[1]


def _digest(sources: Iterable[Path]) -> str:
    # A kernel with bounds checks is another one, though its source is the same.
    digest = hashlib.sha256(f"{numba.__version__} {numba.config.BOUNDSCHECK}".encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _candidates() -> Iterator[Path]:
    if numba.config.CACHE_DIR:
        yield Path(numba.config.CACHE_DIR)
        return
    yield from cache_folders()
    yield _HERE / "__pycache__"


def cache_folder(sources: Iterable[Path]) -> Path | None:
    """Return the folder for compiled code that these sources make, or None where none is ours."""
    name = f"kernels-{_digest(sources)}"
    return next((f / name for f in _candidates() if is_ours(f / name)), None)


CACHE_FOLDER = cache_folder(
    [*sorted(_HERE.glob("*.py")), *(Path(m.__file__ or "") for m in (assign, groups, layout))]
)


class ByPackage(UserProvidedCacheLocator):  # type: ignore[misc]
    """Names the folder of a module's compiled code by its package, not by where that is installed.

    What is in the files is known from the digest, and Numba compares each file's own besides.
    """

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Return the folder for the functions of a file, below the folder of compiled code."""
        folder = Path(py_file).resolve().parent
        if folder.is_relative_to(_PACKAGE):
            return ".".join(folder.relative_to(_PACKAGE).parts)
        return cast(str, super().get_suitable_cache_subpath(py_file))


@contextmanager
def _caching_in(folder: Path) -> Iterator[None]:
    before = numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES
    numba.config.CACHE_DIR = str(folder)
    numba.config.CACHE_LOCATOR_CLASSES = f"{__name__}.{ByPackage.__name__}"
    try:
        yield
    finally:
        numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES = before


def kernel(function: F) -> F:
    """Compile a function of arrays and integers for other kernels to call."""
    # Python never calls it, so it needs no wrapper: that halves the time of the first compile.
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inlined(function: F) -> F:
    """Compile a small function into each of its callers.

    A call hands over every array of every bundle, which costs more than a short loop.
    """
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)


def spliced(function: F) -> F:
    """Make a function part of its only caller, so that it is not compiled twice."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, inline="always")


def entry_point(function: F) -> F:
    """Compile a kernel that Python calls."""
    return _compile(function, no_cfunc_wrapper=True)


def view_maker(function: F) -> F:
    """Compile a function that makes array views out of addresses, which needs the counting."""
    return _compile(function, no_cfunc_wrapper=True, forceinline=True, _nrt=True)


def _compile(function: F, **options: bool | str) -> F:
    return compiled(function, CACHE_FOLDER, **options)


def compiled(function: F, folder: Path | None, **options: bool | str) -> F:
    """Compile a function with the flags of all kernels, and keep the code in a folder."""
    # Counting references to the arrays of a bundle at every call costs more than the kernels'
    # own work (measured: three quarters of a decision), so kernels may not allocate.
    flags = {"nogil": True, "error_model": "numpy", "_nrt": False, **options}
    if folder is not None:
        try:
            with _caching_in(folder):
                return cast(F, njit(cache=True, **flags)(function))
        except RuntimeError:  # the folder went away since it was tried
            pass
    return cast(F, njit(**flags)(function))


class _FirstCompile(Listener):  # type: ignore[misc]
    """Tells once that something is being compiled; what is loaded from the folder is not."""

    tell: Callable[[], None] | None = None

    def on_start(self, event: Event) -> None:
        """Tell, at the first event."""
        tell, self.tell = self.tell, None
        if tell is not None:
            tell()

    def on_end(self, event: Event) -> None:
        """Do nothing: only the beginning is news."""


_listener = _FirstCompile()
register("numba:compile", _listener)


def on_first_compile(tell: Callable[[], None]) -> None:
    """Call `tell` once, when this process next compiles a kernel instead of loading it."""
    _listener.tell = tell
