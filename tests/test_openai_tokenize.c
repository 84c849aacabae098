/* protocol/openai/tokenize.c, tokenizer_info.c: requests and answers of /tokenize, /detokenize and /tokenizer_info. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/problem.h"
#include "protocol/openai/request.h"
#include "protocol/openai/tokenize.h"
#include "protocol/openai/tokenizer_info.h"
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
	static const struct openai_limits limits;

	body = quoted(body);
	return openai_parse_tokenize(body, strlen(body), NULL, &limits, &arena, t, &err);
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

	is_int(openai_body_tokenize(NULL, &ids, 4096, TOKENIZE_COUNTED, NULL, &out, &err), 0,
	       "/tokenize");
	wrote("{'count':6,'max_model_len':4096,'tokens':[1,12,9,11,2,3],'token_strs':null}",
	      "tokenize");
	is_int(openai_body_tokenize(NULL, &ids, 4096, TOKENIZE_STRS, NULL, &out, &err), 0,
	       "with token_strs");
	wrote("{'count':6,'max_model_len':4096,'tokens':[1,12,9,11,2,3],'token_strs':['\xc4\xa0"
	      "bc','\xc3\xa6\xc4\xb9\xc2\xa5x','\\'\\\\\xc4\x8a','<|im_end|>','\xc3\x83','\xc2\xa9']}",
	      "token_strs are spelled as in the vocabulary");
	is_int(openai_body_tokenize(NULL, &ids, 4096, TOKENIZE_STRS, &over, &out, &err), -ECANCELED,
	       "nobody waits for the answer");
	out.len = 0;
	is_int(openai_body_tokenize(NULL, &ids, 4096, TOKENIZE_BARE, NULL, &out, &err), 0,
	       "in llama.cpp's form");
	wrote("{'tokens':[1,12,9,11,2,3]}", "ids alone");
	is_int(openai_body_tokenize(NULL, &ids, 4096, TOKENIZE_PIECES, NULL, &out, &err), 0,
	       "with pieces");
	wrote("{'tokens':[{'id':1,'piece':' bc'},{'id':12,'piece':'\xe6\x97\xa5x'},"
	      "{'id':9,'piece':'\\'\\\\\\n'},{'id':11,'piece':'<|im_end|>'},{'id':2,'piece':[195]},"
	      "{'id':3,'piece':[169]}]}",
	      "which are lists of bytes if they are no UTF-8");
	is_int(openai_body_tokenize(NULL, &ids, 4096, TOKENIZE_PIECES, &over, &out, &err),
	       -ECANCELED, "nobody waits for them");
	out.len = 0;
	openai_body_detokenize(NULL, v, 6, &out);
	wrote("{'prompt':' bc\xe6\x97\xa5x\\'\\\\\\n<|im_end|>\xc3\xa9','content':' bc\xe6\x97\xa5x\\'"
	      "\\\\\\n<|im_end|>\xc3\xa9'}",
	      "detokenize joins bytes, and has the text under both names");
	openai_body_detokenize(NULL, v, 5, &out);
	wrote("{'prompt':' bc\xe6\x97\xa5x\\'\\\\\\n<|im_end|>\xef\xbf\xbd','content':' bc\xe6\x97\xa5x\\'"
	      "\\\\\\n<|im_end|>\xef\xbf\xbd'}",
	      "half a character becomes U+FFFD");

	arena_init(&arena, 1 << 20);
	is_int(tokenize("{'prompt':'','add_special_tokens':false,'return_token_strs':true}", &t), 0,
	       "a prompt");
	ok(t.prompt && !t.prompt_len && !t.context && t.form == TOKENIZE_STRS &&
		   !t.add_special_tokens && !t.model,
	   "may be empty");
	is_int(tokenize("{'model':'m','messages':[{'role':'user','content':'x'}],"
			"'add_generation_prompt':false}",
			&t),
	       0, "messages");
	ok(!t.prompt && t.add_special_tokens && t.form == TOKENIZE_COUNTED &&
		   json_array_size(json_object_get(t.context, "messages")) == 1 &&
		   json_is_false(json_object_get(t.context, "add_generation_prompt")),
	   "make a context");
	openai_tokenize_release(&t);
	is_int(tokenize("{'content':'ab','add_special_tokens':true,'return_token_strs':true}", &t),
	       0, "llama.cpp's form");
	ok(t.prompt_len == 2 && !t.add_special_tokens && t.form == TOKENIZE_BARE,
	   "has defaults of its own");
	is_int(tokenize("{'content':'','add_special':true,'with_pieces':true,'parse_special':true}",
			&t),
	       0, "all its members");
	ok(t.prompt && !t.prompt_len && t.add_special_tokens && t.form == TOKENIZE_PIECES,
	   "are read");
	is_int(tokenize("{'content':'a','parse_special':false}", &t), -PROBLEM_UNSUPPORTED,
	       "special tokens as plain text");
	is_str(err.param, "parse_special", "are refused by name");
	is_int(tokenize("{'content':'a','prompt':'a'}", &t), -EINVAL, "two texts");
	is_str(err.param, "content", "names content");
	is_int(tokenize("{'content':'a','messages':[]}", &t), -EINVAL, "a text and messages");
	is_str(err.param, "messages", "names messages");
	is_int(tokenize("{'content':[1]}", &t), -EINVAL, "no text");
	is_str(err.param, "content", "names content");
	is_int(tokenize("{'content':'a','with_pieces':1}", &t), -EINVAL, "no boolean");
	is_str(err.param, "with_pieces", "names with_pieces");
	is_int(tokenize("{'content':'a','add_special':1}", &t), -EINVAL, "no boolean");
	is_str(err.param, "add_special", "names add_special");
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

/* Writes the body of /tokenizer_info. */
static int info(const char *config, const char *template, size_t template_len)
{
	config = config ? quoted(config) : NULL;
	return openai_body_tokenizer_info(config, config ? strlen(config) : 0, template,
					  template_len, &out, &err);
}

