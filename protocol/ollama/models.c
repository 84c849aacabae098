#include "protocol/ollama/models.h"

#include <inttypes.h>
#include <string.h>

#include "protocol/ollama/timestamp.h"
#include "protocol/openai/writer.h"

static const char latest[] = ":latest";

/* The time at which a model is unloaded that never is: clients count in nanoseconds since 1970, with 63 bits. */
#define NEVER_NS ((uint64_t)INT64_MAX)

/* Returns the bytes of a name without ":latest". */
static size_t name_length(const char *name)
{
	const size_t n = sizeof(latest) - 1, len = strlen(name);

	return len > n && !strcmp(name + len - n, latest) ? len - n : len;
}

bool ollama_same_name(const char *a, const char *b)
{
	const size_t len = name_length(a);

	return len == name_length(b) && !memcmp(a, b, len);
}

/* Writes a name with its tag; one without a tag gets ":latest". */
static void write_name(const char *name, struct buf *out)
{
	const char *last = strrchr(name, '/');

	buf_putc(out, '"');
	writer_escaped(out, name, strlen(name));
	buf_printf(out, "%s\"", strchr(last ? last : name, ':') ? "" : latest);
}

/* Writes a number of parameters as "752M" or "1.4B". */
static void write_size(uint64_t n, struct buf *out)
{
	static const struct {
		double unit;
		const char *name;
	} units[] = {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "K"}};

	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		const double v = (double)n / units[i].unit;

		if (v < 1)
			continue;
		buf_printf(out, units[i].unit > 1e6 ? "%.1f%s" : "%.0f%s", v, units[i].name);
		return;
	}
	if (n)
		buf_printf(out, "%" PRIu64, n);
}

static void write_details(const struct ollama_model *m, struct buf *out)
{
	buf_printf(out,
		   "\"details\":{\"parent_model\":\"\",\"format\":\"%s\",\"family\":\"%s\","
		   "\"families\":[\"%s\"],\"parameter_size\":\"",
		   m->format, m->architecture, m->architecture);
	write_size(m->n_parameters, out);
	buf_printf(out,
		   "\",\"quantization_level\":\"%s\",\"context_length\":%" PRIu32
		   ",\"embedding_length\":%" PRIu32 "}",
		   m->quantization, m->context_length, m->embedding_length);
}

static bool has_text(const struct ollama_model *m, const char *text)
{
	return m->template && memmem(m->template, m->template_len, text, strlen(text));
}

/* Every model writes text and gives vectors: a worker that has the list has /api/embed, too. */
static void write_capabilities(const struct ollama_model *m, struct buf *out)
{
	buf_puts(out, "\"capabilities\":[\"completion\",\"embedding\"");
	if (m->tools)
		buf_puts(out, ",\"tools\"");
	if (has_text(m, "<think>"))
		buf_puts(out, ",\"thinking\"");
	buf_putc(out, ']');
}

/* Writes {"name":…,"model":… and the members that lists of models have in common. */
static void write_item(const struct ollama_model *m, const char *name, uint64_t bytes,
		       struct buf *out)
{
	buf_puts(out, "{\"name\":");
	write_name(name, out);
	buf_puts(out, ",\"model\":");
	write_name(name, out);
	buf_printf(out, ",\"size\":%" PRIu64 ",\"digest\":\"%s\",", bytes, m->digest);
	write_details(m, out);
}

void ollama_body_tags(const struct ollama_model *m, const char *const *names, size_t n,
		      struct buf *out)
{
	buf_puts(out, "{\"models\":[");
	for (size_t i = 0; i < n; i++) {
		if (i)
			buf_putc(out, ',');
		write_item(m, names[i], m->weight_bytes, out);
		buf_puts(out, ",\"modified_at\":\"");
		timestamp_write(m->modified_ns, out);
		buf_puts(out, "\",");
		write_capabilities(m, out);
		buf_putc(out, '}');
	}
	buf_puts(out, "]}");
}

void ollama_body_ps(const struct ollama_model *m, const char *const *names, size_t n,
		    struct buf *out)
{
	buf_puts(out, "{\"models\":[");
	for (size_t i = 0; i < n; i++) {
		if (i)
			buf_putc(out, ',');
		write_item(m, names[i], m->memory_bytes, out);
		buf_puts(out, ",\"expires_at\":\"");
		timestamp_write(NEVER_NS, out);
		buf_printf(out, "\",\"size_vram\":%" PRIu64 ",\"context_length\":%" PRIu32 "}",
			   m->on_cpu ? 0 : m->memory_bytes, m->context_length);
	}
	buf_puts(out, "]}");
}

/* Writes "general.…" and "ARCHITECTURE.…", as files in the format GGUF name them. */
static void write_info(const struct ollama_model *m, struct buf *out)
{
	const struct {
		const char *name;
		uint64_t value; /* 0: the member is left out */
	} numbers[] = {
		{"context_length", m->context_length},
		{"embedding_length", m->embedding_length},
		{"block_count", m->n_layers},
		{"attention.head_count", m->n_heads},
		{"attention.head_count_kv", m->n_kv_heads},
		{"attention.key_length", m->head_dim},
		{"attention.value_length", m->head_dim},
		{"vocab_size", m->vocab_size},
		{"expert_count", m->n_experts},
		{"expert_used_count", m->n_experts_used},
	};

	buf_printf(out, "\"model_info\":{\"general.architecture\":\"%s\",\"general.basename\":",
		   m->architecture);
	writer_string(out, m->name, strlen(m->name));
	if (m->n_parameters)
		buf_printf(out, ",\"general.parameter_count\":%" PRIu64, m->n_parameters);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		if (numbers[i].value)
			buf_printf(out, ",\"%s.%s\":%" PRIu64, m->architecture, numbers[i].name,
				   numbers[i].value);
	buf_printf(out, ",\"%s.rope.freq_base\":%.9g,\"%s.attention.layer_norm_rms_epsilon\":%.9g}",
		   m->architecture, m->rope_theta, m->architecture, m->norm_eps);
}

void ollama_body_show(const struct ollama_model *m, struct buf *out)
{
	buf_puts(out, "{\"modelfile\":\"\",\"parameters\":\"\",\"template\":");
	writer_string(out, m->template ? m->template : "", m->template_len);
	buf_putc(out, ',');
	write_details(m, out);
	buf_putc(out, ',');
	write_info(m, out);
	buf_putc(out, ',');
	write_capabilities(m, out);
	buf_puts(out, ",\"modified_at\":\"");
	timestamp_write(m->modified_ns, out);
	buf_puts(out, "\"}");
}

void ollama_body_version(struct buf *out)
{
	buf_puts(out, "{\"version\":\"" OLLAMA_VERSION "\"}");
}
