"""CPU tensors on the Triton kernels, by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from regmax.frontends.torch import accelerators
from regmax.kernels import native


@contextmanager
def triton_kernels() -> Iterator[None]:
    """Inside, the front end has no core, and treats CPU tensors as an accelerator's."""
    with patch.object(native, "available", lambda: False), patch.object(accelerators, "interpreting", True):
        yield
