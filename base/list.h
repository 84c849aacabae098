/*
 * Doubly linked lists through nodes inside their elements: append and remove in O(1), no allocation. A list is a ring
 * of nodes, and its head is one of them. A node that is in no list points to itself; list_init makes it so.
 *
 *     head <-> first <-> ... <-> last <-> head
 */
#pragma once

#include <stdbool.h>

#include "base/macros.h"

struct list {
	struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}

/* If `l` is a head: whether the list has no element. If it is a node: whether it is in no list. */
static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

/* Adds `node`, which is in no list, as the last one. If `head` is the node of an element, adds it before that
 * element. */
static inline void list_append(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

/* Takes the node out of its list; does nothing if it is in none. */
static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* The element of this node, or NULL for the head. `member` is the node's name in the element. */
#define list_at(head, node, type, member) \
	((node) == (head) ? NULL : container_of(node, type, member))

/* The first element, or NULL when there is none. */
#define list_first(head, type, member) list_at(head, (head)->next, type, member)

/* Walks over the elements as `e`. The body may take e out of the list, and no other element. */
#define list_for_each(e, head, type, member)                      \
	for (type *e = list_first(head, type, member), *e##_next; \
	     e && (e##_next = list_at(head, e->member.next, type, member), true); e = e##_next)
