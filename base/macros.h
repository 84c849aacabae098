/* Small macros every room uses. Nothing here allocates or logs. */
#ifndef BASE_MACROS_H
#define BASE_MACROS_H

#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

/* Runs `fn(&variable)` when the variable leaves its scope; for cold paths (start, parsing). */
#define CLEANUP(fn) __attribute__((cleanup(fn)))

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define MIN(a, b)                                                                                  \
	({                                                                                         \
		__typeof__(a) min_a_ = (a);                                                        \
		__typeof__(b) min_b_ = (b);                                                        \
		min_a_ < min_b_ ? min_a_ : min_b_;                                                 \
	})
#define MAX(a, b)                                                                                  \
	({                                                                                         \
		__typeof__(a) max_a_ = (a);                                                        \
		__typeof__(b) max_b_ = (b);                                                        \
		max_a_ > max_b_ ? max_a_ : max_b_;                                                 \
	})

/* ceil(a / b) and a rounded up to a multiple of b, for unsigned a and b > 0. */
#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))
#define ROUND_UP(a, b) (CEIL_DIV(a, b) * (b))

#endif
