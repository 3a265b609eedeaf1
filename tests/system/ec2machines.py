"""EC2 and S3 for system tests: moto behind the proxy of faults, and what it rents really starts.

moto keeps instances in its books and runs nothing. Here every instance that it has gets a process:
its user data, run by `sh` as cloud-init would, with a `roost` on its path that is the real worker.
Four things of a machine are the rig's: its disk is a folder, its metadata service is on loopback,
S3 is moto's and opened by the environment as a role would open it, and when its instance is
terminated its processes are gone at once.
"""

import base64
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx

from tests.conformance.ec2proxy import Ec2Proxy, serving

REGION = "eu-west-1"
ZONES = (f"{REGION}a", f"{REGION}b")
_LIVING = ("pending", "running")
#: The worker's command line is that of the user data; disk and metadata are those of the rig.
_ROOST = """#!{python}
import dataclasses, sys
from pathlib import Path
from roost.app import workers
really = workers.run_worker
def run_worker(options):
    really(dataclasses.replace(options, data=Path({data!r}), metadata={metadata!r}))
workers.run_worker = run_worker
from roost.cli.main import main
main()
"""


class Ec2Machines:
    """The instances of a region, as processes of this machine."""

    def __init__(self, behind: str, proxy: Ec2Proxy, folder: Path, metadata: str) -> None:
        import boto3

        self.proxy, self._folder, self._metadata = proxy, folder, metadata
        opened = {
            "endpoint_url": behind, "region_name": REGION,
            "aws_access_key_id": "key", "aws_secret_access_key": "secret",
        }  # fmt: skip
        self._ec2, self._s3 = (boto3.client(each, **opened) for each in ("ec2", "s3"))
        self._role = {
            "AWS_ENDPOINT_URL_S3": behind, "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "role", "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-role",
        }  # fmt: skip
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self.started: list[str] = []  # every instance that ever ran something

    def living(self) -> dict[str, Any]:
        """Return the instances that somebody pays for."""
        pages = self._ec2.describe_instances()["Reservations"]
        found = [instance for page in pages for instance in page["Instances"]]
        return {i["InstanceId"]: i for i in found if i["State"]["Name"] in _LIVING}

    def put(self, bucket: str, files: dict[str, bytes]) -> None:
        """Make a bucket with files."""
        where = {"LocationConstraint": REGION}
        self._s3.create_bucket(Bucket=bucket, CreateBucketConfiguration=where)
        for name, data in files.items():
            self._s3.put_object(Bucket=bucket, Key=name, Body=data)

    def read(self, url: str) -> bytes:
        """Return what an s3: address holds."""
        bucket, _, name = url.removeprefix("s3://").partition("/")
        found: bytes = self._s3.get_object(Bucket=bucket, Key=name)["Body"].read()
        return found

    def look(self) -> None:
        """Switch on what is new, and off what is terminated."""
        living = self.living()
        for name in living.keys() - self._started.keys():
            self._switch_on(name)
        for name in self._started.keys() - living.keys():
            self._switch_off(name)

    def take_away(self, name: str) -> None:
        """Terminate an instance, as EC2 does with a spot instance when its time is over."""
        self._ec2.terminate_instances(InstanceIds=[name])
        self.look()

    def end(self) -> None:
        """Switch everything off."""
        for name in list(self._started):
            self._switch_off(name)

    def _switch_on(self, name: str) -> None:
        told = self._ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")
        script = base64.b64decode(told["UserData"]["Value"]).decode()
        own = self._folder / name
        (own / "bin").mkdir(parents=True)
        program = own / "bin" / "roost"
        data, metadata = str(own / "data"), f"{self._metadata}/{name}"
        program.write_text(_ROOST.format(python=sys.executable, data=data, metadata=metadata))
        program.chmod(0o700)
        with (own / "console").open("wb") as console:
            self._started[name] = subprocess.Popen(
                ["sh", "-c", script],
                env={
                    "PATH": f"{own / 'bin'}:{os.environ['PATH']}", "MARK": shlex.quote(name),
                    **self._role,
                },
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True,
            )  # fmt: skip
        self.started.append(name)

    def _switch_off(self, name: str) -> None:
        process = self._started.pop(name)
        for _ in range(100):
            found = processes_of(self._folder / name)
            if not found:
                break
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.wait(10)


def processes_of(folder: Path) -> list[int]:
    """Return the processes that have a machine's folder on their command line or work below it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
                place = str((entry / "cwd").readlink())
            except OSError:
                continue
            if str(folder).encode() in words or place.startswith(str(folder)):
                found.append(int(entry.name))
    return found


@contextmanager
def machines_of_ec2(folder: Path) -> Iterator[tuple[Ec2Machines, str]]:
    """Run moto, the proxy and the machines; yield them and the address of EC2."""
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer("127.0.0.1", 0)
    moto.start()
    host, port = moto.get_host_and_port()
    behind = f"http://{host}:{port}"
    httpx.post(f"{behind}/moto-api/reset", timeout=60.0)
    proxy, over = Ec2Proxy(behind), Event()
    try:
        with serving(proxy.answer) as address, _metadata(proxy) as metadata:
            machines = Ec2Machines(behind, proxy, folder, metadata)

            def run() -> None:
                while not over.wait(0.2):
                    machines.look()

            thread = Thread(target=run, daemon=True)
            thread.start()
            try:
                yield machines, address
            finally:
                over.set()
                thread.join(30)
                machines.end()
    finally:
        moto.stop()


@contextmanager
def _metadata(proxy: Ec2Proxy) -> Iterator[str]:
    """Serve the metadata of all instances, each below its own name."""

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            name = self.path.split("/")[1]
            is_known = self.command == "PUT" or name in proxy.reclaimed
            self.send_response(200 if is_known else 404)
            self.send_header("Content-Length", "1")
            self.end_headers()
            self.wfile.write(b"t")

        do_PUT = do_GET = _do  # noqa: N815 - the names are the server's

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
