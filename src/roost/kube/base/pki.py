"""Certificates of a cluster on this machine: an authority, and what it signs."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)
_VALID = 3650 * _DAY


class Pair(NamedTuple):
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write NAME.crt and NAME.key, the key for its owner alone, and return both paths."""
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.touch(mode=0o600)
        key.write_bytes(self.key)
        return certificate, key


class Authority:
    """Signs certificates for servers and clients of one cluster."""

    def __init__(self, name: str = "roost", *, key: bytes | None = None) -> None:
        # A clock that is a little behind must not call it "not valid yet".
        self._now = datetime.datetime.now(datetime.UTC) - _DAY
        if key is None:
            self._key = ec.generate_private_key(ec.SECP256R1())
        else:
            loaded = serialization.load_pem_private_key(key, None)
            assert isinstance(loaded, ec.EllipticCurvePrivateKey)
            self._key = loaded
        self._subject = _name(name, ())
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip
        built = (
            self._builder(self._subject, self._key.public_key(), _VALID)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = built.public_bytes(serialization.Encoding.PEM)

    @property
    def key(self) -> bytes:
        """Return the private key, as PEM."""
        return _pem(self._key)

    def server(self, name: str, addresses: Sequence[str]) -> Pair:
        """Return a certificate for a server that is reached under these names and addresses."""
        return self._issue(name, (), ExtendedKeyUsageOID.SERVER_AUTH, addresses)

    def client(self, name: str, groups: Sequence[str] = (), *, expired: bool = False) -> Pair:
        """Return a certificate for a user in some groups."""
        valid = _DAY / 2 if expired else _VALID
        return self._issue(name, groups, ExtendedKeyUsageOID.CLIENT_AUTH, (), valid)

    def peer(self, name: str, addresses: Sequence[str]) -> Pair:
        """Return a certificate for something that is both server and client."""
        return self._issue(name, (), None, addresses)

    def _issue(
        self,
        name: str,
        groups: Sequence[str],
        usage: x509.ObjectIdentifier | None,
        addresses: Sequence[str],
        valid: datetime.timedelta = _VALID,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(_name(name, groups), key.public_key(), valid).add_extension(
            x509.ExtendedKeyUsage(both if usage is None else [usage]), critical=False
        )
        if addresses:
            names = x509.SubjectAlternativeName([_address(each) for each in addresses])
            builder = builder.add_extension(names, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return Pair(signed.public_bytes(serialization.Encoding.PEM), _pem(key))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, valid: datetime.timedelta
    ) -> x509.CertificateBuilder:
        of_authority = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now)
            .not_valid_after(self._now + valid)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(of_authority),
                critical=False,
            )
        )


def signing_key() -> bytes:
    """Return a private key for tokens of service accounts, as PEM."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def _name(common: str, groups: Sequence[str]) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _address(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
