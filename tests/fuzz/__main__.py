"""Fuzz decoders, sessions and whole connections: `python -m tests.fuzz --seed 1`.

Messages through decoders and sessions, then attacks over real connections (`attack.py`), then the
decoders again by coverage where Atheris is installed (`guided.py`).
"""

import argparse
import subprocess
import sys
import warnings
from tempfile import TemporaryDirectory
from time import perf_counter

from hypothesis import seed as seeded
from hypothesis.errors import HypothesisWarning
from hypothesis.stateful import run_state_machine_as_test

from tests.fuzz.attack import Attack, attacks
from tests.fuzz.connections import fuzz_connections
from tests.fuzz.messages import Tally, fuzz_decoders


def main() -> None:
    """Send so many messages, one in twenty over a whole connection, and print how that went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--attacks", type=int, default=200, help="over real connections")
    parser.add_argument("--guided-s", type=int, default=60, help="seconds for Atheris")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    begun = perf_counter()
    spoken = fuzz_connections(given.seed, given.messages // 20)
    print(f"connections: {spoken.messages} messages, {perf_counter() - begun:.0f} s", flush=True)
    decoded = fuzz_decoders(given.seed, given.messages - spoken.messages, _tell)
    _tell(decoded)
    total = spoken.messages + decoded.messages
    print(f"fuzzed messages: {total} without a crash in {perf_counter() - begun:.0f} s", flush=True)
    if given.attacks:
        _attack(given.attacks, given.seed)
    if given.guided_s:
        _guide(given.guided_s, given.seed)


def _attack(count: int, seed: int) -> None:
    """Let Hypothesis attack a site over real connections; what breaks a law is shortened."""
    begun = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HypothesisWarning)
        run_state_machine_as_test(seeded(seed)(Attack), settings=attacks(count, 40))
    print(f"attacks: {count} harmed nobody in {perf_counter() - begun:.0f} s", flush=True)


def _guide(seconds: int, seed: int) -> None:
    """Let Atheris fuzz the decoders, in a process of its own."""
    with TemporaryDirectory(prefix="roost-fuzz-") as folder:
        command = [sys.executable, "-m", "tests.fuzz.guided", "--folder", folder]
        options = ["--seconds", str(seconds), "--seed", str(seed)]
        subprocess.run([*command, *options], check=True)


def _tell(tally: Tally) -> None:
    print(
        f"decoders: {tally.messages} messages, {tally.read} read, {tally.refused} refused, "
        f"{tally.left_out} entries left out",
        flush=True,
    )


if __name__ == "__main__":
    main()
