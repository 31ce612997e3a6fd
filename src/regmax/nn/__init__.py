"""Modules: the mappings, with strengths that can be learned, and attention with any of them."""

from regmax.nn.annealing import AnnealGamma
from regmax.nn.attention import MultiheadAttention
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
    "Fusedmax",
    "GlobalAttention",
    "MultiheadAttention",
    "Oscarmax",
    "PreparedMemory",
    "RegularizedArgmax",
    "Softmax",
    "Sparsemax",
    "Sqpnormmax",
]
