"""Let `python -m benchmarks.api` run the benchmark."""

import sys

from benchmarks.api.main import main

sys.exit(main())
