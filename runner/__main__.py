"""``python -m resweep.runner``: the command line, as ``resweep`` is."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
