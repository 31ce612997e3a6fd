"""Modules: the mappings, with strengths that can be learned."""

from regmax.nn.annealing import AnnealGamma
from regmax.nn.mappings import Fusedmax, Oscarmax, RegularizedArgmax, Softmax, Sparsemax, Sqpnormmax

__all__ = ["AnnealGamma", "Fusedmax", "Oscarmax", "RegularizedArgmax", "Softmax", "Sparsemax", "Sqpnormmax"]
