/* Counters of a transfer thread, for /metrics (daemon/metrics.h). Any thread may read them. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct transfer_counters {
	/* on a decode worker: prefill workers that take prompts; on a prefill worker: connected decode workers */
	_Atomic uint64_t peers;
	_Atomic uint64_t prompts_sent, prompts_sent_bytes;
	_Atomic uint64_t prompts_received, prompts_received_bytes;
	/* Deliveries that failed. A prefill worker does not count prompts that it refused. A decode worker does not
	 * count a delivery that failed because one of the two workers shuts down, if no data had come yet. */
	_Atomic uint64_t prompts_failed;
};
