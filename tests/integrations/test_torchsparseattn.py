"""The names of torchsparseattn: its own tests pass on them, and lengths are deletions."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from importlib import import_module
from pathlib import Path

import pytest
import torch

import regmax
from regmax.compat import torchsparseattn as compat

# The paper's own code, which `make test` downloads into the environment; its tests are not part of the project.
ARCHIVE = Path(sys.prefix) / "torchsparseattn-0.2.tar.gz"
MODULES = ("fused", "oscar", "sparsemax")


# Of the sixteen finite differences of OSCAR's prox, which take longest, four stand for all.
@pytest.mark.parametrize(
    ("some", "passed"),
    [("not (test_oscar and test_finite_diff) or 1-0.01", 32), pytest.param("", 44, marks=pytest.mark.long)],
    ids=["most", "all"],
)
@pytest.mark.skipif(not ARCHIVE.exists(), reason="`make test` downloads torchsparseattn's sources")
def test_its_own_tests_pass(some: str, passed: int, tmp_path: Path) -> None:
    package = tmp_path / "borrowed"
    package.mkdir()
    with tarfile.open(ARCHIVE) as archive:
        for member in archive.getmembers():
            name = Path(member.name).name
            if name.startswith("test_"):
                (package / name).write_bytes(archive.extractfile(member).read())
    # The tests use relative imports, which resolve to this package.
    (package / "__init__.py").write_text("from regmax.compat.torchsparseattn import *\n")
    for module in MODULES:
        # Every name, also those that a star does not import.
        public = [name for name in vars(compat) if not name.startswith("_")]
        names = f"from regmax.compat.torchsparseattn.{module} import {', '.join(public)}\n"
        (package / f"{module}.py").write_text(names)
    # In a separate process: they change torch's default type.
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "-k", some]
    command = [sys.executable, "-m", "pytest", *options, str(package)]
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 0, run.stdout
    assert f"{passed} passed" in run.stdout


PROXES = [compat.FusedProxFunction(0.3), compat.OscarProxFunction(0.1, 0.2)]
MAPPINGS = [compat.Sparsemax(), compat.SparsemaxFunction(), compat.Fusedmax(0.1), compat.Oscarmax(0.05)]


@pytest.mark.parametrize("function", [*PROXES, *MAPPINGS], ids=lambda function: type(function).__name__)
def test_what_is_beyond_the_length_takes_no_part(function: object) -> None:
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)).requires_grad_()
    lengths = [7, 1, 4, 4, 6]
    v = torch.cos(torch.arange(35.0)).reshape(5, 7)
    y = function(x, torch.tensor(lengths))
    torch.testing.assert_close(y, function(x, lengths), rtol=0, atol=0)
    (gradient,) = torch.autograd.grad(y, x, v)
    for i, length in enumerate(lengths):
        row = x[i, :length].detach().requires_grad_()
        alone = function(row)
        torch.testing.assert_close(y[i, :length], alone)
        (expected,) = torch.autograd.grad(alone, row, v[i, :length])
        torch.testing.assert_close(gradient[i, :length], expected)
        assert not y[i, length:].any()
        assert not gradient[i, length:].any()


def test_alpha_and_beta_are_lam() -> None:
    x = torch.randn(8, 20, generator=torch.Generator().manual_seed(1))
    assert torch.equal(compat.Fusedmax(0.2)(x), regmax.fusedmax(x, lam=0.2))
    assert torch.equal(compat.Sparsemax()(x), regmax.sparsemax(x))
    composed = regmax.regularized_argmax(regmax.OscarComposition(lam=0.02), x)
    assert torch.equal(compat.Oscarmax(0.02)(x), composed)
    assert not torch.allclose(composed, regmax.oscarmax(x, lam=0.02))


@pytest.mark.parametrize("lengths", [[3], [0, 2], [2, 4], torch.tensor([1, 2, 3])])
def test_lengths_that_do_not_fit_are_refused(lengths: object) -> None:
    with pytest.raises(ValueError, match="a number from 1 to 3 for each of 2 rows"):
        compat.Fusedmax()(torch.zeros(2, 3), lengths)


def test_more_than_two_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one row, or rows as a matrix\. Got 3 dimensions"):
        compat.Sparsemax()(torch.zeros(2, 2, 2))


@pytest.mark.parametrize(
    ("module", "name"),
    [("fused", "fused_prox_jv_slow"), ("oscar", "prox_owl"), ("sparsemax", "project_simplex")],
)
def test_its_modules_can_be_imported_from(module: str, name: str) -> None:
    assert getattr(import_module(f"regmax.compat.torchsparseattn.{module}"), name) is getattr(compat, name)
