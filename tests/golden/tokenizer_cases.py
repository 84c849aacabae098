#!/usr/bin/env python3
"""Writes tokenizer_cases.json: tricky texts with the ids that Hugging Face's tokenizers gives.

    python3 tests/golden/tokenizer_cases.py        (needs the package `tokenizers`)

The file holds, for a tokenizer each, either the whole tokenizer.json or the changes to that of
models/lexis, and a list of [text, ids] or [text, ids, decoded], the latter where decoding the ids
without special tokens gives another text. Texts that are not UTF-8 are written {"hex": ...}; their
ids are those of the text with U+FFFD in place of invalid bytes. "classes" lists the code points
that the regular expressions see as letters, numbers, marks and white space, as first, last, ...
"""
import json
import os
import random
import unicodedata

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
LEXIS = json.load(open(os.path.join(HERE, "../../models/lexis/tokenizer.json"), encoding="utf-8"))

QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
          r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# Code points younger than Unicode 9 that later versions reorder or compose.
YOUNG = [0x7FD, 0x897, 0x898, 0x8CA, 0x8D3, 0x9FE, 0xC3C, 0xD3B, 0xEBA, 0x1715, 0x1ABF, 0x1ACE,
         0x1DF6, 0xA82C, 0x105C9, 0x105D2, 0x10D24, 0x10D69, 0x10EAB, 0x10EFD, 0x10F46, 0x10F82,
         0x11070, 0x1133B, 0x11382, 0x11383, 0x113C9, 0x1145E, 0x11839, 0x11930, 0x11935, 0x11938,
         0x1193D, 0x11943, 0x119E0, 0x11A34, 0x11A47, 0x11D42, 0x11D97, 0x11F41, 0x1611E, 0x16121,
         0x16129, 0x16D67, 0x16D68, 0x16FF0, 0x1E08F, 0x1E130, 0x1E2AE, 0x1E2EC, 0x1E4EC, 0x1E5EE]
WHITE = [9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
         0x205F, 0x3000]
NEARLY_WHITE = [0x1C, 0x1D, 0x1E, 0x1F, 0x180E, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0x00, 0x7F]


def split(pattern, behavior="Isolated", invert=False):
    kind = "Regex" if not isinstance(pattern, tuple) else "String"
    text = pattern if kind == "Regex" else pattern[0]
    return {"type": "Split", "pattern": {kind: text}, "behavior": behavior, "invert": invert}


def byte_level(**more):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
            "use_regex": False, **more}


def sequence(*stages):
    return {"type": "Sequence", "pretokenizers": list(stages)}


def added(number, content, **more):
    return {"id": number, "content": content, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": False, **more}


def small_tokenizer():
    """A few hundred tokens, Llama 3's way, with gaps, and tokens that no merge can make."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    text = open(os.path.join(HERE, "../../models/lexis/README.md"), encoding="utf-8").read()
    t.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=700, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    j = json.loads(t.to_str())
    vocab = {k: v + 3 * (v // 100) for k, v in j["model"]["vocab"].items()}
    for i, word in enumerate(["Ġextraordinary", "æĹ¥æľ¬", "123", "'s", "ĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠĠ"]):
        vocab.setdefault(word, 900 + 2 * i)
    j["model"]["vocab"] = vocab
    j["model"]["merges"] = [" ".join(m) for m in j["model"]["merges"]]
    j["model"]["ignore_merges"] = True
    # In the vocabulary too: Hugging Face would number others by itself, into the gaps.
    bos = added(1000, "<|begin_of_text|>", special=True)
    j["added_tokens"] = [bos, added(1001, "<|eot_id|>", special=True)]
    vocab.update({a["content"]: a["id"] for a in j["added_tokens"]})
    j["post_processor"] = {
        "type": "Sequence", "processors": [byte_level(), {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": bos["content"], "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {bos["content"]: {
                "id": bos["content"], "ids": [bos["id"]], "tokens": [bos["content"]]}}}]}
    return j


def marked_tokenizer(crossing):
    """A few hundred tokens, Gemma's way: spaces as U+2581, characters, the bytes of all others. With
    `crossing` the last merge joins text and a space behind it."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    text = open(os.path.join(HERE, "../../models/lexis/README.md"), encoding="utf-8").read()
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>"]
    t.train_from_iterator([text, "\u2581\u2581\u2581\u2581" * 9], trainers.BpeTrainer(
        vocab_size=900, show_progress=False,
        special_tokens=specials + ["<0x%02X>" % b for b in range(256)]))
    j = json.loads(t.to_str())
    j["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    j["model"]["merges"] = [" ".join(m) for m in j["model"]["merges"]]
    vocab = j["model"]["vocab"]
    if crossing:
        vocab["e\u2581"] = len(vocab)
        j["model"]["merges"].append("e \u2581")
    # Spaces one behind the other in raw text are none of this; as in Gemma's file it is marked text.
    for content in ("\u2581\u2581\u2581", "\n\n"):
        vocab.setdefault(content, len(vocab))
    j["added_tokens"] = [added(vocab[c], c, special=True) for c in specials] + [
        added(vocab[c], c) for c in ("\u2581\u2581\u2581", "\n\n")]
    vocab["of the"] = len(vocab)
    j["added_tokens"].append(added(vocab["of the"], "of the", normalized=True))
    j["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "},
                          "behavior": "MergedWithPrevious", "invert": False}
    j["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"}]}
    return j


