"""Several things, one after the other, and what becomes of those behind one that fails."""

from typing import Any, cast

import pytest
import typer

from roost.base.errors import Unavailable
from roost.cli.show.screen import Output
from roost.cli.words.each import do_each
from roost.cli.words.session import Session


class Shown:
    """What `do_each` asks of a session."""

    form, names = Output.TABLE, False


@pytest.mark.parametrize(("begun", "watched"), [(True, ["a", "b", "c"]), (False, ["a"])])
def test_what_is_under_way_is_watched_although_another_lasts_too_long(
    begun: bool, watched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def act(name: str) -> str:
        asked.append(name)
        if name == "a":
            raise Unavailable("it lasts longer than 1 s")
        return name

    def say(name: str) -> Any:
        return f"{name} is there"

    with pytest.raises(typer.Exit) as left:
        do_each(cast(Session, Shown()), "vm", ["a", "b", "c"], act, say, begun=begun)

    assert asked == watched
    assert left.value.exit_code == Unavailable("").exit_code
    told = capsys.readouterr()
    assert ("not tried" in told.err) is not begun
    assert ("c is there" in told.out) is begun
