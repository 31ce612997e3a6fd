"""Run every benchmark, and judge it by the library's bars: `python benchmarks/run.py [--quick] [--out FOLDER] ...`.

The options are those of `regmax bench`; whole attention calls and the bars are added here.
"""

from __future__ import annotations

import sys

import attention
import bars

from regmax.cli import bench

if __name__ == "__main__":
    sys.exit(bench.run(sys.argv[1:], attention=attention.measure, bars=bars))
