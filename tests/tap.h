/* The test harness: TAP on standard output, a line for each ok, is_int, is_str and ok_all. Lines with # say more of
 * failures.
 *
 *     TEST(arithmetic)
 *     {
 *             ok(1 + 1 == 2, "addition");
 *             is_int(f(), 3, "f gives 3");
 *     }
 *
 *     TEST_MAIN()
 *
 * A failed is_int or is_str prints the value that it found and the wanted one. The exit status is 1 if any check
 * failed. Checks may be counted quietly in loops with `check`, which prints only failures, and reported as one with
 * `ok_all`. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int tap_count, tap_failed;
static __attribute__((unused)) int tap_quiet;

#define ok(condition, ...) tap_ok((condition), __FILE__, __LINE__, #condition, __VA_ARGS__)

__attribute__((format(printf, 5, 6), unused)) static bool
tap_ok(bool good, const char *file, int line, const char *text, const char *fmt, ...)
{
	__builtin_va_list ap;

	printf("%sok %d - ", good ? "" : "not ", ++tap_count);
	__builtin_va_start(ap, fmt);
	vprintf(fmt, ap);
	__builtin_va_end(ap);
	printf("\n");
	if (!good) {
		printf("# %s:%d: %s\n", file, line, text);
		tap_failed++;
	}
	fflush(stdout);
	return good;
}

/* Prints only a failure (the first twenty of a group); ok_all ends the group. */
#define check(condition)                                                         \
	do {                                                                     \
		if (!(condition) && tap_quiet++ < 20)                            \
			printf("# %s:%d: %s\n", __FILE__, __LINE__, #condition); \
	} while (0)

#define ok_all(...)                            \
	do {                                   \
		int failed_ = tap_quiet;       \
		tap_quiet = 0;                 \
		ok(failed_ == 0, __VA_ARGS__); \
	} while (0)

#define is_int(got, want, ...)                                                \
	do {                                                                  \
		long long got_ = (long long)(got), want_ = (long long)(want); \
		if (!ok(got_ == want_, __VA_ARGS__))                          \
			printf("#   got %lld, want %lld\n", got_, want_);     \
	} while (0)

#define is_str(got, want, ...)                                                       \
	do {                                                                         \
		const char *got_ = (got), *want_ = (want);                           \
		if (!ok(got_ && want_ && !strcmp(got_, want_), __VA_ARGS__))         \
			printf("#   got  %s\n#   want %s\n", got_ ? got_ : "(null)", \
			       want_ ? want_ : "(null)");                            \
	} while (0)

__attribute__((unused)) static int done(void)
{
	printf("1..%d\n", tap_count);
	return tap_failed != 0;
}

/* Defines a function that run_tests calls. All tests of a program are in one file. They run in the order in which they
 * stand there. */
#define TEST(name)                                                                     \
	static void test_##name(void);                                                 \
	__attribute__((constructor(101 + __LINE__))) static void add_test_##name(void) \
	{                                                                              \
		tap_tests[tap_n_tests++] = test_##name;                                \
	}                                                                              \
	static void test_##name(void)

static __attribute__((unused)) void (*tap_tests[64])(void);
static __attribute__((unused)) int tap_n_tests;

static __attribute__((unused)) struct {
	void (*call)(void *);
	void *with;
} tap_after[256];
static __attribute__((unused)) int tap_n_after;

/* Registers a call of call(with) for the end of the TEST that is running. The last registered call is made first. */
__attribute__((unused)) static void after_test(void (*call)(void *), void *with)
{
	if (tap_n_after == sizeof(tap_after) / sizeof(*tap_after))
		__builtin_trap();
	tap_after[tap_n_after].call = call;
	tap_after[tap_n_after++].with = with;
}

__attribute__((unused)) static void run_tests(void)
{
	for (int i = 0; i < tap_n_tests; i++) {
		tap_tests[i]();
		for (; tap_n_after; tap_n_after--)
			tap_after[tap_n_after - 1].call(tap_after[tap_n_after - 1].with);
	}
}

/* The main function of a program that consists of its tests. */
#define TEST_MAIN()            \
	int main(void)         \
	{                      \
		run_tests();   \
		return done(); \
	}

/* Prints why nothing here can be tested on this machine; meson counts the program as skipped. Returns 0, for main. */
__attribute__((unused)) static int skip_all(const char *why)
{
	printf("1..0 # SKIP %s\n", why);
	return 0;
}
