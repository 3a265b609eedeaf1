"""Bearer tokens of an OpenID Connect issuer: one of our own on loopback, with real keys."""

import asyncio
import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from roost.app.oidc import (
    LEEWAY_S,
    MOST_ANSWER,
    MOST_REMEMBERED,
    MOST_TOKEN,
    UNKNOWN_S,
    Issuer,
    http_fetch,
    read_issuer,
)
from roost.base.errors import InvalidRequest, NotFound, Unauthorized
from roost.base.ids import IdSource
from roost.parts.access import Access, Principal
from roost.testing.clock import HandClock
from roost.wire.bodies import CreateToken
from tests.databases import opened

NOW = 1_790_000_000


class OwnIssuer:
    """An issuer on loopback: its configuration, its keys, and tokens that it signs."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.asked: list[str] = []
        self.answers: dict[str, bytes] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                content = issuer.answers.get(self.path) or issuer.answer(self.path)
                self.send_response(200 if content else 404)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self.add_key("one")

    def end(self) -> None:
        self._http.shutdown()
        self._thread.join(10)
        self._http.server_close()

    def add_key(self, kid: str) -> None:
        self.keys[kid] = ec.generate_private_key(ec.SECP256R1())

    def answer(self, path: str) -> bytes:
        if path == "/.well-known/openid-configuration":
            return json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys"}).encode()
        if path != "/keys":
            return b""
        listed = [
            json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
            | {"kid": kid, "alg": "ES256", "use": "sig"}
            for kid, key in self.keys.items()
        ]
        listed.append({"kty": "oct", "kid": "shared", "k": "c2VjcmV0", "alg": "HS256"})
        return json.dumps({"keys": listed}).encode()

    def claims(self, **changes: Any) -> dict[str, Any]:
        made = {"iss": self.url, "aud": "roost", "sub": "ann", "groups": ["ops"]}
        made |= {"exp": NOW + 300, "iat": NOW} | changes
        return {name: value for name, value in made.items() if value is not None}

    def token(self, kid: str = "one", key: Any = None, **changes: Any) -> str:
        signed = key if key is not None else self.keys[kid]
        return jwt.encode(self.claims(**changes), signed, "ES256", headers={"kid": kid})


@pytest.fixture
def own() -> Iterator[OwnIssuer]:
    made = OwnIssuer()
    yield made
    made.end()


def later(clock: HandClock, seconds: float) -> None:
    clock.now += seconds


def file_of(own: OwnIssuer, folder: Path, more: str = "") -> Path:
    path = folder / "oidc.toml"
    path.write_text(
        f'issuer = "{own.url}"\naudience = "roost"\n{more}\n'
        '[[roles]]\nvalue = "ops"\nrole = "operator"\n'
        '[[roles]]\nvalue = "shop"\nrole = "member"\nproject = "shop"\n'
    )
    return path


def run(own: OwnIssuer, folder: Path, test: Callable[[Issuer, HandClock], Awaitable[None]]) -> None:
    async def whole() -> None:
        clock = HandClock(float(NOW))
        issuer = Issuer(read_issuer(file_of(own, folder)), clock, http_fetch(None))
        await test(issuer, clock)

    asyncio.run(whole())


def test_a_token_of_the_issuer_gives_the_role_of_its_first_value(
    own: OwnIssuer, tmp_path: Path
) -> None:
    async def test(issuer: Issuer, clock: HandClock) -> None:
        token = own.token()
        assert issuer.principal(token) is None
        assert await issuer.check(token) == Principal("oidc/ann", "operator")
        assert issuer.principal(token) == Principal("oidc/ann", "operator")
        member = Principal("oidc/bob", "member", "shop")
        assert await issuer.check(own.token(sub="bob", groups="shop")) == member
        assert own.asked == ["/.well-known/openid-configuration", "/keys"]

    run(own, tmp_path, test)


def test_what_is_wrong_with_a_token_is_found(own: OwnIssuer, tmp_path: Path) -> None:
    stranger = ec.generate_private_key(ec.SECP256R1())
    public = (
        own.keys["one"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )

    def encoded(part: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()

    def by_hand(head: dict[str, str], signature: str = "") -> str:
        return f"{encoded(head)}.{encoded(own.claims())}.{signature}"

    signed = f"{encoded({'alg': 'HS256', 'kid': 'one'})}.{encoded(own.claims())}"
    mac = hmac.new(public, signed.encode(), hashlib.sha256).digest()
    confused = f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    good = own.token()
    wrong = {
        "alg none": by_hand({"alg": "none", "kid": "one"}),
        "no signature": by_hand({"alg": "ES256", "kid": "one"}),
        "the public key as a secret": confused,
        "the shared secret": jwt.encode(
            own.claims(), b"secret" * 8, "HS256", headers={"kid": "shared"}
        ),
        "another key": own.token(key=stranger),
        "another kind of key": jwt.encode(
            own.claims(), rsa.generate_private_key(65537, 2048), "RS256", headers={"kid": "one"}
        ),
        "changed": good[:-6] + ("AAAAAA" if not good.endswith("AAAAAA") else "BBBBBB"),
        "wrong audience": own.token(aud="other"),
        "no audience": own.token(aud=None),
        "wrong issuer": own.token(iss="https://elsewhere"),
        "expired": own.token(exp=NOW - LEEWAY_S - 1),
        "without an end": own.token(exp=None),
        "not yet good": own.token(nbf=NOW + LEEWAY_S + 60),
        "no role": own.token(groups=["nobody"]),
        "a group within a group": own.token(groups=[["ops"]]),
        "too many groups": own.token(groups=["ops", *map(str, range(2000))]),
        "no name": own.token(sub=None),
        "a name with a line break": own.token(sub="a\nb"),
        "huge": "a" * MOST_TOKEN + ".b.c",
        "no token": "a.b.c",
        "unknown key": jwt.encode(own.claims(), stranger, "ES256", headers={"kid": "two"}),
    }

    async def test(issuer: Issuer, clock: HandClock) -> None:
        await issuer.check(own.token())
        for what, token in wrong.items():
            taken = await asyncio.gather(issuer.check(token), return_exceptions=True)
            assert isinstance(taken[0], Unauthorized), (what, taken)
            assert issuer.principal(token) is None, what

    run(own, tmp_path, test)


def test_a_token_is_good_until_it_expires_and_no_longer(own: OwnIssuer, tmp_path: Path) -> None:
    async def test(issuer: Issuer, clock: HandClock) -> None:
        token = own.token()
        await issuer.check(token)
        later(clock, 300 + LEEWAY_S + 1)
        assert issuer.principal(token) is None
        with pytest.raises(Unauthorized, match="expired"):
            await issuer.check(token)

    run(own, tmp_path, test)


def test_a_new_key_is_fetched_and_strangers_cause_few_fetches(
    own: OwnIssuer, tmp_path: Path
) -> None:
    async def test(issuer: Issuer, clock: HandClock) -> None:
        await issuer.check(own.token())
        own.add_key("two")
        for _ in range(20):  # soon after a fetch nobody asks the issuer again
            with pytest.raises(Unauthorized):
                await issuer.check(own.token("two"))
        assert own.asked.count("/keys") == 1
        later(clock, UNKNOWN_S + 1)
        found = await asyncio.gather(
            *(issuer.check(own.token("two", sub=f"{n}")) for n in range(9))
        )
        assert len(found) == 9
        assert own.asked.count("/keys") == 2

    run(own, tmp_path, test)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/keys", b"{"),
        ("/keys", b"[]"),
        ("/keys", b'{"keys": []}'),
        ("/keys", b'{"keys": [{"kid": "one", "kty": "EC", "crv": "P-256", "x": "!"}]}'),
        ("/keys", b" " * (MOST_ANSWER + 1)),
        ("/.well-known/openid-configuration", b'{"issuer": "https://elsewhere"}'),
    ],
)
def test_an_issuer_that_answers_nonsense_lets_nobody_in(
    own: OwnIssuer, tmp_path: Path, path: str, content: bytes
) -> None:
    own.answers[path] = content

    async def test(issuer: Issuer, clock: HandClock) -> None:
        with pytest.raises(Unauthorized, match="a key that the issuer does not have"):
            await issuer.check(own.token())
        own.answers.clear()
        later(clock, UNKNOWN_S + 1)
        await issuer.check(own.token())
        own.answers[path] = content  # what was fetched before still holds
        await issuer._refresh()
        await issuer.check(own.token(sub="bob"))

    run(own, tmp_path, test)


def test_only_so_many_tokens_are_remembered(own: OwnIssuer, tmp_path: Path) -> None:
    async def test(issuer: Issuer, clock: HandClock) -> None:
        first = own.token()
        await issuer.check(first)
        issuer._known.update({f"t{n}": issuer._known[first] for n in range(MOST_REMEMBERED - 1)})
        await issuer.check(own.token(sub="bob"))
        assert len(issuer._known) == MOST_REMEMBERED
        assert issuer.principal(first) is None

    run(own, tmp_path, test)


def test_both_kinds_of_tokens_open_the_same_door(
    own: OwnIssuer, tmp_path: Path, sqlite_url: str
) -> None:
    async def whole() -> None:
        clock = HandClock(float(NOW))
        async with opened(sqlite_url) as store:
            access = Access(store, clock, IdSource(clock.wall_ms))
            access.foreign = Issuer(read_issuer(file_of(own, tmp_path)), clock, http_fetch(None))
            made = await access.create_token(
                CreateToken(name="ci", role="viewer"), Principal("root", "admin")
            )
            assert made.secret is not None
            assert (await access.check(made.secret)).role == "viewer"
            token = own.token()
            assert access.principal(token) is None
            assert (await access.check(token)).name == "oidc/ann"
            assert access.principal(token) is not None
            with pytest.raises(Unauthorized):
                await access.check("neither")

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("audience", "audiense"), "audiense"),
        (('role = "operator"', 'role = "member"'), "needs a project"),
        (('role = "operator"', 'role = "operator"\nproject = "x"'), "has no project"),
        (('role = "operator"', 'role = "root"'), "role"),
        (('audience = "roost"', 'audience = "roost"\nalgorithms = ["HS256"]'), "algorithms"),
        (('audience = "roost"', 'audience = "roost"\nkeys_url = "http://far/keys"'), "https"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(
    own: OwnIssuer, tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    path = file_of(own, tmp_path)
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(change[0], change[1], 1))
    with pytest.raises(InvalidRequest, match=said):
        read_issuer(path)
    with pytest.raises(NotFound):
        read_issuer(tmp_path / "none.toml")
