/* protocol/openai: the parameters that say how tokens are drawn, how many, and when to stop. */
#include "tests/openai_parse.h"

TEST(restrictions)
{
	takes(true,
	      "'logit_bias':{'7':-100,'0':1.5,'999':100,'12':0},'allowed_token_ids':[3,1],"
	      "'bad_words':['a b','\\u0000']",
	      "restrictions of tokens");
	ok(r.n_biases == 4 && r.biases[0].token == 0 && r.biases[0].value == 1.5f &&
		   r.biases[1].token == 7 && r.biases[3].token == 999 && r.biases[3].value == 100,
	   "biases by rising token");
	ok(r.allowed.len == 2 && r.allowed.v[0] == 3, "allowed tokens");
	ok(r.n_bad_words == 2 && !strcmp(r.bad_words[0].text, "a b") && r.bad_words[1].len == 1,
	   "bad words");
	takes(true, "'logit_bias':{},'allowed_token_ids':null,'bad_words':[]", "none of them");
	ok(!r.n_biases && !r.allowed.len && !r.n_bad_words, "there are none");
}

TEST(sampling)
{
	uint32_t n_top;

	takes(true,
	      "'model':'lexis','temperature':1.5,'top_p':1,'top_k':-1,'min_p':0.25,'n':8,'seed':"
	      "-1,'presence_penalty':-2,'frequency_penalty':2,'repetition_penalty':1.5,"
	      "'max_tokens':16.0,'min_tokens':7,'ignore_eos':true,'stop_token_ids':[0,999],"
	      "'stop':['a','\\u00e9\\n'],'stream':true,'stream_options':{'include_usage':true,"
	      "'include_obfuscation':false},'logprobs':true,'top_logprobs':20,"
	      "'return_token_ids':true,'return_tokens_as_token_ids':true",
	      "everything at once");
	is_str(r.model, "lexis", "model");
	ok(r.sampling.temperature == 1.5f && r.sampling.top_p == 1 && r.sampling.top_k == 0 &&
		   r.sampling.min_p == 0.25f && r.sampling.presence_penalty == -2 &&
		   r.sampling.frequency_penalty == 2 && r.sampling.repetition_penalty == 1.5f,
	   "floats; top_k -1 is off");
	ok(r.has_seed && r.sampling.seed == UINT64_MAX, "a negative seed is a seed");
	ok(r.n == 8 && r.max_tokens == 16 && r.min_tokens == 7 && r.ignore_eos, "counts");
	ok(r.stop_token_ids.len == 2 && r.stop_token_ids.v[0] == 0 && r.stop_token_ids.v[1] == 999,
	   "stop token ids");
	ok(r.n_stops == 2 && !strcmp(r.stops[0], "a") && !strcmp(r.stops[1], "\xc3\xa9\n") &&
		   !r.include_stop,
	   "stop strings, which the text does not include");
	ok(r.stream && r.include_usage && !r.continuous_usage && r.return_token_ids &&
		   r.tokens_as_ids,
	   "stream and its options");
	ok(r.sampling.want_logprobs && r.sampling.n_logprobs == 20, "log-probabilities");

	takes(true, "'stream':true,'stream_options':{'continuous_usage_stats':true}",
	      "usage all along");
	ok(r.include_usage && r.continuous_usage, "is usage at the end, too");
	takes(true,
	      "'stream':true,'stream_options':{'continuous_usage_stats':true,'include_usage':false}",
	      "usage all along, but none");
	ok(!r.include_usage && !r.continuous_usage, "is none");

	takes(true,
	      "'seed':9223372036854775807,'stop':'x','max_tokens':3,'max_completion_tokens':5,"
	      "'temperature':1e-30,'top_p':1e-60",
	      "limits");
	ok(r.sampling.seed == INT64_MAX && r.n_stops == 1 && !strcmp(r.stops[0], "x"),
	   "largest seed, one stop string");
	takes(true,
	      "'stop':['a','b','c','d','e','f','g','h','i','j','k','l','m','n','o','p','q','r','s','t','u',"
	      "'v','w','x','y','z','a','b','c','d','e','f','g','h','i','j','k','l','m','n','o','p','q','r',"
	      "'s','t','u','v','w','x','y','z','a','b','c','d','e','f','g','h','i','j','k','l']",
	      "many stop strings");
	ok(r.n_stops == 64 && !strcmp(r.stops[63], "l"), "64 stop strings");
	takes(true, "'max_tokens':3,'max_completion_tokens':5,'temperature':1e-30,'top_p':1e-60",
	      "limits");
	ok(r.max_tokens == 5, "max_completion_tokens wins over max_tokens");
	ok(r.sampling.temperature == 0, "a temperature near 0 is greedy");
	ok(r.sampling.top_p > 0, "a tiny top_p stays above 0");

	takes(true,
	      "'seed':9223372036854775807,'a':[18446744073709551615,-9223372036854775809,"
	      "'\\'99999999999999999999',1.99999999999999999999],'chat_template_kwargs':{'x':"
	      "9223372036854775808,'y':-9223372036854775808,'z':'9223372036854775808'}",
	      "whole numbers beyond 64 bits");
	ok(r.sampling.seed == INT64_MAX, "leave those within as they are");
	ok(json_real_value(json_object_get(r.context, "x")) == 9223372036854775808.0 &&
		   json_integer_value(json_object_get(r.context, "y")) == INT64_MIN &&
		   !strcmp(json_string_value(json_object_get(r.context, "z")),
			   "9223372036854775808"),
	   "and become real numbers, outside of strings");

	takes(true,
	      "'seed':-9223372036854775808,'top_k':0,'temperature':0,'top_logprobs':0,'stop':[]",
	      "other limits");
	ok(r.has_seed && r.sampling.seed == (uint64_t)INT64_MIN && r.sampling.top_k == 0 &&
		   r.sampling.temperature == 0 && !r.n_stops,
	   "smallest seed, greedy, no stops");

	takes(false, "'logprobs':0", "completions: logprobs 0");
	ok(r.sampling.want_logprobs && r.sampling.n_logprobs == 0, "asks for the drawn token's");
	takes(false, "'logprobs':5,'n':2,'best_of':2,'echo':false",
	      "completions: logprobs 5, best_of = n");
	ok(!r.context && !strcmp(r.source, "prompt") && r.sampling.want_logprobs &&
		   r.sampling.n_logprobs == 5 && r.n == 2 && r.best_of == 2,
	   "five");
	takes(false, "'best_of':8,'n':3", "best_of above n");
	ok(r.best_of == 8 && r.n == 3 && !r.sampling.want_logprobs, "draws more than it returns");
	takes(false, "'best_of':2,'n':2,'stream':true", "a stream of best_of = n");
	takes(true, "'best_of':null,'n':4", "no best_of");
	is_int(r.best_of, 4, "is n");
	takes(false, "'echo':true", "echo");
	ok(r.echo && r.add_special_tokens, "is kept; a text gets its special tokens");
	ok(!openai_wants_scores(&r, &n_top), "and asks nothing about them");
	takes(false, "'echo':true,'logprobs':3,'max_tokens':0", "the prompt's log-probabilities");
	ok(openai_wants_scores(&r, &n_top) && n_top == 3, "are wanted");
	ok(r.prompt_only && !r.max_tokens, "and nothing else");
	takes(false, "'max_tokens':0", "max_tokens 0 without echo");
	ok(r.prompt_only && !r.echo && !r.max_tokens, "asks for an empty text");
	takes(false, "'max_tokens':null", "no max_tokens");
	ok(!r.prompt_only && !r.max_tokens, "is as many as fit");
	takes(false, "'prompt_logprobs':0,'max_tokens':1", "prompt_logprobs");
	ok(r.prompt_logprobs && !r.prompt_only && openai_wants_scores(&r, &n_top) && !n_top,
	   "of the tokens themselves");
	takes(true, "'prompt_logprobs':20,'stream':false", "in chat");
	ok(openai_wants_scores(&r, &n_top) && n_top == 20, "with the twenty best");
	takes(false, "'prompt_logprobs':2,'echo':true,'logprobs':1", "both");
	ok(openai_wants_scores(&r, &n_top) && n_top == 2, "the larger number");
	takes(true, "'prompt_logprobs':null,'stream':true", "null");
	ok(!openai_wants_scores(&r, &n_top), "is none");
	takes(true, "'include_stop_str_in_output':true,'stop':'x'",
	      "stop strings that are included");
	ok(r.include_stop, "are");
	takes(false, "'add_special_tokens':false", "unless");
	ok(!r.add_special_tokens, "they are refused");
}

