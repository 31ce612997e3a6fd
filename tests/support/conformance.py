"""The conformance suite: the exact cases, the criterion, and one runner per implementation.

    PYTHONPATH=tests/support python tests/support/conformance.py            # the table, for docs/conformance.md

A case passes if |y - exact| <= 2e-6 (float32) or 1e-12 (float64) and y is zero where the exact weight is, unless the
score is within that distance of the threshold; the same holds for the derivatives: the Jacobian's product with the
case's direction v, and the derivative of <v, y> in the strength, relative to v and, for sqpnormmax, to the Jacobian's
norm, 1 / (p - 1). At a kink derivatives are those of the exact structure, and are compared only if y has the same zeros
and equal weights. Proximal operators are measured against the scores' scale.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from exact_cases import Case, load

TOLERANCE = {"float32": 2e-6, "float64": 1e-12}
JAVASCRIPT = Path(__file__).parents[2] / "src" / "regmax" / "plots" / "explorer" / "mappings.js"
# The weights, and if the implementation has them the product with v and the derivative of <v, y> in the strength.
Result = tuple[Any, ...]


class Implementation(NamedTuple):
    """A name, a function of a case, and which cases it covers."""

    name: str
    run: Callable[[Case], Result]
    covers: Callable[[Case], bool] = lambda case: True


def passes(case: Case, result: Result) -> bool:
    """Whether the weights and, if there are any, the derivatives are right."""
    y, *derivatives = result
    y = np.asarray(y)
    tolerance = TOLERANCE[str(case.x.dtype)]
    scale = np.maximum(1.0, case.scale()) if case.kernel.startswith("prox") else 1.0
    if not (np.abs(y.astype(np.float64) - case.weights) <= tolerance * scale).all():
        return False
    if case.product is None or not derivatives or not _same_structure(case, y):
        return True
    norm = 1 / (case.theta - 1) if case.kernel == "sqpnormmax" and case.theta else 1.0
    size = norm * max(float(np.abs(case.v).max()), 1.0)
    expected = [case.product, case.strength_gradient]
    sizes = [size, size * max(1.0, *np.abs(case.strength_slope))]
    return all(
        wanted is None or bool((np.abs(np.asarray(found, np.float64) - wanted) <= 4 * tolerance * most).all())
        for found, wanted, most in zip(derivatives, expected, sizes, strict=False)
        if found is not None
    )


def _same_structure(case: Case, y: np.ndarray) -> bool:
    """Whether the zeros and ties are the exact ones, also of the exact weights rounded to the case's type."""
    exact = _pattern(case.weights[case.keep])
    rounded = _pattern(case.weights[case.keep].astype(case.x.dtype))
    return np.array_equal(exact, rounded) and np.array_equal(exact, _pattern(y[case.keep]))


def _pattern(y: np.ndarray) -> np.ndarray:
    """Which weights are zero, and which are equal."""
    return np.concatenate([(y[:, None] == y[None]), y[None] == 0])


def _on_rows(argmax: Callable[..., Any], product: Callable[..., Any], array: Any, back: Any) -> Any:
    """A runner of the kernels' interface: the product is taken at the exact weights."""

    def run(case: Case) -> Result:
        keep = array(case.keep[None])
        y = back(argmax(case.kernel, array(case.x[None]), keep, case.theta))[0]
        if case.v is None:
            return y, None
        weights, v = (array(row[None]) for row in (case.weights.astype(case.x.dtype), case.v))
        return y, back(product(case.kernel, weights, v, keep, case.theta))[0]

    return run


def reference() -> Implementation:
    """The specification."""
    from regmax.kernels import reference as kernels

    return Implementation(
        "reference", _on_rows(kernels.argmax, kernels.jacobian_product, np.asarray, np.asarray)
    )


