/* Counters of a transfer thread, for /metrics (daemon/metrics.h). Any thread reads. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct transfer_counters {
	/* prefill workers that take prompts, or decode workers that are connected */
	_Atomic uint64_t peers;
	_Atomic uint64_t prompts_sent, prompts_sent_bytes;
	_Atomic uint64_t prompts_received, prompts_received_bytes;
	/* Deliveries that failed. Not counted: on a prefill worker, prompts that it refused; on a decode worker,
	 * prompts that a worker gave back before any data came, because it shuts down. */
	_Atomic uint64_t prompts_failed;
};