/* clang-format off: a case begins a line. */
static const struct bad bads[] = {
	{'c', "'temperature':2.5", "temperature",
	 "temperature is 2.5, but must be a number from 0 to 2"},
	{'c', "'temperature':-0.1", "temperature", NULL},
	{'c', "'temperature':'1'", "temperature",
	 "temperature is \"1\", but must be a number from 0 to 2"},
	{'c', "'temperature':true", "temperature", NULL},
	{'c', "'top_p':0", "top_p", "top_p is 0, but must be a number above 0 and at most 1"},
	{'c', "'top_p':1.01", "top_p", NULL},
	{'c', "'top_k':-2", "top_k",
	 "top_k is -2, but must be a whole number from -1 to 2147483647"},
	{'c', "'top_k':1.5", "top_k", NULL},
	{'c', "'min_p':-1", "min_p", NULL},
	{'c', "'min_p':1.5", "min_p", NULL},
	{'c', "'n':0", "n", "n is 0, but must be a whole number from 1 to 8"},
	{'c', "'n':9", "n", NULL},
	{'c', "'n':'2'", "n", NULL},
	{'c', "'seed':1.5", "seed", NULL},
	{'c', "'seed':'x'", "seed", NULL},
	{'c', "'presence_penalty':2.1", "presence_penalty", NULL},
	{'c', "'frequency_penalty':-2.1", "frequency_penalty", NULL},
	{'c', "'repetition_penalty':0", "repetition_penalty", NULL},
	{'c', "'max_tokens':0", "max_tokens", NULL},
	{'c', "'max_tokens':-1", "max_tokens", NULL},
	{'c', "'max_tokens':1.5", "max_tokens", NULL},
	{'c', "'max_tokens':9223372036854775807", "max_tokens", NULL},
	{'c', "'max_completion_tokens':[]", "max_completion_tokens", NULL},
	{'c', "'min_tokens':5,'max_tokens':4", "min_tokens",
	 "min_tokens is 5, but may be at most max_tokens, 4"},
	{'c', "'ignore_eos':1", "ignore_eos", "ignore_eos is 1, but must be true or false"},
	{'c', "'stop':5", "stop",
	 "stop is 5, but must be a string or an array of up to 64 strings"},
	{'c', "'stop':''", "stop", NULL},
	{'c', "'stop':['a','']", "stop[1]",
	 "stop[1] is \"\", but must be a string that is not empty"},
	{'c', "'stop':[null]", "stop[0]", NULL},
	{'c',
	 "'stop':['a','b','c','d','e','f','g','h','i','j','k','l','m','n','o','p','q','r','s','t','u','v','w','x','y',"
	 "'z','a','b','c','d','e','f','g','h','i','j','k','l','m','n','o','p','q','r','s','t','u','v','w','x','y','z',"
	 "'a','b','c','d','e','f','g','h','i','j','k','l','m']",
	 "stop", "stop has 65 strings, but may have at most 64"},
	{'c', "'include_stop_str_in_output':'yes'", "include_stop_str_in_output", NULL},
	{'c', "'truncate_prompt_tokens':0", "truncate_prompt_tokens",
	 "truncate_prompt_tokens is 0, but must be -1 or a whole number from 1 to 4096"},
	{'p', "'truncate_prompt_tokens':-2", "truncate_prompt_tokens", NULL},
	{'p', "'truncate_prompt_tokens':4097", "truncate_prompt_tokens", NULL},
	{'c', "'truncate_prompt_tokens':'5'", "truncate_prompt_tokens",
	 "truncate_prompt_tokens is \"5\", but must be -1 or a whole number from 1 to 4096"},
	{'c', "'seed':18446744073709551615", "seed", NULL},
	{'c', "'stop_token_ids':[1,1000]", "stop_token_ids[1]",
	 "stop_token_ids[1] is 1000, but must be a token id of the vocabulary, from 0 to 999"},
	{'c', "'stop_token_ids':[-1]", "stop_token_ids[0]", NULL},
	{'c', "'stop_token_ids':5", "stop_token_ids", NULL},
	{'c', "'logprobs':3", "logprobs", NULL},
	{'c', "'logprobs':true,'top_logprobs':21", "top_logprobs", NULL},
	{'c', "'logprobs':true,'top_logprobs':-1", "top_logprobs", NULL},
	{'c', "'top_logprobs':2", "top_logprobs",
	 "top_logprobs is 2, but only allowed when logprobs is true"},
	{'c', "'logit_bias':{'5':-101}", "logit_bias.5",
	 "logit_bias.5 is -101, but must be a number from -100 to 100"},
	{'c', "'logit_bias':{'5':'a'}", "logit_bias.5", NULL},
	{'c', "'logit_bias':{'1000':1}", "logit_bias",
	 "logit_bias has the name \"1000\", but names must be token ids of the vocabulary, from 0 to "
	 "999"},
	{'c', "'logit_bias':{'-1':1}", "logit_bias", NULL},
	{'c', "'logit_bias':{'':1}", "logit_bias", NULL},
	{'c', "'logit_bias':{'99999999999999999999':1}", "logit_bias", NULL},
	{'c', "'logit_bias':{'7':1,'07':2}", "logit_bias", "logit_bias has token 7 twice"},
	{'c', "'logit_bias':[5]", "logit_bias", NULL},
	{'c', "'allowed_token_ids':[]", "allowed_token_ids", NULL},
	{'c', "'allowed_token_ids':[1000]", "allowed_token_ids[0]", NULL},
	{'c', "'bad_words':'a'", "bad_words", NULL},
	{'c', "'bad_words':['a','']", "bad_words[1]",
	 "bad_words[1] is \"\", but must be a string that is not empty"},
	{'p', "'logprobs':true", "logprobs", NULL},
	{'p', "'logprobs':21", "logprobs", NULL},
	{'p', "'max_tokens':0,'min_tokens':1", "min_tokens",
	 "min_tokens is 1, but may be at most max_tokens, 0"},
	{'p', "'max_tokens':0,'echo':true,'min_tokens':1", "min_tokens", NULL},
	{'p', "'max_tokens':-1,'echo':true", "max_tokens", NULL},
	{'p', "'prompt_logprobs':21", "prompt_logprobs", NULL},
	{'c', "'prompt_logprobs':-1", "prompt_logprobs", NULL},
	{'c', "'prompt_logprobs':true", "prompt_logprobs", NULL},
	{'p', "'prompt_logprobs':1,'stream':true", "prompt_logprobs",
	 "prompt_logprobs is not supported when stream is true", PROBLEM_UNSUPPORTED},
	{'c', "'best_of':2", "best_of", "best_of above n is not supported but in completions",
	 PROBLEM_UNSUPPORTED},
	{'p', "'best_of':3,'n':2,'stream':true", "best_of",
	 "best_of is 3, but must be equal to n, 2, when stream is true"},
	{'p', "'best_of':1,'n':2", "best_of", "best_of is 1, but must be at least n, 2"},
	{'p', "'best_of':0", "best_of", NULL},
	{'p', "'best_of':9", "best_of", NULL},
};
/* clang-format on */

