"""Sealing: secrets of the ledger are encrypted with a key that lies beside it in a file.

    KeyFile   the keys of this process, 0600; the first one in it is the newest
    Seal      closes texts with the key that the ledger names, opens them with any key of the file

AES-256-GCM with the owner's name as associated data, so that a row put in another's place does not
open. Kept texts that bear no seal are read as they are: older releases wrote them. Whatever must be
kept secret uses this module and this file; which key it is and when all is sealed is known to
`sealedrows`. Nothing here writes a key or an opened text anywhere else.
"""

import base64
import binascii
import os
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from roost.base import private
from roost.base.errors import InvalidRequest, InvariantBroken

#: What a sealed text begins with; the fingerprint of its key comes next.
MARK = "sealed:1:"
FINGERPRINT = 16

_KEY_WORD = "roost-key-1"
_KEY_BYTES, _NONCE_BYTES = 32, 12


class SealBroken(InvariantBroken):
    """A sealed text does not open: its key is missing, or somebody has changed it."""


class Key(NamedTuple):
    """A key and what tells it from others; the fingerprint is no secret."""

    fingerprint: str
    secret: bytes


def new_key(random: Callable[[int], bytes] = os.urandom) -> Key:
    """Make a key."""
    return _key(random(_KEY_BYTES))


def _key(secret: bytes) -> Key:
    return Key(sha256(b"roost sealing key\0" + secret).hexdigest()[:FINGERPRINT], secret)


# The file


class KeyFile:
    """The file of a process's keys, one on each line, the newest first."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> list[Key]:
        """Read the keys; none when there is no file."""
        try:
            lines = self.path.read_text().splitlines()
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"the key file {str(self.path)!r} cannot be read") from error
        private.tighten([self.path])
        return [self._parse(line) for line in lines if line.strip() and not line.startswith("#")]

    def _parse(self, line: str) -> Key:
        word, _, text = line.strip().partition(" ")
        try:
            secret = base64.b64decode(text, validate=True)
        except binascii.Error:
            secret = b""
        if word != _KEY_WORD or len(secret) != _KEY_BYTES:
            raise InvalidRequest(
                f"{str(self.path)!r} has a line that is no key",
                hint="Maybe it is another file; roost key export writes one that fits.",
            )
        return _key(secret)

    def put_first(self, keys: Iterable[Key]) -> None:
        """Put keys before those that are there; the file is written whole or not at all."""
        found = dict.fromkeys([*keys, *self.load()])
        text = (
            "# The keys of a roost ledger, the newest first. Whoever has them reads its secrets.\n"
        )
        text += "".join(f"{_KEY_WORD} {base64.b64encode(k.secret).decode()}\n" for k in found)
        private.make_folder(self.path.parent)
        beside, file = private.open_beside(self.path)
        try:
            with file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())  # what it opens may be committed right after
            beside.replace(self.path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# The seal


class Seal:
    """Closes and opens secret texts. Without a key it writes and reads them as they are."""

    def __init__(
        self,
        file: KeyFile | None = None,
        current: str | None = None,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._file, self._random = file, random
        self._current = current
        self._keys: dict[str, AESGCM] = {}
        self.closes = current is not None  # False: older processes must be able to read it
        self._load()

    @property
    def fingerprint(self) -> str | None:
        """Return which key texts are sealed with; None: they are not sealed at all."""
        return self._current

    def has(self, fingerprint: str) -> bool:
        """Say whether this process has a key."""
        return fingerprint in self._keys

    def _load(self) -> None:
        if self._file is not None:
            keys = self._file.load()
            self._keys |= {k.fingerprint: AESGCM(k.secret) for k in keys}

    def close(self, owner: str, text: str) -> str:
        """Return the form of a text that is kept; `owner` names the row that it belongs to."""
        if not text or self._current is None or not (self.closes or text.startswith(MARK)):
            return text
        nonce = self._random(_NONCE_BYTES)
        sealed = self._keys[self._current].encrypt(nonce, text.encode(), owner.encode())
        return f"{MARK}{self._current}:{base64.b64encode(nonce + sealed).decode()}"

    def open(self, owner: str, kept: str) -> str:
        """Return a text from its kept form; SealBroken when no key of this process opens it."""
        if not kept.startswith(MARK) or self._current is None:
            return kept
        fingerprint, _, body = kept.removeprefix(MARK).partition(":")
        if fingerprint not in self._keys:
            self._load()  # somebody may have brought the key since
        if (key := self._keys.get(fingerprint)) is None:
            raise SealBroken(f"it is sealed with key {fingerprint}, which is not here")
        try:
            packed = base64.b64decode(body, validate=True)
            opened = key.decrypt(packed[:_NONCE_BYTES], packed[_NONCE_BYTES:], owner.encode())
        except (InvalidTag, ValueError) as error:
            raise SealBroken("it was changed, or belongs to another") from error
        return opened.decode()
