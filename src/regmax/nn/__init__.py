"""Modules: the mappings, with strengths that can be learned."""

from regmax.nn.mappings import Fusedmax, Oscarmax, RegularizedArgmax, Softmax, Sparsemax, Sqpnormmax

__all__ = ["Fusedmax", "Oscarmax", "RegularizedArgmax", "Softmax", "Sparsemax", "Sqpnormmax"]
