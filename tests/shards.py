"""Which pytest files run together: shards.py NUMBER COUNT prints the files of one of COUNT shards.

Each shard has a stack of its own. The longest files come first, each to the shard that has least to
do so far; torture has a shard of its own, which is the last one.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TORTURE = HERE / "torture" / "test_torture.py"
OTHERS_S = 3
SECONDS = {  # about, on an idle machine with two cores
    "test_e2e_audit.py": 75,
    "test_e2e_failures.py": 60,
    "test_e2e_backpressure.py": 45,
    "test_e2e_keeper.py": 45,
}


def files():
    found = [file for file in HERE.glob("*/test_*.py") if file != TORTURE]
    return sorted(found, key=lambda file: (-SECONDS.get(file.name, OTHERS_S), file.name))


def shards(count):
    if count == 1:
        return [[*files(), TORTURE]]
    chosen = [[] for _ in range(count - 1)]
    loads = [0] * (count - 1)
    for file in files():
        least = loads.index(min(loads))
        chosen[least].append(file)
        loads[least] += SECONDS.get(file.name, OTHERS_S)
    return [*chosen, [TORTURE]]


if __name__ == "__main__":
    for one in shards(int(sys.argv[2]))[int(sys.argv[1]) - 1]:
        print(one.relative_to(HERE.parent))
