"""Checksums of tensors: CRC-32 (``summary_mode`` md5) and XOR (``summary_mode`` xor), taken from the memory as it lies.

Both are of the tensor's bytes in its own dtype, in the order of its indices and the byte order of the machine: two layouts of the same
values (transposed, sliced, expanded) have one checksum. A tensor with the conjugate or the negative bit is read with its signs turned over.

* :func:`checksum` is ``zlib.crc32`` of those bytes, 8 lower-case hexadecimal digits; ``"00000000"`` for an empty tensor.
* :func:`xor_checksum` adds the bytes up by XOR as little-endian 64-bit words, the last filled up with zeros: ``0x`` and 16 digits. An
  empty tensor has none (None).

What CRC-32 does not see: *shape and dtype*, which are not among the bytes (compare them beside it); scale and zero point of a quantized
tensor, of which the stored integers are taken; and, as of any 32 bits, one change in four thousand million. A single run of up to 32
changed bits is always seen. 0.0 and -0.0 differ, and so do NaNs of different bits.

What XOR does not see, beyond that: *order* (words that change places give the same XOR, so for four-byte types pairs of elements, or the
elements at even places among themselves) and *pairs* (any word that appears twice is gone: a constant tensor with an even number of words
gives zero, whatever the constant; the same change made to two words at one place cancels). It is there to be cheap, not to be sure.

Where neither can be taken the answer is None: tensors on other devices (copy them first), without memory (meta, fake, sparse, nested),
negated views of integers, and types that pack several elements into a byte (quint4x2, quint2x4).

The functions on memory are ``crc32_of(address, itemsize, shape, strides) -> int`` and ``xor_of(...) -> int``: ``itemsize`` 1, 2, 4, 8 or
16 bytes, ``strides`` in elements, none negative, ValueError otherwise. ``crc32_combine(first, second, nbytes) -> int`` puts the CRC-32 of
two byte strings together, ``nbytes`` the length of the second.

CRC-32 runs on carry-less multiplication (x86) or the CRC instruction (arm64), chosen when the module is loaded; expanded dimensions
are computed from one repetition. Sources of the formulas: csrc/crc32.h.
"""

from __future__ import annotations

try:
    from ._kernels import checksum, crc32_combine, crc32_of, xor_checksum, xor_of
except ImportError:
    from .fallback_checksum import checksum, crc32_combine, crc32_of, xor_checksum, xor_of

__all__ = ["checksum", "crc32_combine", "crc32_of", "xor_checksum", "xor_of"]
