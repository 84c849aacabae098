/* Addresses of workers, and the file of --transfer-key. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/transfer/endpoint.h"
#include "daemon/transfer/keys.h"
#include "tests/tap.h"

static char dir[] = "/tmp/tigon-keys-XXXXXX", path[64];

static void write_file(const char *text, mode_t mode)
{
	FILE *f = fopen(path, "w");

	if (!f || fputs(text, f) < 0 || fclose(f) || chmod(path, mode))
		abort();
}

TEST(endpoints)
{
	static const char *const any[] = {"tcp://*:1", "tcp://0.0.0.0:1", "tcp://[::]:1"};
	static const char *const good[] = {"tcp://127.0.0.1:1", "tcp://[::1]:65535",
					   "tcp://prefill-0.prefill:8100"};
	static const char *const bad[] = {"",
					  "127.0.0.1:1",
					  "tcp://:1",
					  "tcp://a",
					  "tcp://a:",
					  "tcp://a:0",
					  "tcp://a:65536",
					  "tcp://a:1x",
					  "tcp://a:-1",
					  "ipc://a:1",
					  "tcp://::1:1",
					  "tcp://[::1]",
					  "tcp://[::1:1",
					  "tcp://a/b:1",
					  "tcp://127.0.0.1;10.0.0.1:1",
					  "tcp://a:000001"};
	static const char *const local[] = {"tcp://127.0.0.1:1", "tcp://127.9.9.9:1",
					    "tcp://[::1]:1", "tcp://localhost:1"};
	static const char *const far[] = {"tcp://*:1",
					  "tcp://0.0.0.0:1",
					  "tcp://10.0.0.1:1",
					  "tcp://[fe80::1]:1",
					  "tcp://localhost.example.com:1",
					  "tcp://127.0.0.1.example.com:1"};
	static const char *const names[] = {"tcp://localhost:1", "tcp://300.1.1.1:4", "tcp://0:1",
					    "tcp://[zz]:5"};
	char longest[400] = "tcp://";
	struct err e = {0};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		check(transfer_endpoint_check(good[i], false, &e) == 0);
	ok_all("addresses");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (transfer_endpoint_check(bad[i], false, &e) != -EINVAL || !e.text[0])
			ok(false, "%s is refused", bad[i]);
	ok(true, "what is none is refused: %s", e.text);
	for (size_t i = 0; i < ARRAY_SIZE(any); i++)
		check(transfer_endpoint_check(any[i], true, &e) == 0 &&
		      transfer_endpoint_check(any[i], false, &e) == -EINVAL);
	check(transfer_endpoint_check("tcp://127.0.0.1:0", true, &e) == 0);
	ok_all("any port and all addresses, to be listened at");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		check(transfer_endpoint_is_name(names[i]) &&
		      transfer_endpoint_check(names[i], true, &e) == -EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(any); i++)
		check(!transfer_endpoint_is_name(any[i]));
	ok_all("but no names: %s", e.text);
	memset(longest + 6, 'a', 380);
	memcpy(longest + 386, ":1", 3);
	is_int(transfer_endpoint_check(longest, false, &e), -EINVAL, "one that is too long");
	for (size_t i = 0; i < ARRAY_SIZE(local); i++)
		check(transfer_endpoint_is_local(local[i]));
	for (size_t i = 0; i < ARRAY_SIZE(far); i++)
		check(!transfer_endpoint_is_local(far[i]));
	ok_all("loopback is told from the rest");
	for (size_t i = 0; i < ARRAY_SIZE(any); i++)
		check(transfer_endpoint_is_any(any[i]));
	for (size_t i = 0; i < ARRAY_SIZE(local); i++)
		check(!transfer_endpoint_is_any(local[i]));
	check(!transfer_endpoint_is_any("tcp://10.0.0.0:1") && !transfer_endpoint_is_any("*"));
	ok_all("so is what nobody can call");
}

TEST(keys)
{
	char first[TRANSFER_KEY_TEXT], text[1024], other[TRANSFER_KEY_TEXT];
	struct transfer_keys k, ours;
	struct err e = {0};
	struct stat st;

	ok(transfer_keys_create(path, first, &e) == 0 && strlen(first) == 40, "new keys");
	ok(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600, "for their owner alone");
	is_int(transfer_keys_create(path, other, &e), -EEXIST, "never over old ones: %s", e.text);
	if (!ok(transfer_keys_open(path, &ours, &e) == 0, "they are read"))
		return;
	ok(!strcmp(ours.public_key, first) && !ours.n_allowed, "as they were written");
	ok(transfer_keys_allow(&ours, first) && !transfer_keys_allow(&ours, "x"),
	   "without a list those with the same keys are peers");
	ok(!strcmp(transfer_keys_of(&ours, "tcp://10.0.0.1:1"), first), "wherever they are");

	unlink(path);
	check(transfer_keys_create(path, other, &e) == 0);
	unlink(path);
	snprintf(text, sizeof(text),
		 "# ours\n\npublic %s\r\n\tsecret %s  \nallow %s tcp://10.0.0.1:1\n",
		 ours.public_key, ours.secret_key, other);
	write_file(text, 0600);
	ok(transfer_keys_open(path, &k, &e) == 0 && k.n_allowed == 1, "with a list");
	ok(transfer_keys_allow(&k, other) && !transfer_keys_allow(&k, first),
	   "those on it are peers, and no others");
	ok(!strcmp(transfer_keys_of(&k, "tcp://10.0.0.1:1"), other) &&
		   !strcmp(transfer_keys_of(&k, "tcp://10.0.0.2:1"), first),
	   "an address has its own key");
	ok(transfer_keys_name(&k, "tcp://10.0.0.1:1") &&
		   !transfer_keys_name(&k, "tcp://10.0.0.2:1"),
	   "which is known to be said");
	transfer_keys_release(&k);
	chmod(path, 0640);
	is_int(transfer_keys_open(path, &k, &e), -EPERM, "%s", e.text);
	/* Another user owns the file, as when a service manager provides it. */
	if (geteuid() == 0 && chown(path, 65534, (gid_t)-1) == 0) {
		chmod(path, 0440);
		if (ok(transfer_keys_open(path, &k, &e) == 0, "somebody else's, by its group"))
			transfer_keys_release(&k);
		chmod(path, 0444);
		is_int(transfer_keys_open(path, &k, &e), -EPERM, "not by everybody: %s", e.text);
		check(chown(path, 0, (gid_t)-1) == 0);
	}

	snprintf(text, sizeof(text), "public %s\nsecret %s\n", other, ours.secret_key);
	write_file(text, 0600);
	is_int(transfer_keys_open(path, &k, &e), -EINVAL, "%s", e.text);
	snprintf(text, sizeof(text), "public %s\n", other);
	write_file(text, 0600);
	is_int(transfer_keys_open(path, &k, &e), -EINVAL, "%s", e.text);
	write_file("public abc\n", 0600);
	is_int(transfer_keys_open(path, &k, &e), -EINVAL, "%s", e.text);
	snprintf(text, sizeof(text), "allow %s 127.0.0.1:9201\n", other);
	write_file(text, 0600);
	is_int(transfer_keys_open(path, &k, &e), -EINVAL, "%s", e.text);
	ok(strstr(e.text, ":1: \"allow\"") != NULL, "an address lacks its scheme");
	write_file("\nfriend abc\n", 0600);
	is_int(transfer_keys_open(path, &k, &e), -EINVAL, "%s", e.text);
	ok(strstr(e.text, ":2:") != NULL, "the line is named");
	is_int(transfer_keys_open(dir, &k, &e), -EINVAL, "%s", e.text);
	unlink(path);
	is_int(transfer_keys_open(path, &k, &e), -ENOENT, "%s", e.text);
	transfer_keys_release(&ours);
}

