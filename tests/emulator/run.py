#!/usr/bin/env python3
"""Runs kernels of the nvidia variant on a CPU, lane by lane (warp.h), and compares them with references (quant.c, step.c), as TAP.

    run.py BUILD TEST

TEST is quant or step, with quantised weights, or the same with "_plain" behind it. BUILD has base/libbase.a. Needs clang, which
compiles the kernels as OpenCL C for this CPU.
"""
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Of each test its programs, and the options that are not in TEST_shape.h.
PROGRAMS = {"quant": ["gemm.cl", "moe_gemm.cl"], "step": ["decode_step.cl"]}
OPTIONS = {"BF16": 1, "INT8": 0, "VEC": 1, "BRANCHES": 1, "DUMP": 0, "PACKING": 5, "GELU": 0,
           "QUANT_MASK": "16777215u",  # all types
           "SHARED": 1, "KV_INT8": 0}
PLAIN_OPTIONS = {"PACKING": 2, "QUANT_MASK": 0, "QUANT_EMBED": 0}
# What a kernel calls in place of inline assembly: macros, and the bodies of functions.
MACROS = {"MMA_BF16": ("d, a0, a1, a2, a3, b0, b1", "emulated_mma_bf16(d, a0, a1, a2, a3, b0, b1)"),
          "COPY_16": ("to, from", "emulated_copy(to, (ulong)(from))"),
          "COPY_END": ("", "((void)0)"),
          "COPY_WAIT": ("n", "((void)0)"),
          "LOAD_ONCE": ("v, at", "((v) = *(__global const uint4 *)(at))"),
          "LOAD_4_IF": ("condition, v, at", "((condition) ? (void)((v) = *(__global const uint *)(at)) : (void)0)"),
          "LOAD_8_IF": ("condition, v, w, at", "((condition) ? (void)((v) = ((__global const uint *)(at))[0], "
                                               "(w) = ((__global const uint *)(at))[1]) : (void)0)"),
          "LOAD_16_IF": ("condition, v, at", "((condition) ? (void)((v) = *(__global const uint4 *)(at)) : (void)0)"),
          "PREFETCH": ("at", "emulated_prefetch((ulong)(at))"),
          "WARP_SYNC": ("", "emulated_warp_sync()")}
FUNCTIONS = {"half_of": "float2 both = emulated_halves(v);\n\n\treturn h ? both.y : both.x;",
             "from_128": "return as_float(0x43000000u | (v >> 8 * i & 0xffu) << 16);",
             "from_2_23": "return as_float(0x4b000000u | (v >> 8 * i & 0xffu));",
             "other_lane": "return emulated_shuffle_xor(x, bits);",
             "from_lane": "return emulated_shuffle(x, lane);",
             "warp_max": "return emulated_max(x);",
             "warp_min": "return emulated_min(x);",
             "warp_ballot": "return emulated_ballot(x);",
             "pair": "return emulated_pair(first, second);"}
# Instructions in the middle of functions.
INSTRUCTIONS = [(r'__asm__ volatile\("ld\.acquire\.\w+(?:\.shared|\.global)\.u32 %0, \[%1\];" : "=r"\((\w+)\) : "[rl]"\((\w+)\) : "memory"\);',
                 r"\1 = emulated_load((ulong)\2);"),
                (r'__asm__ volatile\("st\.release\.cta\.shared\.u32 \[%0\], %1;" ::"r"\((.*?)\),\s*"r"\(n\)\s*: "memory"\);',
                 r"emulated_store(\1, n);"),
                (r'__asm__ volatile\("red\.release\.gpu\.global\.add\.u32 \[%0\], 1;" ::"l"\(done\) : "memory"\);',
                 "emulated_add((ulong)done);"),
                (r'__asm__ volatile\("mov\.u64 %0, %%globaltimer;" : "=l"\(now\)\);', "now = 0;"),
                (r'__asm__ volatile\("bar\.sync %0, %1;" ::"r"\((.*?)\), "n"\(LANES\) : "memory"\)', r"emulated_barrier(\1, LANES)"),
                (r'__asm__\("prmt\.b32 %0, %1, %2, 0x5410;" : "=r"\(v\) : "r"\(x\), "r"\(y\)\);', "v = (x & 0xffff) | y << 16;"),
                (r'__asm__\("prmt\.b32 %0, %1, %2, 0x7632;" : "=r"\(v\) : "r"\(x\), "r"\(y\)\);',
                 "v = x >> 16 | (y & 0xffff0000);")]
