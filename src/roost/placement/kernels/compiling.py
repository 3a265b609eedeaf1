"""The decorators that compile, and where compiled code is kept.

Numba notices a change of the file a function is in, not of the functions it calls. The folder of
compiled code is therefore named after a digest of all sources that take part: a changed line
anywhere means a new folder and never a stale kernel. When no folder can be written the kernels
compile anew in every process; that is slow and nothing worse.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

import numba
import numpy as np
from numba import njit
from numba.core.event import Event, Listener, register

from roost.fleet import assign, groups, layout

F = TypeVar("F", bound=Callable[..., object])

#: Makes a constant an ordinary integer: Numba would compile a callee anew for each literal.
int64 = cast(Callable[[int], int], np.int64)

_HERE = Path(__file__).parent


def _digest() -> str:
    sources = sorted(_HERE.glob("*.py"))
    sources += [Path(module.__file__ or "") for module in (assign, groups, layout)]
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _candidates() -> Iterator[Path]:
    if numba.config.CACHE_DIR:
        yield Path(numba.config.CACHE_DIR)
        return
    yield _HERE / "__pycache__"
    try:
        yield Path.home() / ".cache" / "roost"
    except RuntimeError:  # no home folder
        return


def _cache_folder() -> Path | None:
    name = f"kernels-{_digest()}"
    return next((f / name for f in _candidates() if _writable(f / name)), None)


CACHE_FOLDER = _cache_folder()


@contextmanager
def _caching_in(folder: Path) -> Iterator[None]:
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


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
    # Counting references to the arrays of a bundle at every call costs more than the kernels'
    # own work (measured: three quarters of a decision), so kernels may not allocate.
    flags = {"nogil": True, "error_model": "numpy", "_nrt": False, **options}
    if CACHE_FOLDER is not None:
        try:
            with _caching_in(CACHE_FOLDER):
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
