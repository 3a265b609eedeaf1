"""Pictures of characters: every known value has its place, and nothing that is unknown."""

from hypothesis import given
from hypothesis import strategies as st

from roost.cli.show.drawing.pictures import draw

VALUES = st.lists(st.none() | st.floats(0, 1e15), max_size=60)
AHEAD = st.lists(
    st.none() | st.tuples(*(st.floats(0, 1e15) for _ in range(3))).map(sorted), max_size=60
)


@given(VALUES, AHEAD, st.integers(1, 80), st.integers(2, 20))
def test_a_picture_is_as_high_and_no_wider_than_asked(
    past: list[float | None], ahead: list[list[float] | None], width: int, height: int
) -> None:
    low, point, high = ([each and each[at] for each in ahead] for at in range(3))
    lines = draw(past, point, low, high, width=width, height=height, label=lambda v: "x")
    assert len(lines) == height + 1
    drawn = [line.plain.partition("┤")[2] for line in lines[:-1]]
    assert len({len(line) for line in drawn}) == 1
    assert len(drawn[0]) <= width + 1  # past and time ahead begin columns of their own
    signs = set("".join(drawn)) - {" "}
    assert ("█" in signs) == any(each is not None for each in past)
    assert ("●" in signs) == any(each is not None for each in point)


def test_a_band_without_an_upper_bound_is_not_drawn() -> None:
    lines = draw([1.0], [1.0], [0.0], [None], width=4, label=str)
    assert "░" not in "".join(line.plain for line in lines)


def test_low_values_stand_lower_than_high_ones() -> None:
    lines = draw([1.0, 10.0], [5.0], [4.0], [8.0], width=3, height=10, label=str)
    shown = [line.plain.partition("┤")[2] for line in lines]
    assert [row[0] for row in shown[:10]].count("█") == 2
    assert [row[1] for row in shown[:10]].count("█") == 10
    assert [row[2] for row in shown[:10]] == [" ", "░", "░", "░", "●", "░", " ", " ", " ", " "]
