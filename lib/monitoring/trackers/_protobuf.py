"""Protobuf's wire format, as far as records need it that are encoded without a library's messages.

protobuf.dev/programming-guides/encoding: a field is its number and wire type, then its value.
"""

from __future__ import annotations


def varint(number: int) -> bytes:
    """A number in protobuf's variable length, 7 bits per byte, the lowest first; below 0 as 64 bits."""
    if 0 <= number < 2**7:
        return _SHORT[number]
    if 0 <= number < 2**14:
        return bytes((number & 127 | 128, number >> 7))
    if 0 <= number < 2**21:
        return bytes((number & 127 | 128, number >> 7 & 127 | 128, number >> 14))
    number &= 2**64 - 1
    found = bytearray()
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def delimited(tag: bytes, content: bytes) -> bytes:
    """Return a field of text, bytes or a message."""
    return tag + varint(len(content)) + content


_SHORT = [bytes([number]) for number in range(128)]
