#include "protocol/openai/scores.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/openai/fields.h"
#include "protocol/openai/request_internal.h"
#include "protocol/openai/writer.h"

enum { PIECE = 4096 }; /* bytes of a document that are written at once */

/* ---- requests ---- */

/* Counts the texts of a member that is a string or a list of them. *ret: as openai_request.n_listed. */
static int count_texts(const json_t *body, const char *name, size_t *ret, struct err *e)
{
	const json_t *v = field_get(body, name);

	if (!v || (!json_is_string(v) && !json_is_array(v)))
		return field_wrong(e, "", name, v, "a string or an array of strings");
	*ret = json_array_size(v);
	if (json_is_array(v) && (!*ret || *ret > PROMPTS_MAX))
		return err_param(e, EINVAL, name, "%s has %zu texts, but must have 1 to %d", name,
				 *ret, PROMPTS_MAX);
	return 0;
}

/* Reads the text of prompt i, or the one behind it, into ret->text. */
static int text_of(const json_t *body, const struct openai_request *r, size_t i, bool behind,
		   struct openai_prompt *ret, struct err *e)
{
	const json_t *v = field_get(body, behind ? r->score.source : r->source);
	char path[ERR_PARAM_MAX];

	openai_prompt_name(r, i, behind, path);
	if (json_is_array(v))
		v = json_array_get(v, json_array_size(v) > 1 ? i : 0);
	return prompt_text(v, path, ret, e);
}

static int make_prompts(struct openai_request *r, size_t n, struct arena *arena, struct err *e)
{
	r->prompts = arena_array(arena, n, sizeof(*r->prompts));
	if (!r->prompts)
		return err_no_memory(e);
	r->n_prompts = n;
	return 0;
}

/* Begins a request. Parameters of vLLM and Cohere that would shorten texts, or choose members of documents, are
 * refused. */
static int begin_request(const json_t *body, struct arena *arena, struct openai_request *r,
			 struct err *e)
{
	static const struct refused_field refused[] = {
		{"truncate_prompt_tokens", "a text is scored whole"},
		{"max_tokens_per_doc", "a text is scored whole"},
		{"rank_fields", "of a document, the member text alone is read"},
	};
	int ret = request_undrawn(body, TASK_SCORE, arena, r, e);

	r->texts = json_incref((json_t *)body);
	return ret < 0 ? ret : fields_refuse(body, "", refused, ARRAY_SIZE(refused), e);
}

static int parse_score(const json_t *body, const struct openai_limits *limits, struct arena *arena,
		       struct openai_request *r, struct err *e)
{
	size_t n_1, n_2, n;
	int ret = begin_request(body, arena, r, e);

	r->score.source = "text_2";
	if (ret == 0)
		ret = count_texts(body, r->source, &r->n_listed, e);
	if (ret == 0)
		ret = count_texts(body, r->score.source, &r->score.n_listed, e);
	if (ret < 0)
		return ret;
	n_1 = MAX(r->n_listed, (size_t)1);
	n_2 = MAX(r->score.n_listed, (size_t)1);
	if (n_1 != n_2 && n_1 != 1 && n_2 != 1)
		return err_param(e, EINVAL, "text_2",
				 "text_1 has %zu texts and text_2 %zu: as many, or one of them 1",
				 n_1, n_2);
	n = MAX(n_1, n_2);
	ret = make_prompts(r, n, arena, e);
	for (size_t i = 0; ret == 0 && i < n; i++) {
		struct openai_prompt second = {0};

		ret = text_of(body, r, i, false, &r->prompts[i], e);
		if (ret == 0)
			ret = text_of(body, r, i, true, &second, e);
		r->prompts[i].behind = second.text;
		r->prompts[i].behind_len = second.text_len;
	}
	return ret;
}

/* Reads document i of a list: a string, or an object with the member text. */
static int parse_document(const json_t *list, const char *name, size_t i, struct openai_prompt *ret,
			  struct err *e)
{
	const json_t *v = json_array_get(list, i);
	char path[48];

	snprintf(path, sizeof(path), "%s[%zu]", name, i);
	if (json_is_object(v)) {
		v = field_get(v, "text");
		snprintf(path, sizeof(path), "%s[%zu].text", name, i);
	}
	if (!json_is_string(v))
		return field_wrong(e, path, "", v, "a string");
	return prompt_text(v, path, ret, e);
}

static int parse_rerank(const json_t *body, const struct openai_limits *limits, struct arena *arena,
			struct openai_request *r, struct err *e)
{
	bool plain = !field_get(body, "documents") && field_get(body, "texts");
	const char *name = plain ? "texts" : "documents";
	const json_t *documents = field_get(body, name);
	size_t n = json_array_size(documents);
	struct openai_prompt query = {0};
	int64_t top = 0;
	int ret = begin_request(body, arena, r, e);

