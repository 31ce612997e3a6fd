"""`docs/add-a-regularizer.md`, followed for a toy mapping: with its rows in the tables it is accepted everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import regmax
from regmax import duality
from regmax.bench.contestants import mapping as timed
from regmax.cli import main
from regmax.experiments.config import Config, make
from regmax.experiments.errors import ExperimentError
from regmax.experiments.models.attention import mapping as module_of
from regmax.kernels import KERNELS, Kernel, reference
from regmax.kernels.tensors import jacobians, mappings, strength
from regmax.mappings import MAPPINGS, NamedMapping
from regmax.nn.mappings import module
from regmax.nn.strengths import Strengths
from regmax.plots import (
    Setting,
    attention_heatmap,
    explorer_page,
    mapping_curves,
    mapping_surfaces,
    parse_examples,
)
from regmax.regularizers.base import Bounds, KernelRegularizer
from regmax.resolver import resolve

ROOT = Path(__file__).parent.parent.parent
X = np.random.default_rng(0).normal(size=(3, 6))


@dataclass(frozen=True, eq=False)
class ScaledNorm(KernelRegularizer):
    """Omega(y) = c/2 ||y||^2, whose mapping is sparsemax of x / c."""

    c: Any = 1.5
    bounds: ClassVar[Bounds] = Bounds("toymax(..., c=...)", above=0.5, up_to=4.0)
    strength: ClassVar[str] = "c"
    kernel: ClassVar[str] = "toymax"

    def value(self, y: Any, mask: Any = None) -> Any:
        return (self.c * 0.5 * (y * y).sum(-1, keepdims=True))[..., 0]


@pytest.fixture(autouse=True)
def _toymax(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of the page: the kernel, the reference, the tensor functions, the registry's row."""
    argmaxes, products = reference.mappings.ARGMAX, reference.jacobians.JACOBIAN_PRODUCT
    project, product = argmaxes["sparsemax"], products["sparsemax"]
    monkeypatch.setitem(KERNELS, "toymax", Kernel("none", constant_jacobian=False, core=False))
    monkeypatch.setitem(argmaxes, "toymax", lambda x, c, gamma: project(x, 0.0, c * gamma))
    monkeypatch.setitem(products, "toymax", lambda y, v, c: product(y, v, c) / c)
    tensor_argmax, tensor_product = mappings._ARGMAX["sparsemax"], jacobians._PRODUCT["sparsemax"]
    monkeypatch.setitem(mappings._ARGMAX, "toymax", lambda x, kept, c: tensor_argmax(x / c, kept, c))
    monkeypatch.setitem(jacobians._PRODUCT, "toymax", lambda y, v, kept, c: tensor_product(y, v, kept, c) / c)
    monkeypatch.setitem(strength._GRADIENT, "toymax", lambda y, kept, c: y)
    dual = duality._DUALS["sparsemax"]
    monkeypatch.setitem(duality._DUALS, "toymax", lambda c, x, y, keep: c * dual(None, x / c, y, keep))
    monkeypatch.setitem(
        MAPPINGS, "toymax", NamedMapping("toymax", ScaledNorm, symbol="c", sparsemax_at=1.0, javascript=False)
    )


def test_its_framework_is_there() -> None:
    omega = ScaledNorm(2.0)
    y = regmax.regularized_argmax(omega, X)
    np.testing.assert_allclose(y, regmax.sparsemax(X / 2), rtol=0, atol=1e-15)
    assert np.all(np.abs(regmax.duality_gap(omega, X, y)) < 1e-14)
    x = torch.tensor(X, requires_grad=True)
    torch.testing.assert_close(regmax.regularized_argmax(omega, x).detach().numpy(), y)
    assert torch.autograd.gradcheck(lambda x: regmax.regularized_argmax(omega, x), x)
    c = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda c: regmax.regularized_argmax(ScaledNorm(c), x.detach()), c)
    with pytest.raises(ValueError, match=r"`toymax\(..., c=...\)` must be in \(0.5, 4\]\. Got 5"):
        ScaledNorm(5.0)


def test_its_name_is_resolved_with_strengths_and_suggested() -> None:
    assert resolve("toymax,c=2,gamma=3").omega == ScaledNorm(2.0)
    np.testing.assert_array_equal(resolve("toymax")(X), regmax.regularized_argmax(ScaledNorm(), X))
    with pytest.raises(ValueError, match=r"Got 'toimax': did you mean toymax\?"):
        resolve("toimax")
    np.testing.assert_array_equal(
        regmax.regularized_argmax("toymax,c=2", X), regmax.regularized_argmax(ScaledNorm(2.0), X)
    )