def core(tier: str | None = None) -> Implementation:
    """The C++ core, or one of its tiers."""
    from regmax.kernels import native

    run = _on_rows(native.argmax, native.jacobian_product, np.asarray, np.asarray)

    def forced(case: Case) -> Result:
        native.force_tier(tier)
        try:
            return run(case)
        finally:
            native.force_tier(None)

    covers = native.CODES.__contains__
    return Implementation(f"core, {tier or 'all tiers'}", forced, lambda case: covers(case.kernel))


def tensors() -> Implementation:
    """Torch operations."""
    import torch

    from regmax.kernels import tensors as kernels

    run = _on_rows(kernels.argmax, kernels.jacobian_product, torch.tensor, lambda y: y.numpy())
    return Implementation("torch operations", run)


_STRENGTH = {"fusedmax": "lam", "oscarmax": "lam", "sqpnormmax": "p", "entmax": "alpha", "prox_tv1d": "lam"}


def _call(case: Case, x: Any, theta: Any, mask: Any) -> Any:
    """The public function of a case's kernel."""
    import regmax

    options = {_STRENGTH[case.kernel]: theta} if case.kernel in _STRENGTH else {}
    masks = {} if mask is None else {"mask": mask}
    return getattr(regmax, case.kernel)(x, **options, **masks)


def _has_function(case: Case) -> bool:
    return case.kernel != "prox_oscar" and (not case.kernel.startswith("prox") or bool(case.keep.all()))


def torch_front(compiled: bool) -> Implementation:
    """The public functions on tensors with autograd, eager or by `torch.compile` at any length."""
    import torch

    programs: dict[Any, Any] = {}

    def call(case: Case) -> Any:
        if not compiled:
            return _call
        key = case.kernel, case.theta, case.keep.all()
        if key not in programs:
            run = lambda x, theta, mask: _call(case, x, theta, mask)  # noqa: E731
            programs[key] = torch.compile(run, fullgraph=True, dynamic=True, backend="aot_eager")
        return lambda case, *arguments: programs[key](*arguments)

    def run(case: Case) -> Result:
        x = torch.tensor(case.x[None], requires_grad=True)
        mask = None if case.keep.all() else torch.tensor(case.keep[None])
        y = call(case)(case, x, case.theta, mask)
        if case.v is None:
            return (y.detach().numpy()[0],)
        v = torch.tensor(case.v[None])
        (by_x,) = torch.autograd.grad(y, x, v)
        found = y.detach().numpy()[0], by_x.numpy()[0]
        if case.theta is None or compiled:
            return found
        theta = torch.tensor([[case.theta]], dtype=x.dtype, requires_grad=True)
        again = _call(case, x.detach(), theta, mask)
        (by_theta,) = torch.autograd.grad(again, theta, v)
        # A strength that is rounded to float32 may lie beyond a kink.
        return *found, float(by_theta) if _same_structure(case, again.detach().numpy()[0]) else None

    name = "torch.compile" if compiled else "torch, core and autograd"
    return Implementation(name, run, _has_function)


def jax_front(by_core: bool, longest: int = 4096) -> Implementation:
    """The JAX front end, jitted, by the core's handlers or by JAX operations, on rows of up to `longest` scores."""
    import jax

    from regmax.frontends.jax import handlers

    def covers(case: Case) -> bool:
        return _has_function(case) and len(case.x) <= longest

    if by_core and not handlers.available():
        raise ImportError("the handlers were not built: make jax-handlers")
    chosen, before = handlers.available, jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    jax.clear_caches()
    if not by_core:
        handlers.available = lambda: False  # type: ignore[assignment]
    try:
        groups: dict[Any, list[Case]] = {}
        for case in filter(covers, load()):
            key = case.kernel, case.theta, str(case.x.dtype), _padded_size(case)
            groups.setdefault(key, []).append(case)
        results = {name: found for cases in groups.values() for name, found in _by_jax(cases).items()}
    finally:
        handlers.available = chosen  # type: ignore[assignment]
        jax.config.update("jax_enable_x64", before)
        jax.clear_caches()
    name = f"JAX, {'core' if by_core else 'jnp'}"
    return Implementation(name, lambda case: results[case.name], covers)


