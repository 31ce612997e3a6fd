"""
Speed against the length of rows
================================

This page compares the time of each mapping with that of ``torch.softmax``, forward and backward, on one thread. The
numbers were measured on the machine that built the page, which was not idle: they show the trend. For figures to quote,
run ``make bench``, which times in turns and reports disturbances.
"""

import time

import matplotlib.pyplot as plt
import torch

import regmax

SCORES = 2**19
MAPPINGS = {
    "sparsemax": regmax.sparsemax,
    "sqpnormmax": regmax.sqpnormmax,
    "entmax": regmax.entmax,
    "fusedmax": regmax.fusedmax,
    "oscarmax": lambda x: regmax.oscarmax(x, lam=min(0.01, 1 / x.shape[-1])),
}
torch.set_num_threads(1)


def seconds(mapping, x, v):
    """The minimum over 15 calls, forward and backward."""
    best = float("inf")
    for _ in range(15):
        start = time.perf_counter()
        torch.autograd.grad(mapping(x), x, v)
        best = min(best, time.perf_counter() - start)
    return best


# %%
# Longer rows are cheaper relative to softmax. Only scores near the maximum of a row can get a weight, and the kernels
# screen out the others, while softmax takes the exponential of each.

lengths = (32, 64, 128, 256, 512, 1024, 2048)
ratios = {name: [] for name in MAPPINGS}
generator = torch.Generator().manual_seed(0)
for d in lengths:
    x, v = torch.randn(2, SCORES // d, d, generator=generator).unbind()
    x.requires_grad_()
    softmax = seconds(lambda x: torch.softmax(x, -1), x, v)
    for name, mapping in MAPPINGS.items():
        ratios[name].append(seconds(mapping, x, v) / softmax)

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, values in ratios.items():
    axes.plot(lengths, values, marker="o", label=name)
axes.axhline(1, color="0.5", linewidth=1)
axes.set(xscale="log", xlabel="d", ylabel="time relative to softmax", ylim=(0, None))
axes.set_xticks(lengths, [str(d) for d in lengths], minor=False)
axes.minorticks_off()
axes.legend()