FLAGS = [added(8192, "<|a|>", lstrip=True), added(8193, "<|b|>", rstrip=True),
         added(8194, "foo", single_word=True), added(8195, "ǽ!", normalized=True),
         added(8196, "<|a|><", special=True), added(8197, "U\u0304", normalized=True),
         added(8198, "  x", lstrip=True, rstrip=True),
         added(8199, "中", single_word=True, rstrip=True), added(8200, "\u0301q", normalized=True),
         added(8201, "<thin"), added(8202, "x<")]

# name -> (changes to lexis's file, or the whole of another one, number of texts)
TOKENIZERS = {
    "lexis": ({}, 1000),
    "qwen35": ({"pre_tokenizer": sequence(split(QWEN35), byte_level())}, 1000),
    "llama3": ({"pre_tokenizer": sequence(split(LLAMA3), byte_level()),
                "model": {"ignore_merges": True}}, 150),
    "merges as strings, no normalizer": ({"normalizer": None, "string_merges": True}, 100),
    "added tokens with flags": ({"added_tokens": LEXIS["added_tokens"] + FLAGS}, 250),
    "gpt2": ({"pre_tokenizer": byte_level(use_regex=True)}, 120),
    "prefix space": ({"pre_tokenizer": byte_level(use_regex=True, add_prefix_space=True)}, 80),
    "removed": ({"pre_tokenizer": sequence(split(r"\s+", "Removed"), byte_level())}, 80),
    "removed inverted": ({"pre_tokenizer": sequence(split(r"\p{L}+|\p{Nd}", "Removed", True),
                                                    byte_level())}, 80),
    "several stages": ({"pre_tokenizer": sequence(
        split(r"\p{N}{1,3}"), split(("a",), "Removed"),
        {"type": "Digits", "individual_digits": True}, split(LLAMA3),
        byte_level(add_prefix_space=True))}, 80),
    "empty matches": ({"pre_tokenizer": sequence(split("x*"), byte_level())}, 60),
    "o200k": ({"pre_tokenizer": sequence(split(O200K), byte_level())}, 100),
    "no split": ({"pre_tokenizer": byte_level()}, 60),
    "small": (small_tokenizer(), 200),
    "marked": (marked_tokenizer(False), 300),
    "marked, a merge before spaces": (marked_tokenizer(True), 120),
}
# Run by PCRE2, which knows the characters of its own version of Unicode.
BY_PCRE = {"gpt2", "prefix space", "removed", "removed inverted", "several stages", "o200k"}


