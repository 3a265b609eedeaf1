"""Which form of a kernel runs: compiled code, or its own body while that is not there yet.

On a fresh machine compiling takes minutes. A control plane need not wait for it: the body of a
kernel is a Python function that gives the same answers, a decision in about a millisecond. Here it
is made from the kernel itself, so the two cannot differ: the same code with names that lead to the
bodies of other kernels. Every call is whole in itself and leaves arrays as the other form would, so
forms may change between any two calls.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
from numba.extending import is_jitted

F = TypeVar("F", bound=Callable[..., object])


class Form:
    """What this process runs: looked at by every decision, so an attribute and no call."""

    __slots__ = ("python",)

    def __init__(self) -> None:
        self.python = bool(numba.config.DISABLE_JIT)


#: `python` says that kernels may run as Python here: ask `runs_python` then.
FORM = Form()
#: True where somebody loads compiled code while everybody else still does without.
_loads: ContextVar[bool] = ContextVar("loads", default=False)
#: Names of modules, by the number of their own, as bodies see them; and bodies, by their kernels'.
_names: dict[int, dict[str, Any]] = {}
_bodies: dict[int, Callable[..., object]] = {}


def interpret(yes: bool) -> None:
    """Let this process run kernels as Python from now on, or compiled again."""
    FORM.python = yes or bool(numba.config.DISABLE_JIT)


def is_interpreting() -> bool:
    """Say whether this process runs kernels as Python until they are compiled."""
    return FORM.python and not (numba.config.DISABLE_JIT or _loads.get())


def runs_python() -> bool:
    """Say whether kernels run as Python here, for now or because the compiler is off."""
    return FORM.python and bool(numba.config.DISABLE_JIT or not _loads.get())


@contextmanager
def compiled_here() -> Iterator[None]:
    """Run compiled kernels within, in this thread alone: so they are loaded."""
    before = _loads.set(True)
    try:
        yield
    finally:
        _loads.reset(before)


def running(kernel: F) -> F:
    """Return what to call for a kernel: itself, or its body while the process interprets."""
    return body_of(kernel) if is_interpreting() else kernel


def body_of(kernel: F) -> F:
    """Return a kernel as Python runs it, and so every kernel that it calls."""
    known = _bodies.get(id(kernel))
    if known is None:
        written = cast(FunctionType, getattr(kernel, "py_func", kernel))
        known = _bodies[id(kernel)] = FunctionType(
            written.__code__,
            _names_for(written.__globals__),
            written.__name__,
            written.__defaults__,
            written.__closure__,
        )
    return cast(F, known)


def _names_for(module: dict[str, Any]) -> dict[str, Any]:
    """Return the names of a module with the bodies of kernels in their place."""
    names = _names.get(id(module))
    if names is None:
        names = _names[id(module)] = dict(module)  # known before it is filled: modules have cycles
        names.update((name, body_of(each)) for name, each in module.items() if is_jitted(each))
    return names