def _padded_size(case: Case) -> int:
    """Rows are padded with deleted positions to a few lengths, because a program is compiled for each."""
    d = len(case.x)
    return d if case.kernel.startswith("prox") else 16 if d <= 16 else 4096


def _by_jax(cases: list[Case]) -> dict[str, Result]:
    """The results of cases of one kernel, strength, type and padded length, by two programs."""
    import jax

    first, size = cases[0], _padded_size(cases[0])

    def rows(parts: list[Any], dtype: Any) -> Any:
        full = np.zeros((len(parts), size), dtype)
        for row, part in zip(full, parts, strict=True):
            row[: len(part)] = part
        return jax.numpy.asarray(full)

    x, v = (
        rows([c.x for c in cases], first.x.dtype),
        rows([() if c.v is None else c.v for c in cases], first.x.dtype),
    )
    mask = None if first.kernel.startswith("prox") else rows([c.keep for c in cases], bool)

    @jax.jit
    def by_scores(x: Any, v: Any) -> Any:
        y, transpose = jax.vjp(lambda x: _call(first, x, first.theta, mask), x)
        return y, transpose(v)[0]

    @jax.jit
    def by_strength(theta: Any, v: Any) -> Any:
        y, transpose = jax.vjp(lambda theta: _call(first, x, theta, mask), theta)
        return y, transpose(v)[0]

    y, by_x = (np.asarray(part) for part in by_scores(x, v))
    by_theta: Any = [None] * len(cases)
    if first.theta is not None and size <= 16:
        theta = jax.numpy.full((len(cases), 1), first.theta, first.x.dtype)
        again, found = (np.asarray(part) for part in by_strength(theta, v))
        # A strength that is rounded to float32 may lie beyond a kink.
        by_theta = [
            float(one) if _same_structure(case, row[: len(case.x)]) else None
            for case, row, one in zip(cases, again, found[:, 0], strict=True)
        ]
    return {
        case.name: (y[i][: len(case.x)], by_x[i][: len(case.x)], by_theta[i]) for i, case in enumerate(cases)
    }


def onnx() -> Implementation:
    """ONNX programs in onnxruntime, one per mapping, with strength and length as inputs, in float64."""
    import onnxruntime
    import torch

    sessions: dict[str, Any] = {}

    def session(case: Case) -> Any:
        if case.kernel not in sessions:

            class Mapping(torch.nn.Module):
                def forward(self, x: Any, mask: Any, theta: Any) -> Any:
                    return _call(case, x, theta, mask) + 0 * theta  # an input that is not used would vanish

            batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
            theta = torch.full((2, 1), 0.1 if case.theta is None else case.theta, dtype=torch.float64)
            inputs = torch.randn(2, 5, dtype=torch.float64), torch.ones(2, 5, dtype=torch.bool), theta
            shapes = ({0: batch, 1: length}, {0: batch, 1: length}, {0: batch})
            program = torch.onnx.export(
                Mapping().eval(), inputs, dynamo=True, dynamic_shapes=shapes, verbose=False
            )
            settings = onnxruntime.SessionOptions()
            settings.log_severity_level, settings.intra_op_num_threads = 3, 1
            sessions[case.kernel] = onnxruntime.InferenceSession(
                program.model_proto.SerializeToString(), settings
            )
        return sessions[case.kernel]

    def run(case: Case) -> Result:
        program = session(case)
        theta = np.full((2, 1), 0.1 if case.theta is None else case.theta)
        rows = np.stack([case.x.astype(np.float64)] * 2), np.stack([case.keep] * 2), theta
        names = [put.name for put in program.get_inputs()]
        y = program.run(None, dict(zip(names, rows, strict=True)))[0][0]
        return (y.astype(case.x.dtype),)

    # A dynamic dimension of an exported program is at least 2.
    return Implementation("ONNX (onnxruntime)", run, lambda case: not case.kernel.startswith("prox"))


