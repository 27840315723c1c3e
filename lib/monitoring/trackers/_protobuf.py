"""Protobuf's wire format, as far as records need it that are encoded without a library's messages.

protobuf.dev/programming-guides/encoding: a field is its number and wire type, then its value.
"""

from __future__ import annotations

from collections.abc import Iterator


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


def fields_in(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field: an integer, or the bytes of text, a message or a fixed number.

    ValueError where the bytes are no message.
    """
    at, end = 0, len(message)
    try:
        while at < end:
            tag, at = _varint_at(message, at)
            number, wire = tag >> 3, tag & 7
            if wire == 0:
                value, at = _varint_at(message, at)
                yield number, value
                continue
            if wire == 2:
                size, at = _varint_at(message, at)
            else:
                size = {1: 8, 5: 4}[wire]
            if at + size > end:
                raise ValueError("a protobuf field is cut off")
            yield number, message[at : at + size]
            at += size
    except (IndexError, KeyError) as error:
        raise ValueError("these bytes are not a protobuf message") from error


def message_at(message: bytes, wanted: int) -> bytes | None:
    """Return the first field of a number that is text or a message; None without one."""
    for number, value in fields_in(message):
        if number == wanted and isinstance(value, bytes):
            return value
    return None


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, as signed 64 bits, and the place after it."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    number &= 2**64 - 1
    return number - 2**64 if number >= 2**63 else number, at


_SHORT = [bytes([number]) for number in range(128)]
