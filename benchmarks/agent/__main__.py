"""Let `python -m benchmarks.agent` run the benchmark."""

import sys

from benchmarks.agent.main import main

sys.exit(main())
