/* Texts that a GGUF file with certain keys has, for tests. */
#pragma once

#include "engine/checkpoint/checkpoint.h"
#include "tests/gguf_write.h"
#include "tests/scratch.h"
#include "tests/tap.h"

/* Writes the file m.gguf with the keys of `more` and an embedding of 4 tokens, and reads one of its texts. want: the text
 * or, with an error, the sentence. */
static void text_of(void (*more)(struct gguf_out *o), enum checkpoint_part part, int error,
		    const char *want, const char *what)
{
	static const float row[64];
	struct checkpoint_text text;
	struct checkpoint *k;
	struct gguf_out o;
	struct err e = {0};
	struct buf file;
	int r;

	gguf_out_init(&o);
	more(&o);
	gguf_put_tensor(&o, "token_embd.weight", GGML_F32, 2, (uint64_t[]){16, 4}, row,
			sizeof(row));
	buf_init(&file, GGUF_OUT_MAX);
	gguf_out_file(&o, &file);
	scratch_write("m.gguf", file.data, file.len);
	buf_release(&file);
	gguf_out_release(&o);
	if (!ok(checkpoint_open(scratch_path("m.gguf"), &k, &e) == 0, "opens %s", e.text))
		return;
	r = checkpoint_read(k, part, &text, &e);
	is_int(r, error, "%s", what);
	if (r < 0)
		is_str(e.text + strlen(scratch_dir), want, "says so");
	else
		is_str(buf_str(&text.bytes), want, "is its text");
	checkpoint_text_release(&text);
	checkpoint_close(k);
}