def by_hand():
    yield from ["", " ", "  ", "\n", " \n ", "a", " a", "  a", "a ", "a  ", "\t\ta", "a\r\nb\r\n",
                " \r\n \n  x", "x\n\n\n  y", "hello world", "Hello, World!!!\n\n", "!!\n!!\r\r\na",
                "it's IT'S I'm we'Re they'LL you'vE he'd can't 'tis", "'ſ 'ſa 's' ''s' '", "'", "''",
                "'S'T'RE'VE'M'LL'D'l'r'v'x", "’s don’t", "a'b'c d'", "'\u0301s", "1'2's3",
                "0 1 12 123 1234 12345 3.14159 1e-9 0x7f", "１２３ ٣٤٥ ½ Ⅷ ² ① 𝟘𝟙", "abc123def456",
                "x = y+z; // foo_bar\n\tif (a->b != c[i]) { return -1; }\n", "$$$", " $$$ a",
                "price: $5.00 (50%)\r\n", "naïve café", "nai\u0308ve cafe\u0301", "Å Å A\u030a", "ﬁ ﬀ Ω K",
                "日本語のテキスト、漢字。", "中文 mixed 英文123", "한국어 텍스트", unicodedata.normalize("NFD", "한국어 텍스트"),
                "\u1100\u1161\u11a8\u11a7\u1161", "\uac00\u11a7\u11a8\u11a8", "שלום עולם", "مَرْحَبًا بِالعَالَم",
                "हिन्दी में पाठ क़ि", "ภาษาไทยไม่มีช่องว่าง", "বাংলা কোঁ", "தமிழ் கொ", "🙂🙃👩‍👩‍👧‍👦🏳️‍🌈🇩🇪👍🏽", "a🙂b 🙂 c",
                "\u0301", " \u0301", "\u0301a", "a\u0301\u0301", "1\u0301", "!\u0301\u0302 x", "\u20dd\n\u20dd",
                "\u0344\u0f73\u0f75\u0f81", "\u0958\u09dc\ufb1d\u2adc", "q\u0307\u0323 q\u0323\u0307", "s\u0323\u0307",
                "d\u0307\u0323", "\u1e0b\u0323", "\u0045\u0304\u0300", "\u0340\u0341\u0343\u0374\u037e\u0387",
                "\ufb1f\u05b7", "\u2126\u212a\u212b", "\U0001d15e\U0001d160", "\U0002f800", "\ufeffbom",
                "zero\u200bwidth\u200djoin\u200cnon", "soft\u00adhyphen", "a\u180eb \u180e c", "\x00\x01\x02\x1f\x7f",
                "\x85\x85a \x85", "tab\tsep\tvalues", "line\u2028sep\u2029para", "\xa0nbsp\xa0\xa0x",
                "\u3000全角\u3000\u3000空白", "<think>\n\n</think>\n\n", "<|im_start|>user\nhi<|im_end|>\n",
                "<|im_start|", "<|im_start|><|im_start|>x<|im_end|>", "<think", "<<think>>", "</think>x</think",
                " <think> </think> ", "<|endoftext|>", "<tool_call>{\"a\": 1}</tool_call>",
                "a<|a|>b", "a  <|a|>  b", "a <|b|> \n\t b", "<|a|><b", "foo food foo_ (foo)", "fooé éfoo foo\u0301", "foo-foo",
                "æ\u0301! ǽ!", "U\u0304 Ū A\u030a", "  x   x  x", "中 a中b 中", "\u0301q e\u0301q", "<thin<think>", "x<|a|>x<",
                "foo\u24b6 foo² foo\u203f \u2163foo", "extraordinary extraordinary", "日本 日本語", "x's 123 1234", " " * 28 + "a"]
    for w in WHITE + NEARLY_WHITE:
        c = chr(w)
        yield f"a{c}b {c} c{c}{c}d\n{c}\n{c}{c}"
    for n in (15, 16, 17, 31, 63, 64, 65, 66, 127, 128, 129, 300):
        yield "a" * n
        yield " " * n
        yield " " * n + "x"
    for unit in ("ab", "the", "=-", "\n", "\r\n", "0", "é", "中", "🙂", "'s", "of ", "\t ", "-", "the quick "):
        yield unit * 90
    for i in range(0, len(YOUNG), 6):
        yield " ".join("a" + chr(c) + "\u0323\u0301 \u0301" + chr(c) + "\u0327 " + chr(c) + "\u0307"
                       for c in YOUNG[i:i + 6])
    yield "".join(chr(c) for c in YOUNG)
    yield "\U00011935\U00011930 \U000105d2\u0307 \U00011382\U000113c9 \U0001611e\U0001611e\U0001611f"
    yield "a" + "\u0301\u0323\u0334" * 30
    yield "".join(chr(c) for c in (0x1C89, 0x10D40, 0x10D4A, 0x2EBF0, 0x31D05, 0x13460, 0x1CCF0, 0x18CFF))


