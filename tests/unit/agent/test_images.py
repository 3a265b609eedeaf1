"""The image store: what it takes, from where, what it keeps, and what it refuses."""

import asyncio
import gzip
import hashlib
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.base.clock import RealClock
from roost.hostkit.failures import DriverError
from roost.hostkit.images.images import Images
from roost.hostkit.images.imagestore import ImageStore
from roost.hostkit.images.imageurls import checked_prefix, checked_web, opened_file
from roost.hostkit.images.pulling import PullLimits
from roost.wire.agentlink import ImageInfo

DATA = bytes(range(256)) * 12_000  # three pieces
LENGTH = {"Content-Length": str(len(DATA))}


class Ticking(RealClock):
    """A clock whose wall goes on by a second with every look, so that each use has its time."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def wall_ms(self) -> int:
        self.now_ms += 1000
        return self.now_ms


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def info(data: bytes, url: str = "") -> ImageInfo:
    return ImageInfo(digest_of(data), url)


@asynccontextmanager
async def store(
    folder: Path, allowed: Iterable[str] = ("file:///", "http://127.0.0.1"), **more: Any
) -> AsyncIterator[Images]:
    images = Images(folder / "images", clock=Ticking(), allowed=allowed, **more)
    try:
        yield images
    finally:
        await images.close()


def fetched(folder: Path, image: ImageInfo, **more: Any) -> Path:
    async def run() -> Path:
        async with store(folder, **more) as images:
            return await images.fetch(image)

    return asyncio.run(run())


def refusal(folder: Path, image: ImageInfo, **more: Any) -> DriverError:
    with pytest.raises(DriverError) as caught:
        fetched(folder, image, **more)
    return caught.value


def put(folder: Path, data: bytes, name: str = "image") -> str:
    path = folder / name
    path.write_bytes(data)
    return path.as_uri()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "images" / "sha256").iterdir())


# A web server that does as told


@dataclass
class Web:
    """One answer for every request: a function that writes it."""

    answer: Callable[["Web", str, dict[str, str], asyncio.StreamWriter], Awaitable[None]]
    port: int = 0
    asked: list[dict[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/image"

    @property
    def allowed(self) -> tuple[str, ...]:
        return (f"http://127.0.0.1:{self.port}/",)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            self.asked.append(headers)
            await self.answer(self, head[0].split()[1], headers, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Web"]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self


def head(status: int, headers: dict[str, str] | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status} X", *(f"{k}: {v}" for k, v in (headers or {}).items())]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


def saying(status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> Web:
    async def answer(_: Web, __: str, ___: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(head(status, headers) + body)
        await writer.drain()

    return Web(answer)


def web_refusal(folder: Path, web: Web, data: bytes = DATA, **more: Any) -> DriverError:
    async def run() -> DriverError:
        async with web.running(), store(folder, allowed=web.allowed, **more) as images:
            with pytest.raises(DriverError) as caught:
                await images.fetch(info(data, web.url))
            return caught.value

    return asyncio.run(run())


# Fetching


def test_a_file_is_copied_into_the_store_under_its_digest_and_nobody_may_write_it(
    tmp_path: Path,
) -> None:
    path = fetched(tmp_path, info(DATA, put(tmp_path, DATA)))
    assert path == tmp_path / "images" / "sha256" / digest_of(DATA).removeprefix("sha256:")
    assert path.read_bytes() == DATA
    assert path.stat().st_mode & 0o777 == 0o400
    assert names(tmp_path) == [path.name]


def test_an_image_that_is_here_needs_no_address(tmp_path: Path) -> None:
    fetched(tmp_path, info(DATA, put(tmp_path, DATA)))
    assert fetched(tmp_path, info(DATA), allowed=()).read_bytes() == DATA


def test_an_image_that_is_nowhere_is_missing_for_good(tmp_path: Path) -> None:
    error = refusal(tmp_path, info(DATA))
    assert (error.failure, error.code) == ("permanent", "image_missing")
    assert digest_of(DATA) in error.message


def test_an_image_is_pulled_over_http_as_it_is_even_when_it_is_compressed(tmp_path: Path) -> None:
    data = gzip.compress(DATA)
    headers = {"Content-Length": str(len(data)), "Content-Encoding": "gzip"}
    web = saying(200, headers, data)

    async def run() -> Path:
        async with web.running(), store(tmp_path, allowed=web.allowed) as images:
            return await images.fetch(info(data, web.url))

    assert asyncio.run(run()).read_bytes() == data
    assert web.asked[0]["accept-encoding"] == "identity"


def test_two_that_ask_at_once_share_one_pull(tmp_path: Path) -> None:
    web = saying(200, LENGTH, DATA)

    async def run() -> list[Path]:
        async with web.running(), store(tmp_path, allowed=web.allowed) as images:
            return await asyncio.gather(*(images.fetch(info(DATA, web.url)) for _ in range(5)))

    assert len(set(asyncio.run(run()))) == 1
    assert len(web.asked) == 1


def test_one_that_gives_up_does_not_stop_the_pull_for_the_other(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def answer(_: Web, __: str, ___: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, LENGTH) + DATA[:1000])
        await writer.drain()
        await go_on.wait()
        writer.write(DATA[1000:])
        await writer.drain()

    web = Web(answer)

    async def run() -> Path:
        async with web.running(), store(tmp_path, allowed=web.allowed) as images:
            first = asyncio.create_task(images.fetch(info(DATA, web.url)))
            second = asyncio.create_task(images.fetch(info(DATA, web.url)))
            await seen(lambda: len(web.asked) == 1)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            go_on.set()
            return await second

    assert asyncio.run(run()).read_bytes() == DATA
    assert len(web.asked) == 1


def test_one_with_a_good_address_is_not_failed_by_another_with_a_bad_one(tmp_path: Path) -> None:
    good = put(tmp_path, DATA)

    async def run() -> list[Path | BaseException]:
        async with store(tmp_path) as images:
            urls = (f"{good}-not-there", good)
            asked = (images.fetch(info(DATA, url)) for url in urls)
            return await asyncio.gather(*asked, return_exceptions=True)

    bad, found = asyncio.run(run())
    assert isinstance(bad, DriverError)
    assert isinstance(found, Path)


async def seen(condition: Callable[[], bool]) -> None:
    """Wait for what is about to happen, for at most ten seconds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


