"""The interpreter is chosen before any kernel is imported; its scans run in tree order."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

try:
    import tree_scans
except ImportError:  # triton is missing: every module of this folder is skipped
    pass
else:
    tree_scans.install()
