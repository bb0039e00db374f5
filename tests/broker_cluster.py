"""A cluster of RabbitMQ nodes beside a stack, with the users and passwords of that stack: nodes to
kill, freeze, stop and wipe."""

import json
import os
import re
import shutil
import signal
import subprocess
from urllib.parse import quote

from stack import RABBITMQ_BIN, ROOT, port_answers, port_free, process_gone, wait_until

COOKIE = "couponmq"
NET_TICKTIME_S = 8
WATCHER, WATCHER_PASSWORD = "monitor", "watches@all"
CONFIG = """\
listeners.tcp.default = 127.0.0.1:{amqp}
management.tcp.ip = 127.0.0.1
management.tcp.port = {api}
load_definitions = {folder}/users.json
cluster_partition_handling = pause_minority
net_ticktime = {ticktime_s}
disk_free_limit.absolute = 50MB
raft.wal_max_size_bytes = 67108864
log.console = true
log.console.use_colors = off
log.file = false
"""
# One scheduler each: many nodes share the cores of the machine with what is tested.
ERLANG = (
    "+S 1:1 +SDcpu 1:1 +SDio 4 +sbwt none +sbwtdcpu none +sbwtdio none"
    " -kernel inet_dist_use_interface {127,0,0,1}"
)


def watched(definitions):
    """With the user that docs/guides/high-availability.md has for the management API."""
    user = {"name": WATCHER, "password": WATCHER_PASSWORD, "tags": "monitoring"}
    rights = {"vhost": "/", "user": WATCHER, "configure": "^$", "write": "^$", "read": "^$"}
    definitions["users"].append(user)
    definitions["permissions"].append(rights)
    return definitions


