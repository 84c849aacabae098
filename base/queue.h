/*
 * A queue between threads, first in, first out: any number of producers, one consumer. Nodes are part of their
 * elements, which the queue does not own; a node is in at most one queue. A queue has no limit: its users bound what
 * they push.
 *
 * The consumer sleeps in queue_wait, or polls with queue_pop.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct queue_node {
	struct queue_node *next;
};

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t ready;
	struct queue_node *head, **tail; /* guarded by lock */
	bool woken; /* guarded by lock: set by queue_wake, cleared by queue_wait */
};

void queue_init(struct queue *q);
void queue_release(struct queue *q);

void queue_push(struct queue *q, struct queue_node *node);

/* Takes out the oldest node; NULL: the queue is empty. Waits for nothing but the lock. */
struct queue_node *queue_pop(struct queue *q);

/* Waits until the queue has a node, queue_wake was called, or timeout_ns have passed (0: there is no limit). */
void queue_wait(struct queue *q, uint64_t timeout_ns);

/* Ends one queue_wait: the present one or, if there is none, the next. Several calls before that queue_wait count as
 * one. */
void queue_wake(struct queue *q);
