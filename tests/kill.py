"""Programs that are killed at any moment."""

import subprocess


def killed(start, chance, count, within_s):
    """Starts and kills a program at a random moment within these seconds, until `count` kills have
    met it alive. One that ends before its kill does not count, and the time becomes shorter. Yields
    what each has printed."""
    met = 0
    while met < count:
        process = start()
        try:
            told, _ = process.communicate(timeout=chance.uniform(0, within_s))
            within_s /= 2
        except subprocess.TimeoutExpired:
            process.kill()
            told, _ = process.communicate()
            met += 1
        yield told
