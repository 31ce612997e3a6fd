"""Dropout of weights, the same in both passes and for every kernel: a function of the seed, the query and the key."""

import triton
import triton.language as tl


@triton.jit
def dropout_factor(seed, row, column, dropout):
    """1 / (1 - dropout) for the weights that dropout keeps, else 0: a function of the seed, the query and the key."""
    return tl.where(tl.rand(seed + row, column) >= dropout, 1 / (1 - dropout), 0.0)


@triton.jit
def dropout_of_slots(COLUMN, SEED, FACTOR, slots, dropout, B: tl.constexpr, C: tl.constexpr):
    """The factors of dropout for all candidates. Inside the loops of the other kernels they would spill registers."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    column = tl.load(COLUMN + at, mask=at < slots, other=0)
    tl.store(FACTOR + at, dropout_factor(tl.load(SEED), at // C, column, dropout), mask=at < slots)
