/* The certificate of TLS and its key (--tls-cert, --tls-key). Both files are in PEM, and that of the certificate may
 * have the certificates of its issuers behind it. When one of the files has changed, both are read again, without a
 * signal or a restart. Connections that are new from then on get the new pair, and others keep theirs. If the new pair
 * is not good, one sentence in the log says why, and the earlier pair stays in use. */
#pragma once

#include <gnutls/gnutls.h>

#include "base/err.h"

/* The two files, and the pair that was read from them last. */
struct certificates;

/* One pair, which is never changed. It exists until the last connection that has taken it has dropped it. */
struct certificate;

/* Reads both files. The paths are borrowed as long as the program runs. The file of the key is refused if other users
 * may read it (base/private.h). -EINVAL or another code, with a sentence that begins with the option. */
int certificates_open(const char *cert_path, const char *key_path, struct certificates **ret,
		      struct err *e) MUST_CHECK;

/* Starts a thread that looks at both files once a second, and reads them again when one of them has changed and does
 * not change any more. It has no other work, because it hangs while the file system of the files does. */
int certificates_follow(struct certificates *s, struct err *e) MUST_CHECK;

/* Ends the thread; leaves it behind if it does not end within a second, because the file system hangs. All pairs must
 * be dropped. NULL is allowed. */
void certificates_free(struct certificates *s);

/* Any thread: returns the newest pair, to be given back by certificate_drop. */
struct certificate *certificates_take(struct certificates *s);
void certificate_drop(struct certificates *s, struct certificate *c);

/* Returns the pair as GnuTLS has it, borrowed until certificate_drop. */
gnutls_certificate_credentials_t certificate_credentials(const struct certificate *c);
