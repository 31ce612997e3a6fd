"""exp2 and log2 of the core's vectors, compiled apart, against long double."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
COUNT = 4096  # a multiple of every vector's length
ULPS = 2.0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The functions in a program, with the compiler's default instruction set."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    made = tmp_path_factory.mktemp("exp2_log2") / "program"
    source = Path(__file__).with_name("exp2_log2.cpp")
    options = ["-std=c++17", "-O2", "-ffp-contract=off", f"-I{ROOT / 'csrc'}"]
    subprocess.run([compiler, *options, str(source), "-o", str(made)], check=True)
    return made


def inputs(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Exponents down to where the result vanishes, and positive numbers, many of them near 1."""
    rng, least = np.random.default_rng(0), -160.0 if dtype.itemsize == 4 else -1100.0
    exponents = np.concatenate(
        [np.linspace(least, 1, 2000), -rng.exponential(size=COUNT - 2003), [0.0, -0.5, 0.5]]
    )
    close = 1 + rng.choice((-1, 1), 2000) * 10.0 ** rng.uniform(-16, -1, size=2000)
    numbers = np.concatenate([close, 2.0 ** rng.uniform(-120, 20, size=COUNT - 2001), [1.0]])
    return exponents.astype(dtype), numbers.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_two_units_in_the_last_place(program: Path, dtype: str) -> None:
    kind = np.dtype(dtype)
    exponents, numbers = inputs(kind)
    text = "\n".join(map(repr, [kind.itemsize, COUNT, *exponents.tolist(), *numbers.tolist()]))
    ran = subprocess.run([str(program)], input=text, capture_output=True, text=True, check=True)
    found = np.array(ran.stdout.split(), dtype=np.float64)
    for ours, exact in (
        (found[:COUNT], np.exp2(exponents.astype(np.longdouble))),
        (found[COUNT:], np.log2(numbers.astype(np.longdouble))),
    ):
        # Results below the least positive number round to 0 or to it.
        unit = np.spacing(np.maximum(np.abs(exact).astype(kind), np.finfo(kind).tiny))
        assert float((np.abs(ours - exact) / unit).max()) < ULPS
    assert found[0] == 0
    assert found[COUNT - 3] == 1
    assert found[-1] == 0