DECLARATIONS = """
float emulated_shuffle(float x, uint lane);
float emulated_shuffle_xor(float x, uint bits);
float2 emulated_halves(uint v);
void emulated_copy(uint to, ulong from);
void emulated_prefetch(ulong at);
void emulated_warp_sync(void);
void emulated_barrier(uint number, uint lanes);
uint emulated_max(uint x);
uint emulated_min(uint x);
uint emulated_ballot(bool x);
uint emulated_pair(float first, float second);
uint emulated_load(ulong at);
void emulated_store(uint at, uint v);
void emulated_add(ulong at);
void emulated_mma_bf16(float *d, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1);
"""


def check_kernels():
    """tests/check_kernels as a module: it finds a variant's files."""
    loader = importlib.machinery.SourceFileLoader("check_kernels", os.path.join(ROOT, "tests", "check_kernels"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_kernels", loader))
    loader.exec_module(module)
    return module


def translate(source):
    """The text of a program with calls in the places of inline assembly."""
    for name, (arguments, body) in MACROS.items():
        source = re.sub(rf"#define {name}\([^)]*\)(?:[^\n]*\\\n)*[^\n]*\n",
                        lambda _, n=name, a=arguments, b=body: f"#define {n}({a}) {b}\n", source)
    for name, body in FUNCTIONS.items():
        source = re.sub(rf"(static inline \w+ {name}\([^)]*\)\n\{{\n).*?\n\}}\n", lambda m, b=body: f"{m[1]}\t{b}\n}}\n", source,
                        flags=re.S)
    for instruction, call in INSTRUCTIONS:
        source = re.sub(instruction, call, source, flags=re.S)
    return source


def shape(test):
    with open(os.path.join(HERE, f"{test}_shape.h")) as f:
        return dict(re.findall(r"^#define (\w+)\s+([\w.-]+)", f.read(), flags=re.M))


def main():
    build, test = os.path.abspath(sys.argv[1]), sys.argv[2].removesuffix("_plain")
    plain = test != sys.argv[2]
    clang = os.environ.get("CLANG") or shutil.which("clang")
    if not clang:
        print("1..0 # SKIP no clang here")
        return 0
    kernels = check_kernels()
    with tempfile.TemporaryDirectory() as folder:
        objects = []
        options = "".join(f"#define {name} {value}\n" for name, value in {**OPTIONS, **shape(test), **(PLAIN_OPTIONS if plain else {})}.items())
        for name in PROGRAMS[test]:
            text = os.path.join(folder, name)
            with open(text, "w") as f:
                f.write(options + DECLARATIONS + translate(kernels.inline("nvidia", name)))
            objects.append(text + ".o")
            subprocess.run([clang, "-w", "-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "-O1", "-fno-pic",
                            "-c", "-o", objects[-1], text], check=True)
        program = os.path.join(folder, test)
        sources = [os.path.join(ROOT, p) for p in (f"tests/emulator/{test}.c", "tests/emulator/matrix.c", "tests/emulator/warp.c",
                                                   "tests/kernels/reference.c", "kernels/quant.c", "kernels/quant_stages.c")]
        subprocess.run([clang, "-w", "-O1", "-g", "-fno-pic", "-no-pie", f"-DPLAIN={int(plain)}", f"-I{ROOT}", f"-I{build}",
                        "-o", program, *sources, *objects,
                        os.path.join(build, "base", "libbase.a"), "-lm"], check=True)
        return subprocess.run([program], check=False).returncode


sys.exit(main())
