"""Makes tokenizer.json of the vocabulary in a GGUF file, for bench_grammar and bench_tokenizer.

    gguf_tokenizer.py VOCABULARY.gguf TOKENIZER.json

llama.cpp's source has vocabularies without weights: models/ggml-vocab-qwen2.gguf (151,936 tokens) and
ggml-vocab-qwen35.gguf. Needs the package gguf of PyPI. Byte-level BPE alone; the normalizer and the splits are those of
Qwen2 or, for a file that names it, Qwen3.5.
"""
import json
import sys

import gguf

SPLITS = {
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen35": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+",
}


def main():
    reader = gguf.GGUFReader(sys.argv[1])

    def value(name):
        return reader.get_field(f"tokenizer.ggml.{name}").contents()

    if value("model") != "gpt2" or value("pre") not in SPLITS:
        sys.exit(f"{sys.argv[1]}: not a byte-level vocabulary of Qwen, but {value('model')}, {value('pre')}")
    tokens, types = value("tokens"), value("token_type")
    added = [i for i, kind in enumerate(types) if kind in (gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED)]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": tokens[i], **flags, "special": types[i] == gguf.TokenType.CONTROL} for i in added],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": SPLITS[value("pre")]}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens) if types[i] == gguf.TokenType.NORMAL},
                  "merges": value("merges")},
    }
    with open(sys.argv[2], "w") as f:
        json.dump(tokenizer, f, ensure_ascii=False)


main()
