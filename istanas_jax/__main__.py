import sys

from istanas_jax.cli import main

sys.exit(main())
