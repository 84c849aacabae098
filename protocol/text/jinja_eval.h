/*
 * Running a template's tree: expressions (jinja_eval.c), statements and macros (jinja_exec.c).
 */
#ifndef PROTOCOL_TEXT_JINJA_EVAL_H
#define PROTOCOL_TEXT_JINJA_EVAL_H

#include "protocol/text/jinja_ast.h"
#include "protocol/text/jinja_builtin.h"

/* The variables of one call of a function (the template, a macro). In the arena, so that a macro
 * may outlive the call that defined it. */
struct activation {
	struct activation *outer;
	struct value slot[];
};

struct macro {
	const struct function *function;
	const struct node *body;
	struct activation *outer;
};

/* What `loop` is in a for. Items are taken one ahead only when asked for (loop.last). */
struct loop {
	struct iter *it;
	int64_t index0;
	int64_t length; /* -1: not asked for, and not known without walking all */
	struct value before, current, after;
	bool has_after, at_end;
	struct value changed; /* what loop.changed() was called with; V_MISSING before */
};

/* How a body ended: 0, an error, or one of these. */
enum { FLOW_BREAK = 1, FLOW_CONTINUE };

int eval_expr(struct render *r, struct activation *act, const struct node *n,
	      struct value *ret) MUST_CHECK;
/* A filter chain at whose start stands a text, or n->a when that is NULL. */
int eval_filter(struct render *r, struct activation *act, const struct node *n,
		const struct value *text, struct value *ret) MUST_CHECK;
/* A call; `caller` is one more keyword argument, or NULL. */
int eval_call(struct render *r, struct activation *act, const struct node *n,
	      const struct value *caller, struct value *ret) MUST_CHECK;

int exec_body(struct render *r, struct activation *act, const struct node *first) MUST_CHECK;

/* The whole template; context_names are looked up first. */
int exec_template(struct render *r, const struct template *t) MUST_CHECK;

int macro_call(struct render *r, const struct macro *m, const struct args *args,
	       struct value *ret) MUST_CHECK;

/* loop.NAME: 1, or 0 when there is no such attribute. */
int loop_attribute(struct render *r, struct loop *loop, const char *name, size_t len,
		   struct value *ret) MUST_CHECK;

/* iter->next for a loop that is walked itself: its next item, and the loop. */
int loop_step(struct render *r, struct iter *it, struct value *ret) MUST_CHECK;

struct value *activation_slot(struct activation *act, struct variable v);

#endif
