"""How bench/cpu.py counts the CPU time of processes."""

import json
import os
import subprocess

from stack import ROOT

BUSY = "ulimit -t 1; while :; do :; done"  # uses one second of CPU time
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
METER = """
import json, sys, time, cpu
cpu.TAIL_S = 0
with cpu.Meter() as meter:
    print("ready", flush=True)
    sys.stdin.readline()
    costs = meter.costs(meter.samples[0][0], time.monotonic(), 1)
print(json.dumps(costs))
"""


def test_each_process_is_counted_once(tmp_path):
    """A child that has ended, and one that has not; but not a backend that began meanwhile."""
    stay = "echo busy no more; read line <&3"  # until the end of its input
    client = f"exec -a 'postgres: app app 127.0.0.1(5)' bash -c '{BUSY}'"
    scripts = {
        "gateway": f"({BUSY}); {stay}",
        "worker-1": f"(bash -c '{BUSY}'; {stay}) & (bash -c '{BUSY}'; {stay}) & wait",
        "worker-2": stay,
        "postgres": f"({client}) & ({BUSY}) & wait; {stay}",
    }
    programs = []
    for name, script in scripts.items():
        script = f"exec 3<&0; read line; {script}"
        programs.append(subprocess.Popen(["bash", "-c", script], **PIPES))
        (tmp_path / f"{name}.pid").write_text(f"{programs[-1].pid}\n")
    meter = subprocess.Popen(
        ["/usr/bin/python3", "-B", "-c", METER],
        cwd=ROOT / "bench",
        env={**os.environ, "RUN_DIR": str(tmp_path), "PG_BIN": "", "PYTHONPATH": "."},
        **PIPES,
    )
    assert meter.stdout.readline() == "ready\n"
    for program in programs:
        program.stdin.write("\n")
        program.stdin.flush()
    for program in (*programs, programs[1]):
        assert program.stdout.readline() == "busy no more\n"
    costs = json.loads(meter.communicate("\n")[0])
    for program in programs:
        program.communicate()
    assert costs.pop("all") == sum(costs.values())
    seconds = {name: round(us / 1e6) for name, us in costs.items()}
    assert seconds == {"gateway": 1, "workers": 2, "postgres": 1, "redis": 0, "rabbitmq": 0}
