"""`python -m allocsim` is the command `allocsim`."""

import sys

from allocsim.cli import main

sys.exit(main())
