"""A certificate authority of the tests: a certificate for each name that a browser asks for."""

from __future__ import annotations

import base64
import datetime
import hashlib
import ssl
import stat
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAYS = 30


class Authority:
    """Signs certificates and serves them by the name in the TLS handshake (SNI).

    Args:
      folder: existing folder for keys and certificates.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        # One key for all sites: making one takes longer than signing.
        self._site_key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._sign("Authority of the tests", self._key.public_key(), self._own())
        self._contexts: dict[str, ssl.SSLContext] = {}

    @property
    def pin(self) -> str:
        """SHA-256 of the authority's public key in base64, as Chromium's flag takes it."""
        key = self._key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return base64.b64encode(hashlib.sha256(key).digest()).decode()

    @property
    def certificate(self) -> str:
        """The authority's certificate as PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def server_context(self) -> ssl.SSLContext:
        """Returns a context that takes each name's own certificate, made when it is first asked for."""
        context = self._context("unnamed.invalid")

        def choose(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
            connection.context = self._context(name or "unnamed.invalid")

        context.sni_callback = choose
        return context

    def trusting_browser(self, chromium: str) -> Path:
        """Makes a program `chromium` that trusts this authority; returns its folder, for PATH."""
        folder = self._folder / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / "chromium"
        flag = f"--ignore-certificate-errors-spki-list={self.pin}"
        program.write_text(f'#!/bin/sh\nexec {chromium} {flag} "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return folder

    def _context(self, name: str) -> ssl.SSLContext:
        if name not in self._contexts:
            path = self._folder / f"{name}.pem"
            san = x509.SubjectAlternativeName([x509.DNSName(name)])
            certificate = self._sign(name, self._site_key.public_key(), ((san, False),))
            parts = [
                self._site_key.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                ),
                # The authority's own certificate too: the browser compares the keys of the whole chain.
                *(one.public_bytes(serialization.Encoding.PEM) for one in (certificate, self._certificate)),
            ]
            path.write_bytes(b"".join(parts))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(path)
            self._contexts[name] = context
        return self._contexts[name]

    def _own(self) -> tuple[tuple[x509.ExtensionType, bool], ...]:
        return ((x509.BasicConstraints(ca=True, path_length=0), True),)

    def _sign(
        self,
        name: str,
        key: ec.EllipticCurvePublicKey,
        extensions: tuple[tuple[x509.ExtensionType, bool], ...],
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of the tests")]))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=_DAYS))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256())
