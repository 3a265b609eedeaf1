"""What is typed about a job: every field of it, and an input as address and digest."""

from typing import Any

import pytest

from roost.base.errors import InvalidRequest
from roost.cli.words.jobwords import spec_fields
from roost.wire.jobs import InputBody, JobSpecBody

HEX = "0123456789abcdef" * 4
URL = "https://files.example/a?b=c"
NOTHING: dict[str, Any] = dict.fromkeys(
    (
        "command", "image", "cpu", "memory", "disk", "env", "parameter", "output_file", "keep_in",
        "run_limit", "queue_limit", "retries", "restarts", "priority", "registry_account",
    )
)  # fmt: skip


def read(word: str) -> list[InputBody]:
    found: list[InputBody] = spec_fields(**NOTHING, input_file=[word])["inputs"]
    return found


def test_every_field_of_a_job_can_be_typed() -> None:
    given: dict[str, Any] = {
        **dict.fromkeys(("image", "cpu", "memory", "keep_in", "registry_account"), "1"),
        **{key: ["a=1"] for key in ("env", "parameter", "input_file")},
        **dict.fromkeys(("retries", "restarts", "priority"), 0),
        **dict.fromkeys(("run_limit", "queue_limit"), "1h"),
    }
    found = spec_fields(command=["true"], output_file=["a"], disk=None, **given)
    assert found.keys() == set(JobSpecBody.__struct_fields__)


@pytest.mark.parametrize(
    ("word", "url", "digest"),
    [
        (f"a={URL}", URL, ""),
        (f"a={URL}#sha256:{HEX}", URL, f"sha256:{HEX}"),
        (f"a={URL}#sha256:{HEX.upper()}", URL, f"sha256:{HEX}"),
        (f"a=s3://bucket/a%23b#sha256:{HEX}", "s3://bucket/a%23b", f"sha256:{HEX}"),
    ],
)
def test_an_input_is_an_address_and_perhaps_a_digest(word: str, url: str, digest: str) -> None:
    assert read(word) == [InputBody(name="a", url=url, digest=digest)]


@pytest.mark.parametrize(
    "digest",
    ["md5:0123", f"sha512:{HEX}{HEX}", HEX, "", "sha256:", "sha256:0123", f"SHA256:{HEX}x"],
)
def test_a_digest_that_would_not_be_compared_is_refused(digest: str) -> None:
    with pytest.raises(InvalidRequest, match="#sha256:HEX") as refused:
        read(f"a={URL}#{digest}")
    assert "%23" in (refused.value.hint or "")
