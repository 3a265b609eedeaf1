"""Let `python -m benchmarks.rules` run the benchmark."""

import sys

from benchmarks.rules.main import main

sys.exit(main())
