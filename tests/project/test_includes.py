"""The check of the core's includes finds what it should, in a tree of a few lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_includes

GOOD = {
    "regmax.h": "enum regmax_kernel { REGMAX_SPARSEMAX };",
    "api.cpp": '#include "regmax.h"\n#include "attention/forward.hpp"',
    "attention/forward.hpp": '#include <vector>\n#include "../rows/rows.hpp"\n#include "runtime/tuning.hpp"',
    "rows/rows.hpp": '#include "../mappings/mapping.hpp"\n#include "cascade.hpp"',
    "rows/cascade.hpp": '#include "../simd/simd.hpp"',
    "mappings/mapping.hpp": '#include "../regmax.h"\n#include "sparsemax.hpp"\ncase REGMAX_SPARSEMAX:',
    "mappings/sparsemax.hpp": '#include "../algorithms/simplex.hpp"',
    "algorithms/simplex.hpp": '#include "../simd/simd.hpp"',
    "simd/simd.hpp": '#include "../runtime/tuning.hpp"',
    "runtime/tuning.hpp": "constexpr int SHORTEST = 8;",
    "README.md": "`case REGMAX_` is in one file.",
}


def faults(root: Path, **changes: str) -> list[str]:
    """The faults of the good tree after these changes; a double underscore stands for the path's slash."""
    edits = {name.replace("__", "/").replace("_hpp", ".hpp"): text for name, text in changes.items()}
    for name, text in (GOOD | edits).items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text + "\n")
    return check_includes.faults(root)


def test_a_tree_whose_includes_go_down_has_no_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert faults(tmp_path) == []
    assert check_includes.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""


def test_an_include_upwards_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (fault,) = faults(tmp_path, simd__simd_hpp='\n#include "../algorithms/simplex.hpp"')[:1]
    assert fault.startswith("simd/simd.hpp:2: includes algorithms/simplex.hpp, which stands higher.")
    assert fault.endswith("csrc -> attention -> rows -> mappings -> algorithms -> simd -> runtime.")
    assert check_includes.main([str(tmp_path)]) == 1
    assert f"{tmp_path}/simd/simd.hpp:2:" in capsys.readouterr().out


def test_a_cycle_within_a_folder_is_found(tmp_path: Path) -> None:
    assert faults(tmp_path, rows__cascade_hpp='#include "rows.hpp"') == [
        "rows/rows.hpp: includes itself, rows/rows.hpp -> rows/cascade.hpp -> rows/rows.hpp."
    ]


def test_an_unknown_folder_is_found(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, misc__x_hpp="int x;")
    assert fault.startswith(
        "misc/: this folder has no place in the order of includes. Known are runtime, simd,"
    )


def test_an_include_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    assert faults(tmp_path, rows__cascade_hpp='#include "gone.hpp"') == [
        'rows/cascade.hpp:1: "gone.hpp" does not exist.'
    ]


@pytest.mark.parametrize("line", ["  case REGMAX_FUSEDMAX:", "if (kernel == x)"])
def test_a_second_switch_over_the_kernels_is_found(tmp_path: Path, line: str) -> None:
    assert faults(tmp_path, rows__cascade_hpp=line) == [
        f"rows/cascade.hpp:1: only mappings/mapping.hpp may distinguish kernels. Got `{line.strip()}`."
    ]
