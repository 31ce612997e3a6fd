"""Modules that need JAX have no doctests to collect where it is not installed."""

from importlib.util import find_spec

if find_spec("jax") is None:
    collect_ignore_glob = ["regmax/frontends/jax/*", "regmax/kernels/jnp/*", "regmax/sparse_attention/jax.py"]
