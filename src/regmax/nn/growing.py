"""Growing lam: structure comes in late, after the model has learned which words matter.

A row that fusedmax or oscarmax fuses whole has equal weights and no gradient. While scores are small that happens at
any lam worth having, and such rows never recover; a lam that grows from zero starts as sparsemax and fuses neighbours
once their scores say something.
"""

import torch

from regmax.nn.mappings import RegularizedArgmax, _Mapping
from regmax.nn.schedule import LinearSchedule
from regmax.regularizers import KernelRegularizer


class GrowLam(LinearSchedule):
    """Multiplies lam of every fusedmax and oscarmax in a model by a factor that grows, step by step, up to 1.

    The factor is `start` for the first `delay` steps, grows linearly over the next `steps`, and stays at 1: lam is then
    the mapping's own. It is in the model's state dict, and a lam that is learned or a tensor grows too. Together with
    `AnnealGamma`, which holds the penalty gamma lam while gamma falls, the penalty grows as the factor does.

    Args:
        model: any module; all `regmax.nn` mappings with a lam in it, including those of attention given by name.
        start: the initial factor, from 0 to 1.
        steps: the number of calls of `step` from `start` to 1.
        delay: the number of calls before lam changes.

    Example:
        >>> import regmax
        >>> mapping = regmax.nn.Fusedmax(lam=0.8)
        >>> schedule = regmax.nn.GrowLam(mapping, steps=2, delay=1)
        >>> lams = [mapping.lam]
        >>> for _ in range(4):  # after each optimizer.step()
        ...     schedule.step()
        ...     lams.append(mapping.lam)
        >>> lams
        [0.0, 0.0, 0.4, 0.8, 0.8]
    """

    def __init__(self, model: torch.nn.Module, *, start: float = 0.0, steps: int, delay: int = 0) -> None:
        if not 0 <= start <= 1:
            raise ValueError(f"`GrowLam(..., start=...)` must be from 0 to 1. Got {start}.")
        super().__init__(start, 1.0, steps=steps, delay=delay)
        self._mappings = [
            module for module in model.modules() if isinstance(module, _Mapping) and _has_lam(module)
        ]
        if not self._mappings:
            raise ValueError(
                "`GrowLam(model)` found no mapping of `regmax.nn` with a lam: use fusedmax or oscarmax."
            )
        self._set()

    @property
    def factor(self) -> float:
        """The current factor of lam."""
        return self._value

    def _set(self) -> None:
        for mapping in self._mappings:
            mapping.strengths.grow(self.factor)


def _has_lam(mapping: _Mapping) -> bool:
    if isinstance(mapping, RegularizedArgmax):
        return isinstance(mapping.omega, KernelRegularizer) and mapping.omega.strength == "lam"
    return "lam" in mapping.strengths
