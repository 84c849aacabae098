#include "engine/checkpoint/formats/mapped_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"

enum { FILES_MAX = 16384 };

/* Memory is given back when so many bytes were read. So the system is called seldom, for large ranges. */
#define READ_MAX ((size_t)32 << 20)

/* When a page of a file is read, Linux may map pages around it too, but none beyond the next multiples of AROUND. So
 * whole multiples are given back. Pages that other threads still read come back from the system's cache. */
#define AROUND ((uintptr_t)2 << 20)

void mapped_files_init(struct mapped_files *l)
{
	*l = (struct mapped_files){0};
	pthread_mutex_init(&l->lock, NULL);
}

void mapped_files_release(struct mapped_files *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].data)
			munmap(l->v[i].data, l->v[i].len);
	pthread_mutex_destroy(&l->lock);
	free(l->v);
}

int mapped_files_add(struct mapped_files *l, const char *shown, const char *name)
{
	if (l->n == FILES_MAX)
		return -EMFILE;
	if (!array_grow(l->v, l->cap, l->n + 1))
		return -ENOMEM;
	l->v[l->n++] = (struct mapped_file){.shown = shown, .name = name};
	return 0;
}

int mapped_file_open(struct mapped_file *m, int dir_fd, struct err *e)
{
	off_t size;
	void *data;
	int fd = file_open(dir_fd, m->name, m->shown, &size, e), r;

	if (fd < 0)
		return fd;
	data = size ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
	r = -errno;
	close(fd);
	if (data == MAP_FAILED)
		return err_set(e, -r, "%s: cannot map: %s", m->shown, strerror(-r));
	m->data = data;
	m->len = (size_t)size;
	return 0;
}

/* Gives back the memory of all data that were read since the last call. Call with l->lock held. */
static void give_back(struct mapped_files *l)
{
	for (size_t i = 0; i < l->n; i++) {
		struct mapped_file *m = &l->v[i];
		uintptr_t first = (uintptr_t)m->data, last = first + m->len;
		uintptr_t begin = MAX(m->read_begin & ~(AROUND - 1), first);
		uintptr_t end = MIN((m->read_end + AROUND - 1) & ~(AROUND - 1), last);

		if (m->read_end)
			madvise((void *)begin, end - begin, MADV_DONTNEED);
		m->read_begin = m->read_end = 0;
	}
	l->read_bytes = 0;
}

void mapped_files_forget(struct mapped_files *l, const void *data, size_t bytes)
{
	uintptr_t begin = (uintptr_t)data, end = begin + bytes;

	pthread_mutex_lock(&l->lock);
	for (size_t i = 0; i < l->n; i++) {
		struct mapped_file *m = &l->v[i];

		if (begin < (uintptr_t)m->data || end > (uintptr_t)m->data + m->len)
			continue;
		m->read_begin = m->read_end ? MIN(m->read_begin, begin) : begin;
		m->read_end = MAX(m->read_end, end);
		l->read_bytes += bytes;
		break;
	}
	if (l->read_bytes >= READ_MAX)
		give_back(l);
	pthread_mutex_unlock(&l->lock);
}
