"""`python -m msprobe` is the command `msprobe`."""

from __future__ import annotations

import sys

from msprobe.cli.main import main

sys.exit(main())
