"""A server that has its pages of VMs ready: what a command costs is then the command's own."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import msgspec

from roost.base.units import GIB
from roost.wire.bodies import (
    AmountsBody,
    LimitBody,
    ProjectBody,
    ProjectPage,
    VMBody,
    VMPage,
)
from roost.wire.flavors import FlavorPage

PAGE = 1000


def pages(count: int) -> list[bytes]:
    """Return so many VMs as the pages that a server sends."""
    made = []
    for start in range(0, count, PAGE):
        last = start + PAGE >= count
        listed = [_vm(number) for number in range(start, min(count, start + PAGE))]
        page = VMPage(vms=listed, next=None if last else str(start // PAGE + 1))
        made.append(msgspec.json.encode(page))
    return made


def wanted(count: int) -> str:
    """Return a file of `roost apply` that says what the served VMs are."""
    lines = ["vms:"]
    for number in range(count):
        lines += [
            f"  - name: app-{number:05}",
            "    demand: {cpu: 2, memory: 4GiB, disk: 20GiB}",
            f"    labels: {{team: t{number % 9}, app: web}}",
        ]
    return "\n".join(lines) + "\n"


def _vm(number: int) -> VMBody:
    return VMBody(
        id=f"vm-{number:020}",
        name=f"app-{number:05}",
        project="default",
        state="running",
        desired="running",
        observed="running",
        host=f"hv-{number % 50:02}",
        hypervisor_id=f"hv-{number % 50:02}",
        virtual=False,
        demand=AmountsBody(cpu_milli=2000, memory_bytes=4 * GIB, disk_bytes=20 * GIB),
        strategy="least_loaded",
        priority=0,
        restart="here",
        on_no_fit="fail",
        labels={"team": f"t{number % 9}", "app": "web"},
        groups=[],
        generation=1,
        observed_generation=1,
        created_at="2026-11-02T03:04:05Z",
    )


def serve(count: int) -> ThreadingHTTPServer:
    """Serve so many VMs on a port of loopback, in a thread, until it is shut down."""
    ready = pages(count)
    none = LimitBody(used=0, quota=None)
    default = ProjectBody(
        name="default", cpu_milli=none, memory_bytes=none, disk_bytes=none, vms=none
    )
    others = {
        "/api/v1/projects": msgspec.json.encode(ProjectPage(projects=[default])),
        "/api/v1/flavors": msgspec.json.encode(FlavorPage(flavors=[])),
    }

    class Handler(BaseHTTPRequestHandler):
        """Answers every question with a page of VMs, but for projects and flavors."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Send the page that is asked for."""
            asked = urlsplit(self.path)
            body = others.get(asked.path)
            if body is None:
                body = ready[int(parse_qs(asked.query).get("after", ["0"])[0])]
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    return server
