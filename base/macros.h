/* Small macros for all rooms. Nothing here allocates or logs. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a)	   (sizeof(a) / sizeof((a)[0]))
#define MUST_CHECK	   __attribute__((warn_unused_result))
#define PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

/* Runs `fn(&variable)` when the variable goes out of scope. For code that runs rarely (start, parsing). */
#define CLEANUP(fn) __attribute__((cleanup(fn)))

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* Each use gives its variables other names, so that MIN and MAX may stand in each other's arguments. */
#define MIN(a, b)     MIN_(a, b, __COUNTER__)
#define MAX(a, b)     MAX_(a, b, __COUNTER__)
#define MIN_(a, b, n) SELECT_(a, b, <, n)
#define MAX_(a, b, n) SELECT_(a, b, >, n)
#define SELECT_(a, b, op, n)                                \
	({                                                  \
		__typeof__(a) a_##n##_ = (a);               \
		__typeof__(b) b_##n##_ = (b);               \
		a_##n##_ op b_##n##_ ? a_##n##_ : b_##n##_; \
	})

/* CEIL_DIV is ceil(a / b), ROUND_UP is a rounded up to a multiple of b; for unsigned a and b > 0. */
#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))
#define ROUND_UP(a, b) (CEIL_DIV(a, b) * (b))
