"""The general backward: Proposition 1, restricted to the support.

Off the support J is zero. On it, differentiating grad Omega(y) + mu 1 = x and sum y = 1 gives the symmetric system

    [ H    1 ] [ J v ]   [ v ]
    [ 1^T  0 ] [  mu ] = [ 0 ],      H the Hessian of Omega at y,

which is the paper's (I + A (B - I)) J = A with A's projection written out.
"""

from collections.abc import Callable

import torch
from torch import Tensor

# Hessians may be infinite where a weight is 0 (powers under 2): they are taken this close to it instead, and not used.
_ALMOST_ZERO = 1e-30


def jacobian_product(hessian: Callable[[Tensor], Tensor], y: Tensor, v: Tensor) -> Tensor:
    """J v for rows y, v (n, d), in differentiable operations; O(d^3) a row, d the largest support."""
    support = y.detach() > 0
    size = int(support.sum(-1).max()) if y.numel() else 0
    if size == 0:
        return torch.zeros_like(v)
    places = torch.argsort(support.to(torch.uint8), dim=-1, descending=True, stable=True)[:, :size]
    inside = support.gather(-1, places)  # (n, size)
    H = hessian(torch.where(support, y, _ALMOST_ZERO))
    H = H.gather(-2, places[:, :, None].expand(-1, -1, H.shape[-1])).gather(
        -1, places[:, None, :].expand(-1, size, -1)
    )
    used = inside[:, :, None] & inside[:, None, :]
    H = torch.where(used, H, torch.eye(size, dtype=y.dtype, device=y.device))
    ones = inside.to(y.dtype)[:, :, None]
    bordered = torch.cat(
        [torch.cat([H, ones], -1), torch.cat([ones.mT, (1 - inside[:, None, :1].to(y.dtype))], -1)], -2
    )
    right = torch.cat([v.gather(-1, places) * inside, torch.zeros_like(v[:, :1])], -1)
    u = torch.linalg.solve(bordered, right)[:, :-1] * inside
    return torch.zeros_like(v).scatter(-1, places, u)
