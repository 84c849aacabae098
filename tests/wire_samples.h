/* One message of each type, for the tests of the codec and the corpus of its fuzzer. */
#pragma once

#include "protocol/transfer/wire.h"

/* Two layers with two parts in pages, around one with two in states. */
static const struct wire_layer sample_layers[] = {
	{{512, 512}, 0},
	{{96, 4096}, 3},
	{{512, 256}, 0},
};
static const struct wire_i32 sample_tokens[] = {{5}, {0}, {151643}, {7}};
static const struct wire_i32 sample_ends[] = {{151645}, {151643}};
static const struct wire_u32 sample_boundaries[] = {{1}, {4}};
static const struct wire_u32 sample_mask[] = {{6}, {0x80000001}};
static const struct wire_bias sample_biases[] = {{3, 100}, {9, -1.5f}};
static const struct wire_run sample_runs[] = {{1024, 0, 3, 2, 0},
					      {1024, 0, 3, 2, 1},
					      {4096, 1, 0, 1, 1}};
static const struct wire_draw sample_draws[] = {
	{{.token = 11, .logprob = -0.5f, .n_top = 1, .top_ids = {11}, .top_logprobs = {-0.5f}}},
	{{.token = 12}},
};
static const struct wire_key sample_keys[] = {{{1, 2, 3}}, {{0xff, 0xfe}}};
static const struct wire_peer sample_peers[] = {
	{{1}, {2}, {3}, "tcp://10.0.0.7:5555"},
	{{4}, {2}, {0}, "tcp://[::1]:5556"},
};

/* Fills *ret with the sample of a type. False: there is no such type. */
static bool wire_sample(enum wire_type type, struct wire_message *ret)
{
	struct wire_message m = {.type = type};
	static const char text[] = "its pages have 32 tokens, not 64";

	switch (type) {
	case WIRE_HELLO:
		m.hello = (struct wire_hello){
			.worker = {1, 2, 3},
			.model = {9, 8, 7},
			.role = WIRE_DECODE,
			.n_pages = 1000,
			.n_slots = 17,
			.heartbeat_ms = 5000,
			.layout = {1792, 4192, 64, 3, sample_layers},
		};
		break;
	case WIRE_REFUSE: m.refuse = (struct wire_refuse){71, sizeof(text) - 1, text}; break;
	case WIRE_PREPARE:
		m.delivery = 77;
		m.prepare = (struct wire_prepare){
			.tokens = sample_tokens,
			.n_tokens = 4,
			.n_have = 2,
			.n_choices = 3,
			.min_tokens = 1,
			.priority = -2,
			.cache_disabled = 1,
			.space = {1, UINT64_MAX},
			.sampling = {.temperature = 0.7f,
				     .top_p = 0.9f,
				     .top_k = 40,
				     .repetition_penalty = 1,
				     .presence_penalty = -1,
				     .seed = 123456789012345,
				     .n_logprobs = 5,
				     .want_logprobs = true},
			.n_end_tokens = 2,
			.n_boundaries = 2,
			.end_tokens = sample_ends,
			.boundaries = sample_boundaries,
			.n_allowed = 2,
			.allowed = sample_mask,
			.n_biases = 2,
			.biases = sample_biases,
		};
		break;
	case WIRE_WINDOW:
		m.delivery = 77;
		m.window = (struct wire_window){4, 128, 64, 0, 2, 3, sample_runs};
		break;
	case WIRE_STATUS:
		m.delivery = UINT64_MAX;
		m.status = (struct wire_status){.status = DELIVERY_SUCCESS,
						.n_cached = 64,
						.n_windows = 9,
						.total_bytes = 1u << 30,
						.n_draws = 2,
						.draws = sample_draws};
		break;
	case WIRE_ABORT: m.delivery = 1; break;
	case WIRE_PING: m.ping = (struct wire_ping){3}; break;
	case WIRE_PONG: m.pong = (struct wire_pong){3, 100000, 2, 1, 0, 2, sample_keys}; break;
	case WIRE_ANNOUNCE:
		m.announce = (struct wire_announce){WIRE_PREFILL, 15000, sample_peers[0]};
		break;
	case WIRE_LIST: m.list = (struct wire_list){WIRE_PREFILL, {2}}; break;
	case WIRE_PEERS: m.peers = (struct wire_peers){2, sample_peers}; break;
	default: return false;
	}
	*ret = m;
	return true;
}
