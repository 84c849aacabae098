/* protocol/openai: bodies of /v1/embeddings, /v1/score and /v1/rerank, and their answers. */
#include "protocol/openai/embeddings.h"

#include <endian.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <math.h>

#include "base/problem.h"
#include "protocol/openai/scores.h"
#include "protocol/openai/writer.h"
#include "tests/request_parse.h"

static struct buf out;

static void refuses(parser *p, const char *body, const char *param, const char *say)
{
	ok(parse_as(p, body) == -EINVAL && !strcmp(err.param, param) && strstr(err.text, say),
	   "%s: %s in %s", body, err.text, err.param);
}

/* The same of a member that would change the answer if the server had it. */
static void unsupported(parser *p, const char *body, const char *param)
{
	ok(parse_as(p, body) == -PROBLEM_UNSUPPORTED && !strcmp(err.param, param), "%s: %s", body,
	   err.text);
}

TEST(embeddings_parse)
{
	parser *p = openai_parse_embeddings;

	ok(parse_as(p, "{'input':'ab','model':'m','user':'x'}") == 0 && r.task == TASK_EMBED &&
		   r.n_prompts == 1 && !strcmp(r.prompts[0].text, "ab") && !strcmp(r.model, "m") &&
		   r.embed.dimensions == 8 && r.embed.pooling == POOLING_MEAN && !r.keep_tokens &&
		   !r.embed.base64 && r.cache_prompt && r.add_special_tokens && r.prompt_only,
	   "defaults");
	ok(parse_as(
		   p,
		   "{'input':[[1,2],[3]],'dimensions':3,'pooling':'last','encoding_format':'base64',"
		   "'truncate_prompt_tokens':-1,'priority':2,'cache_prompt':false}") == 0 &&
		   r.n_prompts == 2 && r.prompts[0].ids.len == 2 && r.prompts[1].ids.v[0] == 3 &&
		   r.embed.dimensions == 3 && r.embed.pooling == POOLING_LAST && r.embed.base64 &&
		   r.keep_tokens == KEEP_FITTING && r.priority == 2 && !r.cache_prompt,
	   "all members");
	ok(parse_as(p, "{'input':[1,2],'dimensions':null,'truncate_prompt_tokens':5}") == 0 &&
		   r.n_prompts == 1 && r.prompts[0].ids.len == 2 && r.keep_tokens == 5,
	   "one list of ids; null is absent");
	refuses(p, "{}", "input", "input is missing");
	refuses(p, "{'input':7}", "input", "input is 7");
	refuses(p, "{'input':['a','']}", "input[1]", "is empty");
	refuses(p, "{'input':[1,1000]}", "input[1]", "vocabulary");
	refuses(p, "{'input':'a','dimensions':9}", "dimensions", "from 1 to 8");
	refuses(p, "{'input':'a','dimensions':0}", "dimensions", "from 1 to 8");
	refuses(p, "{'input':'a','encoding_format':'hex'}", "encoding_format", "\"base64\"");
	refuses(p, "{'input':'a','encoding_format':'base64\\u0000'}", "encoding_format", "a NUL");
	refuses(p, "{'input':'a','pooling':true}", "pooling", "\"last\" or \"mean\"");
	refuses(p, "{'input':'a','truncate_prompt_tokens':0}", "truncate_prompt_tokens", "is 0");
	refuses(p, "{'input':'a','truncate_prompt_tokens':101}", "truncate_prompt_tokens",
		"from 1 to 100");
	refuses(p, "[]", "", "object");
	refuses(p, "{'input':'a','normalize':1}", "normalize", "is 1");
	unsupported(p, "{'input':'a','normalize':false}", "normalize");
	ok(parse_as(p, "{'input':'a','normalize':true}") == 0, "vectors are normalised");
}

