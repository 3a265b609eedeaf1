#!/usr/bin/env python3
"""Print the walk of one create: every module it crosses, in order, and every form of its VM.

A real server (SQLite) and a real agent (virtual driver) run with a profile hook; VMs are created
over HTTP until they run. Listed is what every one of the creates crossed: loops that happened to
turn meanwhile fall out. A form is a struct, dataclass or named tuple of roost that names the VM, or
that stands in one which does, and texts that do. Kernels run as plain Python, so they show too.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

CREATES = 3
LIMIT_S = 120.0
_AFTERWARDS_S = 0.5
#: How many elements of a list are looked at, and how deep.
_SOME, _DEEP = 4, 3

#: What stands beside a VM in a form and is about somebody or something else.
_NOT_OF_A_VM = frozenset({
    "Principal", "Call", "Answered", "HostEntry", "HostRow", "Inventory", "AmountInfo",
    "LedgerPoint",
})  # fmt: skip


# In the traced process


class Tracer:
    """Notes the modules that are entered, and the forms that are handed on, while it is armed."""

    def __init__(self, package: str, out: Path) -> None:
        self._package, self._out = package, out
        self._armed = False
        self._word = ""
        self.modules: dict[str, str] = {}
        self.forms: dict[str, str] = {}
        self._names: dict[CodeType, str | None] = {}

    def install(self) -> None:
        """Trace every thread; SIGUSR1 arms with the VM's name in a file, SIGUSR2 writes."""
        signal.signal(signal.SIGUSR1, lambda *_: self._arm())
        signal.signal(signal.SIGUSR2, lambda *_: self._write())
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def _arm(self) -> None:
        self.modules.clear()
        self.forms.clear()
        self._word = self._out.with_suffix(".word").read_text()
        self._armed = True

    def _write(self) -> None:
        self._armed = False
        found = {"modules": self.modules, "forms": self.forms}
        part = self._out.with_suffix(".part")
        part.write_text(json.dumps(found))
        part.rename(self._out)

    def note(self, frame: FrameType, event: str, arg: object) -> None:
        """Note one call or return."""
        if not self._armed or event not in ("call", "return"):
            return
        code = frame.f_code
        if code not in self._names:
            path = code.co_filename
            inside = path.startswith(self._package)
            self._names[code] = path[len(self._package) + 1 :] if inside else None
        module = self._names[code]
        if module is None:
            return
        self.modules.setdefault(module, code.co_qualname)
        if event == "call":
            count = code.co_argcount + code.co_kwonlyargcount
            for name in code.co_varnames[:count]:
                self._look(frame.f_locals.get(name), module)
        else:
            self._look(arg, module)

    def _look(self, value: object, module: str) -> None:
        armed, self._armed = self._armed, False  # what looks is not looked at
        try:
            if self._names_vm(value, _DEEP):
                for form in self._forms_in(value, _DEEP):
                    self.forms.setdefault(form, module)
        finally:
            self._armed = armed

    def _names_vm(self, value: object, deep: int) -> bool:
        if isinstance(value, str):
            return self._word in value
        if isinstance(value, bytes):
            return self._word.encode() in value
        return deep > 0 and any(self._names_vm(each, deep - 1) for each in _inside(value))

    def _forms_in(self, value: object, deep: int) -> Iterator[str]:
        if isinstance(value, str | bytes):
            if self._word != value and self._names_vm(value, 0):
                yield f"{type(value).__name__} with it"
            return
        if _fields(value) is not None:
            kind = type(value)
            if kind.__module__.startswith("roost."):
                if kind.__name__ in _NOT_OF_A_VM:
                    return
                yield f"{kind.__qualname__} ({kind.__module__.removeprefix('roost.')})"
        if deep > 0:
            for each in _inside(value):
                if self._names_vm(each, deep - 1) or _fields(each) is not None:
                    yield from self._forms_in(each, deep - 1)


def _fields(value: object) -> tuple[str, ...] | None:
    kind = type(value)
    found = getattr(kind, "__struct_fields__", None) or getattr(kind, "_fields", None)
    if found is None and dataclasses.is_dataclass(kind):
        found = tuple(each.name for each in dataclasses.fields(kind))
    return found if isinstance(found, tuple) else None


def _inside(value: object) -> list[object]:
    fields = _fields(value)
    if fields is not None:
        return [getattr(value, name, None) for name in fields]
    if isinstance(value, dict):
        return [each for pair in list(value.items())[:_SOME] for each in pair]
    if isinstance(value, list | tuple):
        return list(value[:_SOME])
    return []


def run_traced(out: Path, words: list[str]) -> None:
    """Run a command of roost in this process, traced."""
    import roost

    assert roost.__file__ is not None
    tracer = Tracer(str(Path(roost.__file__).parent), out)
    sys.argv = ["roost", *words]
    tracer.install()
    runpy.run_module("roost.cli.main", run_name="__main__")


# In the process that asks


