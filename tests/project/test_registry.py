"""The registry is the only list of the mappings: whatever else names them agrees with it."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from certificates import gap
from oracle import OMEGAS
from table import TABLE

import regmax
from regmax import duality, functional
from regmax.cli import bench as bench_command
from regmax.kernels import KERNELS, native, reference
from regmax.kernels.tensors import jacobians, mappings, strength
from regmax.mappings import MAPPINGS, NamedMapping, at, named, parse, row_of
from regmax.plots import colours, explorer

ROWS = pytest.mark.parametrize("row", MAPPINGS.values(), ids=lambda row: row.name)
X = np.array([[1.0, 0.9, -0.2, 0.85]])


@ROWS
def test_the_function_has_the_registrys_strength_and_default(row: NamedMapping) -> None:
    parameters = inspect.signature(getattr(regmax, row.name)).parameters
    own = {name: parameters[name].default for name in parameters if name not in ("scores", "dim", "mask")}
    assert own == row.strengths


@ROWS
def test_the_function_is_the_argmax_of_the_registrys_regularizer(row: NamedMapping) -> None:
    for x in (X, torch.tensor(X)):
        expected = regmax.regularized_argmax(row.made(), x)
        assert bool((getattr(regmax, row.name)(x) == expected).all())


@ROWS
def test_the_module_has_the_registrys_strength_and_default(row: NamedMapping) -> None:
    module = getattr(regmax.nn, row.name.capitalize())
    parameters = inspect.signature(module).parameters
    own = {name: parameters[name].default for name in parameters if name not in ("dim", "learnable")}
    assert own == row.strengths
    resolved = module().resolved()
    assert (resolved.omega, resolved.gamma) == (row.made(), 1.0)


@ROWS
def test_every_mapping_has_its_kernel_in_every_implementation(row: NamedMapping) -> None:
    assert row.kernel in KERNELS
    exact = (reference.mappings.ARGMAX, reference.jacobians.JACOBIAN_PRODUCT)
    for table in (*exact, mappings._ARGMAX, jacobians._PRODUCT):
        assert row.kernel in table
    assert (row.strength is None) == (row.kernel not in strength._GRADIENT)
    assert row.kernel == "softmax" or row.kernel in native.CODES


@ROWS
def test_a_strength_that_makes_it_sparsemax_does(row: NamedMapping) -> None:
    if row.sparsemax_at is not None:
        np.testing.assert_array_equal(
            regmax.regularized_argmax(row.regularizer.made(row.sparsemax_at), X), regmax.sparsemax(X)
        )


# What is chosen in one place, by the mapping's name. A table that lacks a new row is reported here.
CHOICES = {
    "the laws' table, tests/table.py": {entry.mapping for entry in TABLE},
    "the convex solver, tests/oracle.py": set(OMEGAS),
    "lines of figures, plots/colours.py": set(colours.LINES),
}


@pytest.mark.parametrize("place", CHOICES)
def test_every_choice_by_name_is_made_for_every_mapping(place: str) -> None:
    missing, unknown = set(MAPPINGS) - CHOICES[place], CHOICES[place] - set(MAPPINGS)
    assert not missing, f"{place} has nothing for {', '.join(missing)}"
    assert not unknown, f"{place} has {', '.join(unknown)}, which the registry has not"


def test_the_experiments_demo_has_a_choice_for_every_mapping() -> None:
    from regmax.experiments import demo

    assert set(demo._STRENGTHS) == set(MAPPINGS)


def test_the_explorer_knows_the_registrys_mappings() -> None:
    script = Path(explorer.__file__).with_name("mappings.js").read_text(encoding="utf-8")
    table = script[script.index("const MAPPINGS") : script.index("};")]
    found = {
        name: re.findall(r'"(\w+)"', parameters)
        for name, parameters in re.findall(r"^  (\w+): .*parameters: \[(.*?)\]", table, re.MULTILINE)
    }
    assert found == {name: list(row.strengths) for name, row in MAPPINGS.items() if row.javascript}


def test_every_mapping_has_a_dual() -> None:
    assert set(duality._DUALS) == set(MAPPINGS)


@ROWS
def test_every_mapping_has_an_independent_certificate(row: NamedMapping) -> None:
    y = regmax.regularized_argmax(row.made(), X)
    own = {} if row.strength is None else {row.strength: row.default}
    assert abs(gap(row.name, X, y, np.ones(X.shape, bool), **own)).max() < 1e-9


def test_the_benchmark_times_every_mapping_but_softmax() -> None:
    assert tuple(name for name in MAPPINGS if name != "softmax") == bench_command.TIMED


def test_the_cliffs_have_a_setting_of_every_mapping_but_softmax() -> None:
    from regmax.bench.cliffs import SETTINGS

    assert {setting.mapping for setting in SETTINGS} == {name for name in MAPPINGS if name != "softmax"}


def test_no_module_keeps_its_own_list_of_the_mappings() -> None:
    """Four names of mappings in one file are a list of them, which a new row would not reach."""
    names = re.compile(rf'"({"|".join(MAPPINGS)})"')
    allowed = {
        "mappings.py",  # the registry
        "__init__.py",  # the public names
        "plots/colours.py",  # choices, which the tests above compare with the registry
        "experiments/demo.py",
        "bench/bars.py",
        "bench/cliffs.py",
        "bench/contestants.py",  # the rows that another library has
        "nn/mappings.py",  # one class each
        "regularizers/named.py",
        "duality.py",  # a dual each
        "kernels/__init__.py",  # kernels, which are more than the mappings
        "kernels/reference/mappings.py",
        "kernels/reference/jacobians.py",
        "kernels/tensors/mappings.py",
        "kernels/tensors/jacobians.py",
        "kernels/tensors/strength.py",
        "kernels/jnp/mappings.py",
        "kernels/jnp/jacobians.py",
        "kernels/jnp/strength.py",
    }
    source = Path(regmax.__file__).parent
    lists = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if len(set(names.findall(path.read_text(encoding="utf-8")))) > 3
    }
    assert lists - allowed == set()


@pytest.mark.parametrize("wrong", ["fusdmax", "Fusedmax", "fused-max"])
def test_a_misspelt_name_is_told_the_right_one(wrong: str) -> None:
    with pytest.raises(
        ValueError, match=rf"must be one of softmax, .*Got '{wrong}': did you mean fusedmax\?"
    ):
        named(wrong)


def test_a_name_like_no_other_is_told_all_names() -> None:
    with pytest.raises(ValueError, match=r"must be one of softmax, sparsemax, .* Got 'hardmax'\.$"):
        named("hardmax")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fusedmax,lam=nan", r"`fusedmax\(..., lam=...\)` must be non-negative and finite\. Got nan"),
        ("fusedmax,lam=-1", r"`fusedmax\(..., lam=...\)` must be non-negative and finite\. Got -1"),
        ("oscarmax,lam=inf", r"`oscarmax\(..., lam=...\)` must be non-negative and finite\. Got inf"),
        ("sqpnormmax,p=3", r"`sqpnormmax\(..., p=...\)` must be in \(1, 2\]\. Got 3"),
        ("entmax,alpha=0.5", r"`entmax\(..., alpha=...\)` must be in \[1, 2\]\. Got 0.5"),
        ("sparsemax,gamma=0", r"`sparsemax\(..., gamma=...\)` must be positive and finite\. Got 0"),
        ("fusedmax,gamma=nan", r"`fusedmax\(..., gamma=...\)` must be positive and finite\. Got nan"),
        ("fusedmax,p=1.5", r"`fusedmax` has the strengths gamma, lam\. Got 'p=1.5' in 'fusedmax,p=1.5'"),
        ("fusedmax,lam", r"`fusedmax\(..., lam=...\)` must be a number\. Got 'lam' in"),
        ("fusedmax,lam=a", r"`fusedmax\(..., lam=...\)` must be a number\. Got 'lam=a' in"),
        ("fusedmax,", r"`fusedmax` has the strengths gamma, lam\. Got '' in"),
        ("fusedmax,lam=1,lam=2", r"`fusedmax` takes each strength once\. Got 'lam' twice"),
        ("", r"`mapping` must be one of .*Got ''"),
    ],
)
def test_bad_strengths_in_a_name_raise_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        parse(text)
    assert "\n" not in str(error.value)


def test_a_name_carries_its_strengths() -> None:
    row, strengths = parse("fusedmax, lam=0.2, gamma=2")
    assert (row.name, strengths) == ("fusedmax", {"lam": 0.2, "gamma": 2.0})
    assert row_of(row.made(strengths)) is row
    assert row_of(regmax.OscarComposition()) is None


def test_a_chosen_strength_of_an_unknown_mapping_raises() -> None:
    with pytest.raises(ValueError, match="did you mean fusedmax"):
        at({"fusdmax": 0.1})


def test_omega_may_be_a_name() -> None:
    expected = regmax.fusedmax(X, lam=0.2)
    np.testing.assert_array_equal(regmax.regularized_argmax("fusedmax,lam=0.2", X), expected)
    assert regmax.duality_gap("fusedmax,lam=0.2", X, expected) < 1e-12
    assert regmax.regularized_max("fusedmax,lam=0.2", X) == regmax.regularized_max(regmax.FusedLasso(0.2), X)
    with pytest.raises(ValueError, match=r"`regularized_max\(omega, ...\)` takes gamma as an argument"):
        functional.regularized_max("fusedmax,gamma=2", X)


def test_lazy_names_are_imported_once_and_kept() -> None:
    code = (
        "import sys, regmax\n"
        "heavy = {'torch', 'matplotlib', 'jax', 'transformers'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert 'attention' not in vars(regmax)\n"
        "first = regmax.attention\n"
        "assert vars(regmax)['attention'] is first and regmax.nn is vars(regmax)['nn']\n"
        "assert set(regmax.__all__) <= set(dir(regmax))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    with pytest.raises(AttributeError, match="module 'regmax' has no attribute 'nonexistent'"):
        _ = regmax.nonexistent  # type: ignore[attr-defined]
