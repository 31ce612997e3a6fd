"""The native core as Python sees it (csrc/python.cpp): it takes addresses, returns None, and raises on failure."""

Address = int | None

class Weights:
    """A capsule that owns the weights of a forward pass and frees them."""

def argmax(
    dtype: int,
    kernel: int,
    x: Address,
    y: Address,
    n: int,
    d: int,
    theta: float,
    gamma: float,
    threads: int,
    support: Address = None,
    joined: Address = None,
    mask: Address = None,
    mask_rows: int = 1,
    mask_repeat: int = 1,
    thetas: Address = None,
    gammas: Address = None,
    kept: Address = None,
    theta_grad: Address = None,
    gamma_grad: Address = None,
    y32: Address = None,
    value: Address = None,
    /,
) -> None: ...
def jacobian_product(
    dtype: int,
    kernel: int,
    y: Address,
    v: Address,
    out: Address,
    n: int,
    d: int,
    theta: float,
    gamma: float,
    threads: int,
    support: Address = None,
    joined: Address = None,
    mask: Address = None,
    mask_rows: int = 1,
    mask_repeat: int = 1,
    thetas: Address = None,
    gammas: Address = None,
    kept: Address = None,
    theta_grad: Address = None,
    gamma_grad: Address = None,
    y32: Address = None,
    /,
) -> None: ...
def prox_owl(
    dtype: int, x: Address, z: Address, n: int, d: int, weights: Address, threads: int, /
) -> None: ...
def attention_forward(
    dtype: int,
    kernel: int,
    theta: float,
    scale: float,
    is_causal: bool,
    heads: int,
    groups: int,
    queries: int,
    keys: int,
    e: int,
    e_v: int,
    q: Address,
    k: Address,
    v: Address,
    mask: Address,
    mask_slices: Address,
    mask_rows: int,
    bias: Address,
    bias_slices: Address,
    bias_rows: int,
    dropout_p: float,
    seed: int,
    recompute: bool,
    threads: int,
    out: Address,
    keep_weights: bool,
    /,
) -> Weights | None: ...
def attention_size(weights: Weights, /) -> int: ...
def attention_take(
    weights: Weights, starts: Address, columns: Address, values: Address, joined: Address, /
) -> None: ...
def attention_backward(
    dtype: int,
    kernel: int,
    theta: float,
    scale: float,
    is_causal: bool,
    heads: int,
    groups: int,
    queries: int,
    keys: int,
    e: int,
    e_v: int,
    q: Address,
    k: Address,
    v: Address,
    mask: Address,
    mask_slices: Address,
    mask_rows: int,
    bias: Address,
    bias_slices: Address,
    bias_rows: int,
    dropout_p: float,
    seed: int,
    recompute: bool,
    threads: int,
    starts: Address,
    columns: Address,
    values: Address,
    joined: Address,
    out_grad: Address,
    q_grad: Address,
    k_grad: Address,
    v_grad: Address,
    /,
) -> None: ...
def instruction_set() -> str: ...
def force_tier(name: str | None, /) -> bool: ...
def use_instruction_set(name: str, /) -> bool: ...
def borrow_threads(gomp_parallel: Address, /) -> None: ...
def abi_version() -> int: ...
