/* Suspending connections of libmicrohttpd. While a connection is suspended, libmicrohttpd neither reads nor writes it,
 * and no time runs out for it (MHD_suspend_connection of microhttpd.h). */
#pragma once

#include <microhttpd.h>

/* The functions of libmicrohttpd for the calls that take a connection as void *. */
static inline void connection_suspend(void *connection)
{
	MHD_suspend_connection(connection);
}

static inline void connection_resume(void *connection)
{
	MHD_resume_connection(connection);
}

/* Makes libmicrohttpd take the connection for ready to be read and written, after it has served the others. */
static inline void connection_yield(struct MHD_Connection *mc)
{
	MHD_suspend_connection(mc);
	MHD_resume_connection(mc);
}