# Damage


def test_an_image_that_was_damaged_on_disk_is_put_aside_and_pulled_again(tmp_path: Path) -> None:
    url = put(tmp_path, DATA)
    path = fetched(tmp_path, info(DATA, url))
    path.chmod(0o644)
    path.write_bytes(DATA[:-1] + b"?")
    assert fetched(tmp_path, info(DATA, url)).read_bytes() == DATA
    assert names(tmp_path) == [path.name, f"{path.name}.broken-1"]


def test_an_image_that_changes_between_two_uses_is_noticed(tmp_path: Path) -> None:
    url = put(tmp_path, DATA)

    async def run() -> None:
        async with store(tmp_path) as images:
            path = await images.fetch(info(DATA, url))
            assert await images.fetch(info(DATA)) == path
            path.chmod(0o644)
            path.write_bytes(b"?" * len(DATA))
            with pytest.raises(DriverError, match="not on this host"):
                await images.fetch(info(DATA))
            assert (await images.fetch(info(DATA, url))).read_bytes() == DATA

    asyncio.run(run())


def test_a_link_with_an_images_name_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(DATA)
    folder = tmp_path / "images" / "sha256"
    folder.mkdir(parents=True)
    (folder / digest_of(DATA)[7:]).symlink_to(secret)
    assert refusal(tmp_path, info(DATA)).code == "image_missing"
    assert secret.stat().st_mode & 0o777 != 0o444


def test_other_bytes_than_promised_are_refused_with_both_digests(tmp_path: Path) -> None:
    error = refusal(tmp_path, info(DATA, put(tmp_path, b"other")))
    assert (error.failure, error.code) == ("permanent", "image_corrupt")
    assert digest_of(DATA) in error.message
    assert digest_of(b"other") in error.message
    assert names(tmp_path) == []


# Servers that fail or lie


