"""A word to the user when kernels are compiled, which only the first use on a machine does."""

from collections.abc import Callable

from roost.placement.kernels.compiling import on_first_compile

#: What compiling for a first decision takes on a common machine; only said, never relied upon.
USUAL_S = 45


def announce_compiling(say: Callable[[str], None]) -> None:
    """Call `say` once, at the moment this process begins to compile anything."""
    on_first_compile(
        lambda: say(f"compiling kernels (first run only, about {USUAL_S} s; kept for later) ...")
    )
