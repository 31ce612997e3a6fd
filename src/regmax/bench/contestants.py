"""The timed calls: the mappings through the public interface, softmax, a copy, and other installed libraries."""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from regmax import mappings
from regmax.bench.cases import Tensors
from regmax.resolver import function_of
from regmax.timing import Call

REFERENCE, FLOOR = "softmax", "copy"
FORWARD, BOTH = "forward", "forward+backward"
RUNS = (FORWARD, BOTH)
MAPPINGS = tuple(name for name, row in mappings.MAPPINGS.items() if row.sparse)

LAM = 0.1
_SAMPLE = 128  # rows for libraries that map one row at a time in Python


def oscar_lam(d: int) -> float:
    """The strength of oscarmax: OSCAR's weights grow with lam d, so a fixed lam would flatten long rows.

    Example:
        >>> oscar_lam(32), oscar_lam(512)
        (0.01, 0.001953125)
    """
    return min(0.01, 1 / d)


def mapping(name: str, d: int) -> Callable[..., Tensor]:
    """A mapping with the strength at which it is timed: its default if none is chosen here."""
    strengths = {"fusedmax": {"lam": LAM}, "oscarmax": {"lam": oscar_lam(d)}}
    return partial(function_of(name), **strengths.get(name, {}))


def calls(
    given: Tensors, run: str, mappings: Sequence[str] = MAPPINGS, *, peers: bool = True
) -> dict[str, Call]:
    """Every timed call on these tensors: softmax first, then the copy, regmax, and the other libraries.

    regmax gets the mask; softmax and entmax get scores already filled with -inf, which is cheapest for them.
    """
    made = {REFERENCE: _call(partial(torch.softmax, dim=-1), given.filled, given.v, run)}
    made[FLOOR] = Call(_copies(given, run))
    for name in mappings:
        function = partial(mapping(name, given.x.shape[-1]), mask=given.keep)
        made[name] = _call(function, given.x, given.v, run)
    return made | _peers(given, run, mappings) if peers else made


def _peers(given: Tensors, run: str, mappings: Sequence[str]) -> dict[str, Call]:
    made: dict[str, Call] = {}
    if "sparsemax" in mappings and (entmax := optional("entmax")) is not None:
        made["entmax's sparsemax"] = _call(partial(entmax.sparsemax, dim=-1), given.filled, given.v, run)
    if run == FORWARD and given.keep is None:
        made |= _torchsparseattn(given.x, mappings)
    return made


def _call(function: Callable[[Tensor], Tensor], x: Tensor, v: Tensor, run: str) -> Call:
    if run == FORWARD:
        return Call(partial(function, x.detach()))
    leaf = x.detach().requires_grad_()
    return Call(lambda: torch.autograd.grad(function(leaf), leaf, v))


def _copies(given: Tensors, run: str) -> Callable[[], object]:
    """Read a tensor and write another of its size: a lower bound for any forward and any backward pass."""
    if run == FORWARD:
        return given.x.clone
    return lambda: (given.x.clone(), given.v.clone())


def optional(name: str) -> ModuleType | None:
    """A library to compare with, if it is installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


def _torchsparseattn(x: Tensor, mappings: Sequence[str]) -> dict[str, Call]:
    """The kernels of the paper's own code, which map one row at a time; its autograd functions no longer run."""
    modules = [optional(f"torchsparseattn.{name}") for name in ("sparsemax", "_fused", "oscar")]
    if None in modules:
        return {}
    sparse, fused, oscar = modules
    rows = x.flatten(0, -2)
    share = min(1.0, _SAMPLE / len(rows))
    rows = rows[:_SAMPLE]
    weights = oscar_lam(x.shape[-1]) * torch.arange(x.shape[-1] - 1, -1, -1).numpy()
    pools: dict[str, Callable[[Tensor], Any]] = {
        "sparsemax": lambda row: row,
        "fusedmax": lambda row: _pooled_in_place(fused, row),
        "oscarmax": lambda row: torch.from_numpy(oscar.prox_owl(row.numpy(), weights)),  # type: ignore[union-attr]
    }

    def run(pool: Callable[[Tensor], Any]) -> object:
        return [sparse.project_simplex(pool(row)) for row in rows]  # type: ignore[union-attr]

    chosen = {name: pool for name, pool in pools.items() if name in mappings}
    return {f"torchsparseattn's {name}": Call(partial(run, pool), share) for name, pool in chosen.items()}


def _pooled_in_place(fused: Any, row: Tensor) -> Tensor:
    z = row.clone()
    fused.prox_tv1d(z.numpy(), LAM)
    return z
