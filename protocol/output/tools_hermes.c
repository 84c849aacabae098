/* Hermes 2 Pro, Qwen2.5, Qwen3 and others:
 *
 *     <tool_call>
 *     {"name": "get_weather", "arguments": {"city": "Paris"}}
 *     </tool_call>
 *
 * Source: NousResearch, Hermes-Function-Calling; the chat template of Qwen3. */
#include "protocol/output/tools_internal.h"

static void enter(struct tools *t, size_t opening)
{
	t->state = TOOLS_INSIDE;
	tools_object_init(t, false);
}

const struct tools_format tools_hermes = {
	.openings = {"<tool_call>"},
	.closing = "</tool_call>",
	.signs = {"<tool_call>"},
	.unlike = "<arg_key>", /* GLM-4.5 */
	.marks = {"<tool_call>", "</tool_call>"},
	.enter = enter,
	.byte = tools_object_step,
	.cut = tools_object_cut,
};
