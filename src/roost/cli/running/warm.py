"""`roost warm`: kernels compiled beforehand, so that no start or question has to wait for them."""

from time import perf_counter

from roost.cli.show.screen import Output, show, show_document
from roost.cli.words.opening import chosen_output
from roost.cli.words.options import OutputOption, reports_errors


@reports_errors
def warm(output: OutputOption = None) -> None:
    """Compile the kernels now, so that no later start waits for them.

    It takes about five minutes, once for each version and user.
    """
    from roost.app.warming import warm_up
    from roost.placement.kernels.compiling import CACHE_FOLDER, on_first_compile

    form = chosen_output(output)
    compiled = False

    def compiling() -> None:
        nonlocal compiled
        compiled = True
        if form is Output.TABLE:
            show("compiling kernels, about five minutes ...")

    on_first_compile(compiling)
    began = perf_counter()
    warm_up()
    took_s = round(perf_counter() - began, 1)
    if form is not Output.TABLE:
        folder = None if CACHE_FOLDER is None else str(CACHE_FOLDER)
        show_document({"compiled": compiled, "took_s": took_s, "folder": folder}, form)
    elif CACHE_FOLDER is None:
        show(f"the kernels work ({took_s} s), but no folder can keep them: set ROOST_CACHE")
    else:
        did = "were compiled" if compiled else "were there already"
        show(f"the kernels {did} ({took_s} s): {CACHE_FOLDER}")