def test_a_download_that_breaks_off_is_worth_another_try_and_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    async def answer(
        web: Web, _: str, headers: dict[str, str], writer: asyncio.StreamWriter
    ) -> None:
        if len(web.asked) == 1:
            writer.write(head(200, LENGTH) + DATA[:100_000])
        else:
            start = int(headers["range"].removeprefix("bytes=").removesuffix("-"))
            part = f"bytes {start}-{len(DATA) - 1}/{len(DATA)}"
            rest = {"Content-Range": part, "Content-Length": str(len(DATA) - start)}
            writer.write(head(206, rest) + DATA[start:])
        await writer.drain()

    web = Web(answer)

    async def run() -> Path:
        async with web.running(), store(tmp_path, allowed=web.allowed) as images:
            with pytest.raises(DriverError) as caught:
                await images.fetch(info(DATA, web.url))
            assert (caught.value.failure, caught.value.code) == ("transient", "image_unreachable")
            return await images.fetch(info(DATA, web.url))

    assert asyncio.run(run()).read_bytes() == DATA
    assert [request.get("range") for request in web.asked] == [None, "bytes=100000-"]


@pytest.mark.parametrize("can_resume", [True, False], ids=["206", "200"])
def test_what_is_left_of_a_wrong_download_does_not_spoil_the_next(
    tmp_path: Path, can_resume: bool
) -> None:
    folder = tmp_path / "images" / "sha256"
    folder.mkdir(parents=True)
    (folder / f"{digest_of(DATA)[7:]}.part").write_bytes(b"wrong")

    async def answer(
        _: Web, __: str, headers: dict[str, str], writer: asyncio.StreamWriter
    ) -> None:
        if can_resume and "range" in headers:
            part = {"Content-Range": f"bytes 5-{len(DATA) - 1}/{len(DATA)}"}
            writer.write(head(206, part | {"Content-Length": str(len(DATA) - 5)}) + DATA[5:])
        else:
            writer.write(head(200, LENGTH) + DATA)
        await writer.drain()

    web = Web(answer)

    async def run() -> Path:
        async with web.running(), store(tmp_path, allowed=web.allowed) as images:
            return await images.fetch(info(DATA, web.url))

    assert asyncio.run(run()).read_bytes() == DATA
    assert len(web.asked) == (2 if can_resume else 1)


def test_a_whole_download_that_was_not_accepted_yet_is_not_pulled_again(tmp_path: Path) -> None:
    folder = tmp_path / "images" / "sha256"
    folder.mkdir(parents=True)
    (folder / f"{digest_of(DATA)[7:]}.part").write_bytes(DATA)
    web = saying(500)

    async def run() -> Path:
        async with web.running(), store(tmp_path, allowed=web.allowed) as images:
            return await images.fetch(info(DATA, web.url))

    assert asyncio.run(run()).read_bytes() == DATA
    assert web.asked == []


def test_a_server_that_promises_more_than_it_sends_is_worth_another_try(tmp_path: Path) -> None:
    error = web_refusal(tmp_path, saying(200, {"Content-Length": "9999999"}, DATA))
    assert (error.failure, error.code) == ("transient", "image_unreachable")


def test_a_server_that_promises_less_than_there_is_gives_a_corrupt_image(tmp_path: Path) -> None:
    error = web_refusal(tmp_path, saying(200, {"Content-Length": "1000"}, DATA))
    assert (error.failure, error.code) == ("permanent", "image_corrupt")
    assert "the 1000 bytes" in error.message


def test_a_body_without_an_end_that_is_short_may_have_broken_off(tmp_path: Path) -> None:
    error = web_refusal(tmp_path, saying(200, {}, DATA[:1000]))
    assert (error.failure, error.code) == ("transient", "image_corrupt")


def test_a_server_that_announces_too_much_is_refused_before_it_sends(tmp_path: Path) -> None:
    error = web_refusal(tmp_path, saying(200, LENGTH), size_limit=1000)
    assert (error.failure, error.code) == ("permanent", "image_too_large")
    assert str(len(DATA)) in error.message
    assert "1000" in error.message


def test_a_server_that_hides_how_much_it_sends_is_cut_off_at_the_limit(tmp_path: Path) -> None:
    async def answer(_: Web, __: str, ___: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(head(200))
        while True:
            writer.write(bytes(65536))
            await writer.drain()

    error = web_refusal(tmp_path, Web(answer), size_limit=4_000_000)
    assert (error.failure, error.code) == ("permanent", "image_too_large")
    assert names(tmp_path) == []


def test_a_server_that_falls_silent_is_left_after_a_while(tmp_path: Path) -> None:
    async def answer(_: Web, __: str, ___: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, LENGTH) + DATA[:1000])
        await writer.drain()
        await asyncio.Event().wait()

    error = web_refusal(tmp_path, Web(answer), limits=PullLimits(silence_s=0.2))
    assert (error.failure, error.code) == ("transient", "image_unreachable")


