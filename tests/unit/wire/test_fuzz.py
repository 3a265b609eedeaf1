"""Anything may come from a network: a decoder answers with a value, or with an error of decoding.

`make fuzz` sends a million messages through decoders and whole connections; this is a short run.
"""

from tests.fuzz.messages import fuzz_decoders


def test_decoders_survive_twenty_thousand_messages() -> None:
    assert fuzz_decoders(seed=1, count=20_000).messages == 20_000