TEST(scores_parse)
{
	parser *p = openai_parse_score;

	ok(parse_as(p, "{'text_1':'a','text_2':['b','c']}") == 0 && r.task == TASK_SCORE &&
		   r.n_prompts == 2 && !strcmp(r.prompts[1].text, "a") &&
		   !strcmp(r.prompts[1].behind, "c") && !r.score.between && !r.score.top,
	   "one text before each of two");
	ok(parse_as(p, "{'text_1':['a','b'],'text_2':'c'}") == 0 && r.n_prompts == 2 &&
		   !strcmp(r.prompts[1].text, "b") && !strcmp(r.prompts[1].behind, "c"),
	   "one text behind each of two");
	ok(parse_as(p, "{'text_1':['a','b'],'text_2':['c','d']}") == 0 && r.n_prompts == 2 &&
		   !strcmp(r.prompts[1].text, "b") && !strcmp(r.prompts[1].behind, "d"),
	   "pairs");
	refuses(p, "{'text_1':'a'}", "text_2", "missing");
	refuses(p, "{'text_1':['a','b','c'],'text_2':['c','d']}", "text_2", "3 texts");
	refuses(p, "{'text_1':'a','text_2':['b',['c']]}", "text_2[1]", "a string");
	refuses(p, "{'text_1':[''],'text_2':['b','c']}", "text_1[0]", "is empty");
	unsupported(p, "{'text_1':'a','text_2':'b','truncate_prompt_tokens':5}",
		    "truncate_prompt_tokens");
	p = openai_parse_rerank;
	ok(parse_as(p, "{'query':'q','documents':['a',{'text':'b','title':'x'}]}") == 0 &&
		   r.n_prompts == 2 && !strcmp(r.prompts[1].text, "b") &&
		   !strcmp(r.prompts[0].behind, "q") && !strcmp(r.score.between, "\n") &&
		   r.score.top == 2 && !r.echo,
	   "documents");
	ok(parse_as(p, "{'query':'q','documents':['a'],'top_n':5,'return_documents':true}") == 0 &&
		   r.score.top == 5 && r.echo,
	   "top_n and return_documents");
	ok(!r.score.plain &&
		   parse_as(p, "{'query':'q','texts':['a','b'],'return_text':true}") == 0 &&
		   r.n_prompts == 2 && r.score.plain && r.echo && !strcmp(r.source, "texts"),
	   "the form with texts");
	refuses(p, "{'query':'q','texts':['a','b'],'documents':['c']}", "texts", "the same list");
	refuses(p, "{'query':'q','texts':[]}", "texts", "0 texts");
	refuses(p, "{'query':'q','texts':['a','']}", "texts[1]", "is empty");
	refuses(p, "{'query':['q'],'documents':['a']}", "query", "a string");
	refuses(p, "{'query':'q','documents':{}}", "documents", "an array");
	refuses(p, "{'query':'q','documents':['a',{}]}", "documents[1].text", "missing");
	refuses(p, "{'query':'q','documents':['a'],'top_n':-1}", "top_n", "from 0");
	ok(parse_as(p, "{'query':'q','documents':['a','b'],'top_n':0}") == 0 && r.score.top == 2,
	   "top_n 0 means all");
	unsupported(p, "{'query':'q','documents':['a'],'truncate_prompt_tokens':-1}",
		    "truncate_prompt_tokens");
	unsupported(p, "{'query':'q','documents':['a'],'max_tokens_per_doc':9}",
		    "max_tokens_per_doc");
	unsupported(p, "{'query':'q','documents':[{'text':'a'}],'rank_fields':['title']}",
		    "rank_fields");
	ok(parse_as(p,
		    "{'query':'q','documents':['a'],'max_tokens_per_doc':null,'rank_fields':[]}") ==
		   0,
	   "null and an empty list ask for nothing");
}

static void wrote(const char *want, const char *what)
{
	is_str(buf_str(&out), quoted(want), "%s", what);
	buf_reset(&out);
}

