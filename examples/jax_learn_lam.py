"""An attention layer of Equinox whose lam is learned, trained with optax: `pip install 'regmax[jax]' equinox optax`.

The data are sequences with one contiguous phrase of marked words; the target is the mean of the phrase. Fused weights
fit it, and the layer finds how strongly to fuse.

    python examples/jax_learn_lam.py --steps 200
"""

from __future__ import annotations

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import regmax

WIDTH, LENGTH = 8, 24


class Pool(eqx.Module):
    """Weights of the words from their scores, and the weighted mean of the words."""

    query: jax.Array
    log_lam: jax.Array

    def __init__(self, key: jax.Array) -> None:
        self.query = 0.1 * jax.random.normal(key, (WIDTH,))
        self.log_lam = jnp.log(jnp.array(0.02))

    def __call__(self, words: jax.Array) -> jax.Array:
        """The mean under fusedmax."""
        return regmax.fusedmax(words @ self.query, lam=jnp.exp(self.log_lam)) @ words


def draw(key: jax.Array, batch: int) -> tuple[jax.Array, jax.Array]:
    """Noisy words, a phrase of which is marked, and the phrase's mean."""
    start, noise = jax.random.split(key)
    first = jax.random.randint(start, (batch, 1), 0, LENGTH - 6)
    phrase = (jnp.arange(LENGTH) >= first) & (jnp.arange(LENGTH) < first + 6)
    words = 0.5 * jax.random.normal(noise, (batch, LENGTH, WIDTH))
    words = words.at[..., 0].add(2.0 * phrase)
    return words, (words * phrase[..., None]).sum(1) / 6


def loss(model: Pool, words: jax.Array, targets: jax.Array) -> jax.Array:
    """The mean squared error."""
    return ((jax.vmap(model)(words) - targets) ** 2).mean()


def train(steps: int) -> tuple[float, float, float]:
    """The loss before and after, and the learned lam."""
    key, start = jax.random.split(jax.random.key(0))
    model = Pool(start)
    optimizer = optax.adam(0.03)
    state = optimizer.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def step(model: Pool, state: optax.OptState, key: jax.Array) -> tuple[Pool, optax.OptState, jax.Array]:
        value, grads = eqx.filter_value_and_grad(loss)(model, *draw(key, 32))
        updates, state = optimizer.update(grads, state)
        return eqx.apply_updates(model, updates), state, value

    losses = []
    for each in jax.random.split(key, steps):
        model, state, value = step(model, state, each)
        losses.append(float(value))
    return losses[0], sum(losses[-10:]) / 10, float(jnp.exp(model.log_lam))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    before, after, lam = train(parser.parse_args().steps)
    print(f"loss {before:.3f} -> {after:.3f}, lam 0.020 -> {lam:.3f}")
