"""A process of a campaign: seeds come in by line, verdicts go out by line.

PYTHONHASHSEED=0 python -m roost.sim.worker ACTIONS SECONDS
"""

import sys

import msgspec

from roost.sim.draws import draw_history
from roost.sim.world import run_history


def main() -> None:
    """Run worlds until there are no more seeds."""
    actions, seconds = int(sys.argv[1]), float(sys.argv[2])
    for line in sys.stdin:
        verdict = run_history(draw_history(int(line), actions=actions, seconds=seconds))
        sys.stdout.write(msgspec.json.encode(verdict).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
