"""Seeds of randomized tests. `make test` draws one for the whole run and prints it; SEED=n repeats
it, and a single history whose seed was n."""

import os
import random

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))


def seeds(count):
    """The seeds of this many histories, of which SEED is the first; RUNS=n for another count."""
    return range(SEED, SEED + int(os.environ.get("RUNS") or count))
