"""TLS on the connection that proves a server, and the same trust for the client's own connections."""

from __future__ import annotations

import os
import ssl

import anyio
import certifi
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream
from pystream.errors import ConfigurationError

from pystream_pulsar.errors import PulsarConnectError
from pystream_pulsar.tls import TLS

__all__ = ["secure", "ssl_context", "trust_file"]

# OpenSSL's numbers for a certificate that is another host's.
_OTHER_NAME, _OTHER_ADDRESS = 62, 64


def trust_file(tls: TLS) -> str:
    """The path of the certificates that are trusted."""
    if tls.trust_certs is not None:
        return os.path.abspath(tls.trust_certs)

    return ssl.get_default_verify_paths().cafile or certifi.where()


def ssl_context(tls: TLS) -> ssl.SSLContext:
    """How a certificate is judged.

    Raises:
        ConfigurationError: The file of trusted certificates is missing or holds none.
    """
    path = trust_file(tls)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.verify_hostname
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:  # an OSError too, and without a word about the file
        raise ConfigurationError(f"TLS(trust_certs={path!r}): the file holds no certificates in PEM form") from error
    except OSError as error:
        raise ConfigurationError(f"TLS(trust_certs={path!r}): the file cannot be read: {error.strerror}") from error

    return context


async def secure(stream: ByteStream, host: str, context: ssl.SSLContext) -> ByteStream:
    """TLS over a connection to `host`.

    Raises:
        PulsarConnectError: The certificate is not accepted, or nobody there speaks TLS; only the reason.

    Cancel safety: the connection is unusable, and still the caller's to close.
    """
    try:
        return await TLSStream.wrap(
            stream, server_side=False, hostname=host, ssl_context=context, standard_compatible=False
        )
    except ssl.SSLCertVerificationError as error:
        raise PulsarConnectError(_not_accepted(error), result="ConnectError") from error
    except (ssl.SSLError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise PulsarConnectError(
            "the TLS handshake failed: what answers there does not speak TLS, or cut the connection; "
            "a port without TLS is reached by pulsar://",
            result="ConnectError",
        ) from error


def _not_accepted(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in (_OTHER_NAME, _OTHER_ADDRESS):
        way_out = "use the host name that the certificate is for"
    else:
        way_out = "name the authority that has signed it: PulsarBroker(tls=TLS(trust_certs=...))"

    return f"its certificate is not accepted: {error.verify_message.rstrip('.')}; {way_out}"
