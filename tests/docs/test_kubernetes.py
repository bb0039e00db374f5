"""deploy/kubernetes as kubectl renders it: the types of the API, the settings of the programs, and
what the parts say of each other."""

import copy
import json
import os
import re
import subprocess
import urllib.parse

import pytest

from certificates import Authority
from skips import DEBIAN_12, NO_KUBECTL, NO_TYPES, YAML
from stack import ROOT, Stack

pytestmark = pytest.mark.skipif(NO_KUBECTL or not YAML, reason="make test-kubernetes")
needs_types = pytest.mark.skipif(NO_TYPES, reason="make test-kubernetes")

BUILD = Stack("").build_dir
MODULES = ROOT / "build/kubernetes/node_modules"
FOLDER = ROOT / "deploy/kubernetes"
OVERLAYS = ("base", "example")
# The base names no stores.
STORES = {
    "REDIS_URL": "redis://couponmq@127.0.0.1:6379/0",
    "AMQP_URL": "amqp://couponmq@127.0.0.1:5672/%2f",
    "DATABASE_URL": "postgresql://couponmq@127.0.0.1/couponmq",
}
LISTENERS = ("COUPON_LISTEN", "COUPON_HTTP_LISTEN", "COUPON_WORKER_HTTP_LISTEN",
             "COUPON_ADMIN_LISTEN")  # fmt: skip


