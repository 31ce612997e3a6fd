"""The mappings in the ways that people use them: other strengths, learned ones, values, half precision, compiled."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

import regmax
from regmax.bench.cases import MILLION
from regmax.bench.contestants import REFERENCE, optional
from regmax.bench.measure import relative
from regmax.timing import CPU, Call, race

_softmax = partial(torch.softmax, dim=-1)
ENTMAX_LENGTHS = (32, 128, 512, 2048)


@dataclass(frozen=True)
class Use:
    """A timed use and the baseline that it is compared with.

    `calls` makes both, baseline first, when the use is measured: a run holds the scores of one use at a time.
    """

    name: str
    baseline: str
    calls: Callable[[], tuple[Callable[[], object], Callable[[], object]]]
    is_quick: bool = True  # whether `--quick` includes it


@dataclass(frozen=True)
class UseResult:
    """The CPU time of a use relative to its baseline in the same round, with quartiles; one thread."""

    use: str
    baseline: str
    ratio: float
    low: float
    high: float
    microseconds: float  # the median
    turns: int


def measure(use: Use, seconds: float = 0.3) -> UseResult:
    """Time a use and its baseline in turns, each for about `seconds`, in CPU time of one thread."""
    baseline, own = use.calls()
    times = race({use.baseline: Call(baseline), use.name: Call(own)}, seconds=seconds, clock=CPU)
    return UseResult(use.name, use.baseline, *relative(times[1, use.name], times[1, use.baseline].taken))


def row_uses(n: int = 8192, d: int = 128) -> list[Use]:
    """Forward + backward on n rows of d scores N(0, 1), relative to softmax of the same dtype."""
    make = partial(_use, shape=(n, d))
    return [*_strengths(make, n), *_forms(make), *_entmax(make), *_over_entmax(make)]


def _strengths(make: Callable[..., Use], n: int) -> Iterator[Use]:
    """Every mapping with its defaults; gamma, lam and p as other numbers and as tensors that learn."""
    fusedmax, oscarmax, sqpnormmax = regmax.fusedmax, regmax.oscarmax, regmax.sqpnormmax
    for mapping in (regmax.sparsemax, fusedmax, oscarmax, sqpnormmax):
        yield make(f"{mapping.__name__}(x)", mapping)
    yield make("sparsemax(x, gamma=2.0)", partial(regmax.sparsemax, gamma=2.0))
    yield make("fusedmax(x, gamma=2.0)", partial(fusedmax, gamma=2.0))
    yield make("fusedmax, gamma learned", fusedmax, gamma=_learned(2.0))
    yield make("fusedmax, lam learned", fusedmax, lam=_learned(0.1))
    yield make("fusedmax, lam learned, per row", fusedmax, lam=_learned(0.1, n, 1))
    yield make("fusedmax, lam and gamma learned", fusedmax, lam=_learned(0.1), gamma=_learned(2.0))
    yield make("oscarmax, lam learned", oscarmax, lam=_learned(0.01))
    yield make("sqpnormmax(x, p=1.3)", partial(sqpnormmax, p=1.3))
    yield make("sqpnormmax, p learned", sqpnormmax, p=_learned(1.5))


def _forms(make: Callable[..., Use]) -> Iterator[Use]:
    """Modules, compiled modules, values, compositions, half precision."""
    yield make("nn.Fusedmax()(x)", regmax.nn.Fusedmax())
    if has_compiler():
        yield make("nn.Fusedmax()(x), compiled", lambda x: _compiled()(x), is_quick=False)
    yield make("regularized_max(FusedLasso(.1), x)", partial(regmax.regularized_max, regmax.FusedLasso(0.1)))
    composition = partial(regmax.regularized_argmax, regmax.OscarComposition(0.01))
    yield make("regularized_argmax(OscarComposition(.01), x)", composition)
    yield make("fusedmax(x), bfloat16", regmax.fusedmax, dtype=torch.bfloat16)
    yield make("sparsemax(x), bfloat16", regmax.sparsemax, dtype=torch.bfloat16)


def _entmax(make: Callable[..., Use]) -> Iterator[Use]:
    for length in ENTMAX_LENGTHS:
        shape = (MILLION // length, length)
        yield make(f"entmax(x, alpha=1.5), d = {length}", partial(regmax.entmax, alpha=1.5), shape=shape)
    yield make("entmax(x, alpha=1.25)", partial(regmax.entmax, alpha=1.25))
    yield make("entmax, alpha learned", regmax.entmax, alpha=_learned(1.5))


def _over_entmax(make: Callable[..., Use]) -> Iterator[Use]:
    """entmax relative to the `entmax` package, if it is installed."""
    if (package := optional("entmax")) is None:
        return
    for alpha, name in ((1.5, "entmax15"), (1.25, "entmax_bisect")):
        strength = {} if name == "entmax15" else {"alpha": alpha}
        baseline = partial(getattr(package, name), dim=-1, **strength)
        made = partial(make, baseline=f"entmax's {name}", reference=baseline, is_quick=False)
        yield made(f"entmax(x, alpha={alpha}), over the package", partial(regmax.entmax, alpha=alpha))


def _use(
    name: str,
    function: Callable[..., Tensor],
    *,
    shape: tuple[int, int],
    dtype: torch.dtype = torch.float32,
    baseline: str = REFERENCE,
    reference: Callable[..., Tensor] = _softmax,
    is_quick: bool = True,
    **learned: Tensor,
) -> Use:
    def calls() -> tuple[Callable[[], object], Callable[[], object]]:
        generator = torch.Generator().manual_seed(0)
        x, v = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
        x.requires_grad_()
        return partial(_train, reference, x, v, {}), partial(_train, function, x, v, learned)

    return Use(name, baseline, calls, is_quick)


def _train(function: Callable[..., Tensor], x: Tensor, v: Tensor, learned: dict[str, Tensor]) -> None:
    """Forward + backward: the gradients of the scores and of what is learned."""
    y = function(x, **learned)
    # The value of a regularized maximum is one number per row.
    torch.autograd.grad(y, (x, *learned.values()), v if y.shape == v.shape else v[..., 0])


def _learned(value: float, *shape: int) -> Tensor:
    return torch.full(shape, value, requires_grad=True)


@cache
def _compiled() -> Any:
    return torch.compile(regmax.nn.Fusedmax(), fullgraph=True)


def has_compiler() -> bool:
    """Whether there is the C++ compiler that `torch.compile` calls."""
    usual = "clang++" if sys.platform == "darwin" else "g++"
    return shutil.which(os.environ.get("CXX", usual)) is not None
