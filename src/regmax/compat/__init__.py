"""Drop-in replacements: the names and signatures of other libraries, computed by regmax.

Only the import changes: `from regmax.compat.torchsparseattn import Fusedmax`, or
`from regmax.compat.entmax import sparsemax`.
"""

from typing import TYPE_CHECKING

from regmax import lazy

__all__ = ["entmax", "torchsparseattn"]

if TYPE_CHECKING:
    from regmax.compat import entmax, torchsparseattn
else:
    __getattr__, __dir__ = lazy.attributes(
        __name__, {"entmax": "regmax.compat.entmax", "torchsparseattn": "regmax.compat.torchsparseattn"}
    )
