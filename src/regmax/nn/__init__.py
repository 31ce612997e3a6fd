"""Modules: the mappings, with strengths that can be learned, attention with any of them, and their losses."""

try:
    import torch  # noqa: F401
except ModuleNotFoundError:
    message = "`regmax.nn` needs PyTorch: install it with `pip install torch`."
    raise ModuleNotFoundError(message, name="torch") from None

from regmax.nn.annealing import AnnealGamma
from regmax.nn.attention import MultiheadAttention
from regmax.nn.growing import GrowLam
from regmax.nn.losses import FenchelYoungLoss, LinearFenchelYoungLoss
from regmax.nn.mappings import (
    Entmax,
    Fusedmax,
    Oscarmax,
    RegularizedArgmax,
    Softmax,
    Sparsemax,
    Sqpnormmax,
)
from regmax.nn.recording import AttentionRecord
from regmax.nn.seq2seq import AdditiveAttention, GlobalAttention, PreparedMemory

__all__ = [
    "AdditiveAttention",
    "AnnealGamma",
    "AttentionRecord",
    "Entmax",
    "FenchelYoungLoss",
    "Fusedmax",
    "GlobalAttention",
    "GrowLam",
    "LinearFenchelYoungLoss",
    "MultiheadAttention",
    "Oscarmax",
    "PreparedMemory",
    "RegularizedArgmax",
    "Softmax",
    "Sparsemax",
    "Sqpnormmax",
]
