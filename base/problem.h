/* Problems: reasons for which a client's request is refused or fails, and for which there is no errno.
 *
 * The code of a struct err is an errno or a problem. A problem's number is above every errno. Functions return the
 * negative of such a code. In the answer to a request four errnos have a fixed meaning: EINVAL (a value is wrong),
 * ENOMEM, EIO (the device or the system has failed) and ESHUTDOWN (the process ends). protocol/openai/errors.c has the
 * HTTP status of these four and of the problems, and their type and code on the wire. */
#pragma once

enum problem {
	/* a known parameter, or a value of one, that this server does not support */
	PROBLEM_UNSUPPORTED = 1000,
	/* no token can continue the answer under its constraint, or the constraint takes too much memory or work */
	PROBLEM_CONSTRAINT,
	PROBLEM_TEMPLATE, /* the chat template raised an exception, or reached a bound */
	/* the headers leave it open where the request ends or which host it is for, or are malformed */
	PROBLEM_FRAMING,
	PROBLEM_CONTEXT_LENGTH, /* prompt and max_tokens do not fit into context or KV cache */
	PROBLEM_API_KEY,	/* the key is wrong or missing */
	PROBLEM_CROSS_ORIGIN,	/* a web page sent the request */
	PROBLEM_HOST,		/* the Host header names another server, or is missing */
	PROBLEM_UNKNOWN_MODEL,
	PROBLEM_UNKNOWN_PATH,
	PROBLEM_UNKNOWN_REQUEST,  /* no request has the id */
	PROBLEM_UNKNOWN_RESPONSE, /* the client has no response of the id that is kept */
	PROBLEM_UNKNOWN_PREVIOUS, /* the same, as previous_response_id */
	PROBLEM_METHOD,		  /* the path exists, but not for this method */
	PROBLEM_REQUESTS_RUNNING,
	PROBLEM_ABORTED, /* the operator (/abort) or its client (cancel) has ended the request */
	PROBLEM_BODY_TOO_LARGE,
	PROBLEM_MEDIA_TYPE, /* the headers say that the body is not JSON, or that it is compressed */
	PROBLEM_HEADERS_TOO_LARGE,
	PROBLEM_QUEUE_FULL,
	/* constraints take all the memory for them, or for this client's */
	PROBLEM_CONSTRAINT_MEMORY,
	PROBLEM_BODY_MEMORY, /* large bodies take all the memory for them, or for this client's */
	PROBLEM_MODEL_LOADING,
	PROBLEM_UNREAD,	  /* the client does not read its answer, which takes memory meanwhile */
	PROBLEM_INTERNAL, /* a fault of this program */
};
