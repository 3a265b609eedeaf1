"""Let `python -m benchmarks.sim` run the benchmark."""

import sys

from benchmarks.sim.main import main

sys.exit(main())
