/* daemon/http/certificate.c: pairs that change while they are followed, and a file system that hangs. */
#include "daemon/http/certificate.h"

#include <gnutls/x509.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "tests/scratch.h"
#include "tests/tap.h"

/* The file system hangs while this is set; the calls that hang now, and all that have begun. */
static _Atomic bool hangs;
static _Atomic int hanging, calls;

/* stat, by the name that it has with 64-bit offsets. */
int __real_stat64(const char *path, struct stat *st);
int __wrap_stat64(const char *path, struct stat *st);

int __wrap_stat64(const char *path, struct stat *st)
{
	atomic_fetch_add(&calls, 1);
	atomic_fetch_add(&hanging, 1);
	while (atomic_load(&hangs))
		usleep(1000);
	atomic_fetch_sub(&hanging, 1);
	return __real_stat64(path, st);
}

static char cert_path[512], key_path[512];

static void put(const char *path, const gnutls_datum_t *text)
{
	struct err e = {0};

	check(file_write(path, text->data, text->size, &e) == 0);
	check(chmod(path, 0600) == 0);
}

/* Makes a key and a certificate that signs itself, and writes them in the place of the earlier ones. */
static void make_pair(void)
{
	gnutls_x509_privkey_t key = NULL;
	gnutls_x509_crt_t crt = NULL;
	gnutls_datum_t text;

	check(gnutls_x509_privkey_init(&key) == 0 && gnutls_x509_crt_init(&crt) == 0);
	check(gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA,
					   GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1),
					   0) == 0);
	check(gnutls_x509_crt_set_version(crt, 3) == 0 && gnutls_x509_crt_set_key(crt, key) == 0);
	check(gnutls_x509_crt_set_serial(crt, "1", 1) == 0);
	check(gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, "test", 4) == 0);
	check(gnutls_x509_crt_set_activation_time(crt, time(NULL) - 60) == 0);
	check(gnutls_x509_crt_set_expiration_time(crt, time(NULL) + 3600) == 0);
	check(gnutls_x509_crt_sign2(crt, crt, key, GNUTLS_DIG_SHA256, 0) == 0);
	check(gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_PEM, &text) == 0);
	put(cert_path, &text);
	gnutls_free(text.data);
	check(gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &text) == 0);
	put(key_path, &text);
	gnutls_free(text.data);
	gnutls_x509_crt_deinit(crt);
	gnutls_x509_privkey_deinit(key);
}

static double seconds_since(uint64_t begin)
{
	return (double)(clock_now_ns() - begin) / 1e9;
}

/* Waits for a number that only grows to be at least `least`; a minute at most. */
static bool grows(const _Atomic int *number, int least)
{
	const uint64_t begin = clock_now_ns();

	while (atomic_load(number) < least && seconds_since(begin) < 60)
		usleep(1000);
	return atomic_load(number) >= least;
}

TEST(followed)
{
	struct certificates *s = NULL;
	struct certificate *first, *newest;
	uint64_t begin;
	struct err e = {0};

	make_pair();
	is_int(certificates_open(cert_path, key_path, &s, &e), 0, "a pair: %s", e.text);
	is_int(certificates_follow(s, &e), 0, "is followed");
	first = certificates_take(s);
	make_pair();
	begin = clock_now_ns();
	do {
		usleep(1000);
		newest = certificates_take(s);
		certificate_drop(s, newest);
	} while (newest == first && seconds_since(begin) < 60);
	ok(newest != first, "a new pair is taken");
	ok(certificate_credentials(first) != NULL, "the earlier one is there until it is dropped");
	certificate_drop(s, first);
	certificates_free(s);
}

TEST(hangs)
{
	struct certificates *s = NULL;
	struct certificate *c;
	uint64_t begin;
	struct err e = {0};
	int before;

	make_pair();
	is_int(certificates_open(cert_path, key_path, &s, &e), 0, "a pair: %s", e.text);
	atomic_store(&hangs, true);
	is_int(certificates_follow(s, &e), 0, "is followed on a file system that hangs");
	ok(grows(&hanging, 1), "the thread hangs");
	begin = clock_now_ns();
	for (int i = 0; i < 1000; i++) {
		c = certificates_take(s);
		certificate_drop(s, c);
	}
	ok(atomic_load(&hanging) == 1, "others get the pair meanwhile (%.3f s)",
	   seconds_since(begin));
	certificates_free(s);
	ok(atomic_load(&hanging) == 1, "the end does not wait for the thread (%.3f s)",
	   seconds_since(begin));
	/* It looks at the other file, and frees what is left. */
	before = atomic_load(&calls);
	atomic_store(&hangs, false);
	ok(grows(&calls, before + 1), "the thread goes on and ends");
}

int main(void)
{
	snprintf(cert_path, sizeof(cert_path), "%s", scratch_path("cert.pem"));
	snprintf(key_path, sizeof(key_path), "%s", scratch_path("key.pem"));
	run_tests();
	return done();
}