TEST(embeddings_write)
{
	const struct openai_head h = {.id = "embd-1", .model = "m", .created = 7};
	const struct openai_usage u = {.prompt_tokens = 5, .cached_tokens = 3};
	const float sum[] = {3, -4, 12, 0.5f}, zeros[2] = {0}, small[] = {1e-30f, 0};

	openai_embeddings_begin(&h, &out);
	openai_embedding(0, sum, 2, false, &out);
	openai_embedding(1, sum, 3, false, &out);
	openai_embeddings_end(&u, &out);
	wrote("{'id':'embd-1','object':'list','created':7,'model':'m','data':["
	      "{'object':'embedding','index':0,'embedding':[0.600000024,-0.800000012]},"
	      "{'object':'embedding','index':1,'embedding':[0.230769232,-0.307692319,0.923076928]}"
	      "],'usage':{'prompt_tokens':5,'total_tokens':5,'completion_tokens':0,"
	      "'prompt_tokens_details':{'cached_tokens':3}}}",
	      "the first numbers, of norm 1");
	openai_embedding(0, zeros, 2, false, &out);
	wrote("{'object':'embedding','index':0,'embedding':[0.0,0.0]}", "zeros stay");
	openai_embedding(0, small, 2, false, &out);
	wrote("{'object':'embedding','index':0,'embedding':[1.0,0.0]}", "small numbers do not");
	/* 1.0f is 00 00 80 3f */
	openai_embedding(0, small, 1, true, &out);
	wrote("{'object':'embedding','index':0,'embedding':'AACAPw=='}", "base64 of four bytes");
	openai_embedding(0, small, 2, true, &out);
	wrote("{'object':'embedding','index':0,'embedding':'AACAPwAAAAA='}", "of eight");
	openai_embedding(0, sum, 3, true, &out);
	wrote("{'object':'embedding','index':0,'embedding':'xU5sPtmJnb7FTmw/'}", "of twelve");
}

/* A vector that is encoded in several blocks is one text of base64. */
TEST(embeddings_base64)
{
	static float sum[2000];
	const char before[] = "{\"object\":\"embedding\",\"index\":0,\"embedding\":\"";

	for (size_t i = 0; i < ARRAY_SIZE(sum); i++)
		sum[i] = (float)((i * 7 + 3) % 11) - 5;
	for (uint32_t n = 1; n <= ARRAY_SIZE(sum); n += n % 768 == 1 ? 764 : 1) {
		double squares = 0;
		gnutls_datum_t text, bytes;

		openai_embedding(0, sum, n, true, &out);
		text.data = (unsigned char *)out.data + strlen(before);
		text.size = (unsigned)(out.len - strlen(before) - 2);
		check(text.size == (4 * n + 2) / 3 * 4);
		check(gnutls_base64_decode2(&text, &bytes) == 0 && bytes.size == 4 * n);
		for (uint32_t i = 0; i < n; i++)
			squares += (double)sum[i] * (double)sum[i];
		for (uint32_t i = 0; i < n; i++) {
			uint32_t bits;
			float x;

			memcpy(&bits, bytes.data + 4 * i, sizeof(bits));
			bits = le32toh(bits);
			memcpy(&x, &bits, sizeof(x));
			check(x == (float)((double)sum[i] * (1 / sqrt(squares))));
		}
		gnutls_free(bytes.data);
		buf_reset(&out);
	}
	ok_all("long vectors too");
}

/* Writes a body in pieces of at least `enough` bytes. */
static void write_all(struct openai_scores *s, size_t enough,
		      bool (*write)(struct openai_scores *s, size_t enough, struct buf *out))
{
	struct buf piece;

	buf_init(&piece, 1 << 16);
	for (bool all = false; !all; buf_reset(&piece)) {
		all = write(s, enough, &piece);
		check(piece.len > 0);
		buf_append(&out, piece.data, piece.len);
	}
	buf_release(&piece);
}