/* A key on the list may be used at any address, but not at one for which the list has another key. */
TEST(places)
{
	struct transfer_allowed list[] = {{"a", "tcp://10.0.0.1:1"}, {"b", ""}};
	const struct transfer_keys own = {.public_key = "o"},
				   k = {.public_key = "o", .allowed = list, .n_allowed = 2};

	ok(transfer_keys_allow_at(&k, "a", "tcp://10.0.0.1:1"), "at home");
	ok(transfer_keys_allow_at(&k, "a", "tcp://10.0.0.2:1"), "elsewhere");
	ok(transfer_keys_allow_at(&k, "b", "tcp://10.0.0.2:1"), "without a home");
	ok(!transfer_keys_allow_at(&k, "b", "tcp://10.0.0.1:1"), "in another's");
	ok(!transfer_keys_allow_at(&k, "o", "tcp://10.0.0.2:1"), "who is not on the list");
	ok(transfer_keys_allow_at(&own, "o", "tcp://10.0.0.2:1") &&
		   !transfer_keys_allow_at(&own, "a", "tcp://10.0.0.2:1"),
	   "without one");
}

int main(void)
{
	if (!mkdtemp(dir))
		return 2;
	snprintf(path, sizeof(path), "%s/key", dir);
	run_tests();
	rmdir(dir);
	return done();
}
