"""Outputs and inputs in S3, as moto has it, and stores that are down or closed to us."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.wire.workerlink import InputOrder, OutputOrder
from roost.worker.files import urls
from tests.conformance.ec2proxy import serving
from tests.integration.worker.standin import StandInPlane, assignment, working


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run S3 with one bucket; boto3 finds it by the environment."""
    pytest.importorskip("moto", reason="pip install 'moto[server,ec2,s3]'")
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="results")
    yield "results"
    server.stop()


def test_files_go_to_s3_and_come_from_there(tmp_path: Path, bucket: str) -> None:
    source = tmp_path / "a"
    source.write_bytes(b"words")
    digest = urls.store(source, f"s3://{bucket}/in/a")

    async def case() -> Any:
        plane = StandInPlane()
        plane.assigned["j:1"] = assignment(
            "j:1", "sh", "-c", "tr a-z A-Z < a > b",
            inputs=[InputOrder("a", f"s3://{bucket}/in/a", digest)],
            outputs=[OutputOrder("b")],
            outputs_to=f"s3://{bucket}/j-1",
        )  # fmt: skip
        plane.assigned["j:2"] = assignment(
            "j:2", "true", inputs=[InputOrder("a", f"s3://{bucket}/none")]
        )
        async with working(plane, tmp_path / "w"):
            return await plane.report("j:1"), await plane.report("j:2")

    kept, missing = asyncio.run(case())
    assert kept.outcome == "completed"
    assert kept.outputs[0].url == f"s3://{bucket}/j-1/b"
    back = tmp_path / "back"
    assert urls.fetch(kept.outputs[0].url, back, most=100) == kept.outputs[0].digest
    assert back.read_bytes() == b"WORDS"
    assert missing.reason == "input_missing"


@pytest.mark.parametrize(
    ("status", "code", "raises"),
    [(403, "AccessDenied", urls.Denied), (503, "ServiceUnavailable", urls.Away)],
)
def test_a_store_that_is_closed_is_told_from_one_that_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, code: str, raises: Any
) -> None:
    pytest.importorskip("boto3", reason="pip install 'roost[aws]'")

    def answer(body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        return status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    source = tmp_path / "a"
    source.write_bytes(b"words")
    with serving(answer) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        with pytest.raises(raises):
            urls.store(source, "s3://results/a")


def test_a_store_that_nobody_serves_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "to"
    with pytest.raises(urls.Away):
        urls.fetch("http://127.0.0.1:9/x", to, most=10)
