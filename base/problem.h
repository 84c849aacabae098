/* Named problems: reasons for which a client's request is refused or fails that no errno expresses.
 *
 * The code of a struct err is an errno or one of these; functions return either as a negative number. Four errnos
 * have the same meaning in every room: EINVAL (a value is wrong), ENOMEM, EIO (the device is lost) and ESHUTDOWN (the
 * process ends). protocol/openai/errors.c has the HTTP status of each, and its type and code on the wire. */
#pragma once

enum problem {
	PROBLEM_UNSUPPORTED =
		1000, /* a known parameter that this server does not support; above every errno */
	PROBLEM_TEMPLATE,	/* the chat template raised an exception, or reached a bound */
	PROBLEM_CONTEXT_LENGTH, /* prompt and max_tokens do not fit */
	PROBLEM_API_KEY,	/* the key is wrong or missing */
	PROBLEM_CROSS_ORIGIN,	/* a web page sent the request */
	PROBLEM_UNKNOWN_MODEL,
	PROBLEM_UNKNOWN_PATH,
	PROBLEM_METHOD, /* the path does not have the method */
	PROBLEM_REQUESTS_RUNNING,
	PROBLEM_BODY_TOO_LARGE,
	PROBLEM_MEDIA_TYPE, /* type of the body */
	PROBLEM_QUEUE_FULL,
	PROBLEM_MODEL_LOADING,
	PROBLEM_INTERNAL, /* a fault of this program */
};
