#include "engine/rope.h"

#include <math.h>

static float llama3(const struct model_config *c, float f)
{
	const float pi = 3.14159265358979323846f, factor = (float)c->rope_factor;
	float length = 2 * pi / f; /* of a turn, in positions */
	float low = (float)c->rope_low_factor, high = (float)c->rope_high_factor, s;

	if (length > (float)(c->rope_original_context / c->rope_low_factor))
		return f / factor;
	if (length < (float)(c->rope_original_context / c->rope_high_factor))
		return f;
	s = ((float)c->rope_original_context / length - low) / (high - low);
	return (1 - s) * f / factor + s * f;
}

static void plain(double theta, uint32_t rot, float *f)
{
	for (uint32_t j = 0; j < rot / 2; j++)
		f[j] = 1.0f / powf((float)theta, (float)(2 * j) / (float)rot);
}

void rope_frequencies(const struct model_config *c, float *f)
{
	plain(c->rope_theta, c->rotary_dim, f);
	for (uint32_t j = 0; j < c->rotary_dim / 2; j++)
		switch (c->rope_scaling) {
		case ROPE_DEFAULT: break;
		case ROPE_LINEAR: f[j] /= (float)c->rope_factor; break;
		case ROPE_LLAMA3: f[j] = llama3(c, f[j]); break;
		}
}

void rope_sliding_frequencies(const struct model_config *c, float *f)
{
	plain(c->sliding_theta, c->rotary_dim, f);
}