def test_a_server_that_trickles_is_left_after_a_while(tmp_path: Path) -> None:
    async def answer(_: Web, __: str, ___: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, LENGTH))
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    error = web_refusal(tmp_path, Web(answer), limits=PullLimits(silence_s=0.5))
    assert (error.failure, error.code) == ("transient", "image_unreachable")
    assert "too slow" in error.message


@pytest.mark.parametrize(
    ("status", "failure", "code"),
    [
        (404, "permanent", "image_missing"),
        (410, "permanent", "image_missing"),
        (403, "permanent", "image_refused"),
        (429, "transient", "image_unreachable"),
        (503, "transient", "image_unreachable"),
    ],
)
def test_an_answer_without_the_image_says_what_to_do(
    tmp_path: Path, status: int, failure: str, code: str
) -> None:
    error = web_refusal(tmp_path, saying(status, {"Content-Length": "0"}))
    assert (error.failure, error.code) == (failure, code)
    assert str(status) in error.message


def test_a_server_that_is_not_there_is_worth_another_try(tmp_path: Path) -> None:
    error = refusal(tmp_path, info(DATA, "http://127.0.0.1:1/image"), allowed=("http://",))
    assert (error.failure, error.code) == ("transient", "image_unreachable")


def test_a_secret_in_an_address_is_not_in_the_message(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1/image?signature=abc"
    assert "abc" not in refusal(tmp_path, info(DATA, url), allowed=("http://",)).message
    assert "abc" not in refusal(tmp_path, info(DATA, url), allowed=("https://",)).message


# Redirects


def test_a_redirect_to_an_allowed_place_is_followed(tmp_path: Path) -> None:
    async def answer(_: Web, path: str, __: dict[str, str], writer: asyncio.StreamWriter) -> None:
        there = path == "/there"
        moved = head(302, {"Location": "/there", "Content-Length": "0"})
        writer.write(head(200, LENGTH) + DATA if there else moved)
        await writer.drain()

    web = Web(answer)

    async def run() -> Path:
        async with web.running(), store(tmp_path, allowed=web.allowed) as images:
            return await images.fetch(info(DATA, web.url))

    assert asyncio.run(run()).read_bytes() == DATA


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.2/image",
        "https://127.0.0.1/image",
        "file:///etc/passwd",
        "file://localhost/etc/passwd",
        "ftp://127.0.0.1/image",
        "//evil.example/image",
        "http://[broken",
    ],
)
def test_a_redirect_to_another_place_is_refused(tmp_path: Path, target: str) -> None:
    web = saying(302, {"Location": target, "Content-Length": "0"})
    error = web_refusal(tmp_path, web)
    assert (error.failure, error.code) == ("permanent", "image_refused")
    assert len(web.asked) == 1


def test_redirects_in_a_circle_end(tmp_path: Path) -> None:
    web = saying(302, {"Location": "/image", "Content-Length": "0"})
    assert web_refusal(tmp_path, web).code == "image_refused"
    assert len(web.asked) == 6


# Tricks


@pytest.mark.parametrize(
    "digest",
    [
        "",
        "sha256:",
        "sha256:../../../etc/passwd",
        f"sha256:{'A' * 64}",
        f"sha256:{'a' * 64}\n",
        f"sha256:{'a' * 63}/",
        f"sha512:{'a' * 64}",
        f"md5:{'a' * 32}",
    ],
)
def test_what_is_no_digest_is_refused(tmp_path: Path, digest: str) -> None:
    error = refusal(tmp_path, ImageInfo(digest, put(tmp_path, DATA)))
    assert (error.failure, error.code) == ("permanent", "image_refused")
    assert not (tmp_path / "images").exists()