def javascript() -> Implementation:
    """The explorer's JavaScript, in float64, all cases in one process."""
    cases = [c for c in load() if _in_javascript(c)]
    script = JAVASCRIPT.parents[4] / "tests" / "plots" / "map_rows.js"
    rows = [{"x": case.x[case.keep].astype(float).tolist(), "setting": _setting(case)} for case in cases]
    done = subprocess.run(
        ["node", script, JAVASCRIPT], input=json.dumps(rows), capture_output=True, text=True, check=True
    )
    results = {case.name: y for case, y in zip(cases, json.loads(done.stdout), strict=True)}

    def run(case: Case) -> Result:
        y = np.zeros(len(case.x))
        y[case.keep] = results[case.name]
        return (y,)

    return Implementation("JavaScript (explorer)", run, _in_javascript)


def _in_javascript(case: Case) -> bool:
    return not case.kernel.startswith("prox")


def _setting(case: Case) -> dict[str, Any]:
    strength = _STRENGTH.get(case.kernel)
    return {"mapping": case.kernel, "gamma": 1, **({strength: case.theta} if strength else {})}


def entmax() -> Implementation:
    """The library entmax: sparsemax, entmax15 and entmax_bisect with its default number of steps, by autograd."""
    import entmax as library
    import torch

    def run(case: Case) -> Result:
        x = torch.tensor(np.where(case.keep, case.x, -np.inf)[None].astype(case.x.dtype), requires_grad=True)
        if case.kernel == "sparsemax":
            y = library.sparsemax(x, dim=-1)
        elif case.theta == 1.5:
            y = library.entmax15(x, dim=-1)
        else:
            y = library.entmax_bisect(x, alpha=case.theta, dim=-1)
        if case.v is None:
            return y.detach().numpy()[0], None
        (grad,) = torch.autograd.grad(y, x, torch.tensor(case.v[None]))
        return y.detach().numpy()[0], grad.numpy()[0]

    return Implementation(
        "entmax (its own functions)",
        run,
        lambda case: case.kernel == "sparsemax" or (case.kernel == "entmax" and case.theta != 1),
    )


def judge(implementation: Implementation) -> tuple[int, int, list[str]]:
    """How many cases pass, of how many, and the names of those that do not."""
    failed, total = [], 0
    for case in load():
        if not implementation.covers(case):
            continue
        total += 1
        try:
            right = passes(case, implementation.run(case))
        except (ArithmeticError, RuntimeError, ValueError) as error:
            print(f"{implementation.name}: {case.name}: {error}", file=sys.stderr)
            right = False
        if not right:
            failed.append(case.name)
    return total - len(failed), total, failed


RUNNERS: dict[str, tuple[str | None, Callable[[], Implementation]]] = {
    "reference": (None, reference),
    "core": (None, core),
    "core lanes": (None, lambda: core("lanes")),
    "core whole": (None, lambda: core("whole")),
    "core scalar": (None, lambda: core("scalar")),
    "tensors": ("torch", tensors),
    "torch": ("torch", lambda: torch_front(compiled=False)),
    "compile": ("torch", lambda: torch_front(compiled=True)),
    "jax core": ("jax", lambda: jax_front(True)),
    "jax jnp": ("jax", lambda: jax_front(False)),
    "onnx": ("onnxruntime", onnx),
    "javascript": (None, javascript),
    "entmax": ("entmax", entmax),
}


def main(arguments: list[str]) -> int:
    """Print the table of the runners that are named, or of all that can run here."""
    print("| implementation | cases passed | of |\n|---|---|---|")
    worst = 0
    for name in arguments or RUNNERS:
        module, make = RUNNERS[name]
        if module is not None and find_spec(module) is None:
            continue
        implementation = make()
        passed, total, failed = judge(implementation)
        print(f"| {implementation.name} | {passed} | {total} |", flush=True)
        for case in failed[:20]:
            print(f"  {case}", file=sys.stderr)
        worst |= bool(failed) and name != "entmax"
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