TEST(scores_write)
{
	const struct openai_head h = {.id = "x", .model = "m", .created = 7};
	static char text[9000];
	struct openai_score list[] = {{.index = 0, .score = -2},
				      {.index = 1, .score = -0.5f},
				      {.index = 2, .score = -2},
				      {.index = 3, .score = -1.25f}};
	struct openai_scores s = {.head = &h, .list = list, .n = 2};

	write_all(&s, 1, openai_scores_write);
	wrote("{'id':'x','object':'list','created':7,'model':'m','data':["
	      "{'index':0,'object':'score','score':-2.0},{'index':1,'object':'score','score':-0.5}],"
	      "'usage':{'prompt_tokens':0,'total_tokens':0,'completion_tokens':0,"
	      "'prompt_tokens_details':{'cached_tokens':0}}}",
	      "scores");
	openai_rank(list, 4);
	list[0].text = "a\"b";
	list[0].len = 3;
	s = (struct openai_scores){.head = &h, .list = list, .n = 4};
	write_all(&s, 1 << 16, openai_ranking_write);
	wrote("{'id':'x','created':7,'model':'m','results':["
	      "{'index':1,'relevance_score':-0.5,'document':{'text':'a\\\"b'}},"
	      "{'index':3,'relevance_score':-1.25},{'index':0,'relevance_score':-2.0},"
	      "{'index':2,'relevance_score':-2.0}],"
	      "'usage':{'prompt_tokens':0,'total_tokens':0,'completion_tokens':0,"
	      "'prompt_tokens_details':{'cached_tokens':0}}}",
	      "a ranking: the best first, equal ones as they came");
	s = (struct openai_scores){.head = &h, .list = list, .n = 2};
	write_all(&s, 1, openai_plain_ranking_write);
	wrote("[{'index':1,'score':-0.5,'text':'a\\\"b'},{'index':3,'score':-1.25}]",
	      "the list alone");
	memset(text, 'x', sizeof(text));
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		list[i].text = text;
		list[i].len = sizeof(text);
	}
	for (size_t enough = 1; enough <= 1 << 20; enough <<= 20) {
		s = (struct openai_scores){.head = &h, .list = list, .n = 4};
		write_all(&s, enough, openai_ranking_write);
		check(out.len > 4 * sizeof(text) && out.len < 4 * sizeof(text) + 1000);
		buf_reset(&out);
		s = (struct openai_scores){.head = &h, .list = list, .n = 4};
		write_all(&s, enough, openai_plain_ranking_write);
		check(out.len > 4 * sizeof(text) && out.len < 4 * sizeof(text) + 1000);
		buf_reset(&out);
	}
	ok_all("long texts are written in pieces");
}

TEST(floats)
{
	static const float some[] = {0,	   -0.0f,    1,	    -1,	     0.1f,	  1e-4f,   1e-5f,
				     9999, -9999.5f, 1e20f, -1e-38f, 0.33333334f, 123.456f};
	char want[32];

	for (size_t i = 0; i < ARRAY_SIZE(some) + 5000; i++) {
		float x = i < ARRAY_SIZE(some) ? some[i]
					       : ((float)rand() / (float)RAND_MAX - 0.5f) *
							 powf(10, (float)(i % 9) - 4);

		snprintf(want, sizeof(want), "%.9g", (double)x);
		writer_float(&out, x);
		check(strtof(buf_str(&out), NULL) == x && strpbrk(buf_str(&out), ".e"));
		check(!strncmp(buf_str(&out), want, strlen(want)));
		buf_reset(&out);
	}
	ok_all("numbers are written as %%.9g does");
}

int main(void)
{
	int status;

	limits.hidden_size = 8;
	limits.max_model_len = 100;
	limits.pooling = POOLING_MEAN;
	buf_init(&out, 1 << 20);
	status = run_parse_tests();
	buf_release(&out);
	return status;
}
