"""ULIDs, the ids of batches: made, read and written as the programs do."""

import random
import uuid

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def ulid_make(chance=random):
    return chance.choice("01234567") + "".join(chance.choice(CROCKFORD) for _ in range(25))


def ulid_at(ms):
    """One that was made at this time, in milliseconds since 1970."""
    text = ""
    for _ in range(10):
        ms, digit = divmod(ms, 32)
        text = CROCKFORD[digit] + text
    return text + "".join(random.choice(CROCKFORD) for _ in range(16))


def ulid_uuid(text):
    """The 128 bits as PostgreSQL keeps them."""
    number = 0
    for character in text:
        number = number * 32 + CROCKFORD.index(character)
    return uuid.UUID(int=number)


def ulid_of(value):
    """Back from a uuid, or its text."""
    number = uuid.UUID(str(value)).int
    return "".join(CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))
