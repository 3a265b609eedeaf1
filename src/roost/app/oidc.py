"""Bearer tokens of an OpenID Connect issuer, taken beside roost's own (ADR-0052).

    bearer -> form and size -> key by `kid` -> signature -> issuer, audience, times -> claim -> role

A TOML file says whom to believe and which value of a claim gives which role:

    issuer = "https://login.example"
    audience = "roost"
    claim = "groups"                     # a text, or a list of them
    [[roles]]
    value = "platform"
    role = "admin"
    [[roles]]
    value = "team-shop"
    role = "member"
    project = "shop"

The issuer's keys are fetched in the background, never by a request that has a known key; a token
with an unknown one waits for a fetch, and such fetches are rare. What is verified is remembered
until it expires. Only signatures by a key pair are taken: with a shared secret, or none, anybody
who knows the public keys could write a token.
"""

import asyncio
import logging
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from roost.base.clock import Clock
from roost.base.errors import InvalidRequest, NotFound, Unauthorized
from roost.parts.access import Principal

log = logging.getLogger("roost.oidc")

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
#: Bytes of a token, of the issuer's answers, and how many keys it may have.
MOST_TOKEN, MOST_ANSWER, MOST_KEYS = 8192, 256 * 1024, 100
#: Tokens that are remembered, and how many of one's values are compared.
MOST_REMEMBERED, MOST_VALUES = 4096, 1000
#: Seconds: how often keys are fetched, how far clocks may be apart, how long an issuer may take.
FETCH_S, UNKNOWN_S, LEEWAY_S, PATIENCE_S = 600.0, 30.0, 30.0, 5.0

Fetch = Callable[[str], Awaitable[bytes]]
Text = Annotated[str, Meta(min_length=1, max_length=500)]


class RoleRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value of the claim, and the role that it gives."""

    value: Text
    role: Literal["viewer", "operator", "admin", "member"]
    project: Annotated[str, Meta(max_length=63)] | None = None


class IssuerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file says: the issuer that is believed, and whom it lets in."""

    issuer: Text
    audience: Text
    roles: Annotated[tuple[RoleRule, ...], Meta(min_length=1, max_length=1000)]
    claim: Text = "groups"
    name_claim: Text = "sub"
    keys_url: Text | None = None  # None: as the issuer's own configuration says
    algorithms: Annotated[tuple[Algorithm, ...], Meta(min_length=1)] = ("RS256", "ES256")
    ca_file: Text | None = None


def read_issuer(path: Path) -> IssuerFile:
    """Read the file of an issuer; refuse what makes no sense."""
    try:
        found = msgspec.convert(tomllib.loads(path.read_text()), IssuerFile)
    except OSError as error:
        raise NotFound(f"cannot read {str(path)!r}: {error.strerror}", file=str(path)) from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path}: {error}", file=str(path)) from error
    for rule in found.roles:
        if (rule.role == "member") != (rule.project is not None):
            needs = "needs a project" if rule.role == "member" else "has no project"
            raise InvalidRequest(f"{path}: the role {rule.role} of {rule.value!r} {needs}")
    for url in (found.issuer, found.keys_url or found.issuer):
        _refuse_plain(url, str(path))
    return found


def _refuse_plain(url: str, where: str) -> None:
    """Refuse an address whose answers somebody on the way could change."""
    parts = urlsplit(url)
    here = parts.hostname in ("127.0.0.1", "::1", "localhost")
    if parts.scheme != "https" and not (parts.scheme == "http" and here):
        raise InvalidRequest(f"{where}: {url!r} is not https", hint="Maybe https://...?")