TEST(bad)
{
	check_bads(bads, ARRAY_SIZE(bads));
}

TEST(truncation)
{
	takes(true, "'truncate_prompt_tokens':null", "no truncation");
	is_int(r.keep_tokens, 0, "keeps all tokens");
	for (int chat = 0; chat < 2; chat++) {
		takes(chat, "'truncate_prompt_tokens':4096", "as many tokens as the context has");
		is_int(r.keep_tokens, 4096, "are kept");
		takes(chat, "'truncate_prompt_tokens':-1.0", "-1");
		is_int(r.keep_tokens, KEEP_FITTING, "keeps as many as fit");
	}
}

/* The server makes a table for each stop string, so the length of a stop string has a bound. */
TEST(stop_length)
{
	char members[STOP_BYTES_MAX + 32];

	for (int more = 0; more < 2; more++) {
		int n = snprintf(members, sizeof(members), "'stop':'");

		memset(members + n, 'x', (size_t)(STOP_BYTES_MAX + more));
		snprintf(members + n + STOP_BYTES_MAX + more, 2, "'");
		is_int(parse_with(true, members), more ? -EINVAL : 0, "a stop string of %d bytes",
		       STOP_BYTES_MAX + more);
	}
}

int main(void)
{
	return run_parse_tests();
}
