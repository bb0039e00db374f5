"""Certificates for services of tests, made by the command openssl."""

import itertools
import subprocess

NUMBERS = itertools.count(1)
CA_USAGE = "keyUsage=critical,keyCertSign,cRLSign"  # Python 3.13 takes no CA without it


def openssl(*arguments):
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"openssl {arguments}: {done.stderr}"


def validity(days):
    """The options for so many days; if negative, for some in the past, which newer versions of the
    command do not take as a number."""
    help_ = subprocess.run(
        ["openssl", "x509", "-help"], capture_output=True, text=True, check=False
    )
    if days < 0 and "-not_before" in help_.stderr + help_.stdout:
        return ("-not_before", "20200101000000Z", "-not_after", "20200102000000Z")
    return ("-days", days)


class Authority:
    """Its own certificate is `path`."""

    def __init__(self, folder, name):
        self.folder = folder
        self.path, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-days", 30, "-addext", CA_USAGE),
            *("-keyout", self.key, "-out", self.path),
        )

    def issue(self, *alternates, days=30, name="store"):
        """The paths of a certificate for DNS:… and IP:…, and of its key; with days=-1 it has
        expired."""
        stem = self.folder / f"{self.path.stem}-{next(NUMBERS)}"
        paths = [stem.with_suffix(suffix) for suffix in (".pem", ".key", ".csr", ".ext")]
        certificate, key, request, extensions = paths
        extensions.write_text(f"subjectAltName={','.join(alternates)}\n", encoding="ascii")
        openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-keyout", key, "-out", request),
        )
        openssl(
            *("x509", "-req", "-in", request, "-CA", self.path, "-CAkey", self.key),
            *("-CAcreateserial", *validity(days), "-extfile", extensions, "-out", certificate),
        )
        return certificate, key
