"""One throw-away authority and one serving certificate, because every door of a control plane is TLS."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = dt.timedelta(days=2)


@dataclass(frozen=True)
class Certificates:
    """Files of the authority, of the certificate that all servers show, and of the service-account key."""

    authority: Path
    serving: Path
    serving_key: Path
    accounts_key: Path
    accounts_public: Path

    def bundle(self) -> str:
        """The authority as webhook configurations and kubeconfigs want it: base64 of its PEM."""
        return base64.b64encode(self.authority.read_bytes()).decode()


def make_certificates(folder: Path) -> Certificates:
    """Makes all of them in `folder`, valid from an hour ago for two days, for 127.0.0.1 and localhost."""
    folder.mkdir(parents=True, exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "real-control-plane")])
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    serving_key = ec.generate_private_key(ec.SECP256R1())
    serving_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    serving = (
        _builder(serving_name, authority_name, serving_key.public_key())
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    accounts_key = ec.generate_private_key(ec.SECP256R1())
    accounts_public = accounts_key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Certificates(
        authority=_write(folder / "ca.crt", authority.public_bytes(serialization.Encoding.PEM)),
        serving=_write(folder / "tls.crt", serving.public_bytes(serialization.Encoding.PEM)),
        serving_key=_write(folder / "tls.key", _private(serving_key)),
        accounts_key=_write(folder / "accounts.key", _private(accounts_key)),
        accounts_public=_write(folder / "accounts.pub", accounts_public),
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    began = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(began)
        .not_valid_after(began + _LIFE)
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path
