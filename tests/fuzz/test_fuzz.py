"""Anything may come from a network: a decoder answers with a value, or with an error of decoding.

`make fuzz` sends a million messages; this is a short run of the same.
"""

from tests.fuzz.connections import fuzz_connections
from tests.fuzz.messages import fuzz_decoders


def test_decoders_survive_anything() -> None:
    tally = fuzz_decoders(seed=1, count=20_000)
    assert tally.messages == 20_000
    assert tally.read > 1000  # a fuzzer whose messages are all refused at once finds nothing
    assert tally.left_out > 100


def test_connections_survive_anything() -> None:
    assert fuzz_connections(seed=1, count=2000).messages >= 2000
