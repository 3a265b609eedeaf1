"""The diagrams of the documents are those of the code."""

import re

from roost.model.job import JOB_TRANSITIONS, MACHINE_TRANSITIONS
from tools.job_diagrams import PAGE, page, schema


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == page(), "run python tools/job_diagrams.py"


def test_all_five_diagrams_are_drawn_and_whole() -> None:
    blocks = re.findall(r"```mermaid\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    kinds = [block.split("\n", 1)[0] for block in blocks]
    assert kinds == [
        "classDiagram", "sequenceDiagram", "stateDiagram-v2", "stateDiagram-v2", "erDiagram",
    ]  # fmt: skip
    classes, sequence, _, _, tables = blocks
    for block in (classes, tables):
        assert block.count("{\n") == block.count("}"), "a brace is not closed"
    known = set(re.findall(r"participant (\w+) as", sequence))
    arrows = re.findall(r"^    (\w+)-?->>(\w+): .+$", sequence, re.MULTILINE)
    assert len(arrows) > 10
    assert {each for pair in arrows for each in pair} == known
    drawn = set(re.findall(r"^    (\w+) \{", tables, re.MULTILINE))
    assert {"jobs", "job_arrays", "machines", "pools", "accounts"} <= drawn


def test_every_state_and_every_column_is_drawn() -> None:
    text = page()
    for table in (JOB_TRANSITIONS, MACHINE_TRANSITIONS):
        for state, following in table.items():
            for to in following:
                assert f"    {state} --> {to}\n" in text
    assert "text cloud_id" in schema()
