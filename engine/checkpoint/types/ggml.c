/* The formats of GGUF files, by ggml's numbers (enum ggml_type in ggml.h, version 0.25). Numbers that are missing here
 * stood for formats that ggml has removed. */
#include "engine/checkpoint/stored_type.h"

#include <string.h>

#include "base/macros.h"
#include "engine/checkpoint/types/types.h"

/* Rows without elements are formats of safetensors, too. */
static const struct stored_type types[] = {
	[0] = {"F32"},
	[1] = {"F16"},
	[2] = {"Q4_0", 32, 18, q4_0_to_float, q4_0_from_float},
	[3] = {"Q4_1", 32, 20, q4_1_to_float},
	[6] = {"Q5_0", 32, 22, q5_0_to_float, q5_0_from_float},
	[7] = {"Q5_1", 32, 24, q5_1_to_float},
	[8] = {"Q8_0", 32, 34, q8_0_to_float, q8_0_from_float},
	[9] = {"Q8_1", 32, 36, NULL},
	[10] = {"Q2_K", 256, 84, q2_k_to_float, q2_k_from_float},
	[11] = {"Q3_K", 256, 110, q3_k_to_float, q3_k_from_float},
	[12] = {"Q4_K", 256, 144, q4_k_to_float, q4_k_from_float},
	[13] = {"Q5_K", 256, 176, q5_k_to_float, q5_k_from_float},
	[14] = {"Q6_K", 256, 210, q6_k_to_float, q6_k_from_float},
	[15] = {"Q8_K", 256, 292, NULL},
	[16] = {"IQ2_XXS", 256, 66, NULL},
	[17] = {"IQ2_XS", 256, 74, NULL},
	[18] = {"IQ3_XXS", 256, 98, NULL},
	[19] = {"IQ1_S", 256, 50, NULL},
	[20] = {"IQ4_NL", 32, 18, iq4_nl_to_float},
	[21] = {"IQ3_S", 256, 110, NULL},
	[22] = {"IQ2_S", 256, 82, NULL},
	[23] = {"IQ4_XS", 256, 136, iq4_xs_to_float},
	[24] = {"I8"},
	[25] = {"I16"},
	[26] = {"I32"},
	[27] = {"I64"},
	[28] = {"F64"},
	[29] = {"IQ1_M", 256, 56, NULL},
	[30] = {"BF16"},
	[34] = {"TQ1_0", 256, 54, NULL},
	[35] = {"TQ2_0", 256, 66, NULL},
	[39] = {"MXFP4", 32, 17, mxfp4_to_float, mxfp4_from_float},
	[40] = {"NVFP4", 64, 36, nvfp4_to_float},
	[41] = {"Q1_0", 128, 18, NULL},
	[42] = {"Q2_0", 64, 18, NULL},
};

const struct stored_type *stored_type_of_ggml(uint32_t number)
{
	const struct stored_type *t = number < ARRAY_SIZE(types) ? &types[number] : NULL;

	if (!t || !t->name)
		return NULL;
	return t->elements ? t : stored_type_find(t->name);
}

static int number_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (types[i].name && !strcmp(types[i].name, name))
			return (int)i;
	return -1;
}

const struct stored_type *stored_type_named(const char *name)
{
	int number = number_of(name);

	return number < 0 ? NULL : stored_type_of_ggml((uint32_t)number);
}

int stored_type_number(const struct stored_type *t)
{
	return number_of(t->name);
}
