"""The models of Redis and PostgreSQL that the simulations use: see models.c."""

import json
import os
import subprocess

from stack import ROOT


class Simulated:
    def __init__(self):
        program = ROOT / (os.environ.get("BUILD_DIR") or "build") / "tests/models"
        self.program = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, *words):
        self.program.stdin.write("\t".join(map(str, words)) + "\n")

    def ask(self, *words):
        """The words of the reply."""
        self.tell(*words)
        self.program.stdin.flush()
        return self.program.stdout.readline().rstrip("\n").split("\t")

    def issue(self, batch, unsettled_max, requests):
        """(verdicts, seq, stock, message)"""
        words = (word for request in requests for word in request)
        seq, stock, body, *verdicts = self.ask("issue", batch, unsettled_max, *words)
        found = [text if ":" in text else int(text) for text in verdicts]
        return found, int(seq), int(stock), json.loads(body) if body else None

    def settle(self, generation, receives):
        """(outcomes, (issued_num, seq_seen, settled_num))"""
        words = (word for receive in receives for word in receive)
        issued, seq_seen, settled, *outcomes = self.ask("settle", generation, *words)
        return outcomes, (int(issued), int(seq_seen), int(settled))

    def end(self):
        self.program.stdin.close()
        assert self.program.wait(60) == 0
