"""Let `python -m benchmarks.analysis` run the benchmark."""

import sys

from benchmarks.analysis.main import main

sys.exit(main())
