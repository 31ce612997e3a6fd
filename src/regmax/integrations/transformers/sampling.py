"""Text generation from a sparse distribution over the vocabulary."""

from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor

from regmax.frontends.torch.modes import is_plain
from regmax.kernels import KERNELS
from regmax.regularizers import KernelRegularizer
from regmax.regularizers.base import Bounds
from regmax.resolver import MappingLike, resolve
from regmax.sampling import weights


class SparseLogitsProcessor(LogitsProcessor):
    """Makes `generate` sample from a mapping's weights: words of weight zero are never generated.

    It returns log y, and softmax of log y is y. It replaces cutoffs such as `top_k`: the mapping decides how many words
    can follow. Leave `temperature` at 1, because `gamma` has its role. The mapping must not depend on the order of the
    words in the vocabulary; fusedmax does.

    Args:
        mapping: a name (`"sparsemax"`), a regularizer, a module, or a function.
        gamma: the temperature: the larger, the more words have weight. A module's own gamma is multiplied by it.

    Example:
        >>> import torch
        >>> process = SparseLogitsProcessor("sparsemax")
        >>> process(torch.zeros(1, 1, dtype=torch.int64), torch.tensor([[1.0, 0.5, -1.0]])).exp()
        tensor([[0.7500, 0.2500, 0.0000]])
    """

    def __init__(self, mapping: MappingLike, *, gamma: float = 1.0) -> None:
        found = resolve(mapping)
        Bounds("SparseLogitsProcessor(..., gamma=...)", above=0.0).check(gamma)
        if isinstance(found.omega, KernelRegularizer) and KERNELS[_kernel(found.omega)].groups == "segments":
            raise ValueError(
                "`SparseLogitsProcessor(mapping)` needs a mapping that does not depend on the order of the words. "
                f"Got {found.omega}: use sparsemax or another symmetric mapping."
            )
        self.mapping, self.gamma = mapping, gamma

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return log y for scores (batch, words), -inf for words of weight zero."""
        y: Any = weights(self.mapping, scores.float(), -1, self.gamma, None)
        # The largest weight is positive: only scores that are not finite prevent it.
        if is_plain(y) and y.is_cpu and not bool((y.amax(-1) > 0).all()):
            raise ValueError(
                "`SparseLogitsProcessor`: every row needs a finite score and none of NaN. Got a row without weights."
            )
        return torch.log(y)


def _kernel(omega: KernelRegularizer) -> str:
    return omega.steps[0] if omega.steps else omega.kernel
