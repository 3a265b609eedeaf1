"""Let `python -m benchmarks.kube` run the benchmark."""

import sys

from benchmarks.kube.main import main

sys.exit(main())
