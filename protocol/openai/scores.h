/* The bodies of /v1/score and /v1/rerank: how likely a model finds a text behind another one.
 *
 * The score of text_2 behind text_1 is the mean log-probability of its tokens, (1 / n) sum over i of ln p(t_i | text_1,
 * t_1 ... t_(i-1)), at most 0; its negative is the logarithm of the perplexity. The texts are tokenized apart, and
 * nothing is put between them. Members as in vLLM: text_1 and text_2 are strings or lists of strings; one string goes
 * with each of the other member's.
 *
 *     {"id", "object": "list", "created", "model", "data": [{"index", "object": "score", "score"}], "usage"}
 *
 * The relevance score of a document is the score of the query behind the document, with "\n" between: how likely the
 * query is, given the document (the query likelihood of Ponte and Croft 1998, DOI 10.1145/290941.291008). Members as in
 * Cohere's and Jina's APIs: query, documents (strings, or objects with `text`), top_n (0 means all, as in vLLM's),
 * return_documents. The best document comes first; of equal ones the one that the request has first.
 *
 *     {"id", "model", "results": [{"index", "relevance_score", "document": {"text"}}], "usage"}
 *
 * The other form is that of Hugging Face's Text Embeddings Inference: `texts` instead of documents, and return_text.
 * Its answer is the list of the results alone; raw_scores has no effect, the score is the same as above.
 *
 *     [{"index", "score", "text"}]
 *
 * add_special_tokens, priority, cache_salt and cache_prompt are as in /v1/embeddings. vLLM's truncate_prompt_tokens and
 * Cohere's max_tokens_per_doc and rank_fields are refused: a text that is too long is an error. */
#pragma once

#include "protocol/openai/request.h"
#include "protocol/openai/response.h"

/* Parse a body, like openai_parse_chat. return_documents and return_text set `echo`. */
int openai_parse_score(const char *body, size_t len, const struct pace *pace,
		       const struct openai_limits *limits, struct arena *arena,
		       struct openai_request *ret, struct err *e) MUST_CHECK;
int openai_parse_rerank(const char *body, size_t len, const struct pace *pace,
			const struct openai_limits *limits, struct arena *arena,
			struct openai_request *ret, struct err *e) MUST_CHECK;

/* The score of one prompt. Borrowed. */
struct openai_score {
	uint32_t index; /* of the prompt in the request */
	float score;
	const char *text; /* [len] the document; NULL: it is not shown */
	size_t len;
};

/* Sorts scores as the results of /v1/rerank. */
void openai_rank(struct openai_score *scores, uint32_t n);

/* A body that is written bit by bit. The first four members are the caller's, the others are 0 at first. */
struct openai_scores {
	const struct openai_head *head;
	const struct openai_score *list; /* [n] in the order of the body */
	uint32_t n;
	struct openai_usage usage;
	bool begun;
	uint32_t next; /* number of the score to be written */
	size_t at;     /* bytes of its text that are written */
};

/* Append some of a body, until out has `enough` bytes or a little more. True: all is written. */
bool openai_scores_write(struct openai_scores *s, size_t enough, struct buf *out);
bool openai_ranking_write(struct openai_scores *s, size_t enough, struct buf *out);
bool openai_plain_ranking_write(struct openai_scores *s, size_t enough, struct buf *out);
