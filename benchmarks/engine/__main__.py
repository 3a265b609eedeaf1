"""Let `python -m benchmarks.engine` run the benchmark."""

import sys

from benchmarks.engine.main import main

sys.exit(main())
