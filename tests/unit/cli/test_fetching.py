"""Files of a job written to a folder."""

from hashlib import sha256
from pathlib import Path

import pytest

from roost.base.errors import Conflict, InvalidRequest
from roost.cli.words.fetching import fetch_output
from roost.wire.jobs import KeptOutput

DIGEST = f"sha256:{sha256(b'onetwo').hexdigest()}"


def kept(name: str, digest: str = DIGEST) -> KeptOutput:
    return KeptOutput(name=name, url="file:///somewhere", bytes=6, digest=digest)


@pytest.mark.parametrize("name", ["result", "sub/deep/result"])
@pytest.mark.parametrize("digest", [DIGEST, ""])
def test_a_file_is_written_whole_below_the_folder(tmp_path: Path, name: str, digest: str) -> None:
    for _ in range(2):  # one that is there is replaced
        found = fetch_output(iter([b"one", b"two"]), kept(name, digest), tmp_path / "to")
        assert found == tmp_path / "to" / name
        assert found.read_bytes() == b"onetwo"
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [found]


@pytest.mark.parametrize("name", ["../result", "/etc/result", "a/../../result", ".", ""])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="no name of a file below a folder"):
        fetch_output(iter([b"onetwo"]), kept(name), tmp_path / "to")
    assert list(tmp_path.iterdir()) == []


def test_what_differs_from_its_digest_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "result").write_text("old")
    with pytest.raises(Conflict, match="is not what the job has left"):
        fetch_output(iter([b"one"]), kept("result"), tmp_path)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["old"]


def test_a_file_that_is_named_like_a_part_of_another_stays(tmp_path: Path) -> None:
    for name, data in (("b.part", b"one"), ("b", b"two")):
        fetch_output(iter([data]), kept(name, ""), tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["b", "b.part"]
    assert (tmp_path / "b.part").read_bytes() == b"one"


@pytest.mark.parametrize("name", ["there", "file/below"])
def test_what_cannot_be_written_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="cannot write"):
        fetch_output(iter([b"one"]), kept(name, ""), tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "there"]
