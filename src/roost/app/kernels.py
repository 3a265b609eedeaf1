"""Loading the compiled kernels, with a word to the user when it takes long.

The first run on a machine compiles them, which takes a while; later runs load them from a cache.
"""

import threading
from collections.abc import Callable

#: A wait longer than this wants a word.
PATIENCE_S = 1.0
#: What compiling everything takes on a common machine; only said, never relied upon.
USUAL_S = 30


def warm(load: Callable[[], object], say: Callable[[str], None]) -> None:
    """Call `load`, and `say` that kernels are being compiled once that takes noticeably long."""
    notice = threading.Timer(
        PATIENCE_S, say, [f"compiling kernels (first run only, about {USUAL_S} s) ..."]
    )
    notice.daemon = True
    notice.start()
    try:
        load()
    finally:
        notice.cancel()