@pytest.mark.parametrize(
    "rest",
    [
        "/../secret",
        "/%2e%2e/secret",
        "/%2E%2E%2Fsecret",
        "/..%2fsecret",
        "/sub/../../secret",
        "-beside/secret",
        "/link",
        "/linked/secret",
        "/circle",
        "/pipe",
        "/sub",
        "/image%00.qcow2",
        "/image\0",
        "/image\n",
        "/ima\tge",
        "/image?x=1",
        "/image#x",
        "/image/x",
        "\\..\\secret",
    ],
)
def test_a_file_outside_the_allowed_folder_is_refused(tmp_path: Path, rest: str) -> None:
    allowed = tmp_path / "allowed"
    (allowed / "sub").mkdir(parents=True)
    (tmp_path / "allowed-beside").mkdir()
    for path in (tmp_path / "secret", tmp_path / "allowed-beside" / "secret", allowed / "image"):
        path.write_bytes(DATA)
    (allowed / "link").symlink_to(tmp_path / "secret")
    (allowed / "linked").symlink_to(tmp_path)
    (allowed / "circle").symlink_to("circle")
    os.mkfifo(allowed / "pipe")
    prefix = allowed.as_uri()
    fetched(tmp_path / "well", info(DATA, f"{prefix}/image"), allowed=(prefix,))
    error = refusal(tmp_path, info(DATA, prefix + rest), allowed=(prefix,))
    assert (error.failure, error.code) == ("permanent", "image_refused")


@pytest.mark.parametrize(
    "form",
    ["file://other.example{}", "file:{}", "{}", "FILE:/{}", "file://127.0.0.1{}", "file://~{}"],
)
def test_what_is_no_address_of_a_file_here_is_refused(tmp_path: Path, form: str) -> None:
    path = put(tmp_path, DATA).removeprefix("file://")
    assert refusal(tmp_path, info(DATA, form.format(path))).code == "image_refused"


def test_a_link_that_stays_within_the_allowed_folder_is_followed(tmp_path: Path) -> None:
    put(tmp_path, DATA, "image-1")
    (tmp_path / "latest").symlink_to("image-1")
    prefix = tmp_path.as_uri()
    assert fetched(tmp_path, info(DATA, f"{prefix}/latest"), allowed=(prefix,)).exists()


def test_an_allowed_folder_may_itself_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    put(tmp_path / "real", DATA)
    (tmp_path / "named").symlink_to("real")
    prefix = (tmp_path / "named").as_uri()
    assert fetched(tmp_path, info(DATA, f"{prefix}/image"), allowed=(prefix,)).exists()


def test_whether_a_file_elsewhere_exists_is_not_told(tmp_path: Path) -> None:
    prefix = (tmp_path / "allowed").as_uri()
    there = refusal(tmp_path, info(DATA, "file:///etc/passwd"), allowed=(prefix,))
    not_there = refusal(tmp_path, info(DATA, "file:///etc/nothing"), allowed=(prefix,))
    assert there.code == not_there.code == "image_refused"


@pytest.mark.parametrize(
    "url",
    [
        "https://images.example.evil.net/a/image",
        "https://images.example@evil.net/a/image",
        "https://user:word@images.example/a/image",
        "https://images.example:444/a/image",
        "http://images.example/a/image",
        "https://images.example/ab/image",
        "https://images.example/image",
        "https://images.example/a/../image",
        "https://images.example/a/%2e%2e/image",
        "https://images.example/a/..%2fimage",
        "https://images.example\\@evil.net/a/image",
        "https://images.example/a/\nimage",
        "https:///a/image",
        "https:images.example/a/image",
        "ftp://images.example/a/image",
        "gopher://images.example/a/image",
        "javascript:alert(1)",
        "//images.example/a/image",
    ],
)
def test_an_address_that_only_looks_like_an_allowed_one_is_refused(
    tmp_path: Path, url: str
) -> None:
    error = refusal(tmp_path, info(DATA, url), allowed=("https://images.example/a",))
    assert (error.failure, error.code) == ("permanent", "image_refused")


def test_by_default_only_encrypted_connections_are_allowed(tmp_path: Path) -> None:
    async def run(url: str) -> str:
        images = Images(tmp_path / "images", clock=RealClock())
        try:
            with pytest.raises(DriverError) as caught:
                await images.fetch(info(DATA, url))
        finally:
            await images.close()
        return caught.value.code

    assert asyncio.run(run("http://127.0.0.1:1/image")) == "image_refused"
    assert asyncio.run(run(put(tmp_path, DATA))) == "image_refused"
    assert asyncio.run(run("https://127.0.0.1:1/image")) == "image_unreachable"


