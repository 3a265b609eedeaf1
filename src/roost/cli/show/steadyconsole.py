"""The console of tables and sentences: rich's, which text of others cannot steer.

A module of its own, for rich is a third of the start of a command that draws nothing.
"""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from roost.cli.show.steering import unsteered


class SteadyConsole(Console):
    """A console whose only sequences are its own: those of styles, and of bars that move."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render to segments, and take out of each text what would steer the terminal."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            clean = text if control else unsteered(text)
            yield segment if clean == text else Segment(clean, style)
