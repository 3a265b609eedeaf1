"""What a VM boots, as people type it: images by digest, kernels, user data, network cards."""

import hashlib
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from roost.base.errors import InvalidRequest, NotFound, RoostError
from roost.cli.main import app
from roost.cli.words import bootwords
from roost.cli.words.bootwords import read_boot, read_image, read_nics
from roost.wire import bodies as b
from tests.unit.client.bodies import vm
from tests.unit.client.canned import CannedServer, Reply

HEX = "0123456789abcdef" * 4
URL = "https://example.org/disk.qcow2"


@pytest.mark.parametrize(
    ("text", "means"),
    [
        (f"{URL}@sha256:{HEX}", b.ImageBody(digest=f"sha256:{HEX}", url=URL)),
        (f"{URL}@sha256:{HEX.upper()}", b.ImageBody(digest=f"sha256:{HEX}", url=URL)),
        (
            f"http://me@example.org/x@sha256:{HEX}",
            b.ImageBody(digest=f"sha256:{HEX}", url="http://me@example.org/x"),
        ),
        (
            f"file:///images/x.raw@sha256:{HEX}",
            b.ImageBody(digest=f"sha256:{HEX}", url="file:///images/x.raw"),
        ),
        (f"sha256:{HEX}", b.ImageBody(digest=f"sha256:{HEX}")),
    ],
)
def test_an_image_is_a_digest_with_or_without_an_address(text: str, means: b.ImageBody) -> None:
    assert read_image(text, "--image") == means


def test_a_file_here_gets_its_digest_computed_and_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "disk.raw").write_bytes(b"bytes of a disk")
    monkeypatch.chdir(folder)
    found = read_image("../a b/disk.raw", "--image")
    assert found.digest == f"sha256:{hashlib.sha256(b'bytes of a disk').hexdigest()}"
    assert found.url == (folder / "disk.raw").as_uri()
    assert "%20" in found.url
    assert ".." not in found.url


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
def test_a_large_file_says_that_it_is_read(
    terminal: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bootwords, "_LARGE_BYTES", 10)
    monkeypatch.setattr(bootwords, "_PIECE_BYTES", 7)
    monkeypatch.setenv("FORCE_COLOR" if terminal else "NO_COLOR", "1")
    (tmp_path / "disk.raw").write_bytes(b"x" * 100)
    found = read_image(str(tmp_path / "disk.raw"), "--image")
    assert found.digest == f"sha256:{hashlib.sha256(b'x' * 100).hexdigest()}"
    assert "computing the digest of disk.raw" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        (URL, InvalidRequest, f"Maybe --image {URL}@sha256:HEX; `curl -L {URL} | sha256sum`"),
        ("file:///x/y", InvalidRequest, "`sha256sum /x/y` tells the HEX"),
        ("https://me@example.org/x", InvalidRequest, "does not say the digest"),
        ("sha256:abc", InvalidRequest, "64 hexadecimal digits"),
        (f"sha256:{HEX}0", InvalidRequest, "64 hexadecimal digits"),
        (f"sha256:{'g' * 64}", InvalidRequest, "64 hexadecimal digits"),
        (f"{URL}@sha256:{HEX[1:]}", InvalidRequest, "64 hexadecimal digits"),
        (f"{URL}@md5:abc", InvalidRequest, "does not say the digest"),
        (f"ftp://example.org/x@sha256:{HEX}", InvalidRequest, "the scheme 'ftp'"),
        (f"https://a b@sha256:{HEX}", InvalidRequest, "is not possible"),
        ("no-such-file", NotFound, "cannot read 'no-such-file': No such file"),
        (".", NotFound, "Is a directory"),
        ("", NotFound, "cannot read ''"),
    ],
)
def test_what_is_no_image_is_refused(text: str, kind: type[RoostError], says: str) -> None:
    with pytest.raises(kind) as caught:
        read_image(text, "--image")
    assert says in f"{caught.value.message} {caught.value.hint}"


def test_an_empty_file_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(InvalidRequest, match="is empty"):
        read_image(str(tmp_path / "x"), "--kernel")


