#!/usr/bin/env python3
"""What gguf-py and ggml make of random blocks and floats, for tests/test_stored_type.c and tests/test_quantize.c.

    stored_types.py LIBGGML_BASE > stored_types.h     writes hashes of their results
    stored_types.py LIBGGML_BASE check N              compares N random blocks and rows of each type with tigon's code

LIBGGML_BASE is libggml-base.so of llama.cpp; its CMake has the target ggml-base, and the package llama-cpp-python has the
sources. The file was written with gguf 0.19.0 and ggml 0.25.3 (llama-cpp-python 0.3.36). `check` compiles
engine/checkpoint/types/ with cc; the tests are the same comparison by hashes.

Both sides make the same numbers from a seed with SplitMix64 (base/mix.h).
"""
import ctypes
import os
import subprocess
import sys
import tempfile

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
M64 = (1 << 64) - 1
BLOCKS, ROWS, ROW = 64, 32, 512

# Type -> offsets of the numbers of half precision in a block.
DECODED = {
    T.F16: (0,), T.Q4_0: (0,), T.Q4_1: (0, 2), T.Q5_0: (0,), T.Q5_1: (0, 2), T.Q8_0: (0,),
    T.Q2_K: (80, 82), T.Q3_K: (108,), T.Q4_K: (0, 2), T.Q5_K: (0, 2), T.Q6_K: (208,),
    T.IQ4_NL: (0,), T.IQ4_XS: (0,), T.MXFP4: (), T.NVFP4: (),
}
ENCODED = (T.Q4_0, T.Q5_0, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.MXFP4)


def stream(seed, n):
    """The first n numbers of 64 bits of SplitMix64."""
    with np.errstate(over="ignore"):
        v = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        v = (v ^ v >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
        v = (v ^ v >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
        return v ^ v >> np.uint64(31)


def hash_of(numbers):
    """mix_add (base/mix.h) over a list of numbers."""
    h = 0
    for v in numbers.tolist():
        h = (h ^ v) * 0xff51afd7ed558ccd & M64
        h ^= h >> 32
    return h


def random_blocks(t, n):
    """n blocks of random bytes. A half loses its exponent's highest bit, so that all are finite."""
    size = GGML_QUANT_SIZES[t][1]
    blocks = stream(t, -(-n * size // 8)).view(np.uint8)[:n * size].reshape(n, size).copy()
    for at in DECODED[t]:
        blocks[:, at + 1] &= 0xbf
    return blocks


def random_rows(n):
    """n rows of floats with heavy tails and scales from 2^-12 to 2^3, and rows of special values; importances of a row."""
    v = stream(1000, n * ROW) >> np.uint64(40)
    x = ((v.astype(np.int64) - (1 << 23)) * np.float64(2.0 ** -23)).astype(np.float32).reshape(n, ROW)
    x = x * x * x * (np.float32(2) ** (np.arange(n) % 16 - 12)).astype(np.float32)[:, None]
    x[0] = 0
    x[1] = 1
    x[2] = -np.abs(x[2])
    x[3] = np.abs(x[3])
    x[4, ::32] = 100
    x[5] *= np.float32(2.0 ** -80)
    x[6, 100:400] = 0
    v = stream(2000, ROW)
    importance = ((v >> np.uint64(40)) * np.float64(2.0 ** -24)).astype(np.float32)
    importance[v % np.uint64(16) == 0] = 0
    return x, importance


def ggml_quantize(lib, t, x, importance):
    elements, size = GGML_QUANT_SIZES[t]
    out = np.zeros((x.shape[0], ROW // elements * size), np.uint8)
    pointer = None if importance is None else importance.ctypes.data_as(ctypes.c_void_p)
    lib.ggml_quantize_chunk(ctypes.c_int(t), x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p),
                            ctypes.c_int64(0), ctypes.c_int64(x.shape[0]), ctypes.c_int64(ROW), pointer)
    return out


def write(lib):
    x, importance = random_rows(ROWS)
    print("/* Written by tests/golden/stored_types.py: hashes of what gguf-py and ggml make of random numbers. */\n/* clang-format off */")
    print("#define GOLDEN_BLOCKS %d\n#define GOLDEN_ROWS %d\n#define GOLDEN_ROW %d" % (BLOCKS, ROWS, ROW))
    print("static const struct {\n\tuint32_t type;\n\tuint8_t n_halves, halves[2];\n\tuint64_t hash;\n} golden_decoded[] = {")
    for t, halves in DECODED.items():
        h = hash_of(dequantize(random_blocks(t, BLOCKS), t).view(np.uint32).ravel())
        print("\t{%d, %d, {%s}, 0x%016x}, /* %s */" % (t, len(halves), ", ".join(map(str, halves)) or 0, h, t.name))
    print("};\nstatic const struct {\n\tuint32_t type;\n\tuint64_t hash, weighted_hash;\n\tconst char *first;"
          "\n} golden_encoded[] = {")
    for t in ENCODED:
        plain, weighted = ggml_quantize(lib, t, x, None), ggml_quantize(lib, t, x, importance)
        first = plain[8, :GGML_QUANT_SIZES[t][1]].tobytes().hex()
        print("\t{%d, 0x%016x, 0x%016x,\n\t \"%s\"}, /* %s */" % (t, hash_of(plain.ravel()), hash_of(weighted.ravel()), first, t.name))
    print("};")


def check(lib, n):
    folder = os.path.join(ROOT, "engine", "checkpoint")
    files = [os.path.join(folder, "types", f) for f in os.listdir(os.path.join(folder, "types")) if f.endswith(".c")]
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "types.so")
        subprocess.run(["cc", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-I", ROOT, "-D_GNU_SOURCE", "-o", path, *files,
                        os.path.join(folder, "stored_type.c"), "-lm"], check=True)
        own = ctypes.CDLL(path)
    for t in DECODED:
        blocks = random_blocks(t, n)
        with np.errstate(all="ignore"):
            want = dequantize(blocks, t).ravel()
        got = np.zeros(n * GGML_QUANT_SIZES[t][0], np.float32)
        getattr(own, t.name.lower() + "_to_float")(blocks.ctypes.data_as(ctypes.c_void_p), got.ctypes.data_as(ctypes.c_void_p),
                                                    ctypes.c_size_t(got.size))
        print(t.name, "decoded:", got.size, "elements,", np.count_nonzero(got.view(np.uint32) != want.view(np.uint32)), "differ")
    x, importance = random_rows(n)
    for t in ENCODED:
        for weights in None, importance:
            want, got = ggml_quantize(lib, t, x, weights), np.zeros((n, ROW // GGML_QUANT_SIZES[t][0] * GGML_QUANT_SIZES[t][1]), np.uint8)
            pointer = None if weights is None else weights.ctypes.data_as(ctypes.c_void_p)
            for i in range(n):
                getattr(own, t.name.lower() + "_from_float")(x[i].ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(ROW), pointer,
                                                             got[i].ctypes.data_as(ctypes.c_void_p))
            print(t.name, "quantised", "by importance:" if pointer else "plainly:", got.size, "bytes,", np.count_nonzero(got != want), "differ")


if __name__ == "__main__":
    ggml = ctypes.CDLL(sys.argv[1])
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    if sys.argv[2:3] == ["check"]:
        check(ggml, int(sys.argv[3]))
    else:
        write(ggml)
