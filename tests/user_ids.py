"""User ids that a program could take for something else: they are opaque, and compared byte by
byte."""

import random
import uuid

PRINTABLE = "".join(map(chr, range(ord("!"), ord("~") + 1)))
LENGTH_MAX = 64
# Some differ from each other only in letter case, a leading zero, or a quote.
HOSTILE = (
    "42", "042", "42.0", "+42", "-42", "4.2e1", "0x2A", "0", "-0", "NaN", "inf",
    "9007199254740993", "9223372036854775808", "1" * LENGTH_MAX,
    "user", "User", "USER", "a", "A", "_", "-", "~", "!",
    "NULL", "null", "nil", "true", "undefined",
    "{}", "[]", '""', '"', "''", "'", "\\", "\\\\", "\\N", "\\n", "\\0", "\\x00", "\\u0000",
    '{"user":"42"}', '["42",1,""]', '"42"', "{42,43}", '{"42"}', "42,43", "42\\", "42'", '42"',
    "';DROP/**/TABLE/**/user_coupon;--", "'||pg_sleep(9)||'", "$1", "$$", "E'\\\\'", "42--", "42;",
    "%", "%%", "%s%n", "%d", "%-42s", "%1$s", "%a", "%b()", "^a$", "[%w]+", ".*", "a|b", "(", ")",
    "1001.42.01ARZ3NDEKTSV4RRFFQ69G5FAV.0", ".42.", "a.b", ".", "..", "../..", "42.", ".42",
    "1:01ARZ3NDEKTSV4RRFFQ69G5FAV:0:", ":", "a:b", "coupon:{1001}:users", "{", "}", "{1001}",
    "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6BA7B810-9DAD-11D1-80B4-00C04FD430C8",
    "auth0|65f1c2d3e4f5a6b7c8d9e0f1", "cus_9s6XKzkNRiz8i3", "a+b@example.org", "A+b@example.org",
    "gid://shopify/Customer/544365967", "<script>alert(1)</script>", "&amp;", "a&b=c#d?e", "`id`",
    "$(id)", "=1+1", "@SUM(1)", "!" * LENGTH_MAX, PRINTABLE[:LENGTH_MAX], PRINTABLE[-LENGTH_MAX:],
    '",1,""],["', '"]]}', '\\"', "\\" * LENGTH_MAX, '"' * LENGTH_MAX, "__index", "]-~", "%00",
    "a%2Fb", "." * LENGTH_MAX, "01ARZ3NDEKTSV4RRFFQ69G5FAV", "42.01ARZ3NDEKTSV4RRFFQ69G5FAV", "a.",
    "a,b", "+",
)  # fmt: skip

# No ids, each with the position of its first wrong byte, from 1; 0: only the length is wrong. One
# character is one byte (latin-1).
BAD = (
    ("", 0), ("u" * (LENGTH_MAX + 1), 0), ("~" * 300, 0), ("u" * (LENGTH_MAX + 1) + " ", 66),
    (" ", 1), (" 42", 1), ("42 ", 3), ("4 2", 2), ("\t", 1), ("42\n", 3), ("42\r", 3),
    ("\0", 1), ("4\0", 2), ("\x002", 1), ("4\x002", 2), ("\x1b[31m", 1), ("a\x1f", 2),
    ("a\x7f", 2), ("\x80", 1), ("a\x80b", 2), ("\xa0", 1), ("\xff", 1), ("\xc3\xa9", 1),
)  # fmt: skip


def user_id_random(rng):
    """A hostile one, any printable bytes, or a number."""
    return rng.choice(
        (
            rng.choice(HOSTILE),
            "".join(rng.choices(PRINTABLE, k=rng.randrange(1, LENGTH_MAX + 1))),
            str(rng.randrange(1, 100)),
        )
    )


def user_ids_random(rng, num):
    """So many different ids, some of which differ in case or in a leading zero only."""
    found = dict.fromkeys(user_id_random(rng) for _ in range(num))
    while len(found) < num:
        user = rng.choice([user_id_random(rng), *found])
        found[rng.choice([user, user.swapcase(), "0" + user])[:LENGTH_MAX]] = None
    return list(found)[:num]


def user_of(number, seed):
    """An integer, a UUID or a hostile id. Different numbers are different users; those of an even
    number and the next one often differ in one byte."""
    pair = random.Random(f"{seed} {number // 2}")
    form = pair.randrange(4)
    if form == 0:
        return f"0{number - 1}" if number % 2 else str(number)
    if form == 1:
        return str(uuid.UUID(int=random.Random(f"{seed} user {number}").getrandbits(128)))
    tag, hostile = f"{'aA'[number % 2]}{number // 2}", pair.choice(HOSTILE)
    if form == 2:
        return f"{tag}/{hostile}"[:LENGTH_MAX]
    return f"{hostile}/{tag}"[-LENGTH_MAX:]


def receive_parts(receive):
    """(coupon, user, batch, index); the user may contain dots."""
    coupon, rest = receive.split(".", 1)
    return (coupon, *rest.rsplit(".", 2))
