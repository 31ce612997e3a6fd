"""Compile every Triton kernel offline, without a GPU, and print its registers, shared memory and stack.

    python tools/compile_kernels.py                      # all kernels, all targets
    python tools/compile_kernels.py --only fusedmax --target sm_90

Must run without TRITON_INTERPRET: the decorator chooses between interpreter and compiler.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from regmax.kernels.triton import attention, candidates, launch, row_kernels
from regmax.kernels.triton.attention_candidates import attention_candidates
from regmax.kernels.triton.attention_products import attention_gather, attention_key_grads, attention_products
from regmax.kernels.triton.attention_top2 import candidates_in_one_pass, list_queries, order_candidates
from regmax.kernels.triton.dropout import dropout_of_slots
from regmax.kernels.triton.long_attention import long_attention
from regmax.kernels.triton.long_attention_grads import long_attention_grads
from regmax.kernels.triton.long_products import long_products
from regmax.kernels.triton.long_rows import long_rows
from regmax.kernels.triton.products import row_products
from regmax.kernels.triton.row_kernels import row_candidates, row_weights

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
_CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
_KINDS = ("sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "sqpnormmax_15", "entmax", "entmax_15")
_INTEGERS = {"COLUMN", "RANK", "COUNT", "KEPT", "PLACE", "LIST", "SIZE"}
_LONG_INTEGERS = {"SEED", "ENTRY", "START", "MASK_SLICE", "BIAS_SLICE"}
_INPUTS = {"X", "V", "Q", "K"}


class Case(NamedTuple):
    """One kernel with its constants."""

    name: str
    kernel: Any
    constants: dict[str, Any]
    inputs: str = "fp32"  # the type of scores and directions
    work: str = "fp32"
    options: dict[str, int] = {}  # noqa: RUF012  (never changed)


class Usage(NamedTuple):
    """What a compiled kernel occupies; `stack` is bytes per thread, spills included."""

    registers: int
    shared: int
    stack: int
    seconds: float  # of the processor, so that other programs do not count


def cases() -> Iterator[Case]:
    """Every kernel at the shipped tile sizes; the other types for one mapping each."""
    for rows, slots in launch.TILES:
        for name in _KINDS:
            yield from _row_cases(name, rows, slots)
    for inputs, work in (("bf16", "fp32"), ("fp16", "fp32"), ("fp64", "fp64")):
        for rows, slots in launch.TILES:
            for case in _row_cases("fusedmax", rows, slots):
                if work == "fp64" and case.kernel in (
                    row_weights,
                    row_products,
                    long_products,
                ):  # as `launch.tile`
                    half = {**case.constants, "R": rows // 2}
                    case = case._replace(name=case.name.replace(f"{rows}x", f"{rows // 2}x"), constants=half)
                yield case._replace(name=f"{case.name} {inputs}", inputs=inputs, work=work)
    for d in candidates.HEAD_DIMENSIONS:
        yield from _attention_cases(d, torch.bfloat16)
        for case in _attention_cases(d, torch.float32):
            yield case._replace(name=f"{case.name} fp32", inputs="fp32")
    for _, slots in launch.TILES:
        tile = {"R": candidates.QUERIES, "C": slots}
        yield Case(f"order_candidates {candidates.QUERIES}x{slots}", order_candidates, tile)
    yield Case("list_queries", list_queries, {"B": launch.CHUNK})
    yield Case("dropout_of_slots", dropout_of_slots, {"B": 256, "C": 128})


def _attention_cases(d: int, dtype: torch.dtype) -> Iterator[Case]:
    """Attention with a mask and a bias, in bfloat16 as in training; all mappings at one head dimension of it."""
    flags = {"CAUSAL": True, "HAS_MASK": True, "HAS_BIAS": True, "EPS": 2.0**-23}
    queries, keys, warps = candidates.two_pass_block(d, dtype)
    every = d == 64 and dtype == torch.bfloat16
    for _, slots in launch.TILES if every else launch.TILES[-1:]:
        rows, label = candidates.QUERIES, f"{d} {candidates.QUERIES}x{slots}"
        for name in _KINDS if every and slots == 128 else ("fusedmax",):
            number = getattr(row_kernels, name.upper()).value
            block = {"M": queries, "B": keys, "D": d, "C": slots, "KIND": number, "LISTED": False, **flags}
            if slots == 128:
                label_of_block = f"attention_candidates {name} {d} {queries}x{keys}"
                options = {"num_warps": warps}
                yield Case(label_of_block, attention_candidates, block, "bf16", options=options)
            sizes = {"R": rows, "D": d, "E": d, "C": slots, "KIND": number, "ATOMIC": True, "DROPOUT": True}
            yield Case(f"attention_products {name} {label}", attention_products, sizes, "bf16")
        sizes = {"R": rows, "D": d, "C": slots, "DROPOUT": True}
        yield Case(f"attention_gather {label}", attention_gather, sizes, "bf16")
    yield from _one_pass_cases(d, dtype)
    yield from _long_attention_cases(d, flags, every=every)
    sizes = {"D": d, "E": d, "C": 128, "DROPOUT": True}
    yield Case(f"attention_key_grads {d}", attention_key_grads, sizes, "bf16")


def _one_pass_cases(d: int, dtype: torch.dtype) -> Iterator[Case]:
    """Candidates in one pass, which have neither mask nor bias; and the listed queries of two passes."""
    flags = {"D": d, "C": 128, "CAUSAL": True, "EPS": 2.0**-23}
    for name in _KINDS if d == 64 else ("fusedmax", "entmax_15"):
        number = getattr(row_kernels, name.upper()).value
        block = candidates.one_pass_block(d, dtype, number)
        if block is not None:
            queries, keys, warps = block
            label = f"candidates_in_one_pass {name} {d} {queries}x{keys}"
            sizes = {**flags, "M": queries, "B": keys, "KIND": number}
            yield Case(label, candidates_in_one_pass, sizes, "bf16", options={"num_warps": warps})
            queries, keys, warps = candidates.two_pass_block(d, dtype)
            sizes = {**sizes, "M": queries, "B": keys, "HAS_MASK": False, "HAS_BIAS": False, "LISTED": True}
            label = f"attention_candidates {name} {d} {queries}x{keys} listed"
            if name == "fusedmax":
                yield Case(label, attention_candidates, sizes, "bf16", options={"num_warps": warps})


def _long_attention_cases(d: int, flags: dict[str, Any], *, every: bool) -> Iterator[Case]:
    """The queries that overflow; in deterministic mode for the mapping with scans."""
    keys, chunk = attention.keys_at_once(d, d), attention.CHUNK
    for name in _KINDS if every else ("fusedmax", "oscarmax"):
        number = getattr(row_kernels, name.upper()).value
        block = {
            "B": keys,
            "CHUNK": chunk,
            "D": d,
            "E": d,
            "C": 128,
            "KIND": number,
            "DROPOUT": True,
            **flags,
        }
        options = attention.LONG_OPTIONS
        yield Case(f"long_attention {name} {d}", long_attention, block, "bf16", options=options)
        atomic = {"ATOMIC": True, "WANTS_KEYS": True, "WANTS_BIAS": True}
        ordered = {"ATOMIC": False, "WANTS_KEYS": True, "WANTS_BIAS": False}
        for added, suffix in ((atomic, ""), (ordered, " ordered"))[: 2 if name == "fusedmax" else 1]:
            constants = {**block, "SCAN": attention.SCAN, **added}
            label = f"long_attention_grads {name} {d}{suffix}"
            yield Case(label, long_attention_grads, constants, "bf16", options=options)


def _row_cases(name: str, rows: int, slots: int) -> Iterator[Case]:
    tile = {"R": rows, "C": slots, "KIND": getattr(row_kernels, name.upper()).value}
    flags = {"HAS_KEEP": True, "EPS": 2.0**-23}
    label = f"{name} {rows}x{slots}"
    yield Case(f"row_candidates {label}", row_candidates, {**tile, "B": slots, **flags})
    yield Case(f"row_weights {label}", row_weights, {**tile, "SCATTER": True, "EPS": 2.0**-23})
    yield Case(f"row_products {label}", row_products, {**tile, "STRENGTHS": True, **flags})
    if slots == launch.TILES[-1][1]:
        constants = {"B": launch.CHUNK, "C": slots, "KIND": tile["KIND"], **flags}
        yield Case(f"long_rows {name}", long_rows, constants)
        constants = {"R": rows, "B": slots, "KIND": tile["KIND"], "HAS_KEEP": True}
        yield Case(f"long_products {label}", long_products, constants)


def signature(case: Case) -> dict[str, str]:
    """The types of a kernel's arguments, from their names: capital letters are pointers."""

    def kind(name: str) -> str:
        if name in case.constants:
            return "constexpr"
        if name.islower():
            return "fp32" if name in ("scale", "dropout") else "i32"
        if name in ("KEEP", "MASK"):
            return "*i1"
        if name in _INTEGERS:
            return "*i32"
        if name in _LONG_INTEGERS:
            return "*i64"
        if name == "U":
            return "*fp64"
        return f"*{case.inputs if name in _INPUTS else case.work}"

    return {name: kind(name) for name in case.kernel.arg_names}


