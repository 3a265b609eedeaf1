"""Let `python -m benchmarks.jobs` run the benchmark."""

import sys

from benchmarks.jobs.main import main

sys.exit(main())
