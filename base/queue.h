/*
 * A queue between threads: any number of producers, one consumer. Nodes are part of their elements, which the queue does not own; a
 * node is in at most one queue. The queue has no limit; the number of requests that the daemon admits bounds it.
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
	bool woken;			 /* guarded by lock: queue_wake was called */
};

void queue_init(struct queue *q);
void queue_release(struct queue *q);

void queue_push(struct queue *q, struct queue_node *node);

/* The oldest node; NULL: the queue is empty. Never blocks longer than the lock. */
struct queue_node *queue_pop(struct queue *q);

/* Waits until the queue is not empty, queue_wake is called, or timeout_ns passed (0: for ever). */
void queue_wait(struct queue *q, uint64_t timeout_ns);

/* Ends one queue_wait, the present one or the next. */
void queue_wake(struct queue *q);
