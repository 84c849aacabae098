/* protocol/openai/open_message.c: chats whose last message is left open. tests/golden/open_message_cases.json is made
 * by open_message_cases.py beside it. */
#include "protocol/jinja/jinja.h"
#include "protocol/openai/open_message.h"
#include "tests/openai_parse.h"

#define OPEN "'continue_final_message':true,'add_generation_prompt':false"

/* Renders r's context, and cuts the text. Returns the text, valid until the next call, or that of the error. */
static const char *render(const char *template, size_t len)
{
	static char text[4096];
	struct template *t;
	struct buf out;
	int rc;

	buf_init(&out, sizeof(text) - 1);
	check(template_parse("test", template, len, &t, &err) == 0);
	check(template_render(t, r.context, NULL, &out, &err) == 0);
	rc = open_message_cut(r.context, &out, &err);
	check(rc == 0 || rc == -EINVAL);
	snprintf(text, sizeof(text), "%s", rc ? err.text : buf_str(&out));
	template_free(t);
	buf_release(&out);
	return text;
}

/* Parses a chat that ends with a message of the assistant. Both texts are JSON without its quotes. */
static int open_chat(const char *content, const char *more)
{
	char body[1024];

	snprintf(body, sizeof(body),
		 "{" OPEN "%s,'messages':[{'role':'user','content':'q'},{'role':'assistant',"
		 "'content':'%s'}]}",
		 more, content);
	return parse(true, body);
}

TEST(transformers)
{
	json_t *all = json_load_file("tests/golden/template_cases.json", JSON_ALLOW_NUL, NULL),
	       *own = json_load_file("tests/golden/open_message_cases.json", 0, NULL);
	const json_t *templates = json_object_get(json_object_get(all, "whole"), "templates"), *c;
	size_t i;

	json_array_foreach(json_object_get(own, "cases"), i, c)
	{
		const json_t *template =
			json_object_get(templates, json_string_value(json_object_get(c, "style")));
		json_t *body =
			json_pack("{s:b, s:b, s:[{s:s, s:s}, {s:s, s:O}]}",
				  "continue_final_message", 1, "add_generation_prompt", 0,
				  "messages", "role", "user", "content", "What is a bow?", "role",
				  "assistant", "content", json_object_get(c, "content"));
		char *text = json_dumps(body, 0);

		check(parse_bytes(true, text, strlen(text)) == 0);
		json_object_update(r.context, json_object_get(own, "options"));
		if (strcmp(render(json_string_value(template), json_string_length(template)),
			   json_string_value(json_object_get(c, "output"))) != 0) {
			printf("# %s, %s: %s\n", json_string_value(json_object_get(c, "style")),
			       text,
			       render(json_string_value(template), json_string_length(template)));
			tap_quiet++;
		}
		free(text);
		json_decref(body);
	}
	ok_all("%zu chats are rendered as by transformers", i);
	ok(i > 90, "there are enough of them");
	json_decref(all);
	json_decref(own);
}

TEST(spaces)
{
	static const char keeps[] = "{{ messages[-1].content }}<end>",
			  trims[] = "A:\n\n{{ messages[-1].content | trim }}<end>";
	static const struct {
		const char *content, *keeps, *trims;
	} cases[] = {
		{"a", "a", "A:\n\na"},
		{"a \\n", "a \n", "A:\n\na"},
		{"", "", "A:\n\n"},
		/* The white space in front of the message is the template's. */
		{" ", " ", "A:\n\n"},
		{"CONTINUE_FINAL_MESSAGE_TAG", "CONTINUE_FINAL_MESSAGE_TAG",
		 "A:\n\nCONTINUE_FINAL_MESSAGE_TAG"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		is_int(open_chat(cases[i].content, ""), 0, "\"%s\"", cases[i].content);
		is_str(render(keeps, sizeof(keeps) - 1), cases[i].keeps, "is kept");
		is_str(render(trims, sizeof(trims) - 1), cases[i].trims, "is trimmed");
	}
	is_str(render("no text", 7),
	       "continue_final_message is true, but the model's template does not write the content of the last message",
	       "a template without the message");
	takes(true, "'continue_final_message':false,'add_generation_prompt':false",
	      "a message that is not left open");
	is_str(render(keeps, sizeof(keeps) - 1), "hi<end>", "is whole");
}

/* The content may end while the model thinks. */
TEST(thinking)
{
	static const struct {
		const char *content;
		bool thinks;
	} cases[] = {
		{"", false},
		{"It is", false},
		{"<think>\\nI", true},
		{"<think>\\nI\\n</think>\\n\\nIt", false},
		{"<think></think><think>", true},
		{"</think>", false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		is_int(open_chat(cases[i].content, ",'enable_thinking':true"), 0, "%s",
		       cases[i].content);
		is_int(r.thinking, cases[i].thinks, "the answer begins with reasoning or not");
	}
}

#define USER "{'role':'user','content':'a'}"

/* clang-format off: a case begins a line. */
static const struct bad bads[] = {
	{'c', "'continue_final_message':1", "continue_final_message", NULL},
	{'c', "'continue_final_message':true", "continue_final_message",
	 "continue_final_message is true, which needs add_generation_prompt false"},
	{'c', "'continue_final_message':true,'add_generation_prompt':true",
	 "continue_final_message", NULL},
	{'c', OPEN, "continue_final_message",
	 "continue_final_message is true, but the last message is not the assistant's"},
	{'C',
	 "{" OPEN
	 ",'messages':[{'role':'assistant','content':'a'},{'role':'system','content':'b'}]}",
	 "continue_final_message", NULL},
	{'C',
	 "{" OPEN ",'messages':[" USER
	 ",{'role':'assistant','tool_calls':[{'function':{'name':'f'}}]}]}",
	 "continue_final_message",
	 "continue_final_message is true, but the last message has tool calls, behind which its content cannot go on"},
	{'c', "'chat_template_kwargs':{'continue_final_message':true}",
	 "chat_template_kwargs.continue_final_message", NULL},
};
/* clang-format on */

TEST(bad)
{
	check_bads(bads, ARRAY_SIZE(bads));
}

int main(void)
{
	return run_parse_tests();
}
