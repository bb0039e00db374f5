"""Opens NUMBER connections and holds them until its standard input ends. It is a process of its own
because select() in others allows no descriptor above 1023. Usage: idle.py HOST:PORT NUMBER"""

import resource
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from stack import dial  # noqa: E402

OWN_DESCRIPTORS = 100


def main():
    address, wanted = sys.argv[1], int(sys.argv[2])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connections = []
    for number in range(min(wanted, hard - OWN_DESCRIPTORS)):
        one = dial(address, 20)
        if number % 3 == 0:
            one.sendall(b'{"op":"issue","coupon":"')
        connections.append(one)
    print(len(connections), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
