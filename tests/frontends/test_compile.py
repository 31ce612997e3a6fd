"""torch.compile without graph breaks, torch.export, autocast, and torch's own checks of the custom operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fronts import choose_core
from long_cases import represented
from points import interior
from table import DEFAULTS, Entry

import regmax
from regmax.kernels import tensors

# Only tracing can go wrong; `aot_eager` traces forward and backward as inductor does, without its C++ compiler.
BACKEND = "aot_eager"
MAPPINGS = pytest.mark.parametrize("entry", DEFAULTS, ids=str)
SOFTMAX, SPARSEMAX, FUSEDMAX, ENTMAX = DEFAULTS[0], DEFAULTS[1], DEFAULTS[2], DEFAULTS[-1]
# Without the core every mapping is a long graph of its own; tests/kernels/test_kernels.py compiles those of oscarmax
# and sqpnormmax, the longest. With the core graphs differ by a name, so that softmax and one mapping with a strength
# stand for all.
EVERY = [(entry, core) for core in (True, False) for entry in DEFAULTS]
GRAPHS = pytest.mark.parametrize(
    ("entry", "core"),
    represented(
        EVERY,
        by=[
            (SOFTMAX, True),
            (FUSEDMAX, True),
            *((entry, False) for entry in (SOFTMAX, SPARSEMAX, FUSEDMAX, ENTMAX)),
        ],
    ),
    ids=str,
)
# The same for a test whose graphs are part of those: without the core they are left to the longer ones.
PARTS = pytest.mark.parametrize(
    ("entry", "core"), represented(EVERY, by=[(SOFTMAX, True), (FUSEDMAX, True)]), ids=str
)


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def scores(entry: Entry, n: int = 3) -> torch.Tensor:
    return torch.tensor(interior(entry, n, 6))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, fullgraph=True, backend=BACKEND)


def direction(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@PARTS
def test_the_function_and_its_backward_compile(
    entry: Entry, core: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_core(core, monkeypatch)
    x, v = scores(entry).requires_grad_(), direction(3, 6)
    y, expected = compiled(entry)(x), entry(x)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-14)
    (ours,) = torch.autograd.grad(y, x, v)
    torch.testing.assert_close(ours, torch.autograd.grad(expected, x, v)[0])
    assert ours.abs().max() > 1e-3


@pytest.mark.parametrize("entry", [FUSEDMAX], ids=str)
def test_inductor_compiles_it(entry: Entry) -> None:
    x, v = scores(entry).requires_grad_(), direction(3, 6)
    y = torch.compile(lambda t: entry(2 * t) + 1, fullgraph=True)(x)
    torch.testing.assert_close(y, entry(2 * x) + 1)
    (ours,) = torch.autograd.grad(y, x, v)
    torch.testing.assert_close(ours, torch.autograd.grad(entry(2 * x) + 1, x, v)[0])


@GRAPHS
def test_masks_and_strengths_compile(entry: Entry, core: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_core(core, monkeypatch)
    x, mask = scores(entry).requires_grad_(), torch.tensor([True, True, True, False, True, True])
    name = next(iter(entry.parameters), "gamma")
    theta = torch.tensor(entry.parameters.get(name, 1.0), dtype=torch.float64, requires_grad=True)

    def function(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        return entry(x, mask=mask, **{name: theta})

    y, expected = compiled(function)(x, theta), function(x, theta)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-14)
    v = direction(3, 6)
    torch.testing.assert_close(
        torch.autograd.grad(y, (x, theta), v), torch.autograd.grad(expected, (x, theta), v)
    )


def refuse_tensor_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a compiled call left the core")

    for name in ("argmax", "jacobian_product", "theta_gradient", "omega_gradient"):
        monkeypatch.setattr(tensors, name, forbidden)


SPARSE = [entry for entry in DEFAULTS if entry.sparse]
LEARNED = pytest.mark.parametrize("entry", SPARSE, ids=str)


def strengths(entry: Entry, shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The strengths of a mapping, gamma included, which learn."""
    values = {"gamma": 1.5, **entry.parameters}
    return {name: torch.full(shape, value, dtype=dtype, requires_grad=True) for name, value in values.items()}


