"""A process of a campaign: tasks come in by line, verdicts go out by line, both as JSON.

PYTHONHASHSEED=0 python -m roost.sim.campaign.worker
"""

import sys
from time import process_time

import msgspec

from roost.sim.campaign.running import Ran, Task
from roost.sim.world import run_history

_task = msgspec.json.Decoder(Task)


def main() -> None:
    """Run worlds until there are no more tasks."""
    for line in sys.stdin:
        began = process_time()
        task = _task.decode(line)
        ran = Ran(task, run_history(task.history()), 0.0)
        ran.cpu_s = process_time() - began
        sys.stdout.write(msgspec.json.encode(ran).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
