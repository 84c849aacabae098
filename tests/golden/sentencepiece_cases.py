#!/usr/bin/env python3
"""Writes sentencepiece_cases.json: a small model of SentencePiece's, as llama.cpp's converter writes it into GGUF files, and
texts with the ids that SentencePiece gives.

    python3 tests/golden/sentencepiece_cases.py        (needs the packages sentencepiece, tokenizers and transformers)

The model is made like Gemma's: byte pair encoding with byte fallback, no space in front of texts, runs of spaces and line
ends as tokens that the user defined. The script checks that the merges that transformers makes of it give the same ids.
"""
import io
import json
import os
import random
import sys

import sentencepiece
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers.convert_slow_tokenizer import generate_merges

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from tokenizer_cases import by_hand, randomly  # noqa: E402

MARK = "\u2581"
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # of SentencePiece and of GGUF
OF_THE_USER = ["\n" * n for n in range(1, 6)] + [MARK * n for n in range(2, 9)] + ["<table>"]


def train():
    with open(os.path.join(HERE, "../../models/lexis/README.md"), encoding="utf-8") as f:
        lines = f.read().split("\n") * 4
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, model_type="bpe", vocab_size=800, byte_fallback=True,
        character_coverage=0.999, add_dummy_prefix=False, remove_extra_whitespaces=False, normalization_rule_name="identity",
        pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>",
        control_symbols=["<start_of_turn>"], minloglevel=2,
        user_defined_symbols=OF_THE_USER)
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


def type_of(sp, i):
    if sp.is_unknown(i):
        return UNKNOWN
    if sp.is_control(i):
        return CONTROL
    if sp.is_byte(i):
        return BYTE
    return USER if sp.id_to_piece(i) in OF_THE_USER else NORMAL


def main():
    sp = train()
    ids = range(sp.get_piece_size())
    tokens = [sp.id_to_piece(i) for i in ids]
    types = [type_of(sp, i) for i in ids]
    scores = [sp.get_score(i) for i in ids]
    vocab = {t: i for i, t in enumerate(tokens)}
    hf = Tokenizer(models.BPE(vocab, generate_merges(vocab, dict(zip(tokens, scores))), byte_fallback=True, fuse_unk=True,
                              unk_token="<unk>"))
    hf.normalizer = normalizers.Replace(" ", MARK)
    hf.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    hf.add_tokens([t for t, k in zip(tokens, types) if k == USER])
    cases = []
    for text in [*by_hand(), *randomly(random.Random(7), 200)]:
        want = sp.encode(text)
        if "\0" in text or any(tokens[i] in text for i in ids if types[i] in (UNKNOWN, CONTROL)) or MARK in text:
            continue
        if hf.encode(text, add_special_tokens=False).ids != want:
            sys.exit(f"{text!a}: SentencePiece and transformers differ")
        cases.append([text, want])
    # As llama.cpp's converter writes tokens that tokenizer_config.json names.
    for i in ids:
        if types[i] in (CONTROL, USER):
            scores[i] = -1000.0
        if types[i] == USER:
            tokens[i] = tokens[i].replace(MARK, " ")
    print(f"{len(cases)} texts")
    with open(os.path.join(HERE, "sentencepiece_cases.json"), "w", encoding="ascii") as f:
        head = json.dumps({"tokens": tokens, "types": types, "scores": scores}, separators=(",", ":"))
        f.write(head[:-1] + ',"cases":[\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "]}\n")


if __name__ == "__main__":
    main()
