/* kernels/ptx: comments "//@..." become instructions in a text for sm_90; a text for any other target is refused. */
#include "kernels/ptx.h"

#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"

/* Returns whether ptx_reveal makes `want` of the text; with `want` NULL: whether ptx_reveal refuses the text. */
static bool reveals(const char *text, const char *want)
{
	size_t bytes = 0;
	char *got = ptx_reveal(text, strlen(text), &bytes);
	bool right = want ? got && bytes == strlen(want) && !memcmp(got, want, bytes) : !got;

	free(got);
	return right;
}

TEST(instructions)
{
	ok(reveals(".version 8.3\n.target sm_90\n\t//@wgmma.fence.sync.aligned;\n// @not;\n//@wgmma.commit;",
		   ".version 8.3\n.target sm_90a\n\t   wgmma.fence.sync.aligned;\n// @not;\n   wgmma.commit;"),
	   "every hidden instruction, to the last byte; other comments stay");
	ok(reveals(".target sm_90, texmode_independent\nmov;",
		   ".target sm_90a, texmode_independent\nmov;"),
	   "a target with options");
}

TEST(other_texts)
{
	ok(reveals("", NULL) && reveals("//@wgmma;", NULL), "a text without a target is refused");
	ok(reveals(".target sm_80\n//@wgmma;", NULL) &&
		   reveals(".target sm_90a\n//@wgmma;", NULL) &&
		   reveals(".target sm_900\n", NULL) && reveals(".target sm_90", NULL),
	   "a text for another target, or cut behind it, is refused");
}

TEST_MAIN()
