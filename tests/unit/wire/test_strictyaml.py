"""Reading YAML strictly: what is wrong is told with its line."""

from pathlib import Path

import pytest
from msgspec import Struct

from roost.base.errors import InvalidRequest, NotFound
from roost.wire.text.strictyaml import (
    Seconds,
    Size,
    find_file,
    located,
    parse_strictly,
    read_seconds,
    read_text,
)


class Part(Struct, forbid_unknown_fields=True):
    on: str = ""
    wait: Seconds = Seconds(0.0)
    size: Size = Size("0B")


class Whole(Struct, forbid_unknown_fields=True):
    parts: list[Part] = []
    flag: bool = False

    def __post_init__(self) -> None:
        for number, part in enumerate(self.parts):
            if part.on == "fire":
                raise ValueError(located("nothing may burn", f"$.parts[{number}].on"))


def parse(text: str) -> Whole:
    return parse_strictly(text, "f.yaml", Whole)


def test_a_document_becomes_a_struct() -> None:
    found = parse("parts:\n  - {on: off, wait: 1.5m, size: 4GiB}\nflag: true\n")
    assert found == Whole([Part("off", Seconds(90.0), Size("4GiB"))], True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("parts:\n  - on: a\n    of: b", r"f.yaml:3: object contains unknown field `of`, at parts"),
        ("parts:\n  - on: a\n    on: b", r"f.yaml:3: the field `on` is there twice"),
        ("parts:\n  - {}\n  - on: fire", r"f.yaml:3: nothing may burn, at parts\[1\].on"),
        ("parts:\n  - wait: soon", r"f.yaml:2: 'soon' is no length of time"),
        ("parts:\n  - size: 4Gb", r"f.yaml:2: '4Gb' is no amount of bytes"),
        ("flag: yes", r"f.yaml:1: expected `bool`, got `str`"),
        ("parts: [", r"f.yaml:[12]: "),
        ("parts: !!python/object:os.system {}", r"f.yaml:1: could not determine a constructor"),
        ("flag: \x00", r"f.yaml: "),
        ("- 1", r"f.yaml:1: expected `object`, got `array`"),
        ("", r"f.yaml:1: expected `object`, got `null`"),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        parse(text)


@pytest.mark.parametrize(
    ("value", "seconds"), [(3, 3.0), ("250ms", 0.25), ("2h", 7200.0), ("1 d", 86_400.0)]
)
def test_lengths_of_time(value: object, seconds: float) -> None:
    assert read_seconds(value) == seconds


@pytest.mark.parametrize("value", [-1, "-1s", True, "1w", None, "1m30s"])
def test_what_is_no_length_of_time(value: object) -> None:
    with pytest.raises(ValueError, match="is no length of time"):
        read_seconds(value)


def test_files_are_found_by_name_or_path(tmp_path: Path) -> None:
    here = tmp_path / "a.yaml"
    here.write_bytes(b"\xff")
    assert find_file("b", {"b": tmp_path}, "thing") == tmp_path
    assert find_file(str(here), {}, "thing") == here
    with pytest.raises(NotFound, match="no thing 'c'; shipped are b"):
        find_file("c", {"b": tmp_path}, "thing")
    with pytest.raises(InvalidRequest, match="it is not UTF-8"):
        read_text(here)
    with pytest.raises(InvalidRequest, match="No such file"):
        read_text(tmp_path / "none")
