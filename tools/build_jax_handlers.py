"""Build the XLA FFI handlers of the core (csrc/jax.cpp) with the headers of the installed jaxlib.

    python tools/build_jax_handlers.py

writes src/regmax/_jax.so, which `regmax.frontends.jax` loads. A library runs with the jaxlib that it was built with and
with newer ones.
"""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "src" / "regmax" / "_jax.so"
# NDEBUG: an assertion in the headers would end the process; the handlers check types themselves.
FLAGS = (
    "-std=c++17",
    "-O2",
    "-DNDEBUG",
    "-Wall",
    "-Wextra",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-pthread",
)


def main() -> None:
    """Compile one file."""
    import jax

    compiler = os.environ.get("CXX", "c++")
    headers = ("-I", str(ROOT / "csrc"), "-isystem", jax.ffi.include_dir())
    subprocess.run([compiler, *FLAGS, *headers, str(ROOT / "csrc" / "jax.cpp"), "-o", str(OUT)], check=True)
    print(OUT)


if __name__ == "__main__":
    main()
