"""Newton's equations on the simplex: (H + diag(ratio)) dy + dtau 1 = b, sum dy = total, for rows.

H is (n, d, d), or (n, d) if it is diagonal. Positions that are not kept have dy = 0.
"""

import torch
from torch import Tensor

CURVATURE = 1e-7  # negative curvature below this fraction of its terms is a rounding error


class Newton:
    """The equations' matrix, factorised; `convex` marks the rows whose H is positive on the simplex."""

    def __init__(self, hessian: Tensor, ratio: Tensor | None, keep: Tensor) -> None:
        full = hessian.ndim == 3
        self.keep = keep
        self.curvature = torch.where(keep, hessian.diagonal(dim1=-2, dim2=-1) if full else hessian, 0.0)
        if ratio is None:
            # Large enough for a Hessian that is singular, exactly or up to rounding, to have a factor.
            tiny = torch.finfo(hessian.dtype).eps
            ratio = tiny * self.curvature.abs().amax(-1, keepdim=True).expand(keep.shape)
        self._factor: Tensor | None = None
        if full:
            self._factorise(hessian, ratio)
        else:
            self._invert(ratio)
        self._ones = self._apply_inverse(keep.to(hessian.dtype))

    def _invert(self, ratio: Tensor) -> None:
        h = self.curvature
        # On the simplex, convexity permits one negative diagonal entry; only the general case accepts that.
        self.convex = (h >= -CURVATURE * h.abs().amax(-1, keepdim=True)).all(-1)
        self._scale = torch.where(self.keep, 1 / (h + ratio), 0.0)

    def _factorise(self, hessian: Tensor, ratio: Tensor) -> None:
        used = self.keep[:, :, None] & self.keep[:, None, :]
        H = torch.where(used, hessian, 0.0)
        H.diagonal(dim1=-2, dim2=-1).fill_(0.0)
        size = H.abs().sum((-2, -1), keepdim=True)
        H.diagonal(dim1=-2, dim2=-1).copy_(torch.where(self.keep, self.curvature + ratio, 1.0))
        self._scale, self._factor, failed = _cholesky(H, 0.0)
        if bool(failed.any()):
            # The sum of a step is given, so 11' may be added to H: it must be positive only on the simplex.
            scale, factor, still = _cholesky(H + used * size, CURVATURE)
            self._scale = torch.where(failed[:, None], scale, self._scale)
            self._factor = torch.where(failed[:, None, None], factor, self._factor)
            failed = failed & still
        self.convex = ~failed

    def _apply_inverse(self, b: Tensor) -> Tensor:
        if self._factor is None:
            return self._scale * torch.where(self.keep, b, 0.0)
        b = torch.where(self.keep, b, 0.0) * self._scale
        return torch.cholesky_solve(b[..., None], self._factor)[..., 0] * self._scale

    def solve(self, b: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        """The step dy (n, d), and dtau (n, 1), which is meaningless for rows without kept positions."""
        dy = self._apply_inverse(b)
        dtau = (dy.sum(-1, keepdim=True) - total) / self._ones.sum(-1, keepdim=True)
        return dy - dtau * self._ones, dtau


def _cholesky(matrix: Tensor, ridge: float) -> tuple[Tensor, Tensor, Tensor]:
    """A scale that makes the diagonal 1, the factor of scale matrix scale + ridge, and which rows have none."""
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    scale = diagonal.clamp(min=torch.finfo(matrix.dtype).tiny).rsqrt()
    M = matrix * scale[:, :, None] * scale[:, None, :]
    M.diagonal(dim1=-2, dim2=-1).add_(ridge)
    factor, info = torch.linalg.cholesky_ex(M)
    return scale, factor, (info != 0) | (diagonal <= 0).any(-1)
