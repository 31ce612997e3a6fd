"""Bad arguments raise at the public entry, and the message says which call, what it needs and what it got."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from table import DEFAULTS, Entry

import regmax

X = np.array([[1.0, 0.9, 0.6]])
FRAMEWORKS = pytest.mark.parametrize("array", [np.asarray, torch.tensor], ids=["numpy", "torch"])
MAPPINGS = pytest.mark.parametrize("entry", DEFAULTS, ids=str)


@pytest.mark.pairs
@MAPPINGS
@FRAMEWORKS
@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.bool_, np.complex64])
def test_scores_that_are_not_real_numbers_raise(entry: Entry, array: Any, dtype: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"`{entry.mapping}\(.*floating-point scores.*Got .*{np.dtype(dtype).name}"
    ):
        entry(array(np.ones((2, 3), dtype=dtype)))


@MAPPINGS
@pytest.mark.parametrize("x", [[1.0, 2.0], 1.0, None, "scores"], ids=["list", "float", "None", "str"])
def test_what_is_no_array_raises(entry: Entry, x: Any) -> None:
    with pytest.raises(
        TypeError,
        match=rf"`{entry.mapping}\(.*NumPy array, a torch tensor or a JAX array.*Got {type(x).__name__}",
    ):
        entry(x)


@MAPPINGS
@FRAMEWORKS
def test_a_single_number_raises(entry: Entry, array: Any) -> None:
    with pytest.raises(ValueError, match=rf"`{entry.mapping}\(.*at least one dimension"):
        entry(array(np.array(1.0)))


@pytest.mark.pairs
@MAPPINGS
@FRAMEWORKS
@pytest.mark.parametrize("dim", [2, -3, 10])
def test_a_dim_out_of_range_raises(entry: Entry, array: Any, dim: int) -> None:
    with pytest.raises(ValueError, match=rf"`{entry.mapping}\(.*`dim` from -2 to 1.*Got {dim}"):
        entry(array(X), dim)


@pytest.mark.pairs
@MAPPINGS
@FRAMEWORKS
@pytest.mark.parametrize("dim", [1.0, None, True])
def test_a_dim_that_is_no_integer_raises(entry: Entry, array: Any, dim: Any) -> None:
    with pytest.raises(TypeError, match=rf"`{entry.mapping}\(.*integer `dim`.*Got {type(dim).__name__}"):
        entry(array(X), dim)


@pytest.mark.pairs
@MAPPINGS
@FRAMEWORKS
@pytest.mark.parametrize("gamma", [0.0, -1.0, float("nan"), float("inf")])
def test_a_gamma_that_is_not_positive_raises(entry: Entry, array: Any, gamma: float) -> None:
    with pytest.raises(ValueError, match=rf"gamma.*must be positive.*Got {gamma}"):
        entry(array(X), gamma=gamma)


@FRAMEWORKS
@pytest.mark.parametrize("mapping", ["fusedmax", "oscarmax"])
@pytest.mark.parametrize("lam", [-0.1, float("nan"), float("inf")])
def test_a_lam_that_is_negative_or_not_finite_raises(array: Any, mapping: str, lam: float) -> None:
    with pytest.raises(ValueError, match=rf"`{mapping}\(..., lam=...\)` must be non-negative.*Got {lam}"):
        getattr(regmax, mapping)(array(X), lam=lam)


@FRAMEWORKS
@pytest.mark.parametrize("p", [1.0, 0.5, 2.1, -1.5, float("nan"), float("inf")])
def test_a_p_outside_its_interval_raises(array: Any, p: float) -> None:
    with pytest.raises(ValueError, match=rf"`sqpnormmax\(..., p=...\)` must be in \(1, 2\].*Got {p}"):
        regmax.sqpnormmax(array(X), p=p)


@FRAMEWORKS
@pytest.mark.parametrize("alpha", [0.99, 2.1, -1.5, float("nan"), float("inf")])
def test_an_alpha_outside_its_interval_raises(array: Any, alpha: float) -> None:
    with pytest.raises(ValueError, match=rf"`entmax\(..., alpha=...\)` must be in \[1, 2\]\. Got {alpha}"):
        regmax.entmax(array(X), alpha=alpha)


@pytest.mark.parametrize(
    ("regularizer", "parameter", "value"),
    [
        ("FusedLasso", "lam", -1.0),
        ("Oscar", "lam", -1.0),
        ("OscarComposition", "lam", float("nan")),
        ("SquaredPNorm", "p", 1.0),
        ("NegativeTsallisEntropy", "alpha", 0.9),
    ],
)
def test_a_regularizer_refuses_its_parameters_when_it_is_made(
    regularizer: str, parameter: str, value: float
) -> None:
    with pytest.raises(ValueError, match=rf"{parameter}=...\)` must be .*Got {value}"):
        getattr(regmax, regularizer)(**{parameter: value})


@FRAMEWORKS
@pytest.mark.parametrize(
    ("mapping", "name"), [("fusedmax", "lam"), ("entmax", "alpha"), ("sparsemax", "gamma")]
)
@pytest.mark.parametrize("value", ["0.1", None, [0.1]], ids=["str", "None", "list"])
def test_a_strength_that_is_no_number_raises(array: Any, mapping: str, name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"{name}.*must be a number.*Got {type(value).__name__}"):
        getattr(regmax, mapping)(array(X), **{name: value})


@FRAMEWORKS
@pytest.mark.parametrize(
    ("mapping", "name"), [("fusedmax", "lam"), ("entmax", "alpha"), ("sparsemax", "gamma")]
)
def test_an_array_with_one_bad_strength_raises(array: Any, mapping: str, name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}.*must be .*Got -1"):
        getattr(regmax, mapping)(array(np.ones((2, 3))), **{name: array(np.array([[0.5], [-1.0]]))})


@FRAMEWORKS
@pytest.mark.parametrize(
    ("mapping", "name"), [("fusedmax", "lam"), ("sqpnormmax", "p"), ("softmax", "gamma")]
)
def test_strengths_that_do_not_broadcast_raise(array: Any, mapping: str, name: str) -> None:
    with pytest.raises(ValueError, match=rf"`{mapping}\(.*{name}.*` must broadcast.*Got \(4, 1\)"):
        getattr(regmax, mapping)(array(np.ones((2, 3))), **{name: array(np.full((4, 1), 1.5))})


@pytest.mark.pairs
@MAPPINGS
@FRAMEWORKS
@pytest.mark.parametrize("shape", [(2,), (2, 3), (1, 1, 3), (0, 3)])
def test_a_mask_that_does_not_broadcast_raises(entry: Entry, array: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"`{entry.mapping}\(.*`mask` must broadcast.*\(1, 3\).*Got "):
        entry(array(X), mask=array(np.ones(shape, dtype=bool)))


@pytest.mark.pairs
@MAPPINGS
@FRAMEWORKS
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
def test_a_mask_that_is_not_boolean_raises(entry: Entry, array: Any, dtype: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"`{entry.mapping}\(.*`mask` must be boolean.*Got .*{np.dtype(dtype).name}"
    ):
        entry(array(X), mask=array(np.ones((1, 3), dtype=dtype)))


MASKED = np.ma.masked_array(X, mask=[[False, True, False]])


@MAPPINGS
def test_masked_arrays_raise_and_the_message_says_how_to_pass_them(entry: Entry) -> None:
    message = (
        rf"`{entry.mapping}\(.*` needs a plain array\. Got a masked array: pass `a\.data`.* `mask=~numpy"
    )
    with pytest.raises(TypeError, match=message):
        entry(MASKED)
    with pytest.raises(TypeError, match=message):
        entry(X, mask=np.ma.masked_array(X > 0))
    with pytest.raises(TypeError, match=message):
        entry(X, gamma=np.ma.masked_array([2.0]))
    y = entry(MASKED.data, mask=~np.ma.getmaskarray(MASKED))
    np.testing.assert_array_equal(y[:, [0, 2]], entry(X[:, [0, 2]]))


@pytest.mark.parametrize(
    "call",
    [
        lambda: regmax.prox_tv1d(MASKED, 0.1),
        lambda: regmax.prox_owl(X[0], np.ma.masked_array([2.0, 1.0, 0.0])),
        lambda: regmax.groups(MASKED),
        lambda: regmax.duality_gap(regmax.SquaredNorm(), X, MASKED),
        lambda: regmax.regularized_max(regmax.SquaredNorm(), MASKED),
    ],
)
def test_masked_arrays_raise_everywhere(call: Any) -> None:
    with pytest.raises(TypeError, match=r"needs a plain array\. Got a masked array"):
        call()


@MAPPINGS
def test_a_mask_of_another_framework_raises(entry: Entry) -> None:
    mask = np.ones((1, 3), dtype=bool)
    with pytest.raises(TypeError, match=r"`mask` must be of the scores' kind, Tensor.*Got ndarray"):
        entry(torch.tensor(X), mask=mask)
    with pytest.raises(TypeError, match=r"`mask` must be of the scores' kind, ndarray.*Got Tensor"):
        entry(X, mask=torch.tensor(mask))
    with pytest.raises(TypeError, match=r"`mask` must be of the scores' kind.*Got list"):
        entry(X, mask=[[True, True, False]])


@pytest.mark.parametrize("function", [regmax.regularized_max, regmax.regularized_argmax])
def test_what_is_no_regularizer_raises(function: Any) -> None:
    with pytest.raises(TypeError, match=rf"`{function.__name__}\(.*regularizer.*Got int"):
        function(3, X)


@FRAMEWORKS
def test_weights_of_another_shape_than_the_scores_raise(array: Any) -> None:
    with pytest.raises(ValueError, match=r"`duality_gap\(.*shape.*Got \(1, 2\)"):
        regmax.duality_gap(regmax.SquaredNorm(), array(X), array(X[:, :2]))


@FRAMEWORKS
@pytest.mark.parametrize("weights", [[1.0, 2.0, 3.0], [3.0, 2.0, -1.0], [3.0, float("nan"), 1.0]])
def test_owl_weights_that_are_not_sorted_and_nonnegative_raise(array: Any, weights: list[float]) -> None:
    with pytest.raises(
        ValueError, match=r"`prox_owl\(x, weights\)` needs finite, non-negative, non-increasing"
    ):
        regmax.prox_owl(array(X), array(np.array(weights)))


@FRAMEWORKS
def test_owl_weights_of_another_length_raise(array: Any) -> None:
    with pytest.raises(
        ValueError, match=r"`prox_owl\(x, weights\)` needs one weight per position.*Got \(2,\)"
    ):
        regmax.prox_owl(array(X), array(np.array([2.0, 1.0])))


NOT_DENSE = {
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(3), torch.zeros(5)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.zeros(3), torch.zeros(5)], layout=torch.jagged),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "compressed": lambda: torch.eye(3).to_sparse_csr(),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("make", NOT_DENSE.values(), ids=NOT_DENSE)
@pytest.mark.parametrize(
    "call", [regmax.fusedmax, regmax.softmax, regmax.groups, partial(regmax.regularized_max, "sparsemax")]
)
def test_a_tensor_that_is_not_dense_is_told_what_to_do(call: Any, make: Any) -> None:
    with pytest.raises(TypeError, match=r"needs a dense tensor\. Got .*: (pad it|call)"):
        call(make())


@pytest.mark.parametrize("name", ["nn", "attention", "replace_attention"])
def test_without_torch_the_error_says_what_to_install(name: str) -> None:
    code = f"import sys; sys.modules['torch'] = None; import regmax; regmax.{name}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr.endswith(f"`regmax.{name}` needs PyTorch: install it with `pip install torch`.\n")
