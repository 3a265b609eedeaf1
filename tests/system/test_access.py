"""Who may do what, with real tokens over real sockets, and in the clear only to oneself."""

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from roost.base.errors import Forbidden, NotFound, Unauthorized
from roost.client import Client
from roost.hostkit.talk.websocket import WebSocketTransport
from roost.wire.agentlink import (
    PROTOCOL,
    AmountInfo,
    Hello,
    Inventory,
    Refused,
    decode_to_agent,
    encode,
)
from roost.wire.bodies import CreateToken, QuotaBody, Role
from tests.system.processes import Process, Server, Site, eventually, small

pytestmark = pytest.mark.slow


def test_tokens_open_what_their_role_allows_and_no_more(shared: Site) -> None:
    site, server = shared, shared.server
    with site.client(server) as admin:
        admin.create_project("red", QuotaBody(vms=5))
        admin.create_project("blue")
        theirs = admin.create_vm(small("theirs", project="blue"))

        assert httpx.get(f"{server.url}/api/v1/vms").status_code == 401
        nobody = httpx.get(
            f"{server.url}/api/v1/vms", headers={"Authorization": "Bearer roost_x_y"}
        )
        assert nobody.status_code == 401
        assert nobody.headers["www-authenticate"].startswith("Bearer")
        assert nobody.json()["error"]["code"] == "unauthorized"

        with as_(site, server, admin, "viewer") as viewer:
            assert [vm.id for vm in viewer.all_vms()] == [theirs.id]
            for change in (
                lambda: viewer.create_vm(small("no")),
                lambda: viewer.delete_vm(theirs.id),
                lambda: viewer.cordon_host("one"),
            ):
                with pytest.raises(Forbidden):
                    change()
        with as_(site, server, admin, "operator") as operator:
            operator.create_vm(small("yes"))
            operator.cordon_host("two")
            for change in (
                lambda: operator.create_project("green"),
                lambda: operator.confirm_dead("one", "no"),
                lambda: operator.create_token(CreateToken(name="more", role="admin")),
                operator.doctor,
            ):
                with pytest.raises(Forbidden):
                    change()
        with as_(site, server, admin, "member", "red") as member:
            mine = member.create_vm(small("mine", project="red"))
            assert [vm.id for vm in member.all_vms()] == [mine.id]
            for change in (
                lambda: member.get_vm(theirs.id),
                lambda: member.delete_vm(theirs.id),
                lambda: member.create_vm(small("no", project="blue")),
                lambda: member.get_project("blue"),
            ):
                with pytest.raises(NotFound):
                    change()
            with pytest.raises(Forbidden):
                list(member.all_hosts())
            assert {project.name for project in member.list_projects().projects} == {"red"}
            # Everything of its own project, and nothing of another.
            assert {event.project for event in member.list_events().events} == {"red"}
        actors = {event.actor for event in admin.list_events(limit=1000).events}
        assert len([actor for actor in actors if actor.endswith(("operator", "member"))]) == 2


def as_(
    site: Site, server: Server, admin: Client, role: Role, project: str | None = None
) -> Client:
    """Return a client with a new token of a role."""
    made = admin.create_token(CreateToken(name=f"a-{role}", role=role, project=project))
    return site.client(server, made.secret)


def test_a_deleted_token_opens_nothing_any_more(shared: Site) -> None:
    site, server = shared, shared.server
    with site.client(server) as admin:
        made = admin.create_token(CreateToken(name="short", role="viewer"))
        with site.client(server, made.secret) as viewer:
            viewer.list_vms()
            admin.delete_token(made.id)
            with pytest.raises(Unauthorized):
                viewer.list_vms()


def test_the_credential_of_a_host_is_good_for_that_host_alone(shared: Site) -> None:
    site, server = shared, shared.server
    file = site.folder / "hosts" / "one" / "credential"
    credential = file.read_text().strip()
    assert file.stat().st_mode & 0o077 == 0
    with site.client(server, credential) as client:
        for ask in (client.list_vms, client.doctor, lambda: client.create_vm(small("no"))):
            with pytest.raises((Unauthorized, Forbidden)):
                ask()

    nothing = AmountInfo(0)
    hello = Hello(PROTOCOL, "two", "agent-x", "0", Inventory(nothing, nothing, nothing))

    async def speak_for_another() -> object:
        link = await WebSocketTransport().connect(server.url, credential)
        try:
            await link.send(encode(hello))
            return decode_to_agent(await asyncio.wait_for(link.receive(), 30))
        finally:
            await link.close()

    said = asyncio.run(speak_for_another())
    assert isinstance(said, Refused)
    assert said.code == "forbidden"
    with site.client(server) as client:
        assert client.get_host("two").cpu_milli.capacity == 16_000


def test_a_join_token_works_once(shared: Site) -> None:
    site, server = shared, shared.server
    with site.client(server) as admin:
        token = admin.create_join_token(host="three").secret
        assert token is not None
        with pytest.raises((Unauthorized, Forbidden)):
            admin.join("two", token)
        assert admin.join("three", token).credential
        with pytest.raises(Unauthorized):
            admin.join("three", token)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_it_refuses_to_speak_in_the_clear_to_other_machines(site: Site, address: str) -> None:
    said = site.roost("serve", "--listen", address, "--data", str(site.folder / "data"))
    assert said.returncode == 2
    assert "can be reached by other machines" in said.stderr
    assert "--tls-cert" in said.stderr
    assert not site.context.exists()


def test_with_a_certificate_it_speaks_https(site: Site) -> None:
    certificate, key = self_signed(site.folder)
    server = site.serve(tls_cert=certificate, tls_key=key)
    with pytest.raises(httpx.TransportError):
        httpx.get(server.url.replace("https", "http") + "/healthz")
    with pytest.raises(httpx.ConnectError, match=r"(?i)certificate"):
        httpx.get(f"{server.url}/healthz")
    trusted = ssl.create_default_context(cafile=str(certificate))
    assert httpx.get(f"{server.url}/healthz", verify=trusted).status_code == 200
    # The command line and agents find the certificate in the context.
    assert site.roost("vm", "list").returncode == 0
    agent = site.hosts("host", server, wait=False)
    eventually("the host is listed", lambda: "online" in _listed(site, agent))


def _listed(site: Site, agent: Process) -> str:
    assert agent.exit_code is None, agent.log()
    return site.roost("host", "list").stdout


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for loopback."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: apt-get install openssl")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    command += f" -subj /CN=roost -addext subjectAltName=IP:127.0.0.1 -keyout {key}"
    subprocess.run([*command.split(), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key
