"""What make compose-env writes, and docker-compose.yml makes of it, without an engine."""

import json
import os
import re
import shutil
import ssl
import subprocess

import pytest
from stack import ROOT

NAMES = "coupons.example,192.0.2.10"
COMPOSE = shutil.which("docker-compose")


def environment(**more):
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **more}


def env_make(folder, **variables):
    path = folder / ".env"
    subprocess.run(
        [ROOT / "scripts/compose-env.sh", path], env=environment(**variables), check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    assert not (folder / ".env.new").exists()
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def env_refused(folder, **variables):
    """The sentence with which it changes nothing."""
    before = (folder / ".env").read_bytes()
    told = subprocess.run(
        [ROOT / "scripts/compose-env.sh", folder / ".env"], env=environment(**variables),
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert told.returncode == 1 and told.stdout == ""
    assert (folder / ".env").read_bytes() == before and not (folder / ".env.new").exists()
    return told.stderr


def compose_config(folder, **variables):
    if not COMPOSE:
        pytest.skip("there is no docker-compose")
    told = subprocess.run(
        [COMPOSE, "--env-file", folder / ".env", "config"], cwd=ROOT,
        env=environment(**variables), stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(told)["services"]


def published(service):
    return [json.dumps(port) for port in service["ports"]]


def test_without_tls_nothing_is_reachable_from_elsewhere(tmp_path):
    settings = env_make(tmp_path)
    assert all(name.endswith("PASSWORD") for name in settings)
    assert not (tmp_path / ".couponmq").exists()
    services = compose_config(tmp_path)
    assert all("127.0.0.1" in port for port in published(services["gateway"]))


def test_certificate_is_verified_by_its_ca_and_the_keys_are_private(tmp_path):
    env_make(tmp_path, TLS="yes", NAMES=NAMES)
    files = tmp_path / ".couponmq"
    for option, name in (
        ("-verify_hostname", "coupons.example"),
        ("-verify_hostname", "gateway"),
        ("-verify_ip", "192.0.2.10"),
        ("-verify_ip", "127.0.0.1"),
    ):
        subprocess.run(
            ["openssl", "verify", "-CAfile", files / "ca.pem", option, name,
             files / "gateway/cert.pem"], check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "gateway/cert.pem", files / "gateway/key.pem")
    assert (files / "ca.key").stat().st_mode & 0o777 == 0o600
    key = (files / "gateway/key.pem").stat()
    assert key.st_mode & 0o777 == 0o640
    assert key.st_gid == (7411 if os.getuid() == 0 else os.getgid())
    assert sorted(path.name for path in (files / "gateway").iterdir()) == ["cert.pem", "key.pem"]
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600


def test_a_second_run_keeps_files_and_settings(tmp_path):
    env_make(tmp_path)
    (tmp_path / ".env").open("a").write("COUPON_BIND=192.0.2.10\n")
    first = env_make(tmp_path, TLS="yes", NAMES=NAMES)
    key = (tmp_path / ".couponmq/gateway/key.pem").read_bytes()
    assert first["COUPON_BIND"] == "192.0.2.10"
    assert env_make(tmp_path, TLS="yes", NAMES="coupons.example") == first
    assert (tmp_path / ".couponmq/gateway/key.pem").read_bytes() == key


def test_compose_file_without_tls_is_not_published(tmp_path):
    """It would be published, and the listeners would have no TLS."""
    for others in ("docker-compose.yml", "docker-compose.tls.yml.old:docker-compose.yml"):
        (tmp_path / ".env").write_text(f"COMPOSE_FILE={others}\n")
        told = env_refused(tmp_path, TLS="yes")
        assert "has a COMPOSE_FILE without docker-compose.tls.yml" in told


def test_a_certificate_that_is_not_for_the_names_is_not_kept_silently(tmp_path):
    env_make(tmp_path, TLS="yes", NAMES=NAMES)
    cert = tmp_path / ".couponmq/gateway/cert.pem"
    for name in ("other.example", "192.0.2.11", "2001:db8::1"):
        told = env_refused(tmp_path, TLS="yes", NAMES=f"coupons.example,{name}")
        assert f"{cert} is not for {name}: remove {cert.parents[1]}" in told
    cert.write_text("other")
    assert f"{cert} is not a certificate" in env_refused(tmp_path, TLS="yes")


def test_a_certificate_that_ends_is_not_kept_silently(tmp_path):
    env_make(tmp_path, TLS="yes", NAMES=NAMES)
    cert = tmp_path / ".couponmq/gateway/cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-key", cert.parent / "key.pem", "-subj", "/CN=gateway",
         "-days", "29", "-out", cert], check=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert f"{cert} ends within 30 days" in env_refused(tmp_path, TLS="yes")


def test_http_hosts_that_lack_a_name_are_not_kept_silently(tmp_path):
    env_make(tmp_path, TLS="yes", NAMES="coupons.example,other.example")
    path = tmp_path / ".env"
    path.write_text(path.read_text().replace(",other.example", ""))
    told = env_refused(tmp_path, TLS="yes", NAMES="coupons.example,other.example")
    assert "has a COUPON_HTTP_HOSTS without other.example: add it there" in told
    env_make(tmp_path, TLS="yes", NAMES="coupons.example,localhost")


def test_the_folder_that_the_file_names_gets_the_certificate(tmp_path):
    folder = tmp_path / "elsewhere"
    (tmp_path / ".env").write_text(f"COUPON_FILES={folder}\n")
    env_make(tmp_path, TLS="yes", NAMES=NAMES)
    assert (folder / "gateway/cert.pem").exists() and not (tmp_path / ".couponmq").exists()


def test_with_tls_the_gateway_needs_keys(tmp_path):
    settings = env_make(tmp_path, TLS="yes", NAMES=NAMES)
    services = compose_config(tmp_path, COUPON_AUTH="off", COUPON_INSECURE="yes")
    gateway = services["gateway"]["environment"]
    assert gateway["COUPON_AUTH"] == "required"
    assert gateway["COUPON_INSECURE"] == "no"
    assert gateway["COUPON_TLS_CERT"] == "/etc/couponmq/gateway/cert.pem"
    assert gateway["COUPON_HTTP_HOSTS"] == "gateway,coupons.example"
    assert all("0.0.0.0" in port for port in published(services["gateway"]))
    group = settings["COUPON_FILES_GROUP"]
    assert [str(each) for each in services["gateway"]["group_add"]] == [group]
    mounted = json.dumps([service.get("volumes", []) for service in services.values()])
    assert f"{tmp_path}/.couponmq/gateway" in mounted and "ca.key" not in mounted


def test_settings_reach_the_programs(tmp_path):
    env_make(tmp_path)
    passed = {
        "gateway": ("COUPON_AUTH", "COUPON_INSECURE", "COUPON_TOKEN_KEYS", "COUPON_TOKEN_ISSUER",
                    "COUPON_TOKEN_AUDIENCE", "COUPON_TOKEN_LEEWAY_S", "COUPON_RATE_ADDRESS",
                    "COUPON_RATE_USER", "COUPON_PROXY_FROM"),
        "couponctl": ("COUPON_GATEWAY_KEY",),
    }  # fmt: skip
    values = {name: f"value-{name}" for names in passed.values() for name in names}
    services = compose_config(tmp_path, **values, COMPOSE_PROFILES="tools")
    for service, names in passed.items():
        for name in names:
            assert services[service]["environment"][name] == values[name]
    # Its port is not published: what the gateway is told does not stop it.
    assert services["worker"]["environment"]["COUPON_INSECURE"] == "yes"


def test_three_machines(tmp_path):
    settings = env_make(tmp_path, HA="yes")
    services = compose_config(tmp_path)
    ports = {name: published(each) for name, each in services.items() if "ports" in each}
    assert sorted(ports) == ["admin", "haproxy"]
    assert all("127.0.0.1" in port for each in ports.values() for port in each)
    addresses = [
        network["ipv4_address"]
        for service in services.values()
        for network in (service.get("networks") or {}).values()
        if network
    ]
    assert len(set(addresses)) == len(addresses) == 3 * 7 + 1
    for program in ("gateway", "worker"):
        others = {settings[name] for name in settings if name.endswith("_PASSWORD")}
        others.remove(settings[f"COUPON_{program.upper()}_PASSWORD"])
        for number in (1, 2, 3):
            told = json.dumps(services[f"{program}-{number}"]["environment"])
            assert not any(password in told for password in others)


def test_three_machines_with_tls(tmp_path):
    settings = env_make(tmp_path, HA="yes", TLS="yes", NAMES=NAMES)
    assert settings["COUPON_HTTP_HOSTS"] == "haproxy,coupons.example"
    files = settings["COMPOSE_FILE"].split(":")
    services = compose_config(tmp_path, COUPON_AUTH="off", COUPON_INSECURE="yes")
    cert = tmp_path / ".couponmq/gateway/cert.pem"
    for name in ("gateway-1", "gateway-2", "gateway-3"):
        told = services[name]["environment"]
        assert told["COUPON_AUTH"] == "required" and told["COUPON_INSECURE"] == "no"
        assert told["COUPON_TLS_CERT"] == "/etc/couponmq/gateway/cert.pem"
        assert [str(each) for each in services[name]["group_add"]] == [
            settings["COUPON_FILES_GROUP"]
        ]
    # Whom coupon-admin and couponctl verify, by the names that they call.
    admin = services["admin"]["environment"]
    called = [admin["COUPON_LISTEN"], *admin["COUPON_ADMIN_METRICS"].split(",")]
    hosts = [each.split(":")[0] for each in called if "http://" not in each]
    assert sorted(hosts) == ["gateway-1", "gateway-2", "gateway-3", "haproxy"]
    for host in hosts:
        subprocess.run(
            ["openssl", "verify", "-CAfile", tmp_path / ".couponmq/ca.pem", "-verify_hostname",
             host, cert], check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    assert all("0.0.0.0" in port for port in published(services["haproxy"]))
    assert files == ["docker-compose.ha.yml", "docker-compose.ha-tls.yml"]
    mounted = json.dumps([service.get("volumes", []) for service in services.values()])
    assert "ca.key" not in mounted
    assert f"{tmp_path}/.couponmq/ca.pem" in json.dumps(services["haproxy"]["volumes"])


def test_the_image_has_the_version_of_the_programs():
    (version,) = re.findall(
        'PROGRAM_VERSION "(.*)"', (ROOT / "common/program/program.h").read_text("utf-8")
    )
    assert f"\nARG VERSION={version}\n" in (ROOT / "Dockerfile").read_text("utf-8")
