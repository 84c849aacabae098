/* Hermes 2 Pro, Qwen2.5, Qwen3 and others:
 *
 *     <tool_call>
 *     {"name": "get_weather", "arguments": {"city": "Paris"}}
 *     </tool_call>
 *
 * Source: NousResearch, Hermes-Function-Calling; the chat template of Qwen3. */
#include "protocol/output/tools_internal.h"
#include "protocol/output/tools_writer.h"

static void enter(struct tools *t, size_t opening)
{
	t->state = TOOLS_INSIDE;
	tools_object_init(t, false);
}

static uint32_t write_call(struct tools_writer *w, size_t tool)
{
	return tools_writer_object(w, tool, "<tool_call>\n", "arguments", "\n</tool_call>");
}

static uint32_t write(struct tools_writer *w)
{
	return tools_writer_list(w, tools_writer_any(w, write_call), "\n");
}

const struct tools_format tools_hermes = {
	.openings = {"<tool_call>"},
	.closing = "</tool_call>",
	.signs = {"<tool_call>"},
	.unlike = "<arg_key>", /* GLM-4.5 */
	.marks = {"<tool_call>", "</tool_call>"},
	.enter = enter,
	.byte = tools_object_step,
	.write = write,
	.cut = tools_object_cut,
};
