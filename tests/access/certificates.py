"""Certificates for one test, made by `openssl`: good ones, and each kind of bad one."""

import shutil
import subprocess
from pathlib import Path

HOST, ELSEWHERE = "localhost", "elsewhere.example"
_CONFIG = """
[ca]
default_ca = own
[own]
dir = {folder}
database = $dir/index.txt
serial = $dir/serial
new_certs_dir = $dir
certificate = $dir/{ca}.pem
private_key = $dir/{ca}.key
default_md = sha256
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
"""


class Certificates:
    """Everything lies in `folder`: `NAME.pem` and `NAME.key`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._program = folder, shutil.which("openssl") or "openssl"
        for ca in ("ca", "stranger"):
            self._authority(ca)

    def pem(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def make(
        self, name: str, *, host: str = HOST, ca: str = "ca", begin: str = "20200101", end: str = "20990101"
    ) -> None:
        """A certificate for a host or a client; `begin` and `end` are days."""
        request = self.folder / f"{name}.csr"
        self._openssl(
            *("req", "-new", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName=DNS:{host}", "-keyout", str(self.key(name)), "-out", str(request)),
        )
        config = self.folder / f"{ca}.cnf"
        config.write_text(_CONFIG.format(folder=self.folder, ca=ca))
        self._openssl(
            *("ca", "-batch", "-rand_serial", "-notext", "-config", str(config), "-in", str(request)),
            *("-startdate", f"{begin}000000Z", "-enddate", f"{end}000000Z", "-out", str(self.pem(name))),
        )

    def _authority(self, name: str) -> None:
        (self.folder / "index.txt").touch()
        self._openssl(
            *("req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", f"/CN={name}"),
            *("-days", "2", "-keyout", str(self.key(name)), "-out", str(self.pem(name))),
        )

    def _openssl(self, *arguments: str) -> None:
        done = subprocess.run([self._program, *arguments], capture_output=True, text=True, check=False, cwd=self.folder)
        assert done.returncode == 0, done.stderr
