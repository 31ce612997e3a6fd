"""Integrations with other libraries: `regmax.integrations.transformers` adds the mappings to Hugging Face models."""

from typing import TYPE_CHECKING

from regmax import lazy

__all__ = ["transformers"]

if TYPE_CHECKING:
    from regmax.integrations import transformers
else:
    __getattr__, __dir__ = lazy.attributes(__name__, {"transformers": "regmax.integrations.transformers"})
