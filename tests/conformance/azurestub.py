"""A stub of Azure's compute API over HTTP, as it is documented: long-running operations included.

A create answers 201 with the address of an operation, which is in progress at the first look and
ends at the second; want of capacity shows only there, and leaves a machine that has failed. A list
has pages. It also hangs up after a create, throttles, and refuses quotas and credentials.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

_PAGE = 1
_AT_ONCE = {
    "quota": (409, "QuotaExceeded"),
    "throttled": (429, "TooManyRequests"),
    "credentials": (403, "AuthorizationFailed"),
    "broken": (500, "InternalServerError"),
}
Answer = tuple[int, Any, dict[str, str]]


class AzureStub:
    """What the stub keeps and does."""

    def __init__(self) -> None:
        self.vms: dict[str, dict[str, Any]] = {}
        self.fault = ""
        self.lose_next = False
        self.address = ""
        self.waited = 0  # looks at operations
        self._operations: dict[str, tuple[str, int]] = {}

    def answer(self, verb: str, path: str, body: bytes, headers: dict[str, str]) -> Answer | None:
        """Return status, body and headers, or None to hang up."""
        parts = urlsplit(path)
        words = parts.path.strip("/").split("/")
        if words[0] == "operations":
            return self._operation(words[1])
        name = words[-1] if len(words) == 8 else ""
        if not name:
            return self._list(int(parts.query.partition("page=")[2] or 0))
        if verb == "PUT":
            return self._create(name, json.loads(body), headers)
        if name not in self.vms:
            return _error(404, "ResourceNotFound")
        if verb == "DELETE":
            del self.vms[name]
            return 202, None, {"Location": f"{self.address}/operations/deleted"}
        return 200, self.vms[name], {}

    def _create(self, name: str, asked: dict[str, Any], headers: dict[str, str]) -> Answer | None:
        if self.fault in _AT_ONCE:
            return _error(*_AT_ONCE[self.fault])
        if name in self.vms and headers.get("If-None-Match") == "*":
            return _error(412, "PreconditionFailed")
        asked["properties"]["provisioningState"] = "Creating"
        asked["properties"].pop("osProfile")  # secrets are not shown again
        vm = {"id": f"/x/{name}", "name": name, "type": "virtualMachines", **asked}
        self.vms[name] = vm
        self._operations[name] = self.fault, 0
        if self.lose_next:
            self.lose_next = False
            return None
        at = f"{self.address}/operations/{name}"
        return 201, vm, {"Azure-AsyncOperation": at, "Retry-After": "0"}

    def _operation(self, name: str) -> Answer:
        self.waited += 1
        fault, looks = self._operations.get(name, ("", 1))
        self._operations[name] = fault, looks + 1
        if looks == 0:
            return 200, {"status": "InProgress"}, {"Retry-After": "0"}
        vm = self.vms.get(name, {"properties": {}})
        if fault == "capacity":
            vm["properties"]["provisioningState"] = "Failed"
            error = {"code": "AllocationFailed", "message": "Allocation failed."}
            return 200, {"status": "Failed", "error": error}, {}
        vm["properties"]["provisioningState"] = "Succeeded"
        return 200, {"status": "Succeeded"}, {}

    def _list(self, page: int) -> Answer:
        all_of_them = list(self.vms.values())
        body: dict[str, Any] = {"value": all_of_them[page * _PAGE : (page + 1) * _PAGE]}
        if len(all_of_them) > (page + 1) * _PAGE:
            path = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines"
            body["nextLink"] = f"{self.address}{path}?page={page + 1}"
        return 200, body, {}


def _error(status: int, code: str) -> Answer:
    return status, {"error": {"code": code, "message": f"{code} said the stub"}}, {}


@contextmanager
def serving(stub: AzureStub) -> Iterator[str]:
    """Serve a stub on loopback; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found = stub.answer(self.command, self.path, body, dict(self.headers.items()))
            if found is None:
                self.close_connection = True
                return
            status, content, headers = found
            data = b"" if content is None else json.dumps(content).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_DELETE = _do  # noqa: N815 - the names are the server's

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    stub.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stub.address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
