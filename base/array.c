#include "base/array.h"

#include <stdint.h>
#include <stdlib.h>

enum { ROOM_MIN = 16 };

void *array_grown(void *v, size_t *cap, size_t n, size_t size, size_t cap_max)
{
	size_t room;

	if (v && n <= *cap)
		return v;
	cap_max = MIN(cap_max, PTRDIFF_MAX / size); /* no object has more than PTRDIFF_MAX bytes */
	if (n > cap_max)
		return NULL;
	room = MAX(n, *cap <= cap_max / 2 ? *cap * 2 : cap_max);
	room = MIN(MAX(room, (size_t)ROOM_MIN), cap_max);
	v = reallocarray(v, room, size);
	if (v)
		*cap = room;
	return v;
}
