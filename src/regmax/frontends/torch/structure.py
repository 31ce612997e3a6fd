"""What the forward pass saves for the backward pass beside the weights: the structure of the rows.

`bits` (csrc/regmax.h) is a tensor of 64-bit words (parts, ..., words). The first part is the support; the second, for
fusedmax and oscarmax, is `joined`, which marks fused weights; the third, for the gradient of fusedmax's strengths, is
`kept`. `bits` has no parts, or is None, if the backward pass is as fast with only the weights.

`extra` is None, or a second copy of weights. Half-precision weights are never read: the bits suffice, or `extra` has
all weights in float32. For the gradients of strengths of fusedmax and oscarmax it lists the weights of each row with at
most 16 (REGMAX_LISTED in csrc/regmax.h): the weights themselves can then bypass the caches.
"""

import torch
from torch import Tensor

from regmax.kernels import KERNELS, native

# Below this many scores the core reads a row's weights as fast as its bits, unless there are many rows. For sqpnormmax
# and entmax the second bound holds if weights are squares (strength 1.5).
_FEW, _FEW_SQUARES = 64, {"sqpnormmax": 129, "entmax": 129}
_SQUARES = 1.5
_MANY = 1 << 16
# The longest rows whose backward pass reads most of the weights again, if no strength is learned.
_READ_AGAIN = {"entmax": 1024, "oscarmax": 128}
HALF = (torch.float16, torch.bfloat16)
LISTED = 16  # REGMAX_LISTED
# The kernels that list weights for the gradients of strengths: those with segments or clusters.
_LISTING = frozenset(
    name for name, kernel in KERNELS.items() if kernel.groups != "none" and not name.startswith("prox")
)
# The kernels whose Jacobian product needs no weights: the support and the segments, which are bits, determine it.
_BITS_SUFFICE = frozenset(
    name
    for name, kernel in KERNELS.items()
    if kernel.constant_jacobian and kernel.groups != "clusters" and not name.startswith("prox")
)


def _parts(kernel: str) -> int:
    """The number of parts of `bits` for a kernel."""
    return 2 if kernel in native.CHAINED or kernel == "oscarmax" else 1


def bits_shape(x: Tensor, kernel: str) -> list[int]:
    """The shape of `bits` for scores `x`."""
    d = x.shape[-1]
    wanted = kernel in native.CHAINED or d >= _FEW_SQUARES.get(kernel, _FEW)
    return [_parts(kernel) if wanted else 0, *x.shape[:-1], (d + 63) // 64]


def new_bits(x: Tensor, kernel: str, theta: float = _SQUARES) -> Tensor | None:
    """Memory for `bits`, or None if the backward pass is as fast with only the weights."""
    d = x.shape[-1]
    few = _FEW_SQUARES.get(kernel, _FEW) if theta == _SQUARES else _FEW
    if kernel not in native.CHAINED and d < few and (kernel in _FEW_SQUARES or x.numel() < _MANY):
        return None
    return x.new_empty((_parts(kernel), *x.shape[:-1], (d + 63) // 64), dtype=torch.int64)


def new_learned_bits(x: Tensor, kernel: str) -> Tensor | None:
    """The same if strengths are learned: segments are separated by kept positions without weight."""
    if kernel in native.CHAINED or x.dtype in HALF or lists_weights(x, kernel):
        return x.new_empty(full_bits_shape(x, kernel, learned=True), dtype=torch.int64)
    return new_bits(x, kernel)


def full_bits_shape(x: Tensor, kernel: str, *, learned: bool) -> list[int]:
    """The shape of `bits` with all parts that the backward pass may read."""
    parts = 3 if learned and kernel in native.CHAINED else _parts(kernel)
    return [parts, *x.shape[:-1], (x.shape[-1] + 63) // 64]


def new_half_bits(x: Tensor, kernel: str) -> Tensor:
    """The same for half-precision rows, whose weights the backward pass does not read."""
    return x.new_empty(full_bits_shape(x, kernel, learned=False), dtype=torch.int64)


def new_extra(x: Tensor, kernel: str, *, learned: bool) -> Tensor | None:
    """Memory for `extra`; None if the backward pass does not read it."""
    if x.dtype not in HALF:
        return x.new_empty((*x.shape[:-1], LISTED)) if learned and lists_weights(x, kernel) else None
    if kernel in _BITS_SUFFICE and not learned:
        return None
    return x.new_empty(x.shape, dtype=torch.float32)


def lists_weights(x: Tensor, kernel: str) -> bool:
    """Whether the weights of rows with few are listed for the gradients of strengths."""
    return kernel in _LISTING and x.dtype not in HALF


def reads_again(x: Tensor, kernel: str, *, learned: bool = False) -> bool:
    """Whether the backward pass reads most of the weights, which then stay in the caches."""
    return (learned and not lists_weights(x, kernel)) or x.shape[-1] <= _READ_AGAIN.get(kernel, 0)


def extra_pointers(x: Tensor, extra: Tensor | None) -> tuple[int | None, int | None]:
    """The addresses of `y32` and `listed`."""
    if extra is None:
        return None, None
    return (extra.data_ptr(), None) if x.dtype in HALF else (None, extra.data_ptr())


def kept_mask(bits: Tensor, d: int) -> Tensor:
    """The mask of the positions that took part, from `new_learned_bits` with three parts."""
    places = torch.arange(64)
    return ((bits[2][..., None] >> places & 1) == 1).flatten(-2)[..., :d]


def bits_pointers(bits: Tensor | None) -> tuple[int | None, int | None]:
    """The addresses of `support` and `joined`."""
    if bits is None or not bits.numel():
        return None, None
    start, parts = bits.data_ptr(), bits.shape[0]
    return start, start + bits.numel() // parts * 8 if parts > 1 else None
