"""Addresses of inputs and outputs: one place that reads and writes file:, http:, https: and s3:.

Every failure is one of three: it is not there (the user's doing), it may not be opened (the
account's), or nobody answers (try again). S3 is spoken with boto3, credentials come the way that
its users know: environment, instance role; `AWS_ENDPOINT_URL_S3` names another store of that kind.
All of it blocks, and belongs into a thread.
"""

import errno
import os
import subprocess
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

import httpx

from roost.worker.run.jobuser import JobUser

_PIECE = 1 << 20
#: Writes a file to the standard output; of what is no file nothing is opened, as it may block.
_READ = (
    'if [ -e "$1" ] && ! [ -f "$1" ]; then echo "$1: not a file" >&2; exit 1; fi; exec cat -- "$1"'
)
_WAIT_S = 30.0
_DENIED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "403")


class Missing(Exception):
    """Nothing is there by this address."""


class Denied(Exception):
    """The store does not let us in."""


class Away(Exception):
    """The store does not answer, or not sensibly; later it may."""


class TooMuch(Exception):
    """The file is larger than it may be."""


def fetch(url: str, to: Path, *, most: int, user: JobUser | None = None) -> str:
    """Write what an address holds to a file; return its digest, sha256:HEX.

    A file of this machine is read as `user`, where there is one: what jobs may not read themselves
    is not read for them.
    """
    scheme, _, _ = url.partition(":")
    with to.open("wb") as file:
        match scheme:
            case "file":
                path = _path(url)
                found = _pieces_of(path) if user is None else _pieces_as(user, path)
                with closing(found) as pieces:
                    return _copy(pieces, file, most)
            case "http" | "https":
                with _answer(url) as pieces:
                    return _copy(pieces, file, most)
            case "s3":
                return _copy(_pieces_of_s3(url), file, most)
    raise Missing(f"{url[:200]} is not a file:, http:, https: or s3: address")


def store(source: Path, url: str) -> str:
    """Write a file to an address; return its digest, sha256:HEX."""
    scheme, _, _ = url.partition(":")
    if scheme == "file":
        return _store_file(source, _path(url))
    if scheme == "s3":
        return _store_s3(source, url)
    raise Missing(f"{url[:200]} is not a file: or s3: address")


def _copy(pieces: Iterator[bytes], file: BinaryIO, most: int) -> str:
    digest, total = sha256(), 0
    for piece in pieces:
        total += len(piece)
        if total > most:
            raise TooMuch(f"it has more than {most} bytes")
        digest.update(piece)
        file.write(piece)
    return f"sha256:{digest.hexdigest()}"


# file:


def _path(url: str) -> Path:
    path = unquote(urlsplit(url).path)
    if "\0" in path:
        raise Missing(f"{url[:200]} names no file")
    return Path(path)


def _pieces_of(path: Path) -> Generator[bytes]:
    if path.exists() and not path.is_file():
        raise Missing(f"{path}: not a file")  # who opens a pipe waits until somebody writes to it
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise Missing(f"{path}: {error.strerror}") from error
    except PermissionError as error:
        raise Denied(f"{path}: {error.strerror}") from error


def _pieces_as(user: JobUser, path: Path) -> Generator[bytes]:
    """Read a file by a process of a user: its rights decide, on every folder and link there."""
    with subprocess.Popen(
        ["sh", "-c", _READ, "cat", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.defpath, "LC_ALL": "C"},
        cwd="/",
        user=user.uid,
        group=user.gid,
        extra_groups=user.groups,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            while piece := process.stdout.read(_PIECE):
                yield piece
            said = process.stderr.read().decode(errors="replace").strip()
            if process.wait():
                raise Denied(f"user {user.uid} cannot read it: {said.removeprefix('cat: ')[:300]}")
        finally:
            process.kill()


def _store_file(source: Path, to: Path) -> str:
    """Copy a file beside its place and rename it: whoever looks sees all of it or nothing."""
    beside = to.with_name(f".{to.name}.part")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            digest = _copy(_pieces_of(source), file, 2**62)
        beside.replace(to)
    except OSError as error:
        beside.unlink(missing_ok=True) if beside.parent.is_dir() else None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise Denied(f"{to}: {error.strerror}") from error
        raise Away(f"{to}: {error.strerror}") from error
    return digest


# http:


@contextmanager
def _answer(url: str) -> Iterator[Iterator[bytes]]:
    try:
        with httpx.stream(
            "GET", url, timeout=_WAIT_S, follow_redirects=True, trust_env=False
        ) as answer:
            status = answer.status_code
            if status in (404, 410):
                raise Missing(f"{url[:200]} answers {status}")
            if status in (401, 403):
                raise Denied(f"{url[:200]} answers {status}")
            if status != 200:
                raise Away(f"{url[:200]} answers {status}")
            yield answer.iter_bytes(_PIECE)
    except httpx.InvalidURL as error:
        raise Missing(f"{url[:200]}: {error}") from error
    except httpx.HTTPError as error:
        raise Away(f"{url[:200]}: {error!r}") from error


# s3:


def _pieces_of_s3(url: str) -> Iterator[bytes]:
    bucket, key = _bucket_and_key(url)
    with _s3_troubles(url):
        body = _s3().get_object(Bucket=bucket, Key=key)["Body"]
        yield from body.iter_chunks(_PIECE)


def _store_s3(source: Path, url: str) -> str:
    bucket, key = _bucket_and_key(url)
    digest = sha256()
    with source.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    with _s3_troubles(url):
        _s3().upload_file(str(source), bucket, key)
    return f"sha256:{digest.hexdigest()}"


def _bucket_and_key(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    key = unquote(parts.path.lstrip("/"))
    if not parts.netloc or not key:
        raise Missing(f"{url[:200]} names no bucket and key")
    return parts.netloc, key


def _s3() -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise Denied("s3: addresses need boto3: pip install 'roost[aws]'") from error
    config = Config(connect_timeout=5, read_timeout=_WAIT_S, retries={"max_attempts": 2})
    # Every thread makes a session of its own: those of boto3 may not be shared.
    return boto3.session.Session().client("s3", config=config, region_name=_region())


def _region() -> str:
    names = ("AWS_REGION", "AWS_DEFAULT_REGION")
    return next((os.environ[name] for name in names if os.environ.get(name)), "us-east-1")


@contextmanager
def _s3_troubles(url: str) -> Iterator[None]:
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except NoCredentialsError as error:
        raise Denied(f"{url[:200]}: {error}") from error
    except ClientError as error:
        raise _s3_trouble(url, error.response) from error
    except Boto3Error as error:  # upload_file wraps what the store said
        cause = error.__context__
        if isinstance(cause, ClientError):
            raise _s3_trouble(url, cause.response) from error
        raise Away(f"{url[:200]}: {str(error)[:300]}") from error
    except BotoCoreError as error:
        raise Away(f"{url[:200]}: {str(error)[:300]}") from error


def _s3_trouble(url: str, response: Any) -> Exception:
    code = str(response.get("Error", {}).get("Code", ""))
    said = f"{url[:200]}: {code} {response.get('Error', {}).get('Message', '')}"[:400]
    if code in ("NoSuchKey", "NoSuchBucket", "404"):
        return Missing(said)
    if code in (
        "AccessDenied",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "403",
    ):
        return Denied(said)
    return Away(said)
