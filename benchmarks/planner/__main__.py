"""Let `python -m benchmarks.planner` run the benchmark."""

import sys

from benchmarks.planner.main import main

sys.exit(main())
