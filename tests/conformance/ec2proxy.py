"""A proxy before the moto server that makes it behave like EC2 on a bad day.

It adds what moto lacks: the same client token is the same answer, and with other words an error.
And it injects what a cloud does: no capacity in a zone, quotas, throttling, wrong credentials, an
answer that is lost after the work was done, lists that lag behind.
"""

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qs

import httpx

_ERRORS = {
    "capacity": (500, "InsufficientInstanceCapacity", "We have no sufficient capacity"),
    "quota": (400, "VcpuLimitExceeded", "You have requested more vCPU capacity than your limit"),
    "throttled": (503, "RequestLimitExceeded", "Request limit exceeded."),
    "credentials": (401, "AuthFailure", "AWS was not able to validate the access credentials"),
    "broken": (500, "InternalError", "An internal error has occurred"),
}


class Ec2Proxy:
    """What the proxy knows and does; one for each test."""

    def __init__(self, behind: str) -> None:
        self.behind = behind
        self.faults: list[str] = []  # of the next launches, or of all requests for `credentials`
        self.empty_zones: set[str] = set()
        self.hidden_lists = 0  # so many lists show nothing
        self.reclaimed: set[str] = set()  # spot machines whose metadata say so
        self.actions: list[str] = []
        self.launches = 0  # that reached moto
        self.forgets_tokens = False  # as moto does
        #: Spot prices by type, zone and since when, if not moto's; and how many a page has.
        self.spot_prices: list[tuple[str, str, str, str]] = []
        self.page = 1000
        self._tokens: dict[str, tuple[str, bytes]] = {}
        self._lock = Lock()

    def answer(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes] | None:
        """Return status and body, or None to hang up."""
        words = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        action = words.get("Action", "")
        self.actions.append(action)
        if "credentials" in self.faults:
            return _error("credentials")
        if action == "RunInstances":
            with self._lock:
                return self._launch(words, body, headers)
        if action == "DescribeInstances" and self.hidden_lists and "InstanceId.1" not in words:
            self.hidden_lists -= 1
            return 200, _NO_INSTANCES
        if action == "DescribeSpotPriceHistory" and self.spot_prices:
            return 200, self._spot_history(words)
        if self.faults and action == "TerminateInstances":
            return _error(self.faults.pop(0))
        return self._forward(body, headers)

    def _launch(
        self, words: dict[str, str], body: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes] | None:
        if words.get("Placement.AvailabilityZone") in self.empty_zones:
            return _error("capacity")
        fault = self.faults.pop(0) if self.faults else ""
        if fault in _ERRORS:
            return _error(fault)
        token = words.get("ClientToken", "")
        asked = re.sub(rb"(Version|Action)=[^&]*&?", b"", body).decode()
        if token in self._tokens and not self.forgets_tokens:
            first, answer = self._tokens[token]
            if first != asked:
                return _error_of(400, "IdempotentParameterMismatch", "other words, same token")
        else:
            self.launches += 1
            status, answer = self._forward(body, headers)
            if status != 200:
                return status, answer
            self._tokens[token] = asked, answer
        return None if fault == "lost answer" else (200, answer)

    def _spot_history(self, words: dict[str, str]) -> bytes:
        """Return a page of prices, the newest first: those since a time, and those that held then.

        Without a time it is the history of 90 days.
        """
        since = words.get("StartTime", "")
        asked = {value for name, value in words.items() if name.startswith("InstanceType.")}
        newest_first = sorted(self.spot_prices, key=lambda each: each[3], reverse=True)
        found, held = [], set[tuple[str, str]]()
        for each in newest_first:
            kind, zone, _, at = each
            if kind in asked and (at >= since or (kind, zone) not in held):
                found.append(each)
            if at < since:
                held.add((kind, zone))
        start = int(words.get("NextToken", "0"))
        end = start + min(self.page, int(words.get("MaxResults", "1000")))
        return _spot_prices(found[start:end], str(end) if end < len(found) else "")

    def _forward(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        kept = {"content-type", "authorization", "x-amz-date"}
        passed = {name: value for name, value in headers.items() if name.lower() in kept}
        answer = httpx.post(self.behind, content=body, headers=passed, timeout=60.0, verify=_NOBODY)
        return answer.status_code, answer.content


def _error(kind: str) -> tuple[int, bytes]:
    return _error_of(*_ERRORS[kind])


def _error_of(status: int, code: str, said: str) -> tuple[int, bytes]:
    text = f"<Response><Errors><Error><Code>{code}</Code><Message>{said}</Message></Error></Errors>"
    return status, f"{text}<RequestID>r</RequestID></Response>".encode()


#: Whom to trust on plain HTTP: loading those that the machine trusts takes 50 ms each time.
_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_NAMESPACE = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'
_NO_INSTANCES = (
    f"<DescribeInstancesResponse {_NAMESPACE}><requestId>r</requestId><reservationSet/>"
    "</DescribeInstancesResponse>"
).encode()


def _spot_prices(found: list[tuple[str, str, str, str]], following: str) -> bytes:
    items = "".join(
        f"<item><instanceType>{kind}</instanceType><availabilityZone>{zone}</availabilityZone>"
        f"<productDescription>Linux/UNIX</productDescription><spotPrice>{price}</spotPrice>"
        f"<timestamp>{at}</timestamp></item>"
        for kind, zone, price, at in found
    )
    return (
        f"<DescribeSpotPriceHistoryResponse {_NAMESPACE}><requestId>r</requestId>"
        f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{following}</nextToken>"
        "</DescribeSpotPriceHistoryResponse>"
    ).encode()


@contextmanager
def serving(answer: Any) -> Iterator[str]:
    """Serve requests of loopback with a function of body and headers; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found = answer(body, dict(self.headers.items()))
            if found is None:
                self.close_connection = True
                return
            status, content = found
            self.send_response(status)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_PUT = do_GET = _do  # noqa: N815 - the names are the server's

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
