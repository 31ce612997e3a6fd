"""Formulas as mathematics on the API pages: docstrings have them in plain text, which a terminal can show."""

from typing import Any

_PI = r"\operatorname*{argmax}_{y \in \triangle^d} \; \langle x, y \rangle - \gamma"
OMEGAS = {
    "softmax": r"\sum_i y_i \log y_i",
    "sparsemax": r"\tfrac12 \|y\|_2^2",
    "fusedmax": r"\tfrac12 \|y\|_2^2 + \lambda \sum_{i=1}^{d-1} |y_{i+1} - y_i|",
    "oscarmax": r"\tfrac12 \|y\|_2^2 + \lambda \sum_{i<j} \max(y_i, y_j)",
    "sqpnormmax": r"\tfrac12 \|y\|_p^2",
    "entmax": r"\frac{1}{\alpha (\alpha - 1)} \sum_i (y_i^\alpha - y_i)",
}
REGULARIZERS = {
    "NegativeEntropy": "softmax",
    "SquaredNorm": "sparsemax",
    "FusedLasso": "fusedmax",
    "Oscar": "oscarmax",
    "SquaredPNorm": "sqpnormmax",
    "NegativeTsallisEntropy": "entmax",
}


def _mapping(mapping: str) -> str:
    symbol = rf"\mathrm{{{mapping}}}(x)" if mapping != "sqpnormmax" else r"\Pi_\Omega(x)"
    return rf"{symbol} = {_PI} \Big( {OMEGAS[mapping]} \Big)"


_NEAREST = r"\operatorname*{argmin}_z \; \tfrac12 \|z - x\|_2^2"
_MAX = r"\max\nolimits_\Omega(x)"
FORMULAS = {
    **{f"regmax.{mapping}": _mapping(mapping) for mapping in OMEGAS},
    **{f"regmax.{name}": rf"\Omega(y) = {OMEGAS[mapping]}" for name, mapping in REGULARIZERS.items()},
    "regmax.regularized_max": rf"{_MAX} = {_PI.replace('argmax', 'max')} \, \Omega(y)",
    "regmax.regularized_argmax": rf"\Pi_\Omega(x) = \nabla {_MAX} = {_PI} \, \Omega(y)",
    "regmax.duality_gap": rf"{_MAX} - \big( \langle x, y \rangle - \gamma \, \Omega(y) \big) \; \ge \; 0",
    "regmax.project_simplex": _NEAREST.replace("_z", r"_{z \in \triangle^d}"),
    "regmax.project_capped_simplex": _NEAREST
    + r"\quad \text{subject to} \quad 0 \le z \le u, \; \textstyle\sum_i z_i = k",
    "regmax.prox_tv1d": rf"{_NEAREST} + \lambda \sum_{{i=1}}^{{d-1}} |z_{{i+1}} - z_i|",
    "regmax.prox_owl": rf"{_NEAREST} + \sum_i w_i |z|_{{(i)}}, \quad w_1 \ge \dots \ge w_d \ge 0",
    "regmax.fenchel_young_loss": rf"L_\Omega(x, t) = {_MAX} + \gamma \, \Omega(t) - \langle x, t \rangle \; \ge \; 0",
}


def insert(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Insert the formula of a public name after the first paragraph of its docstring."""
    if name in FORMULAS:
        end = lines.index("") if "" in lines else len(lines)
        lines[end:end] = ["", ".. math::", "", f"   {FORMULAS[name]}", ""]


def check(app: Any, env: Any) -> None:
    """Raise for a formula of a name that does not exist: it would be left out silently."""
    unknown = FORMULAS.keys() - env.domains["py"].objects.keys()
    if unknown:
        raise ValueError(f"docs/extensions/formulas.py has formulas of unknown names: {sorted(unknown)}.")


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", insert)
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True}
