"""Let `python -m benchmarks.cli` run the benchmark."""

import sys

from benchmarks.cli.main import main

sys.exit(main())
