"""What went wrong with a VM can be read from rows of every version."""

from roost.control.vms.problems import problem_text, read_problem
from roost.wire.bodies import ProblemBody


def test_what_is_written_is_read() -> None:
    text = problem_text("no_image", "gone", 3, "a")
    assert read_problem(text) == ProblemBody(
        code="no_image", message="gone", generation=3, host="a"
    )


def test_a_problem_that_an_older_version_wrote_without_a_generation_is_read() -> None:
    found = read_problem('{"code":"not_adopted","message":"no room"}')
    assert found == ProblemBody(code="not_adopted", message="no room", generation=0)
