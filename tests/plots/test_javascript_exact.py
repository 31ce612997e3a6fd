"""The JavaScript mappings against the exact cases that every implementation is judged by."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from exact_cases import Case, faults, load

from regmax.mappings import MAPPINGS
from regmax.plots import explorer

# What float64 decides wrongly, and the library in wider arithmetic: weights of less than 1e-16 and ties on paper, and
# the last digits of weights that are a thousandth of the scores.
KNOWN = {
    "sparsemax None ramp 12 float64",
    "fusedmax 0.0 ramp 12 float64",
    "oscarmax 0.0 ramp 12 float64",
    "fusedmax 0.05 tenths 9 float64 4",
    "fusedmax 0.0001220703125 peak 4096 float64",
    "sqpnormmax 1.5 found 4",
}


def setting(case: Case) -> dict[str, object]:
    row = MAPPINGS[case.kernel]
    own = {} if row.strength is None else {row.strength: case.theta}
    return {"mapping": case.kernel, "gamma": 1.0, **own}


@pytest.mark.parametrize("mapping", [name for name, row in MAPPINGS.items() if row.javascript])
def test_the_exact_cases_are_passed(node: str, mapping: str) -> None:
    cases = [case for case in load() if case.kernel == mapping]
    assert cases
    rows = [
        {"x": [score if kept else None for score, kept in zip(case.x.tolist(), case.keep, strict=True)],
         "setting": setting(case)}
        for case in cases
    ]  # fmt: skip
    script = Path(__file__).with_name("map_rows.js")
    command = [node, str(script), str(Path(explorer.__file__).with_name("mappings.js"))]
    ran = subprocess.run(command, input=json.dumps(rows), capture_output=True, text=True, check=True)
    wrong = {}
    for case, y in zip(cases, json.loads(ran.stdout), strict=True):
        # A case of float32 scores is judged at float32's precision.
        found = faults(case, case.x.dtype.type(y))
        if found:
            wrong[case.name] = found
    assert wrong.keys() == {case.name for case in cases} & KNOWN, wrong