def compiled(case: Case, target: str) -> Usage:
    """Compile a case, and read off its usage."""
    source = ASTSource(fn=case.kernel, signature=signature(case), constexprs=case.constants)
    began = sum(os.times()[:4])
    options = {**launch.OPTIONS, **case.options}
    if target.startswith("gfx"):
        options.pop("maxnreg", None)
    made: Any = compile(source, target=TARGETS[target], options=options)
    seconds = sum(os.times()[:4]) - began
    if "cubin" in made.asm:
        registers, stack = _nvidia(made.asm["cubin"])
    else:
        registers, stack = _amd(made.asm["amdgcn"])
    return Usage(registers, made.metadata.shared, stack, seconds)


def _nvidia(cubin: bytes) -> tuple[int, int]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run(
            [_CUOBJDUMP, "-res-usage", path], capture_output=True, text=True, check=True, timeout=60
        )
    found = re.search(r"REG:(\d+) STACK:(\d+)", done.stdout)
    assert found is not None, done.stdout
    return int(found[1]), int(found[2])


def _amd(assembly: str) -> tuple[int, int]:
    registers, stack = (
        re.search(rf"\.{name}:\s*(\d+)", assembly) for name in ("vgpr_count", "private_segment_fixed_size")
    )
    assert registers is not None
    assert stack is not None
    return int(registers[1]), int(stack[1])


def main() -> int:
    """Print the table; the exit code is 1 if a kernel has a stack."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="part of the names of the kernels to compile")
    parser.add_argument("--case", action="append", help="the whole name of a kernel to compile")
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: all")
    given = parser.parse_args()
    targets = given.target or list(TARGETS)
    print("| kernel | " + " | ".join(targets) + " |")
    print("|---" * (len(targets) + 1) + "|")
    worst = 0
    for case in cases():
        if given.only not in case.name or (given.case and case.name not in given.case):
            continue
        usages = [compiled(case, target) for target in targets]
        cells = (f"{u.registers} / {u.shared} / {u.stack} ({u.seconds:.1f} s)" for u in usages)
        print(f"| {case.name} | " + " | ".join(cells) + " |", flush=True)
        worst = max(worst, *(u.stack for u in usages))
    return int(worst > 0)


if __name__ == "__main__":
    sys.exit(main())