def test_modules_and_attention_take_it() -> None:
    x = torch.tensor(X)
    torch.testing.assert_close(module("toymax", c=2.0)(x), regmax.regularized_argmax(ScaledNorm(2.0), x))
    assert 0.5 < Strengths({"c": 2.0}, "c")["c"].item() <= 4
    q, k, v = torch.randn(3, 2, 9, 4, dtype=torch.float64)
    expected = regmax.attention(q, k, v, mapping=lambda x, dim: regmax.sparsemax(x / 2, dim))
    torch.testing.assert_close(regmax.attention(q, k, v, mapping="toymax,c=2"), expected)
    attend = regmax.nn.MultiheadAttention(8, 2, mapping="toymax").double()
    z = torch.randn(5, 3, 8, dtype=torch.float64, requires_grad=True)
    attend(z, z, z)[0].sum().backward()
    assert z.grad is not None
    regmax.nn.GlobalAttention(8, mapping="toymax,c=3")(torch.randn(1, 8), torch.randn(1, 4, 8))
    assert regmax.integrations.transformers.register("toymax,c=2") == ("toymax,c=2",)
    assert "toymax" in regmax.integrations.transformers.register()


def test_figures_benchmarks_and_experiments_take_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = Setting.parse("toymax,c=2")
    assert setting.label == "toymax, c = 2"
    np.testing.assert_array_equal(setting(X), regmax.regularized_argmax(ScaledNorm(2.0), X))
    attention_heatmap(setting(X), [*"abcdef"], [*"xyz"])
    titles = [ax.get_title() for ax in mapping_surfaces(points=3).axes]
    assert any(title.startswith("toymax, c = ") for title in titles)
    assert any(str(line.get_label()).startswith("toymax, c = ") for line in mapping_curves().axes[0].lines)
    torch.testing.assert_close(
        timed("toymax", 6)(torch.tensor(X)), regmax.regularized_argmax(ScaledNorm(), torch.tensor(X))
    )
    assert resolve(module_of(Config("translation", "small", mapping="toymax"))).omega == ScaledNorm()
    with pytest.raises(ExperimentError, match="`c` is not a field of a run; toymax keeps its default"):
        make("translation", "small", {"mapping": "toymax,c=2"})
    assert main(["demo", "--quick", "--out", str(tmp_path)]) == 0
    assert "toymax" in capsys.readouterr().out


def test_the_page_without_its_javascript_says_so() -> None:
    example = {"source": ["a", "b"], "target": ["c"], "scores": [[1.0, 0.5]]}
    examples = parse_examples({"mappings": ["toymax"], "examples": [example]})
    with pytest.raises(ValueError, match=r"in the browser\. Got toymax, which it does not know"):
        explorer_page(examples)


def test_the_page_lists_every_place_that_knows_a_mapping() -> None:
    """Each file that the steps name exists, and each that a mapping needs is named."""
    page = (ROOT / "docs/add-a-regularizer.md").read_text(encoding="utf-8")
    steps = page[page.index("## With a kernel") :]
    named = re.findall(r"`((?:src|csrc|tests|docs)/[\w./<>-]+|CHANGELOG.md|README.md)`", steps)
    generic = [path for path in named if "<" in path or path.startswith("csrc/")]
    assert [path for path in named if path not in generic and not (ROOT / path).exists()] == []
    needed = (
        "csrc/mappings/<name>.hpp",
        "csrc/mappings/mapping.hpp",
        "src/regmax/kernels/__init__.py",
        "src/regmax/kernels/reference/mappings.py",
        "src/regmax/kernels/reference/jacobians.py",
        "src/regmax/kernels/tensors/mappings.py",
        "src/regmax/kernels/tensors/jacobians.py",
        "src/regmax/kernels/tensors/strength.py",
        "src/regmax/regularizers/named.py",
        "src/regmax/mappings.py",
        "src/regmax/functional.py",
        "src/regmax/nn/mappings.py",
        "src/regmax/plots/explorer/mappings.js",
        "src/regmax/plots/colours.py",
        "tests/support/table.py",
        "tests/support/oracle.py",
        "tests/support/certificates.py",
        "docs/api/regmax.md",
    )
    assert [path for path in needed if path not in named] == []
