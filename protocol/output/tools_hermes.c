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

static void byte(struct tools *t, char c)
{
	switch (tools_object_byte(t, c)) {
	case LITERAL_END: tools_close(t); break;
	case LITERAL_WRONG:
		tools_wrong(t, t->object.called ? TOOLS_CLOSING : TOOLS_OUTSIDE, 0, c);
		break;
	default:;
	}
}

const struct tools_format tools_hermes = {
	.openings = {"<tool_call>"},
	.closing = "</tool_call>",
	.signs = {"<tool_call>"},
	.unlike = "<arg_key>", /* GLM-4.5 */
	.marks = {"<tool_call>", "</tool_call>"},
	.enter = enter,
	.byte = byte,
	.cut = tools_object_cut,
};