class Issuer:
    """Authenticates tokens of one issuer."""

    def __init__(self, file: IssuerFile, clock: Clock, fetch: Fetch) -> None:
        self._file, self._clock, self._fetch = file, clock, fetch
        self._keys: dict[str, Any] = {}
        self._known: dict[str, tuple[Principal, float]] = {}  # by the whole text; until when
        self._fetching: asyncio.Task[None] | None = None
        self._fetched = float("-inf")

    # Keys

    async def run(self) -> None:
        """Fetch the keys again and again."""
        while True:
            await self._refresh()
            await self._clock.sleep(FETCH_S)

    async def _refresh(self) -> None:
        """Fetch the keys, together with whoever waits for them too; a failure is only told."""
        if self._fetching is None or self._fetching.done():
            self._fetched = self._clock.monotonic()
            self._fetching = asyncio.create_task(self._fetch_keys())
        await asyncio.shield(self._fetching)

    async def _fetch_keys(self) -> None:
        try:
            url = self._file.keys_url
            if url is None:
                place = f"{self._file.issuer.rstrip('/')}/.well-known/openid-configuration"
                told = _document(await self._fetch(place))
                if told.get("issuer") != self._file.issuer:
                    raise ValueError(f"it calls itself {told.get('issuer')!r}")
                url = str(told.get("jwks_uri", ""))
                _refuse_plain(url, "jwks_uri")
            self._keys = _read_keys(await self._fetch(url), self._file.algorithms)
        except (OSError, ValueError, InvalidRequest) as error:
            log.warning("the keys of %s cannot be fetched: %s", self._file.issuer, error)

    # Tokens

    def principal(self, bearer: str) -> Principal | None:
        """Return whose token this is, if it was verified before and is still good."""
        known = self._known.get(bearer)
        return known[0] if known is not None and self._now() < known[1] else None

    async def check(self, bearer: str) -> Principal:
        """Verify a token and return whose it is; raises Unauthorized."""
        import jwt

        if len(bearer) > MOST_TOKEN:
            raise Unauthorized("the token is too long")
        try:
            head = jwt.get_unverified_header(bearer)
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise Unauthorized("this is no token of the issuer") from error
        if head.get("alg") not in self._file.algorithms:
            raise Unauthorized("the token is not signed in a way that is taken")
        key = await self._key(str(head.get("kid") or ""))
        try:
            claims = jwt.decode(
                bearer,
                key,
                algorithms=list(self._file.algorithms),
                audience=self._file.audience,
                issuer=self._file.issuer,
                options={
                    "require": ["exp", "iss", "aud"],
                    # Times are compared below, by this process's own clock.
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise Unauthorized(f"the token is not taken: {_plain(error)}") from error
        ends = self._times(claims)
        who = self._who(claims)
        self._known.pop(bearer, None)
        while len(self._known) >= MOST_REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[bearer] = who, ends
        return who

    async def _key(self, kid: str) -> Any:
        """Return the key that a token names; one that is new to us is worth a look, seldom."""
        if kid not in self._keys and self._clock.monotonic() - self._fetched >= UNKNOWN_S:
            await self._refresh()
        elif kid not in self._keys and self._fetching is not None:
            await asyncio.shield(self._fetching)
        if kid not in self._keys:
            raise Unauthorized("the token is signed with a key that the issuer does not have")
        return self._keys[kid]

    def _now(self) -> float:
        return self._clock.wall_ms() / 1000

    def _times(self, claims: Mapping[str, Any]) -> float:
        """Return until when a token is good; refuse one that is not, or not yet."""
        ends, begins = claims["exp"], claims.get("nbf", 0)
        if not isinstance(ends, int | float) or not isinstance(begins, int | float):
            raise Unauthorized("the token's times are no numbers")
        if self._now() >= ends + LEEWAY_S:
            raise Unauthorized("the token has expired")
        if self._now() < begins - LEEWAY_S:
            raise Unauthorized("the token is not good yet")
        return float(ends + LEEWAY_S)

    def _who(self, claims: Mapping[str, Any]) -> Principal:
        name = claims.get(self._file.name_claim)
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= 200:
            raise Unauthorized(f"the token has no {self._file.name_claim!r} to go by")
        said = claims.get(self._file.claim)
        values = {said} if isinstance(said, str) else set()
        if isinstance(said, list) and len(said) <= MOST_VALUES:
            values = {each for each in said if isinstance(each, str)}
        for rule in self._file.roles:
            if rule.value in values:
                return Principal(f"oidc/{name}", rule.role, rule.project)
        raise Unauthorized(
            f"nothing in {self._file.claim!r} of the token gives a role here",
            hint="Maybe the owner of the control plane adds one to the file of --oidc.",
        )


def _document(content: bytes) -> dict[str, Any]:
    found = msgspec.json.decode(content)
    if not isinstance(found, dict):
        raise ValueError("its answer is no object")
    return found


def _read_keys(content: bytes, algorithms: Sequence[str]) -> dict[str, Any]:
    """Return the keys of a key set by their names; those that are not taken are left out."""
    import jwt

    listed = _document(content).get("keys")
    if not isinstance(listed, list) or len(listed) > MOST_KEYS:
        raise ValueError(f"it has no list of {MOST_KEYS} keys at most")
    found: dict[str, Any] = {}
    for each in listed:
        if not isinstance(each, dict) or not isinstance(each.get("kid"), str):
            continue
        if each.get("kty") == "oct" or each.get("use", "sig") != "sig":
            continue  # a shared secret in public is none
        try:
            key = jwt.PyJWK(each)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
            log.warning("key %r of the issuer is left out: %s", each["kid"][:80], _plain(error))
            continue
        if key.algorithm_name in algorithms:
            found[each["kid"]] = key
    if not found:
        raise ValueError("it has no key that is taken")
    return found


def _plain(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:200]


def http_fetch(ca_file: str | None) -> Fetch:
    """Return how an issuer is asked: in time, without redirects, and no more than so much."""
    import ssl

    import httpx

    verify = ssl.create_default_context(cafile=ca_file) if ca_file else True

    async def fetch(url: str) -> bytes:
        async with (
            httpx.AsyncClient(verify=verify, timeout=PATIENCE_S) as client,
            asyncio.timeout(2 * PATIENCE_S),
        ):
            try:
                async with client.stream("GET", url) as response:
                    if response.status_code != 200:
                        raise ValueError(f"{url} answers {response.status_code}")
                    content = b""
                    async for piece in response.aiter_bytes():
                        content += piece
                        if len(content) > MOST_ANSWER:
                            raise ValueError(f"{url} answers with too much")
                    return content
            except httpx.HTTPError as error:
                raise OSError(f"{url}: {_plain(error)}") from error

    return fetch
