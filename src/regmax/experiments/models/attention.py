"""The configured mapping, and masks by length."""

import torch
from torch import Tensor, nn

import regmax.nn as mappings
from regmax.experiments.config import Config


def mapping(config: Config) -> nn.Module:
    """The module of the configured mapping."""
    lam = config.lam or 0.0  # None: a mapping without it
    modules: dict[str, nn.Module] = {
        "softmax": mappings.Softmax(gamma=config.gamma),
        "sparsemax": mappings.Sparsemax(gamma=config.gamma),
        "fusedmax": mappings.Fusedmax(lam=lam, gamma=config.gamma),
        "oscarmax": mappings.Oscarmax(lam=lam, gamma=config.gamma),
        "sqpnormmax": mappings.Sqpnormmax(p=config.p, gamma=config.gamma),
    }
    return modules[config.mapping]


def mask_of(lengths: Tensor, longest: int) -> Tensor | None:
    """True for words, False for padding; None if all sequences have the same length, which needs no mask."""
    if bool((lengths == longest).all()):
        return None
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)
