"""Fuzz decoders and whole connections: `python -m tests.fuzz --messages 1000000 --seed 1`."""

import argparse
from time import perf_counter

from tests.fuzz.connections import fuzz_connections
from tests.fuzz.messages import Tally, fuzz_decoders


def main() -> None:
    """Send so many messages, one in twenty over a whole connection, and print how that went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    begun = perf_counter()
    spoken = fuzz_connections(given.seed, given.messages // 20)
    print(f"connections: {spoken.messages} messages, {perf_counter() - begun:.0f} s", flush=True)
    decoded = fuzz_decoders(given.seed, given.messages - spoken.messages, _tell)
    _tell(decoded)
    total = spoken.messages + decoded.messages
    print(f"fuzzed messages: {total} without a crash in {perf_counter() - begun:.0f} s")


def _tell(tally: Tally) -> None:
    print(
        f"decoders: {tally.messages} messages, {tally.read} read, {tally.refused} refused, "
        f"{tally.left_out} entries left out",
        flush=True,
    )


if __name__ == "__main__":
    main()