ODD = st.text(st.sampled_from("ab/.%2e\\@:[]?#\0\n ~é\ud800-"), max_size=30)


@given(start=st.sampled_from(["https://", "http://", "file://", "file:///", ""]), rest=ODD)
def test_whatever_an_address_is_it_is_refused_or_not_but_breaks_nothing(
    start: str, rest: str
) -> None:
    for check in (checked_web, opened_file):
        try:
            found = check(start + rest, ("https://a.b", "http://", "file:///nowhere/at/all"))
        except DriverError:
            continue
        assert isinstance(found, httpx.URL)
        assert found.scheme == "http" or (found.scheme, found.host) == ("https", "a.b")


@pytest.mark.parametrize(
    "prefix",
    ["https://[", "", "https", "/srv/images", "ftp://x/", "file://srv/images", "https://a@b/", "*"],
)
def test_a_prefix_that_means_nothing_is_refused_at_the_start(prefix: str) -> None:
    with pytest.raises(ValueError, match=r"https://|host|IPv6"):
        checked_prefix(prefix)


# Room


def test_a_full_disk_is_worth_another_try_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted: run as root")
    try:
        announced = refusal(tmp_path, info(DATA, put(tmp_path, DATA)))
        hidden = web_refusal(tmp_path, saying(200, {}, DATA))
        assert names(tmp_path) == []
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    for error in (announced, hidden):
        assert (error.failure, error.code) == ("transient", "disk_full")


def kept(images: Images, *datas: bytes) -> list[bool]:
    folder = images._store._folder
    return [(folder / digest_of(data)[7:]).exists() for data in datas]


A, B, C = (letter * 400 for letter in (b"a", b"b", b"c"))


def test_the_image_that_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    urls = {data: put(tmp_path, data, data[:1].decode()) for data in (A, B, C)}

    async def run() -> None:
        async with store(tmp_path, size_limit=1000) as images:
            await images.fetch(info(A, urls[A]))
            await images.fetch(info(B, urls[B]))
            await images.fetch(info(A))
            await images.fetch(info(C, urls[C]))
            assert kept(images, A, B, C) == [True, False, True]

    asyncio.run(run())


def test_pinned_images_stay_also_for_a_new_agent_until_their_vm_is_gone(tmp_path: Path) -> None:
    urls = {data: put(tmp_path, data, data[:1].decode()) for data in (A, B, C)}

    async def first() -> None:
        async with store(tmp_path, size_limit=1000) as images:
            await images.fetch(info(A, urls[A]), "vm-1")
            await images.fetch(info(B, urls[B]), "vm-2")

    async def second() -> None:
        async with store(tmp_path, size_limit=1000) as images:
            with pytest.raises(DriverError) as caught:
                await images.fetch(info(C, urls[C]))
            assert (caught.value.failure, caught.value.code) == ("transient", "disk_full")
            await images.fetch(info(C, urls[C]), "vm-3")
            assert kept(images, A, B, C) == [True, True, True]
            await images.unpin("vm-2")
            assert kept(images, A, B, C) == [True, False, True]
            await images.retain(["vm-1"])
            await images.fetch(info(B, urls[B]))
            assert kept(images, A, B, C) == [True, True, False]

    asyncio.run(first())
    asyncio.run(second())


def test_while_a_pin_cannot_be_read_no_image_goes(tmp_path: Path) -> None:
    urls = {data: put(tmp_path, data, data[:1].decode()) for data in (A, B, C)}

    async def run() -> None:
        async with store(tmp_path, size_limit=1000) as images:
            await images.fetch(info(A, urls[A]), "vm-1")
            await images.fetch(info(B, urls[B]))
        (tmp_path / "images" / "pins" / "vm-1.json").write_bytes(b"{half")
        async with store(tmp_path, size_limit=1000) as images:
            with pytest.raises(DriverError, match="too few"):
                await images.fetch(info(C, urls[C]))
            assert kept(images, A, B) == [True, True]
            await images.unpin("vm-1")
            await images.fetch(info(C, urls[C]))
            assert kept(images, A, B, C) == [False, True, True]

    asyncio.run(run())


