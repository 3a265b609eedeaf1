"""Atheris on the decoders of the agents' protocol: bytes that are chosen by what they reach.

    python -m tests.fuzz.guided --folder PATH [--seconds N] [--seed N]

Beside `messages.py`, which draws messages from their types: this one begins with valid ones, sees
which branches of the decoders' own Python its bytes reach, and keeps what reaches a new one. It
takes the extra package `atheris` (`pip install atheris`; no dependency of roost), and says so
where it is missing. What crashes a decoder is printed, and written to the folder.
"""

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path
from random import Random

import msgspec

MISSING = "atheris is not installed, so nothing was fuzzed by coverage. Maybe: pip install atheris"
_SEEDS = 200


def is_installed() -> bool:
    """Say whether Atheris can be imported."""
    return importlib.util.find_spec("atheris") is not None


def read_or_refuse(data: bytes) -> None:
    """Decode bytes in both directions; what was read is written and read again as the same."""
    from roost.wire.agentlink import decode_to_agent, encode, take_from_agent

    for decode in (lambda raw: take_from_agent(raw).message, decode_to_agent):
        try:
            message = decode(data)
        except msgspec.DecodeError:
            continue
        if decode(encode(message)) != message:
            raise AssertionError(f"written again it is another message: {data!r}")


def write_seeds(folder: Path, seed: int) -> None:
    """Write messages to begin with: as they are drawn, and bent ones."""
    from tests.fuzz.messages import Writer

    writer = Writer(Random(seed))
    for number in range(_SEEDS):
        (folder / str(number)).write_bytes(writer.write())
    words = sorted({word for each in folder.iterdir() for word in _words(each.read_bytes())})
    text = "\n".join(json.dumps(word) for word in words if word.isascii() and word.isalpha())
    (folder.parent / "words").write_text(text + "\n")


def _words(data: bytes) -> list[str]:
    return [part for part in data.decode(errors="replace").split('"') if 0 < len(part) < 20]


def main() -> None:
    """Fuzz for so many seconds; exit with 1 at the first crash."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="an empty one, for its corpus")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if not is_installed():
        print(MISSING, file=sys.stderr)
        return
    import atheris

    with atheris.instrument_imports(include=["roost.wire"]):
        import roost.wire.agentlink  # noqa: F401
    corpus: Path = given.folder.absolute() / "corpus"
    corpus.mkdir()
    write_seeds(corpus, given.seed)
    options = [
        sys.argv[0], str(corpus), f"-dict={corpus.parent / 'words'}", f"-seed={given.seed}",
        f"-max_total_time={given.seconds}", "-max_len=4096", "-verbosity=0", "-print_final_stats=1",
    ]  # fmt: skip
    os.chdir(corpus.parent)
    atheris.Setup(options, read_or_refuse)
    atheris.Fuzz()  # never returns: it ends the process


if __name__ == "__main__":
    main()
