"""The mappings that need no pooling: softmax, the projection onto the simplex, sqpnormmax and entmax.

Scores may be shifted by a constant; deleted positions have a score of -inf.
"""

import torch
from torch import Tensor


def below_peak(x: Tensor) -> Tensor:
    """Return x - max(x); a row in which every score is -inf is unchanged."""
    peak = x.amax(-1, keepdim=True)
    return x - torch.where(peak > -torch.inf, peak, 0)


def softmax(x: Tensor) -> Tensor:
    """exp(x) / sum exp(x), and zeros in an empty row."""
    exponentials = below_peak(x).exp()
    return exponentials / exponentials.sum(-1, keepdim=True).clamp(min=1)  # the peak's term is 1


def project_simplex(x: Tensor) -> Tensor:
    """Sort-based threshold: O(d log d) per row.

    A score is in the support if n (x - tau) > 0, for the n largest and n tau = sum x - 1. Both terms are computed in
    two parts, of which sums of the first have no rounding error: a score at the threshold is told from one above it.
    """
    peak = x.amax(-1, keepdim=True)
    peak = torch.where(peak > -torch.inf, peak, 0)
    ranks = torch.arange(1, x.shape[-1] + 1, device=x.device)
    shift = 6 * ranks[-1:].to(x.dtype).log2().ceil().exp2()  # sums of numbers rounded by adding it are exact
    high, low = _exact_parts(x.sort(-1, descending=True).values, peak, shift)
    high_sums, low_sums = high.cumsum(-1), low.cumsum(-1)
    size = (_excess(high, low, ranks, high_sums, low_sums) > 0).sum(-1, keepdim=True).clamp(min=1)
    high_sum, low_sum = high_sums.gather(-1, size - 1), low_sums.gather(-1, size - 1)
    return (_excess(*_exact_parts(x, peak, shift), size, high_sum, low_sum) / size).clamp(min=0)


def _excess(high: Tensor, low: Tensor, count: Tensor, high_sum: Tensor, low_sum: Tensor) -> Tensor:
    """Return count * x - sum + 1: the first parts cancel without rounding."""
    return (count * high - high_sum + 1) + (count * low - low_sum)


def _exact_parts(x: Tensor, peak: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Split x - peak in two, of which the first are multiples of the shift's last digit.

    Scores more than 1 below the peak are never in the support, so they are put 1 below it.
    """
    difference = x - peak
    part = difference - x
    rest = (x - (difference - part)) - (peak + part)  # what rounding took from the difference
    far = difference < -1
    difference, rest = torch.where(far, -1, difference), torch.where(far, 0, rest)
    high = (difference + shift) - shift
    return high, (difference - high) + rest


# A fixed number, because no result is read back to stop early. Measured for p from 1.001 to 2 on rows of up to 30,000
# scores: random ones need at most 8 steps to 1e-14, adversarial staircases (each step drops one stair) at most 10.
_NEWTON_STEPS = 16


def squared_pnorm_argmax(x: Tensor, p: Tensor) -> Tensor:
    """Solve one scalar equation in a form whose powers neither overflow nor underflow: O(d) per step.

    With q = p / (p - 1), the solution is y = |z|_q^(2-q) z^(q-1), z = (x - tau)_+, and tau makes it sum to one.
    Put m = max(x) - tau, r = z / m in [0, 1] and S_k = sum r^k in [1, d]: then y = r^(q-1) / S_(q-1) and m is the
    root of F(m) = m S_(q-1) S_q^(2/q - 1) - 1, an increasing function. By Hoelder's inequality
    d^(-2/q) <= m <= 1, and

        m F' / (F + 1) = (q - 1) S_(q-2) / S_(q-1) - (q - 2) S_(q-1) / S_q  >=  1.
    """
    q = p / (p - 1)
    gap = (-below_peak(x)).clamp(max=1)
    low, high = x.shape[-1] ** (-2 / q), torch.ones_like(gap[..., :1])
    m = high
    for _ in range(_NEWTON_STEPS):
        r, power = _ratios(gap, m, q - 2)
        s_0, s_1, s_2 = (s.sum(-1, keepdim=True) for s in (power, power * r, power * r * r))
        value = m * s_1 * s_2 ** (2 / q - 1)
        low, high = torch.where(value < 1, m, low), torch.where(value < 1, high, m)
        newton = m - m * (1 - 1 / value) / ((q - 1) * s_0 / s_1 - (q - 2) * s_1 / s_2)
        m = torch.minimum(torch.maximum(newton, low), high)
    r, power = _ratios(gap, m, q - 2)
    y = power * r
    return y / y.sum(-1, keepdim=True)


def _ratios(gap: Tensor, m: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
    """Return r = (1 - gap / m)_+ and r^exponent, 0 outside the support even for exponent 0.

    The power goes through log1p: 1 - gap / m has lost digits that matter for a large exponent (p near 1).
    """
    inside = gap < m
    share = torch.where(inside, gap / m, 0)
    return torch.where(inside, 1 - share, 0), torch.where(inside, (exponent * (-share).log1p()).exp(), 0)


_NO_WEIGHT = 1000.0  # exp(-1000) underflows, and no entmax weight exceeds exp(-gap)


def tsallis_argmax(x: Tensor, alpha: Tensor) -> Tensor:
    """Solve one scalar equation in a form without cancellation for alpha near 1: O(d) per step.

    With a = alpha - 1 the solution is y = (a x - tau)_+^(1/a). Put m = a max(x) - tau, gap = max(x) - x and
    r = (1 - a gap / m)_+^(1/a), which is exp(-gap / m) at a = 0: then y = r / S, S = sum r, and m is the root of
    F(m) = m S^a. F is a norm of an affine function, hence convex, and at least 1 at m = 1: Newton's steps

        m <- m (1 - (1 - 1 / F) S / C),  C = sum r^(1 - a) = sum r / (1 - a gap / m)

    decrease to the root, which is at least d^(-a).
    """
    a = alpha - 1
    gap = (-below_peak(x)).clamp(max=_NO_WEIGHT)
    least, m = x.shape[-1] ** -a, torch.ones_like(gap[..., :1])
    for _ in range(_NEWTON_STEPS):
        share, r = _tsallis_ratios(gap, m, a)
        total = r.sum(-1, keepdim=True)
        slope = (r / (1 - share)).sum(-1, keepdim=True)
        step = -torch.expm1(-(m.log() + a * total.log())) * total / slope
        m = torch.maximum(m * (1 - step.clamp(min=0)), least)
    _, r = _tsallis_ratios(gap, m, a)
    return r / r.sum(-1, keepdim=True)


def _tsallis_ratios(gap: Tensor, m: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return a gap / m, 0 outside the support, and r, as exp(-(gap / m) log(1 - share) / -share)."""
    scaled = gap / m
    inside = a * scaled < 1
    share = torch.where(inside, a * scaled, 0)
    growth = torch.where(share > 0, -(-share).log1p() / torch.where(share > 0, share, 1), 1)
    return share, torch.where(inside, (-scaled * growth).exp(), 0)
