"""RS256 signatures with a private key in PEM (PKCS #8), as service accounts of Google have them.

Raises `ValueError` for anything else.
"""

import base64
import binascii
import hashlib
import re

_PREFIX = bytes.fromhex("3031300d060960864801650304020105000420")
"""Says in a signature that its digest is SHA-256."""
_RSA = bytes.fromhex("2a864886f70d010101")
"""The name of RSA keys."""
_PEM = r"-----BEGIN PRIVATE KEY-----(.+?)-----END PRIVATE KEY-----"


def sign_rs256(pem: str, message: bytes) -> bytes:
    modulus, exponent = read_private_key(pem)
    size = (modulus.bit_length() + 7) // 8
    digest = _PREFIX + hashlib.sha256(message).digest()
    padded = b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest
    return pow(int.from_bytes(padded), exponent, modulus).to_bytes(size)


def read_private_key(pem: str) -> tuple[int, int]:
    """Modulus and private exponent."""
    found = re.search(_PEM, pem, re.DOTALL)
    if found is None:
        raise ValueError("it is no private key in PEM (PKCS #8)")
    try:
        der = base64.b64decode("".join(found[1].split()), validate=True)
    except binascii.Error as error:
        raise ValueError("its private key is damaged") from error
    version, algorithm, key, *_ = _children(_children(der)[0])
    if version != b"\x00" or _children(algorithm)[0] != _RSA:
        raise ValueError("its private key is not of the kind RSA")
    _, modulus, _, exponent, *_ = _children(_children(key)[0])
    numbers = int.from_bytes(modulus), int.from_bytes(exponent)
    if numbers[0].bit_length() < 1024:
        raise ValueError("its private key is too short")
    return numbers


def _children(data: bytes) -> list[bytes]:
    """The contents of the elements of a DER value, in order."""
    found, at = [], 0
    while at < len(data):
        if at + 2 > len(data):
            raise ValueError("its private key is damaged")
        length, at = data[at + 1], at + 2
        if length & 0x80:
            more = length & 0x7F
            length, at = int.from_bytes(data[at : at + more]), at + more
        if at + length > len(data):
            raise ValueError("its private key is damaged")
        found.append(data[at : at + length])
        at += length
    return found
