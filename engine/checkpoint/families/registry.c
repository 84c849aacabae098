/* The families that there are. */
#include "engine/checkpoint/families/family.h"

#define ROW(name) &family_##name,
const struct family *const families[] = {FAMILIES(ROW) NULL};
