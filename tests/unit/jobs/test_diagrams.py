"""The diagrams of the documents are those of the code."""

from roost.model.job import JOB_TRANSITIONS, MACHINE_TRANSITIONS
from tools.job_diagrams import PAGE, page, schema


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == page(), "run python tools/job_diagrams.py"


def test_every_state_and_every_column_is_drawn() -> None:
    text = page()
    for table in (JOB_TRANSITIONS, MACHINE_TRANSITIONS):
        for state, following in table.items():
            for to in following:
                assert f"    {state} --> {to}\n" in text
    assert "text cloud_id" in schema()
