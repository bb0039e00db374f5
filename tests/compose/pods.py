"""Prints, a line each, the arguments with which Docker runs a pod of deploy/kubernetes as its
manifest says: its settings, its files, its command, and with no more rights.

pods.py NAME SECRETS IMAGE: the files of the secrets are SECRETS/NAME OF THE SECRET/KEY."""

import subprocess
import sys
from pathlib import Path

import yaml

BASE = Path(__file__).resolve().parents[2] / "deploy/kubernetes/base"


def rendered():
    text = subprocess.run(
        ["kubectl", "kustomize", BASE], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return list(yaml.safe_load_all(text))


def files(pod):
    """(secret, key, path) of each file."""
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    for volume in pod["volumes"]:
        for source in volume.get("projected", {"sources": [volume]})["sources"]:
            secret = source["secret"]
            for item in secret["items"]:
                name = secret.get("secretName") or secret["name"]
                yield name, item["key"], f"{mounts[volume['name']]}/{item['path']}"


def main():
    name, secrets, image = sys.argv[1:]
    objects = rendered()
    (pod,) = (
        each["spec"]["template"]["spec"]
        for each in objects
        if each["kind"] in ("Deployment", "Job") and each["metadata"]["name"] == name
    )
    (container,) = pod["containers"]
    of_pod, own = pod["securityContext"], container["securityContext"]
    (settings,) = (
        each["data"]
        for each in objects
        if each["kind"] == "ConfigMap"
        and each["metadata"]["name"] == container["envFrom"][0]["configMapRef"]["name"]
    )
    arguments = ["--name", name, "--network-alias", name]
    arguments += ["--user", f"{of_pod['runAsUser']}:{of_pod['runAsGroup']}"]
    arguments += ["--group-add", str(of_pod["fsGroup"])]
    arguments += ["--read-only"] if own["readOnlyRootFilesystem"] else []
    arguments += [f"--cap-drop={each}" for each in own["capabilities"]["drop"]]
    if not own["allowPrivilegeEscalation"]:
        arguments.append("--security-opt=no-new-privileges")
    memory = container["resources"]["limits"]["memory"]
    arguments.append(f"--memory={memory.removesuffix('i').lower()}")
    arguments.append(f"--stop-timeout={pod.get('terminationGracePeriodSeconds', 30)}")
    for secret, key, path in files(pod):
        source = Path(secrets).resolve() / secret / key
        if source.exists():
            arguments.append(f"--volume={source}:{path}:ro")
    arguments += [f"--env={setting}={value}" for setting, value in settings.items()]
    print(*arguments, image, *container["args"], sep="\n")


if __name__ == "__main__":
    main()
