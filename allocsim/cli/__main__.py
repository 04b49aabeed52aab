"""`python -m allocsim.cli` is the command `allocsim`."""

import sys

from allocsim.cli import main

sys.exit(main())
