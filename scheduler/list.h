/*
 * Doubly linked lists through nodes inside their elements: append and remove in O(1), no
 * allocation. A list is a ring with its head in it; a node that is in no list points to itself.
 */
#ifndef SCHEDULER_LIST_H
#define SCHEDULER_LIST_H

#include <stdbool.h>

struct list {
	struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}

static inline bool list_empty(const struct list *head)
{
	return head->next == head;
}

static inline void list_append(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

/* Takes the node out of whatever list it is in; nothing happens when it is in none. */
static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* The body must not remove nodes. */
#define list_for_each(node, head) \
	for (struct list *node = (head)->next; node != (head); node = node->next)

#endif