def test_leftovers_go_before_any_image(tmp_path: Path) -> None:
    urls = {data: put(tmp_path, data, data[:1].decode()) for data in (A, B)}

    async def run() -> None:
        async with store(tmp_path, size_limit=1000) as images:
            path = await images.fetch(info(A, urls[A]))
            (path.parent / f"{'0' * 64}.part").write_bytes(bytes(300))
            (path.parent / f"{'1' * 64}.broken-1").write_bytes(bytes(300))
            await images.fetch(info(B, urls[B]))
            assert kept(images, A, B) == [True, True]
            assert len(list(path.parent.iterdir())) == 2

    asyncio.run(run())


# The law of the cache, on the store itself

SIZES = (100, 250, 400, 600, 900)
LIMIT = 1000

steps = st.lists(
    st.one_of(
        st.tuples(st.just("fetch"), st.integers(0, 4), st.sampled_from(["", "v", "w"])),
        st.tuples(st.just("unpin"), st.just(0), st.sampled_from(["v", "w"])),
        st.tuples(st.just("anew"), st.just(0), st.just("")),
    ),
    max_size=25,
)


def bytes_of(number: int) -> bytes:
    return bytes([number]) * SIZES[number]


def name_of(number: int) -> str:
    return hashlib.sha256(bytes_of(number)).hexdigest()


def take(images: ImageStore, data: bytes, vm_id: str) -> bool:
    """Do what a fetch does, without a source; returns whether there was room."""
    digest = hashlib.sha256(data).hexdigest()
    if vm_id:
        images.pin(digest, vm_id)
    if images.find(digest):
        return True
    part = images.begin(digest)
    try:
        images.make_room(digest, len(data))
    except DriverError:
        part.drop()
        return False
    part.write(data)
    images.accept(digest, part)
    return True


def lives_by_the_law(make: Callable[[Path], ImageStore], moves: list[Any], folder: Path) -> None:
    """Never over the limit unless all is in use; what is in use is here; what fits is let in."""
    images, pinned = make(folder), {"v": set[int](), "w": set[int]()}
    for verb, number, vm_id in moves:
        if verb == "anew":
            images = make(folder)
        elif verb == "unpin":
            images.unpin(vm_id)
            pinned[vm_id].clear()
        else:
            data = bytes_of(number)
            if vm_id:
                pinned[vm_id].add(number)
            held = sum(SIZES[i] for i in (pinned["v"] | pinned["w"]) - {number})
            fits = bool(vm_id) or held + SIZES[number] <= LIMIT
            here = images.find(name_of(number)) is not None
            assert take(images, data, vm_id) == (fits or here)
        in_use = {
            hashlib.sha256(bytes([i]) * SIZES[i]).hexdigest() for i in set().union(*pinned.values())
        }
        files = {path.name for path in (folder / "sha256").glob("*")}
        assert in_use <= files
        assert images.used_bytes() <= LIMIT or files == in_use


def real_store(folder: Path) -> ImageStore:
    return ImageStore(folder, LIMIT, Ticking().wall_ms)


class ForgetsPins(ImageStore):
    """Broken on purpose: evicts what is pinned."""

    def _pinned(self) -> set[str]:
        return set()


class ForgetsUnpinned(ImageStore):
    """Broken on purpose: does not look again when a VM lets go."""

    def _evict(self, keep: str = "", more_bytes: int = 0) -> int:
        return super()._evict(keep, more_bytes) if keep else 0


@settings(max_examples=60)
@given(moves=steps)
def test_the_cache_is_within_its_limit_unless_all_of_it_is_in_use(
    moves: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    lives_by_the_law(real_store, moves, tmp_path_factory.mktemp("images"))


@pytest.mark.parametrize("broken", [ForgetsPins, ForgetsUnpinned])
def test_the_law_of_the_cache_catches_a_broken_one(
    broken: type[ImageStore], tmp_path: Path
) -> None:
    moves = [
        ("fetch", 3, "v"),
        ("fetch", 2, "w"),
        ("fetch", 1, "w"),
        ("unpin", 0, "w"),
    ]
    lives_by_the_law(real_store, moves, tmp_path / "well")
    with pytest.raises(AssertionError):
        lives_by_the_law(lambda folder: broken(folder, LIMIT, Ticking().wall_ms), moves, tmp_path)
