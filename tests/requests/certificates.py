"""Certificates for loopback servers, made once a test run."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificates:
    """An authority and a pair for a server, a pair for a client, and a server's pair by another authority."""

    authority: str
    server: tuple[str, str]
    client: tuple[str, str]
    stranger: tuple[str, str]
    folder: Path

    def server_context(self, *, stranger: bool = False, client_wanted: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = self.stranger if stranger else self.server
        certificate, key = self.folder / "certificate.pem", self.folder / "key.pem"
        certificate.write_text(pair[0])
        key.write_text(pair[1])
        context.load_cert_chain(certificate, key)
        if client_wanted:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=self.authority)
        return context


def make(folder: Path) -> Certificates:
    authority_key, authority = _authority("the authority")
    other_key, other = _authority("another authority")
    return Certificates(
        _pem(authority),
        _pair(authority_key, authority, "localhost"),
        _pair(authority_key, authority, "a client"),
        _pair(other_key, other, "localhost"),
        folder,
    )


def _authority(name: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    return key, _signed(key, name, name, key, authority=True)


def _pair(signer: ec.EllipticCurvePrivateKey, by: x509.Certificate, name: str) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = by.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return _pem(_signed(key, name, str(issuer), signer, authority=False)), private.decode()


def _signed(
    key: ec.EllipticCurvePrivateKey, name: str, issuer: str, signer: ec.EllipticCurvePrivateKey, *, authority: bool
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
