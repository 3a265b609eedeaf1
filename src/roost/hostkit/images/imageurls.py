"""Which addresses an image may come from: those under the prefixes that the operator allows.

An address comes with an order, so from a user. Prefixes are compared part by part, never as text:
`https://images.example` allows no `https://images.example.evil.net`, and `file:///srv/images` no
way out of that folder, by `..`, by percent signs or by a symbolic link.
"""

import errno
import os
import re
from pathlib import Path, PurePosixPath
from urllib.parse import unquote_to_bytes, urlsplit

import httpx

from roost.hostkit.failures import DriverError

SCHEMES = ("https", "http", "file")
DEFAULT_ALLOWED = ("https://",)

_NOT_IN_ADDRESSES = re.compile(r"[\x00-\x20\x7f\\\ud800-\udfff]")
_PORTS = {"https": 443, "http": 80}
#: What opening a file can fail with that no later try makes better.
_LASTING = (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def refused(text: str) -> DriverError:
    """Return the error for what this host does not do, however often it is asked."""
    return DriverError("permanent", "image_refused", text)


def shown(url: str) -> str:
    """Return an address as messages show it: what follows `?` is often a secret."""
    return url.partition("?")[0]


def checked_prefix(prefix: str) -> str:
    """Return a prefix of the operator's, or raise ValueError for one that could allow nothing."""
    parts = urlsplit(prefix)
    if parts.scheme not in SCHEMES or not prefix.startswith(f"{parts.scheme}://"):
        raise ValueError(f"{prefix!r} does not begin with https://, http:// or file://")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(f"{prefix!r} has more than scheme, host and path")
    try:
        httpx.URL(prefix)
    except httpx.InvalidURL as error:
        raise ValueError(f"{prefix!r} names no host: {error}") from error
    if parts.scheme == "file" and parts.netloc:
        raise ValueError(f"{prefix!r} names a host. Maybe file:///{parts.netloc}{parts.path}?")
    return prefix


def scheme_of(url: str) -> str:
    """Return the scheme of an address; raises `image_refused` for what is no address."""
    # Some of these are dropped silently when it is parsed: what is checked is not what is used.
    if _NOT_IN_ADDRESSES.search(url):
        raise refused(f"the image's address {url!r} has characters that no address has")
    scheme = url.partition("://")[0].lower()
    if "://" not in url or scheme not in SCHEMES:
        raise refused(f"the image's address {url!r} begins with none of https://, http://, file://")
    return scheme


def checked_web(url: str, allowed: tuple[str, ...]) -> httpx.URL:
    """Return the address exactly as it will be asked for, if a prefix allows it."""
    if scheme_of(url) not in _PORTS:
        raise refused(f"{url!r} is no address of a web server")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise refused(f"the image's address {url!r} is broken: {error}") from error
    if parsed.userinfo:
        raise refused(f"the image's address on {parsed.host} has a user's name in it")
    if not parsed.host:
        raise refused(f"the image's address {url!r} names no host")
    if ".." in parsed.path.split("/") or "\0" in parsed.path or "\\" in parsed.path:
        raise refused(f"the image's address {url!r} leads out of its folder")
    if not any(_covers(prefix, parsed) for prefix in allowed):
        raise refused(_not_allowed(url, allowed))
    return parsed


def opened_file(url: str, allowed: tuple[str, ...]) -> int:
    """Open the file of an address, if it really lies under an allowed folder."""
    path = _file_path(url)
    named = [_folder(prefix) for prefix in allowed if prefix.startswith("file://")]
    folders = [Path(os.path.realpath(folder)) for folder in named]
    # Before anything is looked at: whether other files exist is nobody's business.
    if not any(path.is_relative_to(folder) for folder in (*named, *folders)):
        raise refused(_not_allowed(url, allowed))
    try:
        real = path.resolve(strict=True)
        if not real.is_file():  # asked before it is opened: opening some devices does something
            raise refused(f"{path} is no file")
        if not any(real.is_relative_to(folder) for folder in folders):
            raise refused(f"{path} leads to {real}. {_not_allowed(url, allowed)}")
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise DriverError("permanent", "image_missing", f"there is no file {path}") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        if not isinstance(error, OSError) or error.errno in _LASTING:
            raise refused(f"{path} cannot be read: {error}") from error
        text = f"{path} cannot be read: {error}"
        raise DriverError("transient", "image_unreachable", text) from error
    # Folders may have been swapped since: what counts is what was opened.
    now = Path(f"/proc/self/fd/{descriptor}").readlink()
    if not any(now.is_relative_to(folder) for folder in folders):
        os.close(descriptor)
        raise refused(f"{path} leads to {now}. {_not_allowed(url, allowed)}")
    return descriptor


def _file_path(url: str) -> Path:
    if scheme_of(url) != "file":
        raise refused(f"{url!r} is no address of a file")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise refused(f"the image's address {url!r} is broken: {error}") from error
    if parts.netloc.lower() not in ("", "localhost"):
        raise refused(f"the file of {url!r} is on another host, {parts.netloc}")
    if "?" in url or "#" in url:
        raise refused(f"the image's address {url!r} has more than a path. Maybe %3F or %23?")
    raw = unquote_to_bytes(parts.path)
    if b"\0" in raw:
        raise refused(f"the image's address {url!r} has a NUL in it")
    path = PurePosixPath(os.fsdecode(raw))
    if not path.is_absolute() or ".." in path.parts:
        raise refused(f"the image's address {url!r} leads out of its folder")
    return Path(path)


def _folder(prefix: str) -> Path:
    return Path(os.path.normpath(os.fsdecode(unquote_to_bytes(urlsplit(prefix).path or "/"))))


def _covers(prefix: str, url: httpx.URL) -> bool:
    wanted = urlsplit(prefix)
    if wanted.scheme != url.scheme:
        return False
    if wanted.netloc:
        known = httpx.URL(prefix)
        port = url.port or _PORTS[url.scheme]
        if (url.host, port) != (known.host, known.port or _PORTS[url.scheme]):
            return False
        return PurePosixPath(url.path).is_relative_to(known.path or "/")
    return True


def _not_allowed(url: str, allowed: tuple[str, ...]) -> str:
    places = ", ".join(allowed) or "nowhere"
    return f"This host takes no images from {shown(url)}, only from: {places}"
