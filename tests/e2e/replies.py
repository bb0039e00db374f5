"""How the tests of the protocol send a request, and what they expect of a refusal."""

LINE_LIMIT = 65536  # bytes of a line, and of the body of an HTTP request


def ask(gateway, line):
    """One line of bytes (without its end), one reply."""
    gateway.send_bytes(line + b"\n")
    return gateway.read_reply()


def refused(reply, words=""):
    assert (reply["code"], reply["status"]) == (40, "bad_request"), reply
    assert words in reply["message"], reply
    return True


def still_talks(gateway):
    return gateway.call("ping")["code"] == 0
