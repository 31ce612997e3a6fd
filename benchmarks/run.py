"""Run every benchmark, including whole attention calls: `python benchmarks/run.py [--quick] [--out FOLDER] ...`.

The options are those of `regmax bench`, which runs all other benchmarks from the installed package.
"""

from __future__ import annotations

import sys

from regmax.cli import bench

try:
    from attention import measure
except ImportError:
    measure = None


if __name__ == "__main__":
    sys.exit(bench.run(sys.argv[1:], attention=measure))
