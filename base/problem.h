/*
 * Why a request of a client is refused or fails, where no errno says it.
 *
 * The code of a struct err is an errno or one of these; functions return either as a negative number. Four errnos have the
 * same meaning in every room: EINVAL (a value is wrong), ENOMEM, EIO (the device is lost) and ESHUTDOWN (the process ends).
 * protocol/openai/errors.c has the HTTP status of each, and its type and code on the wire.
 */
#pragma once

enum problem {
	PROBLEM_UNSUPPORTED =
		1000, /* a parameter that this server knows and does not have; above every errno */
	PROBLEM_TEMPLATE,	/* the chat template raised an exception, or reached a bound */
	PROBLEM_CONTEXT_LENGTH, /* prompt and max_tokens do not fit */
	PROBLEM_API_KEY,	/* wrong or missing */
	PROBLEM_CROSS_ORIGIN,	/* a page of a web site asked */
	PROBLEM_UNKNOWN_MODEL,
	PROBLEM_UNKNOWN_PATH,
	PROBLEM_METHOD, /* not one of the path's */
	PROBLEM_REQUESTS_RUNNING,
	PROBLEM_BODY_TOO_LARGE,
	PROBLEM_MEDIA_TYPE, /* of the body */
	PROBLEM_QUEUE_FULL,
	PROBLEM_MODEL_LOADING,
	PROBLEM_INTERNAL, /* a fault of this program */
};
