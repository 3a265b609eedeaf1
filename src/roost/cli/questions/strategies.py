"""`roost strategies`: the strategies, with their formulas."""

from roost.cli.show.screen import Output, show, show_document
from roost.cli.words.opening import chosen_output, settings
from roost.cli.words.options import OutputOption, reports_errors


@reports_errors
def strategies(output: OutputOption = None) -> None:
    """List the strategies and how each one chooses."""
    from roost.cli.show import tables
    from roost.placement.strategies import STRATEGIES

    form = chosen_output(output)
    default = settings().scheduling_strategy
    if form is not Output.TABLE:
        listed = [
            {"name": each.name, "summary": each.summary, "formula": each.formula}
            for each in STRATEGIES.values()
        ]
        show_document({"default": default, "strategies": listed}, form)
    else:
        show(tables.strategies(list(STRATEGIES.values()), default))
