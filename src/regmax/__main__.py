"""`python -m regmax`, and `torchrun ... -m regmax train ...`."""

import sys

from regmax.cli import main

if __name__ == "__main__":
    sys.exit(main())
