"""What a VM boots and how it is wired, as people type it: images, kernels, user data, NICs.

An image is named by its digest, so that every host boots the same bytes: `URL@sha256:HEX` says
both, `sha256:HEX` is for hosts that have it, and for a file that is here the digest is computed.
"""

import hashlib
import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from roost.base.errors import InvalidRequest, NotFound
from roost.base.units import MIB, format_bytes
from roost.cli.show.screen import console, note
from roost.wire.bodies import BootBody, ImageBody, NicBody

T = TypeVar("T")

_DIGEST = re.compile(r"sha256:[0-9a-fA-F]{64}\Z")
_SCHEMES = ("http", "https", "file")
#: Reading less than this takes no time worth a word.
_LARGE_BYTES, _PIECE_BYTES = 64 * MIB, MIB


def read_boot(
    image: str | None,
    kernel: str | None,
    initrd: str | None,
    cmdline: str | None,
    user_data: str | None,
) -> BootBody | None:
    """Return what these options say to boot; None leaves it to the host."""
    for option, given in (("--initrd", initrd), ("--cmdline", cmdline)):
        if given is not None and kernel is None:
            raise InvalidRequest(
                f"{option} goes with a kernel", hint="Maybe add --kernel, or leave it to the image."
            )
    if image is kernel is user_data is None:
        return None
    # Cheap mistakes first: a digest of a large file takes a while.
    if cmdline is not None and len(cmdline) > 2048:
        raise InvalidRequest(f"--cmdline has {len(cmdline)} characters; 2048 are possible")
    said = "" if user_data is None else _read_user_data(user_data)
    return BootBody(
        image=None if image is None else read_image(image, "--image"),
        kernel=None if kernel is None else read_image(kernel, "--kernel"),
        initrd=None if initrd is None else read_image(initrd, "--initrd"),
        cmdline=cmdline or "",
        user_data=said,
    )


def _read_user_data(name: str) -> str:
    try:
        text = Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise _unreadable("--user-data", name, error) from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"--user-data {name!r} is no text: {error}", file=name) from error
    if len(text) > 65536:
        raise InvalidRequest(
            f"--user-data {name!r} has {len(text)} characters; 65536 are possible",
            hint="Maybe fetch the rest from within the guest.",
        )
    return text


def read_image(text: str, option: str) -> ImageBody:
    """Return the image that URL@sha256:HEX, sha256:HEX or the path of a file here means."""
    if text.startswith("sha256:"):
        return ImageBody(digest=_checked_digest(text, option))
    if "://" not in text:
        return _local_image(text, option)
    url, _, digest = text.rpartition("@")
    if not digest.startswith("sha256:"):
        how = f"curl -L {text} | sha256sum"
        if text.startswith("file://"):
            how = f"sha256sum {text.removeprefix('file://')}"
        raise InvalidRequest(
            f"{option} {text!r} does not say the digest of its bytes",
            hint=f"Maybe {option} {text}@sha256:HEX; `{how}` tells the HEX.",
        )
    scheme = url.partition("://")[0]
    if scheme not in _SCHEMES:
        raise InvalidRequest(
            f"{option} {url!r} has the scheme {scheme!r}; hosts fetch by {', '.join(_SCHEMES)}"
        )
    return _made(ImageBody, option, text, digest=_checked_digest(digest, option), url=url)


def _checked_digest(text: str, option: str) -> str:
    if _DIGEST.match(text) is None:
        raise InvalidRequest(
            f"{option} {text!r} is not sha256: and 64 hexadecimal digits",
            hint="Maybe `sha256sum FILE` tells them.",
        )
    return text.lower()


def _local_image(name: str, option: str) -> ImageBody:
    # Not resolved: a link in the folder that a host allows may be what is meant.
    path = Path(os.path.abspath(name))  # noqa: PTH100 (Path.absolute keeps "..")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise InvalidRequest(f"{option} {name!r} is empty", file=name)
            digest = _digest(file, size, path.name)
    except OSError as error:
        raise _unreadable(option, name, error) from error
    return _made(ImageBody, option, name, digest=f"sha256:{digest}", url=path.as_uri())


def _unreadable(option: str, name: str, error: OSError) -> NotFound:
    return NotFound(f"{option}: cannot read {name!r}: {error.strerror}", file=name)


def _digest(file: io.BufferedReader, size: int, name: str) -> str:
    """Return the SHA-256 of a file; a large one shows how far it is."""
    if size < _LARGE_BYTES:
        return hashlib.file_digest(file, "sha256").hexdigest()
    target = console(stderr=True)
    said = f"computing the digest of {name} ({format_bytes(size)})"
    summed = hashlib.sha256()
    if not target.is_terminal:
        note(said)
        for piece in _pieces(file):
            summed.update(piece)
        return summed.hexdigest()
    from rich.progress import Progress  # most commands show none

    with Progress(console=target, transient=True) as progress:
        task = progress.add_task(said, total=size)
        for piece in _pieces(file):
            summed.update(piece)
            progress.advance(task, len(piece))
    return summed.hexdigest()


def _pieces(file: io.BufferedReader) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece


def read_nics(nics: Sequence[str], forwards: Sequence[str]) -> list[NicBody]:
    """Return the network cards that --nic and --forward describe; none: what the host gives."""
    if not nics and not forwards:
        return []
    made = [_nic(text) for text in nics or ["user"]]
    if forwards:
        first = next((nic for nic in made if nic.mode == "user"), None)
        if first is None:
            raise InvalidRequest(
                "--forward needs a NIC of the kind user; one on a bridge has its own address",
                hint="Maybe add --nic user.",
            )
        first.forward = [_forward(text) for text in forwards]
    return made


def _nic(text: str) -> NicBody:
    mode, _, bridge = text.partition(":")
    if text == "user":
        return NicBody()
    if mode != "tap" or not bridge:
        raise InvalidRequest(
            f"--nic {text!r} is neither user nor tap:BRIDGE", hint="Maybe --nic tap:br0?"
        )
    return _made(NicBody, "--nic", text, mode="tap", bridge=bridge)


def _forward(text: str) -> str:
    match = re.fullmatch(r"(?:tcp|udp):([0-9]{1,5}):([0-9]{1,5})", text)
    if match is None or not all(0 < int(port) < 65536 for port in match.groups()):
        raise InvalidRequest(
            f"--forward {text!r} is not PROTOCOL:HOSTPORT:GUESTPORT",
            hint="Maybe --forward tcp:2222:22?",
        )
    return text


def _made(kind: type[T], option: str, text: str, **fields: object) -> T:
    """Return a body after the checks that the server would make."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{option} {text!r} is not possible: {error}") from error
