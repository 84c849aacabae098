#include "daemon/threads.h"

#include <pthread.h>

struct role role_main = {"tigond"};
struct role role_http = {"http"};
struct role role_text = {"text"};
struct role role_engine = {"engine"};
struct role role_watch = {"watch"};
struct role role_certificate = {"certificate"};
struct role role_transfer = {"transfer"};

static _Thread_local const struct role *mine;

void role_begin(struct role *r)
{
	if (mine == r)
		return;
	mine = r;
	pthread_setname_np(pthread_self(), r->name);
}
