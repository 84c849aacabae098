/* kernels/ptx: comments "//@..." become instructions in a text for sm_90. With them a text for any other target is
 * refused, and without them any text stays as it is. */
#include "kernels/ptx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"

/* Returns whether ptx_reveal makes `want` of the text; with `want` NULL: whether ptx_reveal makes no other text and
 * returns `error`. */
static bool reveals(const char *text, int error, const char *want)
{
	size_t bytes = 0;
	char *got = NULL;
	int r = ptx_reveal(text, strlen(text), &got, &bytes);
	bool right = r == error &&
		     (want ? got && bytes == strlen(want) && !memcmp(got, want, bytes) : !got);

	free(got);
	return right;
}

TEST(instructions)
{
	ok(reveals(".version 8.3\n.target sm_90\n\t//@wgmma.fence.sync.aligned;\n// @not;\n//@wgmma.commit;",
		   0,
		   ".version 8.3\n.target sm_90a\n\t   wgmma.fence.sync.aligned;\n// @not;\n   wgmma.commit;"),
	   "every hidden instruction, to the last byte; other comments stay");
	ok(reveals(".target sm_90, texmode_independent\n//@mov;", 0,
		   ".target sm_90a, texmode_independent\n   mov;"),
	   "a target with options");
}

TEST(other_texts)
{
	ok(reveals("", 0, NULL) && reveals(".target sm_80\nmov; // @not", 0, NULL) &&
		   reveals(".target sm_90\nmov;", 0, NULL),
	   "a text without hidden instructions stays, for any target");
	ok(reveals("//@wgmma;", -ENOEXEC, NULL), "with them, a text without a target is refused");
	ok(reveals(".target sm_80\n//@wgmma;", -ENOEXEC, NULL) &&
		   reveals(".target sm_90a\n//@wgmma;", -ENOEXEC, NULL) &&
		   reveals(".target sm_900\n//@", -ENOEXEC, NULL) &&
		   reveals("//@wgmma;\n.target sm_90", -ENOEXEC, NULL),
	   "a text for another target, or cut behind it, is refused");
}

TEST_MAIN()