def test_nothing_said_leaves_it_to_the_host() -> None:
    assert read_boot(None, None, None, None, None) is None
    assert read_nics([], []) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"initrd": f"sha256:{HEX}"}, "--initrd goes with a kernel"),
        ({"cmdline": "quiet"}, "--cmdline goes with a kernel"),
        ({"kernel": f"sha256:{HEX}", "cmdline": "x" * 2049}, "2048 are possible"),
        ({"user_data": "no-such"}, "cannot read 'no-such'"),
        ({"user_data": "binary"}, "is no text"),
        ({"user_data": "huge"}, "65536 are possible"),
    ],
    ids=str,
)
def test_a_boot_that_makes_no_sense_is_refused(
    options: dict[str, str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("binary").write_bytes(b"\xff\xfe\x00")
    Path("huge").write_text("x" * 65537)
    given = dict.fromkeys(("image", "kernel", "initrd", "cmdline", "user_data"), None) | options
    with pytest.raises(RoostError, match=says):
        read_boot(**given)


def test_forwards_go_to_the_first_card_of_the_drivers_own_network() -> None:
    assert read_nics(["tap:br0", "user", "user"], ["tcp:2222:22", "udp:53:53"]) == [
        b.NicBody(mode="tap", bridge="br0"),
        b.NicBody(forward=["tcp:2222:22", "udp:53:53"]),
        b.NicBody(),
    ]
    assert read_nics([], ["tcp:1:65535"]) == [b.NicBody(forward=["tcp:1:65535"])]


@pytest.mark.parametrize(
    ("nics", "forwards", "says"),
    [
        (["tap"], [], "Maybe --nic tap:br0?"),
        (["tap:"], [], "Maybe --nic tap:br0?"),
        (["user:br0"], [], "neither user nor tap:BRIDGE"),
        (["tap:../etc"], [], "is not possible"),
        (["tap:a-name-that-is-too-long"], [], "is not possible"),
        (["tap:br0"], ["tcp:1:2"], "Maybe add --nic user."),
        ([], ["tcp:22"], "Maybe --forward tcp:2222:22?"),
        ([], ["icmp:1:2"], "PROTOCOL:HOSTPORT:GUESTPORT"),
        ([], ["tcp:0:22"], "PROTOCOL:HOSTPORT:GUESTPORT"),
        ([], ["tcp:65536:22"], "PROTOCOL:HOSTPORT:GUESTPORT"),
    ],
)
def test_what_is_no_network_card_is_refused(
    nics: list[str], forwards: list[str], says: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_nics(nics, forwards)
    assert says in f"{caught.value.message} {caught.value.hint}"


# The whole command


@pytest.fixture
def server(server: CannedServer) -> CannedServer:
    """Take creates too."""
    server.on("POST", "/api/v1/vms", Reply(201, vm()))
    return server


CREATE = ("vm", "create", "web-1", "--cpu", "1", "--memory", "1GiB")


def test_create_sends_what_it_boots(server: CannedServer, tmp_path: Path) -> None:
    Path("vmlinuz").write_bytes(b"kernel")
    Path("init.yaml").write_text("#cloud-config\n")
    result = CliRunner().invoke(
        app,
        [
            *CREATE, "--image", f"{URL}@sha256:{HEX}", "--kernel", "vmlinuz", "--initrd",
            f"sha256:{HEX}", "--cmdline", "console=ttyS0", "--user-data", "init.yaml",
            "--nic", "tap:br0", "--nic", "user", "--forward", "tcp:2222:22",
        ],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    sent = msgspec.json.decode(server.requests[0].body, type=b.CreateVM)
    digest = f"sha256:{hashlib.sha256(b'kernel').hexdigest()}"
    assert sent.boot == b.BootBody(
        image=b.ImageBody(digest=f"sha256:{HEX}", url=URL),
        kernel=b.ImageBody(digest=digest, url=(tmp_path / "vmlinuz").as_uri()),
        initrd=b.ImageBody(digest=f"sha256:{HEX}"),
        cmdline="console=ttyS0",
        user_data="#cloud-config\n",
    )
    assert sent.nics == [b.NicBody(mode="tap", bridge="br0"), b.NicBody(forward=["tcp:2222:22"])]


def test_create_without_a_word_about_booting_sends_none(server: CannedServer) -> None:
    assert CliRunner().invoke(app, list(CREATE)).exit_code == 0
    assert not {"boot", "nics"} & set(server.requests[0].json)


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--image", URL), 2, "sha256sum"),
        (("--image", "missing.qcow2"), 3, "cannot read 'missing.qcow2'"),
        (("--image", "sha256:12"), 2, "64 hexadecimal digits"),
        (("--nic", "bridge"), 2, "neither user nor tap:BRIDGE"),
        (("--initrd", "x"), 2, "--initrd goes with a kernel"),
    ],
)
def test_a_wrong_boot_is_refused_before_it_is_sent(
    server: CannedServer, options: tuple[str, ...], code: int, says: str
) -> None:
    result = CliRunner().invoke(app, [*CREATE, *options])
    assert (result.exit_code, server.requests) == (code, [])
    assert says in result.stderr


def test_help_says_that_the_host_reads_a_local_file() -> None:
    told = " ".join(CliRunner().invoke(app, ["vm", "create", "--help"]).stdout.split())
    assert "--image-from" in told
