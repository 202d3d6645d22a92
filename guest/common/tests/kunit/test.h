/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * As much of KUnit as the tests of the arithmetic use, in user space: all cases
 * run, and the program fails if one of them did.
 */
#ifndef CCC_KUNIT_TEST_H
#define CCC_KUNIT_TEST_H

#include <stdio.h>

struct kunit {
	int failures;
};

struct kunit_case {
	void (*run)(struct kunit *test);
	const char *name;
};

struct kunit_suite {
	const char *name;
	struct kunit_case *test_cases;
};

#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))
#define KUNIT_CASE(function)	{ function, #function }

#define KUNIT_CHECK(test, a, op, b, ...) do {				\
	__typeof__(a) _a = (a);						\
	__typeof__(b) _b = (b);						\
									\
	if (!(_a op _b)) {						\
		printf("%s:%d: %s " #op " %s: %lld, %lld\n", __FILE__,	\
		       __LINE__, #a, #b, (long long)_a, (long long)_b);	\
		(test)->failures++;					\
		__VA_ARGS__;						\
	}								\
} while (0)

#define KUNIT_EXPECT_EQ(test, a, b)	KUNIT_CHECK(test, a, ==, b)
#define KUNIT_EXPECT_GE(test, a, b)	KUNIT_CHECK(test, a, >=, b)
#define KUNIT_EXPECT_GT(test, a, b)	KUNIT_CHECK(test, a, >, b)
#define KUNIT_EXPECT_TRUE(test, a)	KUNIT_CHECK(test, !!(a), ==, 1)
#define KUNIT_ASSERT_GE(test, a, b)	KUNIT_CHECK(test, a, >=, b, return)
#define KUNIT_ASSERT_LE(test, a, b)	KUNIT_CHECK(test, a, <=, b, return)
#define KUNIT_ASSERT_LT(test, a, b)	KUNIT_CHECK(test, a, <, b, return)
#define KUNIT_EXPECT_LE_MSG(test, a, b, ...) \
	KUNIT_CHECK(test, a, <=, b, printf(__VA_ARGS__))

static int kunit_run(const struct kunit_suite *suite)
{
	const struct kunit_case *next;
	int cases = 0, failed = 0;

	for (next = suite->test_cases; next->run; next++, cases++) {
		struct kunit test = { 0 };

		next->run(&test);
		failed += test.failures > 0;
		printf("%s %s\n", test.failures ? "not ok" : "ok", next->name);
	}
	printf("%s: %d passed, %d failed\n", suite->name, cases - failed, failed);
	return failed > 0;
}

#define kunit_test_suite(suite) int main(void) { return kunit_run(&(suite)); }

#endif /* CCC_KUNIT_TEST_H */