def assert_same(found: Any, expected: Any) -> None:
    """The same kernels; sums may run in another order, because a compiled call always has bits."""
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(found.dtype, 1e-2)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("entry", "dtype"),
    represented(
        [(entry, dtype) for dtype in (torch.float64, torch.bfloat16) for entry in SPARSE],
        by=[(SPARSE[0], torch.bfloat16), (FUSEDMAX, torch.float64), (SPARSE[-1], torch.float64)],
    ),
    ids=str,
)
def test_strengths_compile_to_the_core(
    entry: Entry, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers, and tensors that learn: shared, per head and per row; with a mask and a score of -inf."""
    refuse_tensor_operations(monkeypatch)
    x = torch.randn(2, 3, 70, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[0, 1, 5] = -torch.inf
    x, v = x.to(dtype).requires_grad_(), direction(4, 2, 3, 70).to(dtype)
    mask = torch.arange(70) < torch.tensor([70, 33, 7])[:, None]
    work = torch.float32 if dtype.itemsize == 2 else dtype
    options = [strengths(entry, shape, work) for shape in ((), (2, 1, 1), (2, 3, 1))]
    learned = [own for each in options for own in each.values()]

    def function(x: torch.Tensor, options: Any) -> torch.Tensor:
        return torch.stack([entry(x, mask=mask, **each) for each in options] + [entry(x, gamma=2.0)])

    y, expected = compiled(function)(x, options), function(x, options)
    assert torch.equal(y, expected)
    grads = (torch.autograd.grad(out, (x, *learned), v) for out in (y, expected))
    for ours, theirs in zip(*grads, strict=True):
        assert_same(ours, theirs)
        assert ours.abs().max() > 1e-3


@pytest.mark.parametrize("entry", [SPARSE[1], SPARSE[-1]], ids=str)
def test_one_program_with_learned_strengths_serves_all_shapes(entry: Entry) -> None:
    function = torch.compile(entry, fullgraph=True, backend=BACKEND, dynamic=True)
    for n, d in (
        (3, 66),
        (5, 90),
        (4, 300),
    ):  # up to 64 scores the bits of a row are one word: a second program
        x = torch.randn(n, d, generator=torch.Generator().manual_seed(d)).requires_grad_()
        options = strengths(entry, (n, 1), torch.float32)
        expected = entry(x, **options)
        with torch._dynamo.config.patch(error_on_recompile=d > 66):
            y = function(x, **options)
        assert torch.equal(y, expected)
        grads = (
            torch.autograd.grad(out, (x, *options.values()), direction(n, d).float()) for out in (y, expected)
        )
        for ours, theirs in zip(*grads, strict=True):
            assert_same(ours, theirs)


def test_a_strength_that_changes_does_not_recompile() -> None:
    x = direction(3, 20)
    function = compiled(lambda x, gamma: regmax.fusedmax(x, gamma=gamma))
    for step in range(6):
        gamma = 4.0 - step / 2
        expected = regmax.fusedmax(x, gamma=gamma)
        with torch._dynamo.config.patch(error_on_recompile=step > 1):
            assert torch.equal(function(x, gamma), expected)


def test_a_strength_out_of_range_raises_in_a_compiled_program() -> None:
    function = compiled(lambda x, lam: regmax.fusedmax(x, lam=lam))
    with pytest.raises(ValueError, match="strengths in range"):
        function(direction(3, 20), torch.tensor(-0.1))


TRANSFORMS: dict[str, Callable[[Any, torch.Tensor], Callable[[torch.Tensor], Any]]] = {
    "grad": lambda f, v: torch.func.grad(lambda x: (f(x) * v).sum()),
    "vjp": lambda f, v: lambda x: torch.func.vjp(f, x)[1](v)[0],
    "jvp": lambda f, v: lambda x: torch.func.jvp(f, (x,), (v,))[1],
    "jacrev": lambda f, v: torch.func.jacrev(f),
    "jacfwd": lambda f, v: torch.func.jacfwd(f),
    "hessian": lambda f, v: torch.func.hessian(lambda x: (f(x) ** 2 * v).sum()),
    "vmap": lambda f, v: torch.func.vmap(lambda x: f(x), in_dims=1),
}


# Without the core the graphs are long, and one pooling mapping covers all of them.
PATHS = [*((entry, True) for entry in DEFAULTS), (FUSEDMAX, False)]


@pytest.mark.parametrize(
    ("transform", "entry", "core"),
    represented(
        [(transform, *path) for transform in TRANSFORMS for path in PATHS],
        by=[
            *((transform, FUSEDMAX, True) for transform in TRANSFORMS if transform not in ("vjp", "jacfwd")),
            ("grad", FUSEDMAX, False),
            ("jvp", FUSEDMAX, False),
            ("hessian", SOFTMAX, True),
        ],
    ),
    ids=str,
)
def test_transforms_compile(
    transform: str, entry: Entry, core: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_core(core, monkeypatch)
    x = scores(entry, 2)
    function = TRANSFORMS[transform](entry, direction(2, 6))
    torch.testing.assert_close(compiled(function)(x), function(x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("entry", represented(DEFAULTS, by=[SOFTMAX, FUSEDMAX]), ids=str)
def test_dynamic_shapes_compile(entry: Entry) -> None:
    function = torch.compile(entry, fullgraph=True, backend=BACKEND, dynamic=True)
    for n, d in ((3, 6), (5, 9), (2, 70)):
        x = torch.randn(n, d, generator=torch.Generator().manual_seed(d))
        torch.testing.assert_close(function(x), entry(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("entry", "core"),
    represented(EVERY, by=[(FUSEDMAX, False), *((entry, True) for entry in (SOFTMAX, FUSEDMAX, ENTMAX))]),
    ids=str,
)
def test_max_and_gap_compile(entry: Entry, core: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_core(core, monkeypatch)
    x = scores(entry).requires_grad_()

    def function(x: torch.Tensor) -> torch.Tensor:
        uniform = torch.full_like(x, 1 / 6)
        return regmax.regularized_max(entry.omega, x) + regmax.duality_gap(entry.omega, x, uniform)

    y = compiled(function)(x)
    torch.testing.assert_close(y, function(x))
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(function(x).sum(), x))


class Attend(torch.nn.Module):
    """A mapping as a module, for export."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self.entry = entry

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Weights under a mask."""
        return self.entry(x, mask=mask, gamma=2.0)


@MAPPINGS
def test_export(entry: Entry, torch_path: str) -> None:
    x, mask = scores(entry), torch.tensor([True, False, True, True, True, True])
    module = Attend(entry)
    program = torch.export.export(module, (x, mask))
    torch.testing.assert_close(program.module()(x + 0.1, mask), module(x + 0.1, mask), rtol=0, atol=1e-14)


@MAPPINGS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(entry: Entry, torch_path: str, dtype: torch.dtype) -> None:
    """Scores from an autocast product have half precision; weights and gradients are still right."""
    q, k = (torch.randn(4, 8, generator=torch.Generator().manual_seed(s)).requires_grad_() for s in (0, 1))
    with torch.autocast("cpu", dtype=dtype):
        x = q @ k.T
        y = entry(x)
        out = y @ k
    assert x.dtype == dtype
    expected = entry(x.detach().float())
    torch.testing.assert_close(y.float(), expected, rtol=2e-2, atol=1e-3)
    out.float().pow(2).sum().backward()
    assert q.grad.dtype == torch.float32
    assert torch.all(torch.isfinite(q.grad))
    assert torch.any(q.grad != 0)


KERNELS = [
    ("sparsemax", 0.0),
    ("fusedmax", 0.1),
    ("oscarmax", 0.01),
    ("sqpnormmax", 1.5),
    ("entmax", 1.5),
    ("entmax", 1.2),
    ("prox_tv1d", 0.1),
    ("prox_oscar", 0.1),
]


@pytest.mark.pairs
@pytest.mark.parametrize(("kernel", "theta"), KERNELS)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("per_row", [False, True])
def test_opcheck(kernel: str, theta: float, masked: bool, per_row: bool) -> None:
    x, v = direction(3, 6), direction(3, 6).flip(0)
    regmax.sparsemax(x)  # the operators are registered by the first call with a tensor
    mask = torch.tensor([True, False, True, True, True, True]) if masked else None
    thetas = torch.full((3, 1), theta, dtype=torch.float64) if per_row else None
    torch.library.opcheck(torch.ops.regmax.argmax, (x, mask, thetas, theta, kernel))
    y, *bits = torch.ops.regmax.argmax(x, mask, thetas, theta, kernel)
    arguments = (v, y, *bits, mask, thetas, theta, kernel)
    torch.library.opcheck(torch.ops.regmax.jacobian_product, arguments)
    strided = torch.stack([x, x], dim=-1)[..., 0]
    torch.library.opcheck(torch.ops.regmax.argmax, (strided, mask, thetas, theta, kernel))


@pytest.mark.pairs
@LEARNED
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("learned", [False, True])
def test_opcheck_of_the_compiled_operators(entry: Entry, dtype: torch.dtype, learned: bool) -> None:
    regmax.sparsemax(direction(3, 6))  # the operators are registered by the first call with a tensor
    x, v = direction(3, 6).to(dtype).requires_grad_(), direction(3, 6).flip(0).to(dtype)
    mask = torch.tensor([True, False, True, True, True, True])
    theta = torch.full((3, 1), next(iter(entry.parameters.values()), 0.0), requires_grad=learned)
    arguments = mask, theta, torch.tensor(1.5, requires_grad=learned), entry.mapping, learned
    torch.library.opcheck(torch.ops.regmax.rows, (x, *arguments))
    y, extra, bits = (own.detach() for own in torch.ops.regmax.rows(x, *arguments))
    fixed = (own.detach() if isinstance(own, torch.Tensor) else own for own in arguments)
    torch.library.opcheck(torch.ops.regmax.rows_backward, (v, y, extra, bits, *fixed))
    if dtype.itemsize == 2:
        assert (extra.numel() > 0) == (learned or entry.mapping not in ("sparsemax", "fusedmax"))
    else:
        assert (extra.numel() > 0) == (learned and entry.mapping in ("fusedmax", "oscarmax"))


def test_opcheck_prox_owl() -> None:
    weights = torch.linspace(1, 0, 6, dtype=torch.float64)
    regmax.prox_owl(direction(3, 6), weights)
    torch.library.opcheck(torch.ops.regmax.prox_owl, (direction(3, 6), weights))
