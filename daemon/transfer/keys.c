#include "daemon/transfer/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "base/private.h"

#define BLANKS " \t\r\n"

/* Cuts the next word off *at and returns it; NULL: there is none. */
static char *word(char **at)
{
	char *start = *at + strspn(*at, BLANKS), *end = start + strcspn(start, BLANKS);

	if (start == end)
		return NULL;
	*at = end + (*end != 0);
	*end = 0;
	return start;
}

static int take_key(const char *text, char ret[TRANSFER_KEY_TEXT])
{
	uint8_t bytes[32];

	if (!text || strlen(text) != TRANSFER_KEY_TEXT - 1 || !zmq_z85_decode(bytes, text))
		return -EINVAL;
	memcpy(ret, text, TRANSFER_KEY_TEXT);
	return 0;
}

static int add_allowed(struct transfer_keys *k, const char *key, const char *endpoint,
		       struct err *e)
{
	struct transfer_allowed *grown, *a;

	/* An address to which nothing can connect is refused now, because it would match no peer and stay unnoticed. */
	if (endpoint && transfer_endpoint_check(endpoint, false, e) < 0) {
		err_prefix(e, "\"allow\"");
		return -EINVAL;
	}
	grown = reallocarray(k->allowed, k->n_allowed + 1, sizeof(*grown));
	if (!grown)
		return err_no_memory(e);
	k->allowed = grown;
	a = &grown[k->n_allowed];
	*a = (struct transfer_allowed){0};
	if (take_key(key, a->key) < 0)
		return err_set(e, EINVAL, "\"allow\" wants a key of 40 characters");
	snprintf(a->endpoint, sizeof(a->endpoint), "%s", endpoint ? endpoint : "");
	k->n_allowed++;
	return 0;
}

static int take_line(void *arg, char *line, struct err *e)
{
	struct transfer_keys *k = arg;
	char *name = word(&line), *value = word(&line), *more = word(&line);

	if (!strcmp(name, "allow") && !word(&line))
		return add_allowed(k, value, more, e);
	if (strcmp(name, "public") != 0 && strcmp(name, "secret") != 0)
		return err_set(
			e, EINVAL,
			"a line is \"public KEY\", \"secret KEY\" or \"allow KEY [ADDRESS]\"");
	if (more || take_key(value, name[0] == 'p' ? k->public_key : k->secret_key) < 0)
		return err_set(e, EINVAL, "\"%s\" wants a key of 40 characters", name);
	return 0;
}

/* Checks that both keys are there and belong together, so that a wrong pair is reported now, not when a peer fails to
 * connect. */
static int check_pair(const struct transfer_keys *k, const char *path, struct err *e)
{
	char derived[TRANSFER_KEY_TEXT];

	if (!k->public_key[0] || !k->secret_key[0])
		return err_set(e, EINVAL, "%s: there is no \"%s\" in it", path,
			       k->public_key[0] ? "secret" : "public");
	if (zmq_curve_public(derived, k->secret_key) < 0)
		return err_set(e, ENOTSUP, "this libzmq has no CURVE");
	if (strcmp(derived, k->public_key) != 0)
		return err_set(e, EINVAL, "%s: the public key is not that of the secret key", path);
	return 0;
}

int transfer_keys_open(const char *path, struct transfer_keys *ret, struct err *e)
{
	struct transfer_keys k = {0};
	int r = private_lines(path, take_line, &k, e);

	if (r == 0)
		r = check_pair(&k, path, e);
	if (r < 0) {
		transfer_keys_release(&k);
		return r;
	}
	*ret = k;
	return 0;
}

void transfer_keys_release(struct transfer_keys *k)
{
	free(k->allowed);
	explicit_bzero(k, sizeof(*k));
}

int transfer_keys_create(const char *path, char public_key[TRANSFER_KEY_TEXT], struct err *e)
{
	char secret[TRANSFER_KEY_TEXT], public[TRANSFER_KEY_TEXT];
	int fd, n, bad;

	if (zmq_curve_keypair(public, secret) < 0)
		return err_set(e, ENOTSUP, "this libzmq has no CURVE");
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(e, errno, "%s: %s", path, strerror(errno));
	n = dprintf(fd,
		    "# CURVE keys of a worker, for --transfer-key. Keep the secret key secret.\n"
		    "# Peers, one a line: allow PUBLIC-KEY [tcp://HOST:PORT]\n"
		    "public %s\nsecret %s\n",
		    public, secret);
	bad = n < 0 || fsync(fd) < 0 ? errno : 0;
	if (close(fd) < 0 && !bad)
		bad = errno;
	explicit_bzero(secret, sizeof(secret));
	if (bad) {
		unlink(path);
		return err_set(e, bad, "%s: %s", path, strerror(bad));
	}
	memcpy(public_key, public, sizeof(public));
	return 0;
}

/* Returns the `allow` with this address; NULL: there is none. */
static const struct transfer_allowed *find(const struct transfer_keys *k, const char *endpoint)
{
	for (size_t i = 0; i < k->n_allowed; i++)
		if (!strcmp(endpoint, k->allowed[i].endpoint))
			return &k->allowed[i];
	return NULL;
}

bool transfer_keys_allow(const struct transfer_keys *k, const char *key)
{
	if (!k->n_allowed)
		return !strcmp(key, k->public_key);
	for (size_t i = 0; i < k->n_allowed; i++)
		if (!strcmp(key, k->allowed[i].key))
			return true;
	return false;
}

bool transfer_keys_allow_at(const struct transfer_keys *k, const char *key, const char *endpoint)
{
	const struct transfer_allowed *a = find(k, endpoint);

	return a ? !strcmp(key, a->key) : transfer_keys_allow(k, key);
}

bool transfer_keys_name(const struct transfer_keys *k, const char *endpoint)
{
	return find(k, endpoint) != NULL;
}

const char *transfer_keys_of(const struct transfer_keys *k, const char *endpoint)
{
	const struct transfer_allowed *a = find(k, endpoint);

	return a ? a->key : k->public_key;
}
