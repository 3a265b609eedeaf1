"""Let `python -m benchmarks.hardening` run the benchmark."""

import sys

from benchmarks.hardening.main import main

sys.exit(main())