class Traced:
    """A command of roost that runs traced."""

    def __init__(self, name: str, folder: Path, source: Path, *words: str) -> None:
        self.out = folder / f"{name}.json"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "SCHEDULING_"))}
        kept |= {"PYTHONPATH": str(source), "NUMBA_DISABLE_JIT": "1"}
        kept |= {"ROOST_CONTEXT": str(folder / "context.json")}
        self._log = (folder / f"{name}.log").open("wb")
        command = [sys.executable, __file__, "--traced", str(self.out), *words]
        self._process = subprocess.Popen(
            command, env=kept, stdout=self._log, stderr=self._log, cwd=folder
        )

    def arm(self, word: str) -> None:
        """Begin to trace what names a VM."""
        self.out.unlink(missing_ok=True)
        self.out.with_suffix(".word").write_text(word)
        self._process.send_signal(signal.SIGUSR1)

    def read(self) -> dict[str, dict[str, str]]:
        """End tracing and return what was noted."""
        self._process.send_signal(signal.SIGUSR2)
        wait_until("the trace", self.out.exists)
        found: dict[str, dict[str, str]] = json.loads(self.out.read_text())
        return found

    def end(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait(30)
        self._log.close()


def wait_until(what: str, probe: Callable[[], object]) -> Any:
    """Wait until a probe returns something true, and return that."""
    give_up, pause = time.monotonic() + LIMIT_S, threading.Event()
    while time.monotonic() < give_up:
        with contextlib.suppress(OSError, KeyError, ValueError):
            if found := probe():
                return found
        pause.wait(0.05)
    raise SystemExit(f"waited {LIMIT_S:g} s in vain for {what}")


class Api:
    """The API of the traced server."""

    def __init__(self, context: Path) -> None:
        known = wait_until("the server", lambda: json.loads(context.read_text()))
        self._server, self._token = known["server"], known["token"]

    def ask(self, path: str, body: object | None = None) -> Any:
        """Return the answer to a request."""
        request = urllib.request.Request(
            f"{self._server}/api/v1{path}", json.dumps(body).encode() if body else None
        )
        request.add_header("Authorization", f"Bearer {self._token}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def create(self, name: str, host: Path) -> None:
        """Create a VM and wait until its host has it running, on disk: no request disturbs."""
        demand = {"cpu": 1, "memory": "1GiB", "disk": "1GiB"}
        self.ask("/vms", {"name": name, "demand": demand})

        def runs() -> bool:
            texts = [path.read_text() for path in (host / "vms").rglob("*.json")]
            return any(f'"{name}"' in text and '"running"' in text for text in texts)

        wait_until(f"{name} running", runs)
        threading.Event().wait(_AFTERWARDS_S)  # its report, and what follows from that

    def settle(self) -> None:
        """Wait until the server knows that all VMs run."""
        wait_until(
            "all VMs running",
            lambda: all(vm["state"] == "running" for vm in self.ask("/vms")["vms"]),
        )


def walk(source: Path, folder: Path) -> dict[str, list[dict[str, dict[str, str]]]]:
    """Create VMs on a traced server and agent; return what each create crossed on both."""
    far = ("--heartbeat-s", "20", "--suspect-s", "60", "--offline-s", "90", "--lease-s", "60")
    server = Traced(
        "server", folder, source, "serve", "--listen", "127.0.0.1:0", *far,
        "--data", str(folder / "data"), "--context", str(folder / "context.json"),
    )  # fmt: skip
    processes = {"server": server}
    try:
        api = Api(folder / "context.json")
        wait_until("readiness", lambda: api.ask("/strategies"))
        processes["agent"] = Traced(
            "agent", folder, source, "agent", "--name", "h1", "--data", str(folder / "host"),
            "--server", api._server, "--cpu", "16", "--memory", "64GiB", "--disk", "100GiB",
            "--boot-s", "0",
        )  # fmt: skip
        wait_until("a host", lambda: api.ask("/hosts")["hosts"])
        api.create("warm-up", folder / "host")
        found: dict[str, list[dict[str, dict[str, str]]]] = {name: [] for name in processes}
        for number in range(CREATES):
            name = f"walker-{number}"
            api.settle()
            for each in processes.values():
                each.arm(name)
            api.create(name, folder / "host")
            for process, each in processes.items():
                found[process].append(each.read())
        return found
    finally:
        for each in reversed(processes.values()):
            each.end()


def common(runs: list[dict[str, dict[str, str]]], what: str) -> dict[str, str]:
    """Return what all runs have, in the order of the first."""
    return {
        key: value
        for key, value in runs[0][what].items()
        if all(key in each[what] for each in runs)
    }


def main() -> None:
    """Print the walk of a create on a source tree."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    root = Path(__file__).resolve().parents[1]
    parser.add_argument("--source", type=Path, default=root / "src", help="the tree to run")
    parser.add_argument("--forms", action="store_true", help="list the forms of the VM too")
    parser.add_argument("--traced", type=Path, help=argparse.SUPPRESS)
    arguments, words = parser.parse_known_args()
    if arguments.traced is not None:
        run_traced(arguments.traced, words)
        return
    if words:
        parser.error(f"unknown words: {' '.join(words)}")
    with tempfile.TemporaryDirectory() as folder:
        found = walk(arguments.source.resolve(), Path(folder))
    every: dict[str, set[str]] = {"modules": set(), "forms": set()}
    for process, runs in found.items():
        modules, forms = common(runs, "modules"), common(runs, "forms")
        print(f"{process}: {len(modules)} modules, {len(forms)} forms")
        for module, entered in modules.items():
            print(f"  {module:<44} {re.sub(r'<locals>.', '', entered)}")
        if arguments.forms:
            for form, module in forms.items():
                print(f"    {form:<52} first in {module}")
        every["modules"] |= modules.keys()
        every["forms"] |= forms.keys()
    print(
        f"a create crosses {len(every['modules'])} modules; its VM has {len(every['forms'])} forms"
    )


if __name__ == "__main__":
    main()
