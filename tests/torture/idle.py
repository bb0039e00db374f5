"""Opens NUMBER connections and holds them until its standard input ends. It is a process of its own
because select() in others allows no descriptor above 1023. Usage: idle.py HOST PORT NUMBER"""

import resource
import socket
import sys

OWN_DESCRIPTORS = 100


def main():
    host, port, wanted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connections = []
    for number in range(min(wanted, hard - OWN_DESCRIPTORS)):
        one = socket.create_connection((host, port), 20)
        if number % 3 == 0:
            one.sendall(b'{"op":"issue","coupon":"')
        connections.append(one)
    print(len(connections), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
