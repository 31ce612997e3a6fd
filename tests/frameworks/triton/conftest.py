"""The interpreter is chosen before any kernel is imported; its scans run in tree order, and its calls are faster."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

try:
    import fast_interpreter
    import tree_scans
except ImportError:  # triton is missing: every module of this folder is skipped
    pass
else:
    fast_interpreter.install()
    tree_scans.install()
