"""Philox 4x32-10 (Salmon et al., SC 2011) in Python, for reference implementations; kernels use philox.h."""

from .launch import numbers

BOOTSTRAP, CHILDREN, CANDIDATES, THRESHOLD, DIRECTION, POISSON, WEIGHTED = numbers(
    "core/philox.h", "BOOTSTRAP", "CHILDREN", "CANDIDATES", "THRESHOLD", "DIRECTION", "POISSON", "WEIGHTED",
    prefix="HF_STREAM_",
)  # fmt: skip
PROJECTION, ENTRY, ORDER, EPOCH, RESTART, JUMP, ROWS = numbers(
    "core/philox.h", "PROJECTION", "ENTRY", "ORDER", "EPOCH", "RESTART", "JUMP", "ROWS", prefix="HF_STREAM_"
)
"""Streams, which make draws of one key independent."""

_MASK = 2**32 - 1


def philox(key: int, counter: int, stream: int) -> tuple[int, int, int, int]:
    """Returns four words of 32 bits from a key, a counter and a stream of 64 bits each.

    >>> [f"{word:08x}" for word in philox(0, 0, 0)]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    a, b, c, d = counter & _MASK, counter >> 32, stream & _MASK, stream >> 32
    k0, k1 = key & _MASK, key >> 32
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (q >> 32) ^ b ^ k0, q & _MASK, (p >> 32) ^ d ^ k1, p & _MASK
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return a, b, c, d


def keys(words: tuple[int, int, int, int]) -> tuple[int, int]:
    """Returns two keys of 64 bits: words 0 and 1, words 2 and 3, the first word low."""
    return words[1] << 32 | words[0], words[3] << 32 | words[2]


def below(word: int, stop: int) -> int:
    """Returns an integer in 0 <= result < stop from a word of 32 bits."""
    return word * stop >> 32


def unit(words: tuple[int, int, int, int]) -> float:
    """Returns a multiple of 2**-53, uniform in [0, 1)."""
    return (keys(words)[0] >> 11) * 2.0**-53


_POISSON = (
    1580030168, 3160060337, 3950075421, 4213413783, 4279248373, 4292415291, 4294609777, 4294923276,
    4294962463, 4294966817, 4294967252, 4294967292,
)  # fmt: skip


def poisson(word: int) -> int:
    """Returns k with probability exp(-1) / k!, within 2**-32, from a word of 32 bits; at most 12."""
    return sum(word >= up_to for up_to in _POISSON)
