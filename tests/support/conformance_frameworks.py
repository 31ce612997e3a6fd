"""The conformance suite's runners of other frameworks and languages, and of regmax's peers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from conformance import Implementation, Result
from conformance_kernels import call, has_function, in_groups, strength
from exact_cases import Case, load

ROOT = Path(__file__).parents[2]


def jax_front(by_core: bool, suits: Callable[[Case], bool] = lambda case: True) -> Implementation:
    """The JAX front end, jitted, by the core's handlers or by JAX operations."""
    import jax

    from regmax.frontends.jax import handlers

    def covers(case: Case) -> bool:
        return has_function(case) and suits(case)

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
            key = case.kernel, str(case.x.dtype), _padded_size(case)
            groups.setdefault(key, []).append(case)
        results = {name: found for cases in groups.values() for name, found in _by_jax(cases).items()}
    finally:
        handlers.available = chosen  # type: ignore[assignment]
        jax.config.update("jax_enable_x64", before)
        jax.clear_caches()
    name = "JAX, core" if by_core else "JAX, its own operations"
    return Implementation(name, lambda case: results[case.name], covers)


def _padded_size(case: Case) -> int:
    """Rows are padded with deleted positions to a few lengths, because a program is compiled for each."""
    d = len(case.x)
    return d if case.kernel.startswith("prox") else 16 if d <= 16 else 4096


def _by_jax(cases: list[Case]) -> dict[str, Result]:
    """The results of cases of one kernel, type and padded length, by one program, with a strength per row.

    A strength that is rounded to float32 may lie beyond a kink; then the weights have another structure.
    """
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
    def run(x: Any, theta: Any, v: Any) -> Any:
        y, transpose = jax.vjp(lambda x, theta: call(first, x, theta, mask), x, theta)
        return y, *transpose(v)

    thetas = np.array([[0.0 if case.theta is None else case.theta] for case in cases], first.x.dtype)
    y, by_x, by_theta = (np.asarray(part) for part in run(x, jax.numpy.asarray(thetas), v))
    return {
        case.name: (
            y[i][: len(case.x)],
            by_x[i][: len(case.x)],
            None if case.theta is None else float(by_theta[i, 0]),
        )
        for i, case in enumerate(cases)
    }


@cache
def onnx_session(kernel: str, dtype: str) -> Any:
    """A mapping in onnxruntime, with rows, mask and a strength per row as inputs."""
    import onnxruntime
    import torch

    case = next(case for case in load() if case.kernel == kernel)

    class Mapping(torch.nn.Module):
        def forward(self, x: Any, mask: Any, theta: Any) -> Any:
            return call(case, x, theta, mask) + 0 * theta  # an input that is not used would vanish

    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    scores = torch.randn(2, 5, dtype=getattr(torch, dtype))
    theta = torch.full_like(scores[:, :1], _theta(case))
    shapes = ({0: batch, 1: length}, {0: batch, 1: length}, {0: batch})
    inputs = scores, torch.ones(2, 5, dtype=torch.bool), theta
    program = torch.onnx.export(Mapping().eval(), inputs, dynamo=True, dynamic_shapes=shapes, verbose=False)
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level, settings.intra_op_num_threads = 3, 1
    return onnxruntime.InferenceSession(program.model_proto.SerializeToString(), settings)


def by_onnx(kernel: str, x: np.ndarray, keep: np.ndarray, thetas: np.ndarray) -> np.ndarray:
    """The weights of rows."""
    session = onnx_session(kernel, str(x.dtype))
    names = [put.name for put in session.get_inputs()]
    (y,) = session.run(None, dict(zip(names, (x, keep, thetas), strict=True)))
    return y


def onnx() -> Implementation:
    """ONNX programs in onnxruntime, one per mapping and type, with strength and length as inputs."""

    def key(case: Case) -> Any:
        return case.kernel, str(case.x.dtype), len(case.x)

    def run(cases: list[Case]) -> list[Result]:
        x, keep = (np.stack(rows) for rows in ([c.x for c in cases], [c.keep for c in cases]))
        thetas = np.array([[_theta(case)] for case in cases], x.dtype)
        y = by_onnx(cases[0].kernel, x, keep, thetas)
        return [(row,) for row in y]

    covers = lambda case: not case.kernel.startswith("prox")  # noqa: E731
    return Implementation("ONNX (onnxruntime)", in_groups(key, run), covers)


def _theta(case: Case) -> float:
    return 0.1 if case.theta is None else case.theta


def javascript() -> Implementation:
    """The explorer's JavaScript, in float64, all cases in one process."""
    cases = [c for c in load() if _in_javascript(c)]
    script = ROOT / "tests" / "plots" / "map_rows.js"
    mappings = ROOT / "src" / "regmax" / "plots" / "explorer" / "mappings.js"
    rows = [
        {
            "x": case.x[case.keep].astype(float).tolist(),
            "setting": {"mapping": case.kernel, "gamma": 1, **strength(case)},
        }
        for case in cases
    ]
    done = subprocess.run(
        ["node", script, mappings], input=json.dumps(rows), capture_output=True, text=True, check=True
    )
    results = {case.name: y for case, y in zip(cases, json.loads(done.stdout), strict=True)}

    def run(case: Case) -> Result:
        y = np.zeros(len(case.x))
        y[case.keep] = results[case.name]
        return (y,)

    return Implementation("JavaScript (explorer)", run, _in_javascript)


def _in_javascript(case: Case) -> bool:
    return not case.kernel.startswith("prox")


def entmax() -> Implementation:
    """The library entmax: sparsemax, entmax15 and entmax_bisect with its default number of steps, by autograd."""
    import entmax as library
    import torch

    def run(case: Case) -> Result:
        x = torch.tensor(_with_infinities(case)[None], requires_grad=True)
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
        f"entmax {version('entmax')} (its own functions)",
        run,
        lambda case: case.kernel == "sparsemax" or (case.kernel == "entmax" and case.theta != 1),
    )


def _with_infinities(case: Case) -> np.ndarray:
    """The scores of a library without masks: deleted ones are -inf."""
    return np.where(case.keep, case.x, -np.inf).astype(case.x.dtype)


def keras() -> Implementation:
    """Keras's own sparsemax on the JAX backend; it has no masks and no other sparse mapping."""
    os.environ["KERAS_BACKEND"] = "jax"
    import jax

    jax.config.update("jax_enable_x64", True)
    import keras as library

    def run(case: Case) -> Result:
        y, transpose = jax.vjp(library.ops.sparsemax, jax.numpy.asarray(_with_infinities(case)[None]))
        if case.v is None:
            return np.asarray(y)[0], None
        (product,) = transpose(jax.numpy.asarray(case.v[None]))
        return np.asarray(y)[0], np.asarray(product)[0]

    return Implementation(
        f"Keras {version('keras')} (its own sparsemax, on JAX)", run, lambda case: case.kernel == "sparsemax"
    )
