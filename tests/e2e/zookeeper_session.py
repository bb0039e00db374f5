"""Ends the session of another client of ZooKeeper, as its timeout would."""

import re
import socket
import struct

CLOSE = -11  # the operation closeSession
VERSION, XID, ZXID, TIMEOUT_MS = 0, 1, 0, 10000


def talk(hosts):
    host, port = hosts.split(",")[0].rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10)


def session_of(hosts, name):
    """The session that has made a node for the lock. One that waits has one as well."""
    with talk(hosts) as stream:
        stream.sendall(b"dump")
        told = stream.makefile().read()
    owners = re.findall(r"^(0x[0-9a-f]+):\n((?:\t.*\n?)+)", told, re.MULTILINE)
    (found,) = [owner for owner, nodes in owners if f"/={name}/" in nodes]
    return int(found, 16)


def password_of(session):
    """ZooKeeper's own: 16 bytes of java.util.Random with this seed. It protects from mistakes."""
    state = (session ^ 0xB3415C00 ^ 0x5DEECE66D) % 2**48
    password = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) % 2**48
        password += struct.pack("<I", state >> 16)
    return password


def session_end(hosts, session):
    """Another client takes the session over and closes it: then it has expired for its owner."""
    password = password_of(session)
    greeting = struct.pack(">iqiqi", VERSION, ZXID, TIMEOUT_MS, session, len(password)) + password
    with talk(hosts) as stream:
        for request in (greeting, struct.pack(">ii", XID, CLOSE)):
            stream.sendall(struct.pack(">i", len(request)) + request)
            assert stream.recv(4, socket.MSG_WAITALL), "the session was accepted"
        while stream.recv(4096):
            pass
