"""Debian's Prometheus with the rules of deploy/prometheus, on a stack of tests: everything that
takes minutes there takes seconds."""

import json
import re
import subprocess
import time

import requests

from stack import ROOT, has_tls, port_free, wait_until

RULES = ROOT / "deploy/prometheus/couponmq.rules.yml"
CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: couponmq-gateway
    scheme: {scheme}
    tls_config: {{insecure_skip_verify: true}}
    file_sd_configs: [{{files: [gateways.json], refresh_interval: 1s}}]
  - job_name: couponmq-worker
    scheme: {scheme}
    tls_config: {{insecure_skip_verify: true}}
    file_sd_configs: [{{files: [workers.json], refresh_interval: 1s}}]
  - job_name: couponmq-admin
    scheme: {scheme}
    tls_config: {{insecure_skip_verify: true}}
    authorization: {{credentials_file: admin.key}}
    file_sd_configs: [{{files: [admins.json], refresh_interval: 1s}}]
"""


def quickened(rules):
    """The rules with short times: the ranges of rates, how long an alert waits, and the ages in
    milliseconds that it allows."""
    rules = re.sub(r"\[\d+[smh]\]", "[8s]", rules)
    rules = re.sub(r"for: \d+[smh]$", "for: 1s", rules, flags=re.M)
    return re.sub(r"(milliseconds|_ms)\) > \d+000$", r"\1) > 3000", rules, flags=re.M)


class Prometheus:
    def __init__(self, folder):
        self.folder = folder
        self.url = f"http://127.0.0.1:{port_free()}"
        self.begun = time.time()
        self.targets = {"gateways": {}, "workers": {}, "admins": {}}
        (folder / "rules.yml").write_text(quickened(RULES.read_text(encoding="utf-8")))
        scheme = "https" if has_tls() else "http"
        (folder / "prometheus.yml").write_text(CONFIG.format(scheme=scheme))
        self._targets_write()
        with open(folder / "prometheus.log", "wb") as log:
            self.child = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._is_ready)

    def _is_ready(self):
        try:
            return requests.get(f"{self.url}/-/ready", timeout=5).ok
        except requests.RequestException:
            return False

    def end(self):
        self.child.terminate()
        self.child.wait(60)

    def _targets_write(self):
        for name, targets in self.targets.items():
            groups = [
                {"targets": [address], "labels": labels} for address, labels in targets.items()
            ]
            part = self.folder / f"{name}.new"
            part.write_text(json.dumps(groups))
            part.rename(self.folder / f"{name}.json")

    def add(self, kind, address, **labels):
        self.targets[kind][address] = labels
        self._targets_write()

    def remove(self, kind, address):
        self.targets[kind].pop(address, None)
        self._targets_write()

    def ask(self, path, **parameters):
        reply = requests.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=30).json()
        assert reply["status"] == "success", (path, parameters, reply)
        return reply["data"]

    def firing(self):
        """The alerts that fire now, without the name of the project."""
        return {
            alert["labels"]["alertname"].removeprefix("Couponmq")
            for alert in self.ask("alerts")["alerts"]
            if alert["state"] == "firing"
        }

    def has_had(self, query):
        """Whether a query gave data at any moment since the beginning."""
        return bool(
            self.ask("query_range", query=query, start=self.begun, end=time.time(), step=5)[
                "result"
            ]
        )
