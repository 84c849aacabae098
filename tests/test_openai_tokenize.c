/* protocol/openai/tokenize.c: requests and answers of /tokenize and /detokenize. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "protocol/openai/tokenize.h"
#include "tests/quoted.h"
#include "tests/small_vocabulary.h"
#include "tests/tap.h"

static struct buf out;
static struct arena arena;
static struct err err;

static void wrote(const char *want, const char *what)
{
	is_str(buf_str(&out), quoted(want), "%s", what);
	buf_reset(&out);
}

static int tokenize(const char *body, struct openai_tokenize *t)
{
	body = quoted(body);
	return openai_parse_tokenize(body, strlen(body), NULL, &arena, t, &err);
}

static int detokenize(const char *body, uint32_t vocab_size, struct openai_detokenize *d)
{
	body = quoted(body);
	return openai_parse_detokenize(body, strlen(body), NULL, vocab_size, &arena, d, &err);
}

static bool always(void *arg)
{
	return true;
}

TEST(tokenize)
{
	const struct pace over = {always, NULL};
	int32_t v[] = {BC, DAY, QUOTE, END, C3, A9};
	const struct ids ids = {v, 6, 6};
	struct openai_tokenize t;
	struct openai_detokenize d;

	is_int(openai_body_tokenize(NULL, &ids, 4096, false, NULL, &out, &err), 0, "/tokenize");
	wrote("{'count':6,'max_model_len':4096,'tokens':[1,12,9,11,2,3],'token_strs':null}",
	      "tokenize");
	is_int(openai_body_tokenize(NULL, &ids, 4096, true, NULL, &out, &err), 0,
	       "with token_strs");
	wrote("{'count':6,'max_model_len':4096,'tokens':[1,12,9,11,2,3],'token_strs':['\xc4\xa0"
	      "bc','\xc3\xa6\xc4\xb9\xc2\xa5x','\\'\\\\\xc4\x8a','<|im_end|>','\xc3\x83','\xc2\xa9']}",
	      "token_strs are spelled as in the vocabulary");
	is_int(openai_body_tokenize(NULL, &ids, 4096, true, &over, &out, &err), -ECANCELED,
	       "nobody waits for the answer");
	out.len = 0;
	openai_body_detokenize(NULL, v, 6, &out);
	wrote("{'prompt':' bc\xe6\x97\xa5x\\'\\\\\\n<|im_end|>\xc3\xa9'}",
	      "detokenize joins bytes");
	openai_body_detokenize(NULL, v, 5, &out);
	wrote("{'prompt':' bc\xe6\x97\xa5x\\'\\\\\\n<|im_end|>\xef\xbf\xbd'}",
	      "half a character becomes U+FFFD");

	arena_init(&arena, 1 << 20);
	is_int(tokenize("{'prompt':'','add_special_tokens':false,'return_token_strs':true}", &t), 0,
	       "a prompt");
	ok(t.prompt && !t.prompt_len && !t.context && t.return_token_strs &&
		   !t.add_special_tokens && !t.model,
	   "may be empty");
	is_int(tokenize("{'model':'m','messages':[{'role':'user','content':'x'}],"
			"'add_generation_prompt':false}",
			&t),
	       0, "messages");
	ok(!t.prompt && t.add_special_tokens &&
		   json_array_size(json_object_get(t.context, "messages")) == 1 &&
		   json_is_false(json_object_get(t.context, "add_generation_prompt")),
	   "make a context");
	openai_tokenize_release(&t);
	is_int(tokenize("{}", &t), -EINVAL, "neither");
	is_str(err.param, "prompt", "names prompt");
	is_int(tokenize("{'prompt':[1]}", &t), -EINVAL, "not a string");
	is_int(detokenize("{'tokens':[0,9],'model':'m'}", 10, &d), 0, "tokens");
	ok(d.ids.len == 2 && d.ids.v[1] == 9 && !strcmp(d.model, "m"), "are read");
	openai_detokenize_release(&d);
	is_int(detokenize("{'tokens':[0,9],'model':'m'}", 9, &d), -EINVAL,
	       "an id outside of the vocabulary");
	is_str(err.param, "tokens[1]", "is named");
	is_int(detokenize("{'tokens':'x'}", 9, &d), -EINVAL, "no list");
	is_int(detokenize("{}", 9, &d), -EINVAL, "nothing");
	arena_release(&arena);
}

int main(void)
{
	buf_init(&out, 1 << 16);
	run_tests();
	buf_release(&out);
	return done();
}