def render(overlay):
    import yaml  # not everywhere

    text = subprocess.run(
        ["kubectl", "kustomize", FOLDER / overlay], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return [each for each in yaml.safe_load_all(text) if each]


@pytest.fixture(scope="module", params=OVERLAYS)
def objects(request):
    return render(request.param)


def of_kind(objects, kind):
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def workloads(objects):
    """(its name, its pod, the container of it)"""
    for each in objects:
        if each["kind"] in ("Deployment", "Job"):
            pod = each["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            yield each["metadata"]["name"], pod, container


def settings(objects, container):
    (source,) = container["envFrom"]
    return of_kind(objects, "ConfigMap")[source["configMapRef"]["name"]]["data"]


def table(program):
    told = subprocess.run(
        [BUILD / program, "--help", "json"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return {each["name"]: each for each in json.loads(told)["settings"]}


def number(objects, container, name):
    value = settings(objects, container).get(name)
    return int(value or table(container["args"][0])[name]["default"])


def files(pod, container):
    """{path: (kind of its source, the source's name, key, whether it may be missing)}"""
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    found = {}
    for volume in pod["volumes"]:
        sources = volume["projected"]["sources"] if "projected" in volume else [volume]
        for source in sources:
            kind = "secret" if "secret" in source else "configMap"
            part = source[kind]
            name = part.get("secretName") or part["name"]
            items = part.get("items", [{"key": "ca.crt", "path": "ca.crt"}])
            for item in items:
                path = f"{mounts[volume['name']]}/{item['path']}"
                assert path not in found
                found[path] = (kind, name, item["key"], part.get("optional", False))
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    return found


# The types of the API


def types_told(objects, folder):
    """What the compiler of TypeScript has against them, as literals of the API's types."""
    lines = []
    for i, each in enumerate(objects):
        version = each["apiVersion"] if "/" in each["apiVersion"] else f"core/{each['apiVersion']}"
        lines.append(f'import {{ {each["kind"]} as T{i} }} from "kubernetes-types/{version}";')
        lines.append(f"export const o{i}: T{i} = {json.dumps(each)};")
    (folder / "objects.ts").write_text("\n".join(lines), encoding="utf-8")
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(MODULES)
    done = subprocess.run(
        ["node", MODULES / "typescript/lib/tsc.js", "--noEmit", "--strict", "--skipLibCheck",
         "--target", "es2022", "--lib", "es5", "--module", "es2022", "--moduleResolution",
         "bundler", "objects.ts"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.stderr == "", done.stderr
    return done.stdout


@needs_types
def test_objects_have_the_types_of_the_api(objects, tmp_path):
    assert types_told(objects, tmp_path) == ""


@needs_types
def test_other_types_are_seen(tmp_path):
    def unknown(spec):
        spec["template"]["spec"]["containers"][0]["livenesProbe"] = {}

    def wrong(spec):
        spec["template"]["spec"]["terminationGracePeriodSeconds"] = "150"

    def missing(spec):
        del spec["template"]["spec"]["containers"][0]["name"]

    gateway = of_kind(render("base"), "Deployment")["coupon-gateway"]
    for change, told in ((unknown, "livenesProbe"), (wrong, "string"), (missing, "'name'")):
        changed = copy.deepcopy(gateway)
        change(changed["spec"])
        assert told in types_told([changed], tmp_path)


# The programs


def test_every_setting_is_one_that_the_program_reads(objects):
    for _, _, container in workloads(objects):
        known = table(container["args"][0])
        for name in settings(objects, container):
            plain = name.removesuffix("_FILE")
            assert name in known or "least" not in known[plain], name


def test_the_programs_take_the_settings(objects, tmp_path):
    """Also that listeners beyond loopback have TLS, and ask who is there."""
    authority = Authority(tmp_path, "ca")
    cert, key = authority.issue("DNS:coupon-gateway")
    made = {"tls.crt": cert, "tls.key": key, "ca.crt": authority.path}
    for _, pod, container in workloads(objects):
        program = container["args"][0]
        values = dict(settings(objects, container))
        for path in files(pod, container):
            here = tmp_path / path.lstrip("/")
            here.parent.mkdir(parents=True, exist_ok=True)
            here.write_bytes(made[here.name].read_bytes() if here.name in made else b"secret")
            here.chmod(0o440)
            values = {name: value.replace(path, str(here)) for name, value in values.items()}
        if program == "couponctl":
            continue
        values = {**STORES, **values}
        if DEBIAN_12:  # hiredis has no TLS
            values["REDIS_URL"] = values["REDIS_URL"].replace("rediss://", "redis://")
        assert "COUPON_INSECURE" not in values
        env = {"PATH": os.environ["PATH"], **values}
        told = subprocess.run(
            [BUILD / program, "-n"], env=env, capture_output=True, text=True, check=False
        )
        assert told.returncode == 0, told.stderr
        assert "unknown_setting" not in told.stderr


def test_every_program_runs_with_few_rights(objects):
    for name, pod, container in workloads(objects):
        own, of_pod = container["securityContext"], pod["securityContext"]
        assert own["readOnlyRootFilesystem"] is True, name
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert of_pod["runAsNonRoot"] is True and of_pod["runAsUser"] == 7411
        # A key that others may read is refused.
        assert of_pod["fsGroup"] == of_pod["runAsGroup"] == 7411
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        # A Service coupon-gateway would be the variables COUPON_GATEWAY_PORT and so on.
        assert pod["enableServiceLinks"] is False
        assert "memory" in container["resources"]["limits"]
        for volume in pod["volumes"]:
            source = volume.get("secret") or volume.get("projected")
            assert source is None or source["defaultMode"] == 0o440


def test_no_secret_is_a_setting(objects):
    for _, _, container in workloads(objects):
        for name, value in settings(objects, container).items():
            assert not re.search(r"PASSWORD$|_KEY$", name) or value.startswith("/")
            assert urllib.parse.urlsplit(value).password is None
    assert not of_kind(objects, "Secret")


def test_every_file_that_is_mounted_is_used_and_the_other_way_round(objects):
    for name, pod, container in workloads(objects):
        mounted = files(pod, container)
        values = list(settings(objects, container).values())
        named = {path for value in values for path in re.findall(r"/(?:run|etc)/[\w./-]+", value)}
        assert named <= set(mounted), name
        unused = set(mounted) - named
        assert all(mounted[path][3] for path in unused), unused
        # The files that exist from the beginning are there before the container.
        assert not any(mounted[path][3] for path in named)


def test_ports_are_those_of_the_listeners(objects):
    services = of_kind(objects, "Service")
    for name, pod, container in workloads(objects):
        values = settings(objects, container)
        bound = [values[each] for each in LISTENERS if values.get(each, "").startswith("0.0.0.0:")]
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        assert sorted(ports.values()) == sorted(int(each.split(":")[1]) for each in bound), name
        for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
            if ports:
                asked = container[probe]["httpGet"]
                assert asked == {"path": path, "port": "http", "scheme": "HTTPS"}
        for port in services.get(name, {}).get("spec", {}).get("ports", []):
            assert port["port"] == ports[port["targetPort"]]
    (admin,) = (each for each in workloads(objects) if each[0] == "coupon-admin")
    host, port = settings(objects, admin[2])["COUPON_LISTEN"].split(":")
    assert int(port) in [each["port"] for each in services[host]["spec"]["ports"]]


def test_a_gateway_has_memory_for_its_limits(objects):
    """docs/guides/scale.md, "Memory": a fifth is left for the kernel's buffers."""
    ((_, _, container),) = (each for each in workloads(objects) if each[0] == "coupon-gateway")
    connections, buffers, inflight, processes = (
        number(objects, container, name)
        for name in ("COUPON_CONNECTIONS_MAX", "COUPON_BUFFER_BYTES", "COUPON_INFLIGHT_MAX",
                     "COUPON_PROCESSES")
    )  # fmt: skip
    needed = processes * (16384 * connections + 2 * buffers + 1024 * inflight)
    size, unit = re.fullmatch(
        "([0-9]+)([MG]i)", container["resources"]["limits"]["memory"]
    ).groups()
    assert needed < 0.8 * int(size) * {"Mi": 2**20, "Gi": 2**30}[unit]


def test_a_program_that_hangs_is_killed_soon(objects):
    """And not after the time that the pod has to stop, in which it would do nothing."""
    for _, pod, container in workloads(objects):
        if "livenessProbe" in container:
            grace_s = container["livenessProbe"]["terminationGracePeriodSeconds"]
            assert 0 < grace_s <= 30 < pod["terminationGracePeriodSeconds"]


def test_a_program_may_take_its_longest_time_to_stop(objects):
    """docs/guides/deploy.md, "As a systemd service"."""
    longest = {
        "coupon-gateway": lambda get: get("COUPON_DRAIN_S") + get("COUPON_STOP_WAIT_S") + 13,
        "coupon-worker": lambda get: 8 + 120,
        "coupon-admin": lambda get: get("COUPON_ADMIN_TIMEOUT_MS") / 1000 + 15,
    }
    found = {name: (pod, container) for name, pod, container in workloads(objects)}
    for name, formula in longest.items():
        pod, container = found[name]
        needed = formula(lambda setting, of=container: number(objects, of, setting))
        assert needed < pod["terminationGracePeriodSeconds"] <= needed * 1.2


def test_every_object_belongs_to_a_program(objects):
    """An upgrade applies them one after the other, by this label."""
    names = {name for name, _, _ in workloads(objects)}
    for each in objects:
        if each["kind"] != "Namespace":
            assert each["metadata"]["labels"]["app.kubernetes.io/name"] in names


def test_what_selects_pods_finds_them(objects):
    labels = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in of_kind(objects, "Deployment").values()
    }
    for each in objects:
        selector = each.get("spec", {}).get("selector")
        if selector:
            wanted = selector.get("matchLabels", selector)
            assert wanted.items() <= labels[each["metadata"]["name"]].items()
    for name, each in of_kind(objects, "Deployment").items():
        if each["spec"]["replicas"] > 1:
            (spread,) = each["spec"]["template"]["spec"]["topologySpreadConstraints"]
            assert spread["labelSelector"] == each["spec"]["selector"]
            assert name in of_kind(objects, "PodDisruptionBudget")


def test_the_page_makes_every_secret():
    """With its keys, by kubectl create."""
    page = (ROOT / "docs/guides/kubernetes.md").read_text(encoding="utf-8").replace("\\\n", " ")
    made = {}
    for kind, name, rest in re.findall(
        r"kubectl create (secret generic|configmap) ([\w-]+)(.*)", page
    ):
        keys = re.findall(r"--from-(?:file|literal)=([\w.-]+)", rest)
        made[("secret" if kind.startswith("secret") else "configMap", name)] = set(keys)
    needed = {}
    for _, pod, container in workloads(render("example")):
        for kind, name, key, _ in files(pod, container).values():
            needed.setdefault((kind, name), set()).add(key)
    assert made == needed