TEST(tokenizer_info)
{
	is_int(info("{'tokenizer_class':'C','vocab_file':'/home/x','merges_file':'m','eos_token':{'content':"
		    "'<e>'},'model_max_length':1000000000000000019884624838656,'chat_template':'old'}",
		    "a\n", 2),
	       0, "a configuration");
	wrote("{'tokenizer_class':'C','eos_token':{'content':'<e>'},'model_max_length':1e30,"
	      "'chat_template':'a\\n'}",
	      "with the template of the model and without paths");
	is_int(info("{'eos_token':'<e>'}", NULL, 0), 0, "one without class and template");
	wrote("{'eos_token':'<e>','tokenizer_class':'PreTrainedTokenizerFast'}", "gets a class");
	is_int(info(NULL, "t", 1), 0, "no configuration");
	wrote("{'tokenizer_class':'PreTrainedTokenizerFast','chat_template':'t'}", "is empty");
	is_int(info("[]", NULL, 0), -EINVAL, "no object: %s", err.text);
	is_int(info("{'a':", NULL, 0), -EINVAL, "no JSON: %s", err.text);
	is_int(info("{}", "\xff", 1), -EINVAL, "no UTF-8: %s", err.text);
	is_str(buf_str(&out), "", "nothing was written");
}

/* Expects the arguments that a template has beside one of the operator's. */
static void tokens(const char *config, const char *want, const char *what)
{
	json_t *arguments = json_pack("{s:s}", "sep_token", "mine");
	char *got;

	config = config ? quoted(config) : NULL;
	is_int(openai_template_tokens(config, config ? strlen(config) : 0, arguments, &err), 0,
	       "%s", what);
	got = json_dumps(arguments, JSON_COMPACT | JSON_SORT_KEYS);
	is_str(got, quoted(want), "are the template's");
	free(got);
	json_decref(arguments);
}

TEST(template_tokens)
{
	json_t *none = json_object();

	tokens("{'bos_token':'<s>','eos_token':{'content':'</s>','special':true},'unk_token':null,"
	       "'add_bos_token':true,'sep_token':'theirs','other_token':'o','extra_special_tokens':"
	       "{'image_token':'<i>','n':1}}",
	       "{'bos_token':'<s>','eos_token':'</s>','image_token':'<i>','sep_token':'mine'}",
	       "special tokens");
	tokens("{'extra_special_tokens':['<i>']}", "{'sep_token':'mine'}", "a list without names");
	tokens(NULL, "{'sep_token':'mine'}", "no configuration");
	is_int(openai_template_tokens("[]", 2, none, &err), -EINVAL, "no object: %s", err.text);
	json_decref(none);
}

int main(void)
{
	buf_init(&out, 1 << 16);
	run_tests();
	buf_release(&out);
	return done();
}