	if (ret == 0 && !json_is_string(field_get(body, "query")))
		ret = field_wrong(e, "", "query", field_get(body, "query"), "a string");
	if (ret == 0)
		ret = prompt_text(field_get(body, "query"), "query", &query, e);
	if (ret == 0 && field_get(body, "documents") && field_get(body, "texts"))
		ret = err_param(e, EINVAL, "texts", "documents and texts are the same list");
	if (ret == 0)
		ret = field_bool(body, "", "return_documents", &r->echo, e);
	if (ret == 0)
		ret = field_bool(body, "", "return_text", &r->echo, e);
	if (ret == 0)
		ret = field_int(body, "", "top_n", 0, INT32_MAX, &top, e);
	if (ret == 0 && !json_is_array(documents))
		ret = field_wrong(e, "", name, documents, "an array of strings");
	if (ret == 0 && (!n || n > PROMPTS_MAX))
		ret = err_param(e, EINVAL, name, "%s has %zu texts, but must have 1 to %d", name, n,
				PROMPTS_MAX);
	if (ret == 0)
		ret = make_prompts(r, n, arena, e);
	for (size_t i = 0; ret == 0 && i < n; i++) {
		ret = parse_document(documents, name, i, &r->prompts[i], e);
		r->prompts[i].behind = query.text;
		r->prompts[i].behind_len = query.text_len;
	}
	r->source = name;
	r->n_listed = n;
	r->score.source = "query";
	r->score.between = "\n";
	r->score.plain = plain;
	r->score.top = top ? (uint32_t)top : (uint32_t)n;
	return ret;
}

int openai_parse_score(const char *body, size_t len, const struct pace *pace,
		       const struct openai_limits *limits, struct arena *arena,
		       struct openai_request *ret, struct err *e)
{
	return request_parse_undrawn(body, len, pace, "text_1", parse_score, limits, arena, ret, e);
}

int openai_parse_rerank(const char *body, size_t len, const struct pace *pace,
			const struct openai_limits *limits, struct arena *arena,
			struct openai_request *ret, struct err *e)
{
	return request_parse_undrawn(body, len, pace, "documents", parse_rerank, limits, arena, ret,
				     e);
}

/* ---- answers ---- */

static int compare(const void *a, const void *b)
{
	const struct openai_score *x = a, *y = b;

	if (x->score != y->score)
		return x->score < y->score ? 1 : -1;
	return x->index < y->index ? -1 : x->index > y->index;
}

void openai_rank(struct openai_score *scores, uint32_t n)
{
	qsort(scores, n, sizeof(*scores), compare);
}

/* Writes the text of a result, or its next piece. True: all is written. */
static bool write_text(struct openai_scores *s, const struct openai_score *one, struct buf *out)
{
	if (one->text)
		s->at += writer_escaped_part(out, one->text + s->at, one->len - s->at, PIECE);
	if (one->text && s->at < one->len)
		return false;
	s->at = 0;
	return true;
}

static void begin(struct openai_scores *s, const char *object, const char *list, struct buf *out)
{
	s->begun = true;
	buf_puts(out, "{\"id\":");
	writer_string(out, s->head->id, strlen(s->head->id));
	buf_printf(out, "%s,\"created\":%lld,\"model\":", object, (long long)s->head->created);
	writer_string(out, s->head->model, strlen(s->head->model));
	buf_printf(out, ",\"%s\":[", list);
}

static void end(const struct openai_scores *s, struct buf *out)
{
	buf_puts(out, "],\"usage\":");
	openai_prompt_usage(&s->usage, out);
	buf_putc(out, '}');
}

bool openai_scores_write(struct openai_scores *s, size_t enough, struct buf *out)
{
	if (!s->begun)
		begin(s, ",\"object\":\"list\"", "data", out);
	for (; s->next < s->n && out->len < enough; s->next++) {
		buf_printf(out,
			   "%s{\"index\":%u,\"object\":\"score\",\"score\":", s->next ? "," : "",
			   s->list[s->next].index);
		writer_float(out, s->list[s->next].score);
		buf_putc(out, '}');
	}
	if (s->next < s->n)
		return false;
	end(s, out);
	return true;
}

bool openai_ranking_write(struct openai_scores *s, size_t enough, struct buf *out)
{
	if (!s->begun)
		begin(s, "", "results", out);
	while (s->next < s->n && out->len < enough) {
		const struct openai_score *one = &s->list[s->next];

		if (!s->at) {
			buf_printf(out, "%s{\"index\":%u,\"relevance_score\":", s->next ? "," : "",
				   one->index);
			writer_float(out, one->score);
			if (one->text)
				buf_puts(out, ",\"document\":{\"text\":\"");
		}
		if (!write_text(s, one, out))
			continue;
		buf_puts(out, one->text ? "\"}}" : "}");
		s->next++;
	}
	if (s->next < s->n)
		return false;
	end(s, out);
	return true;
}

bool openai_plain_ranking_write(struct openai_scores *s, size_t enough, struct buf *out)
{
	if (!s->begun)
		buf_putc(out, '[');
	s->begun = true;
	while (s->next < s->n && out->len < enough) {
		const struct openai_score *one = &s->list[s->next];

		if (!s->at) {
			buf_printf(out, "%s{\"index\":%u,\"score\":", s->next ? "," : "",
				   one->index);
			writer_float(out, one->score);
			if (one->text)
				buf_puts(out, ",\"text\":\"");
		}
		if (!write_text(s, one, out))
			continue;
		buf_puts(out, one->text ? "\"}" : "}");
		s->next++;
	}
	if (s->next < s->n)
		return false;
	buf_putc(out, ']');
	return true;
}