def randomly(r, n):
    every = [c for c in range(1, 0x33480) if not 0xD800 <= c < 0xE000]
    marks = [c for c in every if unicodedata.category(chr(c))[0] == "M"]
    numbers = [c for c in every if unicodedata.category(chr(c))[0] == "N"]
    composed = [c for c in every if unicodedata.decomposition(chr(c))[:1] not in ("", "<")]
    jamo = [*range(0x1100, 0x1200), *range(0xAC00, 0xAC40)]
    pieces = ["'s", "'S", "'ſ", "'re", "'LL", "<think>", "</think>", "<|im_end|>", "<|a|>", " <|b|> ", "foo", "ǽ!",
              "æ\u0301!", "  x", "中", "<thin", "<", "x<", "\r\n", "\n\n", "  ", "\t", " the", " of", "and", "123", "0",
              "_", "==", "word", "Violin", " a", "\u0301q", "-"]

    def piece():
        k = r.randrange(10)
        if k == 0:
            return chr(r.choice(every))
        if k == 1:
            return chr(r.choice(WHITE)) * r.randrange(1, 4)
        if k == 2:
            return chr(r.choice(marks))
        if k == 3:
            return chr(r.choice(jamo))
        if k == 4:
            return chr(r.choice(numbers))
        if k == 5:
            return unicodedata.normalize(r.choice(["NFD", "NFC"]), chr(r.choice(composed)))
        if k == 6:
            return chr(r.randrange(1, 0x80))
        return r.choice(pieces)

    for _ in range(n):
        yield "".join(piece() for _ in range(r.choice([2, 4, 8, 16])))


BROKEN = ["ff", "80", "c3", "c328", "e282", "e28228", "f09f98", "f09f9828", "c0af", "e08080", "eda080",
          "f4908080", "f8888080", "61c362", "61e28262", "61f09f9862", "e282ac80", "fe2066ff", "2020ff2020",
          "f0808080", "e0a0", "edbfbf20", "c3a9c3", "6566c2", "f09f99f09f9982", "cc", "65cc", "65cc81cc"]


def ranges(pattern):
    """The code points that a pattern of one character matches, as first, last, first, last, ..."""
    cut = pre_tokenizers.Split(Regex(pattern), "removed")
    out = []
    for start in range(0, 0x110000, 4096):
        block = "".join(chr(c) for c in range(start, start + 4096) if not 0xD800 <= c < 0xE000)
        left = {c for t, _ in cut.pre_tokenize_str(block) for c in t}
        for c in block:
            if c in left:
                continue
            if out and out[-1] == ord(c) - 1:
                out[-1] = ord(c)
            else:
                out += [ord(c), ord(c)]
    return out


def whole_file(change):
    if "vocab" in change.get("model", {}):
        return change
    t = {**LEXIS, **change, "model": {**LEXIS["model"], **change.get("model", {})}}
    if t.pop("string_merges", False):
        t["model"]["merges"] = [" ".join(m) for m in t["model"]["merges"]]
    return t


def main():
    texts = list(by_hand()) + list(randomly(random.Random(1), 160))
    out = []
    for name, (change, count) in TOKENIZERS.items():
        t = Tokenizer.from_str(json.dumps(whole_file(change)))
        chosen = texts if count >= len(texts) else random.Random(name).sample(texts, count)
        if name in BY_PCRE:
            chosen = [s for s in chosen if all(unicodedata.category(c) != "Cn" for c in s)]
        if name == "added tokens with flags":
            chosen = [s for s in texts if any(a["content"][:2] in s or "ǽ" in s for a in FLAGS)][:count]
        cases = []
        for text in chosen:
            ids = t.encode(text, add_special_tokens=False).ids
            decoded = t.decode(ids, skip_special_tokens=True)
            cases.append([text, ids] if decoded == text else [text, ids, decoded])
        if name == "lexis":
            for h in BROKEN:
                text = bytes.fromhex(h).decode("utf-8", errors="replace")
                ids = t.encode(text, add_special_tokens=False).ids
                cases.append([{"hex": h}, ids, t.decode(ids)])
        out.append({"name": name, "file": change, "cases": cases})
    classes = {n: ranges(p) for n, p in (("letter", r"\p{L}"), ("number", r"\p{N}"),
                                          ("mark", r"\p{M}"), ("space", r"\s"))}
    path = os.path.join(HERE, "tokenizer_cases.json")
    with open(path, "w", encoding="ascii") as f:
        f.write('{"classes":\n')
        f.write(json.dumps(classes, separators=(",", ":")))
        f.write(',\n"tokenizers":[\n')
        for i, t in enumerate(out):
            head = json.dumps({k: t[k] for k in ("name", "file")}, separators=(",", ":"))
            f.write((",\n" if i else "") + head[:-1] + ',"cases":[\n')
            f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in t["cases"]))
            f.write("]}")
        f.write("]}\n")
    print(sum(len(t["cases"]) for t in out), "cases,", os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main()