class Node:
    def __init__(self, cluster, number):
        self.cluster = cluster
        self.name = f"couponmq-{number}@localhost"
        self.folder = cluster.folder / f"rabbitmq-{number}"
        self.amqp, self.api, self.distribution = port_free(), port_free(), port_free()
        self.child = None
        self.log_path = cluster.stack.run_dir / f"rabbitmq-{number}.log"

    def _env(self):
        return {
            **os.environ,
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "RUNNING_UNDER_SYSTEMD": "true",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.cluster.epmd_port),
            "ERL_CRASH_DUMP": str(self.folder / "erl_crash.dump"),
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_DIST_PORT": str(self.distribution),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "advanced.config"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self.folder / "config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
        }

    def _configure(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        cookie = self.folder / ".erlang.cookie"
        if not cookie.exists():
            cookie.write_text(COOKIE)
            cookie.chmod(0o400)
        (self.folder / "enabled_plugins").write_text("[rabbitmq_management].")
        (self.folder / "users.json").write_text(self.cluster.users)
        (self.folder / "rabbitmq.conf").write_text(
            CONFIG.format(
                amqp=self.amqp, api=self.api, folder=self.folder, ticktime_s=NET_TICKTIME_S
            )
            + self.cluster.formation()
        )

    def start(self, wait=True):
        """wait: until it takes part; a node of a cluster waits for the others before."""
        self._configure()
        begin = self.log_path.stat().st_size if self.log_path.exists() else 0
        with open(self.log_path, "ab") as log:
            self.child = subprocess.Popen(
                [f"{RABBITMQ_BIN}/rabbitmq-server"],
                env=self._env(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.log_begin = begin
        if wait:
            self.wait_started()

    def log(self):
        return self.log_path.read_bytes()[self.log_begin :].decode(errors="replace")

    def wait_started(self):
        wait_until(lambda: self.child.poll() is not None or "startup complete" in self.log())
        assert self.child.poll() is None, self.log()[-3000:]

    def has_given_up(self):
        """RabbitMQ 3.10: one that has paused may meet the others too early, while they start."""
        return re.search(r"rabbit exited with reason: \{+incompatible_feature_flags", self.log())

    def runs(self):
        return self.child is not None and self.child.poll() is None

    def signal(self, number):
        os.killpg(self.child.pid, number)

    def kill9(self):
        self.signal(signal.SIGKILL)
        self.child.wait(60)
        wait_until(lambda: process_gone(self.child.pid))

    def stop(self):
        """As its service would be stopped."""
        self.signal(signal.SIGTERM)
        self.child.wait(120)

    def freeze(self):
        self.signal(signal.SIGSTOP)

    def thaw(self):
        self.signal(signal.SIGCONT)

    def wipe(self):
        """A node that does not run loses its data."""
        shutil.rmtree(self.folder / "mnesia")

    def run(self, tool, *arguments):
        """rabbitmqctl or another tool on this node; returns its output."""
        done = subprocess.run(
            [f"{RABBITMQ_BIN}/{tool}", *arguments],
            env=self._env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{tool} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def eval(self, expression):
        """The text of the value of an Erlang expression in the node; quicker than a tool."""
        text = f'lists:flatten(io_lib:format("~0p", [begin {expression} end])).\n'
        told = subprocess.run(
            ["erl_call", "-n", self.name, "-c", COOKIE, "-e"],
            env=self._env(),
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        ).stdout
        assert told.startswith('{ok, "'), f"{expression}: {told}"
        return told[len('{ok, "') : -2].replace('\\"', '"')

    def join(self, other):
        """This node, which runs, leaves what it has and becomes a node of the other's cluster."""
        self.run("rabbitmqctl", "-q", "stop_app")
        self.run("rabbitmqctl", "-q", "join_cluster", other.name)
        self.run("rabbitmqctl", "-q", "start_app")


class Cluster:
    """Nodes, which find each other when they start for the first time."""

    def __init__(self, stack, number, forms=True):
        """forms: else each node stays alone until it joins another."""
        self.stack, self.forms = stack, forms
        self.folder = stack.run_dir / "cluster"
        kept = stack.kept()
        self.password = kept["STACK_AMQP_PASSWORD"]
        users = (ROOT / "deploy/rabbitmq.json").read_text()
        for mark in ("GATEWAY_PASSWORD", "WORKER_PASSWORD", "OPERATOR_PASSWORD"):
            users = users.replace(f"@{mark}@", kept[f"STACK_{mark}"])
        self.users = json.dumps(watched(json.loads(users.replace("@PASSWORD@", self.password))))
        self.epmd_port = port_free()
        self.epmd = None
        self.nodes = [Node(self, n + 1) for n in range(number)]

    def start(self):
        """All nodes, in one cluster."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.epmd = subprocess.Popen(
            ["epmd", "-address", "127.0.0.1", "-port", str(self.epmd_port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until(lambda: port_answers(self.epmd_port))
        for node in self.nodes:
            node.start(wait=False)
        for node in self.nodes:
            node.wait_started()
        return self

    def end(self):
        for node in self.nodes:
            if node.runs():
                node.signal(signal.SIGKILL)
                node.child.wait(60)
        if self.epmd:
            self.epmd.kill()
            self.epmd.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)

    def formation(self):
        """Part of the configuration."""
        if not self.forms:
            return ""
        prefix = "cluster_formation"
        lines = [f"{prefix}.peer_discovery_backend = classic_config"]
        for n, node in enumerate(self.nodes):
            lines.append(f"{prefix}.classic_config.nodes.{n + 1} = {node.name}")
        return "\n".join(lines) + "\n"

    def env(self, env):
        """The settings that lead to this cluster, by those that lead to the stack's node."""
        login = env["AMQP_URL"].split("@")[0]
        hosts = ",".join(f"127.0.0.1:{node.amqp}" for node in self.nodes)
        apis = ",".join(f"127.0.0.1:{node.api}" for node in self.nodes)
        return {
            "AMQP_URL": f"{login}@{hosts}/%2f",
            "COUPON_RABBITMQ_API": f"http://{WATCHER}:{quote(WATCHER_PASSWORD)}@{apis}",
        }

    def leader(self, queue):
        """The node that leads the queue, as one that runs tells."""
        asked = next(node for node in self.nodes if node.runs())
        name = f'rabbit_misc:r(<<"/">>, queue, <<"{queue}">>)'
        told = asked.eval(
            f"{{ok, Q}} = rabbit_amqqueue:lookup({name}), rabbit_quorum_queue:info(Q, [leader])"
        )
        return next(node for node in self.nodes if node.name in told)

    def online(self, queue):
        """How many members take part."""
        asked = next(node for node in self.nodes if node.runs())
        name = f'rabbit_misc:r(<<"/">>, queue, <<"{queue}">>)'
        told = asked.eval(
            f"{{ok, Q}} = rabbit_amqqueue:lookup({name}), rabbit_quorum_queue:info(Q, [online])"
        )
        return told.count("@localhost")
