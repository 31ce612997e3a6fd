"""The general backward: Proposition 1, restricted to the support.

Off the support J is zero. On it, differentiating grad Omega(y) + mu 1 = x and sum y = 1 gives the symmetric system

    [ H    1 ] [ J v ]   [ v ]
    [ 1^T  0 ] [  mu ] = [ 0 ],      H the Hessian of Omega at y,

which is the paper's (I + A (B - I)) J = A with A's projection written out. For a diagonal H = diag(1 / w) its solution
is J v = w (v - <w, v> / sum w).
"""

from collections.abc import Callable

import torch
from torch import Tensor

# A Hessian may be infinite at a weight of 0 (powers below 2): it is evaluated here instead, and these entries unused.
ALMOST_ZERO = 1e-30


def jacobian_product(hessian: Callable[[Tensor], Tensor], y: Tensor, v: Tensor) -> Tensor:
    """J v for rows y, v (n, d), in differentiable operations.

    O(d) per row if `hessian` gives diagonals (n, d); O(d^3), d the largest support, if it gives matrices (n, d, d).
    """
    support = y.detach() > 0
    if not y.numel() or not bool(support.any()):
        return torch.zeros_like(v)
    H = hessian(torch.where(support, y, ALMOST_ZERO))
    return _diagonal_product(H, support, v) if H.ndim == 2 else _product(H, support, v)


def _diagonal_product(h: Tensor, support: Tensor, v: Tensor) -> Tensor:
    w = torch.where(support, 1 / torch.where(support, h, 1.0), 0.0)
    total = w.sum(-1, keepdim=True)
    mean = (w * v).sum(-1, keepdim=True) / torch.where(total == 0, 1.0, total)
    return w * (v - mean)


def _product(hessian: Tensor, support: Tensor, v: Tensor) -> Tensor:
    size = int(support.sum(-1).max())
    places = torch.argsort(support.to(torch.uint8), dim=-1, descending=True, stable=True)[:, :size]
    inside = support.gather(-1, places)  # (n, size)
    H = hessian.gather(-2, places[:, :, None].expand(-1, -1, hessian.shape[-1])).gather(
        -1, places[:, None, :].expand(-1, size, -1)
    )
    used = inside[:, :, None] & inside[:, None, :]
    H = torch.where(used, H, torch.eye(size, dtype=v.dtype, device=v.device))
    ones = inside.to(v.dtype)[:, :, None]
    bordered = torch.cat(
        [torch.cat([H, ones], -1), torch.cat([ones.mT, (1 - inside[:, None, :1].to(v.dtype))], -1)], -2
    )
    right = torch.cat([v.gather(-1, places) * inside, torch.zeros_like(v[:, :1])], -1)
    u = torch.linalg.solve(bordered, right)[:, :-1] * inside
    return torch.zeros_like(v).scatter(-1, places, u)
