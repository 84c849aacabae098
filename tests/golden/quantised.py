#!/usr/bin/env python3
"""What the libraries of quantised formats make of random tensors, for tests/test_quantised.c.

    quantised.py AUTOAWQ > quantised.h

AUTOAWQ is the file awq/utils/packing_utils.py of AutoAWQ. The header was written with torch 2.13.0, transformers 5.24.0,
compressed-tensors 0.20.1 and AutoAWQ 0.2.9. It has a row for each case: the tensors, and a hash of the weight in float32.
Scales of half precision are widened first, so that the libraries compute in float32. GPTQ, ModelOpt and an order of columns
in compressed-tensors are formulas here (GPTQModel 7.7.0: BaseQuantLinear.dequantize_weight; ModelOpt: NVFP4QTensor).

Both sides fill tensors from a seed with SplitMix64 (base/mix.h), and change what would be NaN (FILLS).
"""
import importlib.util
import sys

import numpy as np
import torch
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.mx_utils import decompress_mx_scale
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from stored_types import hash_of, stream

spec = importlib.util.spec_from_file_location("packing_utils", sys.argv[1])
awq = importlib.util.module_from_spec(spec)
spec.loader.exec_module(awq)

DTYPES = {"I32": torch.int32, "I8": torch.int8, "U8": torch.uint8, "F16": torch.float16, "BF16": torch.bfloat16,
          "F32": torch.float32, "F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.float8_e8m0fnu}


def fill(seed, dtype, shape, kind):
    """Random bytes; `half` and `single` clear the exponent's highest bit, `e4m3` one of the fraction, `e8m0` keeps to 2^-15..2^16,
    and a number makes each int32 a number below that."""
    t = torch.empty(0, dtype=DTYPES[dtype])
    n = int(np.prod(shape))
    b = stream(seed, -(-n * t.itemsize // 8)).view(np.uint8)[:n * t.itemsize].copy()
    if kind == "half":
        b[1::2] &= 0xbf
    elif kind == "single":
        b[3::4] &= 0xbf
    elif kind == "e4m3":
        b &= 0xf7
    elif kind == "e8m0":
        b = (b & 31) + 112
    elif isinstance(kind, int):
        b = (b.view(np.uint32) % kind).view(np.uint8)
    return torch.from_numpy(b.astype(np.uint8)).view(DTYPES[dtype]).reshape(shape)


cases = []


def case(name, rows, cols, tensors, decode, experts=0, block=(0, 0), gptq_v2=False):
    made = {s: fill(100 * len(cases) + i, d, shape, kind) for i, (s, d, shape, kind) in enumerate(tensors)}
    w = decode(made)
    assert w.dtype == torch.float32, name
    assert w.numel() == rows * cols * max(experts, 1), (name, w.shape)
    cases.append((name, experts, rows, cols, block, gptq_v2, tensors, hash_of(w.contiguous().view(torch.int32).numpy().view(np.uint32).ravel())))


def ct(strategy, symmetric=True, bits=4, kind="int", **more):
    return QuantizationArgs(num_bits=bits, type=kind, strategy=strategy, symmetric=symmetric, **more)


fp8 = Fp8Dequantize(None)


def blocks(t):
    return fp8._dequantize_one(t[""], t["_scale_inv"], torch.float32)


case("fp8 blocks", 256, 384, [("", "F8_E4M3", (256, 384), "e4m3"), ("_scale_inv", "F32", (2, 3), "single")], blocks, block=(128, 128))
case("fp8 blocks, bf16 scales", 256, 128, [("", "F8_E4M3", (256, 128), "e4m3"), ("_scale_inv", "BF16", (2, 1), "half")], blocks)
case("fp8 blocks, e8m0 scales", 64, 384, [("", "F8_E4M3", (64, 384), "e4m3"), ("_scale_inv", "F8_E8M0", (2, 12), "e8m0")], blocks,
     block=(32, 32))
case("fp8 experts", 64, 256, [("", "F8_E4M3", (3, 64, 256), "e4m3"), ("_scale_inv", "F32", (3, 2, 2), "single")], blocks, experts=3,
     block=(32, 128))
case("e2m1 of fp8", 32, 256, [("", "I8", (32, 128), ""), ("_scale_inv", "U8", (32, 8), "e8m0")], blocks)


def packed(args, bits=4, rows=0, cols=0):
    def decode(t):
        q = unpack_from_int32(t["_packed"], bits, torch.Size((rows, cols)))
        z = t.get("_zero_point")
        if z is not None:
            z = unpack_from_int32(z, bits, torch.Size((rows, t["_scale"].shape[-1])), packed_dim=0)
        return dequantize(q, t["_scale"].float(), z, args)
    return decode


case("pack-quantized, groups", 48, 256, [("_packed", "I32", (48, 32), ""), ("_scale", "BF16", (48, 8), "half")],
     packed(ct("group", group_size=32), 4, 48, 256))
case("pack-quantized, zero points", 44, 512,
     [("_packed", "I32", (44, 64), ""), ("_scale", "F16", (44, 4), "half"), ("_zero_point", "I32", (6, 4), "")],
     packed(ct("group", False, group_size=128), 4, 44, 512))
case("pack-quantized, 8 bits of channels", 40, 250, [("_packed", "I32", (40, 63), ""), ("_scale", "F32", (40, 1), "single")],
     packed(ct("channel", bits=8), 8, 40, 250))
case("pack-quantized, 2 bits", 16, 64, [("_packed", "I32", (16, 4), ""), ("_scale", "F32", (16, 2), "single")],
     packed(ct("group", bits=2, group_size=32), 2, 16, 64))


def packed_order(t):
    q = unpack_from_int32(t["_packed"], 4, torch.Size((24, 256)))
    z = unpack_from_int32(t["_zero_point"], 4, torch.Size((24, 8)), packed_dim=0)
    g = t["_g_idx"].long()
    return (q.float() - z.float()[:, g]) * t["_scale"].float()[:, g]


case("pack-quantized, order", 24, 256,
     [("_packed", "I32", (24, 32), ""), ("_scale", "F16", (24, 8), "half"), ("_zero_point", "I32", (3, 8), ""), ("_g_idx", "I32", (256,), 8)],
     packed_order)


def scaled(args):
    return lambda t: dequantize(t[""], t["_scale"].float(), t.get("_zero_point"), args)


case("float-quantized, channels", 32, 96, [("", "F8_E4M3", (32, 96), "e4m3"), ("_scale", "BF16", (32, 1), "half")],
     scaled(ct("channel", bits=8, kind="float")))
case("float-quantized, tensor", 32, 96, [("", "F8_E4M3", (32, 96), "e4m3"), ("_scale", "F32", (1,), "single")],
     scaled(ct("tensor", bits=8, kind="float")))
case("float-quantized, ragged blocks", 200, 300, [("", "F8_E4M3", (200, 300), "e4m3"), ("_scale", "F32", (2, 3), "single")],
     scaled(ct("block", bits=8, kind="float", block_structure=[128, 128])), block=(128, 128))
case("int-quantized, channels", 32, 96, [("", "I8", (32, 96), ""), ("_scale", "F32", (32, 1), "single")], scaled(ct("channel", bits=8)))
case("int-quantized, zero points", 32, 96, [("", "I8", (32, 96), ""), ("_scale", "F32", (32, 1), "single"), ("_zero_point", "I8", (32, 1), "")],
     scaled(ct("channel", False, bits=8)))
case("mxfp8", 32, 96, [("", "F8_E4M3", (32, 96), "e4m3"), ("_scale", "U8", (32, 3), "e8m0")],
     lambda t: dequantize(t[""], decompress_mx_scale(t["_scale"]).float(), None, ct("group", bits=8, kind="float", group_size=32)))
case("nvfp4 of compressed-tensors", 48, 128,
     [("_packed", "U8", (48, 64), ""), ("_scale", "F8_E4M3", (48, 8), "e4m3"), ("_global_scale", "F32", (1,), "single")],
     lambda t: dequantize(unpack_fp4_from_uint8(t["_packed"], 48, 128).float(), t["_scale"].float(), None,
                          ct("tensor_group", kind="float", group_size=16), global_scale=t["_global_scale"]))


def modelopt(t):
    scales = t["_scale"].float() * t["_scale_2"]
    return unpack_fp4_from_uint8(t[""], 48, 128).float() * scales.repeat_interleave(16, 1)


case("nvfp4 of modelopt", 48, 128, [("", "U8", (48, 64), ""), ("_scale", "F8_E4M3", (48, 8), "e4m3"), ("_scale_2", "F32", (), "single")],
     modelopt)
case("mxfp4 of gpt-oss", 40, 128, [("_blocks", "U8", (3, 40, 4, 16), ""), ("_scales", "U8", (3, 40, 4), "e8m0")],
     lambda t: convert_moe_packed_tensors(t["_blocks"], t["_scales"], dtype=torch.float32).transpose(1, 2), experts=3)
case("mxfp4 of compressed-tensors", 40, 128, [("_packed", "U8", (40, 64), ""), ("_scale", "U8", (40, 4), "e8m0")],
     lambda t: dequantize(unpack_fp4_from_uint8(t["_packed"], 40, 128).float(), decompress_mx_scale(t["_scale"]).float(), None,
                          ct("group", kind="float", group_size=32)))
case("awq", 64, 256, [(".qweight", "I32", (256, 8), ""), (".qzeros", "I32", (2, 8), ""), (".scales", "F16", (2, 64), "half")],
     lambda t: awq.dequantize_gemm(t[".qweight"], t[".qzeros"], t[".scales"].float(), 4, 128).t())


def gptq(bits, add):
    def decode(t):
        shift, mask = torch.arange(0, 32, bits), 2 ** bits - 1
        q = (t[".qweight"][:, None, :] >> shift[None, :, None] & mask).reshape(-1, t[".qweight"].shape[1])
        z = (t[".qzeros"][:, :, None] >> shift & mask).reshape(t[".qzeros"].shape[0], -1)
        z = z + add & mask
        g = t[".g_idx"].long()
        return (t[".scales"].float()[g] * (q - z[g])).t()
    return decode


def of_gptq(rows, cols, bits, groups, order):
    return [(".qweight", "I32", (cols * bits // 32, rows), ""), (".qzeros", "I32", (groups, rows * bits // 32), ""),
            (".scales", "F16", (groups, rows), "half"), (".g_idx", "I32", (cols,), order)]


case("gptq, order", 48, 256, of_gptq(48, 256, 4, 4, 4), gptq(4, 1))
case("gptq_v2, order", 48, 256, of_gptq(48, 256, 4, 4, 4), gptq(4, 0), gptq_v2=True)
case("gptq, 8 bits", 48, 256, of_gptq(48, 256, 8, 2, 2), gptq(8, 1))
case("gptq, 2 bits, one group", 48, 256, of_gptq(48, 256, 2, 1, 1), gptq(2, 1))

if __name__ == "__main__":
    print("/* Written by tests/golden/quantised.py: random tensors, and hashes of the weights that libraries make of them. */")
    print("/* clang-format off */")
    print("static const struct golden_case {\n\tconst char *name;\n\tuint64_t experts, rows, cols;\n\tuint32_t block_rows, block_cols;"
          "\n\tbool gptq_v2;\n\tstruct {\n\t\tconst char *suffix, *dtype;\n\t\tuint32_t n_dims;\n\t\tuint64_t shape[4];"
          "\n\t\tconst char *fill;\n\t} tensors[4];\n\tuint64_t hash;\n} golden_quantised[] = {")
    for name, experts, rows, cols, block, v2, tensors, h in cases:
        print('\t{"%s", %d, %d, %d, %d, %d, %s,\n\t {%s},\n\t 0x%016x},' % (
            name, experts, rows, cols, *block, str(v2).lower(),
            ",\n\t  ".join('{"%s", "%s", %d, {%s}, "%s"}' % (s, d, len(shape), ", ".join(map(str, shape)) or "0", kind)
                          for s, d, shape, kind in tensors), h))
    print("};")
