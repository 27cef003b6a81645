"""`python -m superinfer_operator.crdgen`."""

import sys

from superinfer_operator.crdgen.command import main

sys.exit(main())
