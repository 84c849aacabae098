#include "base/queue.h"

#include <stddef.h>

#include "base/clock.h"

void queue_init(struct queue *q)
{
	pthread_condattr_t attr;

	*q = (struct queue){0};
	q->tail = &q->head;
	pthread_mutex_init(&q->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&q->ready, &attr);
	pthread_condattr_destroy(&attr);
}

void queue_release(struct queue *q)
{
	pthread_cond_destroy(&q->ready);
	pthread_mutex_destroy(&q->lock);
}

void queue_push(struct queue *q, struct queue_node *node)
{
	pthread_mutex_lock(&q->lock);
	node->next = NULL;
	*q->tail = node;
	q->tail = &node->next;
	pthread_cond_signal(&q->ready);
	pthread_mutex_unlock(&q->lock);
}

struct queue_node *queue_pop(struct queue *q)
{
	struct queue_node *node;

	pthread_mutex_lock(&q->lock);
	node = q->head;
	if (node) {
		q->head = node->next;
		if (!q->head)
			q->tail = &q->head;
		node->next = NULL;
	}
	pthread_mutex_unlock(&q->lock);
	return node;
}

void queue_wait(struct queue *q, uint64_t timeout_ns)
{
	const struct timespec until = clock_timespec(clock_now_ns() + timeout_ns);

	pthread_mutex_lock(&q->lock);
	while (!q->head && !q->woken) {
		if (!timeout_ns)
			pthread_cond_wait(&q->ready, &q->lock);
		else if (pthread_cond_timedwait(&q->ready, &q->lock, &until))
			break;
	}
	q->woken = false;
	pthread_mutex_unlock(&q->lock);
}

void queue_wake(struct queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->woken = true;
	pthread_cond_signal(&q->ready);
	pthread_mutex_unlock(&q->lock);
}
