"""`python -m unisono.ray script.py [arguments]`."""

import sys

from unisono import ray

sys.exit(ray.main(sys.argv[1:]))
