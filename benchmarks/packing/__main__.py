"""Let `python -m benchmarks.packing` run the benchmark."""

import sys

from benchmarks.packing.main import main

sys.exit(main())
