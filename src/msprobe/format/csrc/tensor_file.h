/* One tensor file written, or another name given to one; no Python in here but its sizes. Define _GNU_SOURCE and include Python.h before. */
#ifndef MSPROBE_TENSOR_FILE_H
#define MSPROBE_TENSOR_FILE_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../../numerics/csrc/crc32.h"
#include "digest.h"

/* Data beyond this goes to the file in pieces, each checksummed just before, so that memory is read once. */
#define PIECE (1 << 19)

typedef struct {
    const char *name, *original; /* original: what is linked; NULL for a file that is written */
    const char *head, *data, *tail;
    Py_ssize_t n_head, n_data, n_tail, head_crc, tail_crc;
    int has_crc; /* `crc` is that of the data; else it is taken on the way */
    uint32_t crc;
    Digest *live; /* not NULL: others may change the data meanwhile; this becomes the digest of what is written, more than 240 bytes */
    int error;
} Operation;

/* All the parts, from the given place in the file on; -1 and errno. */
static int write_all(int file, struct iovec *parts, int count, off_t at)
{
    for (;;) {
        for (; count && parts->iov_len == 0; parts++) count--;
        if (!count) return 0;
        ssize_t done = pwritev(file, parts, count, at);
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = EIO;
        if (done <= 0) return -1;
        at += done;
        for (int k = 0; k < count; k++) {
            size_t part = (size_t)done < parts[k].iov_len ? (size_t)done : parts[k].iov_len;
            parts[k].iov_base = (char *)parts[k].iov_base + part;
            parts[k].iov_len -= part;
            done -= (ssize_t)part;
        }
    }
}

static void put_crc(char *where, uint32_t crc)
{
    for (int k = 0; k < 4; k++) where[k] = (char)(crc >> 8 * k);
}

/* `copied`: room for a piece where the data is live: what is checksummed, digested and written is one and the same. */
static int write_parts(int file, const Operation *op, char *head, char *tail, unsigned char *copied)
{
    uint32_t state = 0xFFFFFFFFu;
    const unsigned char *data = (const unsigned char *)op->data;
    int in_pieces = op->n_data > PIECE;
    for (Py_ssize_t at = 0; at < op->n_data; at += PIECE) {
        Py_ssize_t n = op->n_data - at < PIECE ? op->n_data - at : PIECE;
        const unsigned char *here = copied ? memcpy(copied, data + at, (size_t)n) : data + at;
        if (!op->has_crc) state = crc_path.update(state, here, n);
        if (op->live) digest_piece(op->live, here, (size_t)n);
        struct iovec piece = {(void *)here, (size_t)n};
        if (in_pieces && write_all(file, &piece, 1, (off_t)(op->n_head + at)) < 0) return -1;
    }
    put_crc(head + op->head_crc, op->has_crc ? op->crc : ~state);
    put_crc(tail + op->tail_crc, op->has_crc ? op->crc : ~state);
    struct iovec parts[3] = {{head, (size_t)op->n_head}, {(void *)(copied ? copied : data), (size_t)op->n_data}, {tail, (size_t)op->n_tail}};
    if (!in_pieces) return write_all(file, parts, 3, 0);
    if (write_all(file, parts + 2, 1, (off_t)(op->n_head + op->n_data)) < 0) return -1;
    return write_all(file, parts, 1, 0);
}

static int write_content(int file, const Operation *op, char *head, char *tail)
{
    unsigned char *copied = op->live ? malloc((size_t)(op->n_data < PIECE ? op->n_data : PIECE)) : NULL;
    if (op->live && !copied) {
        errno = ENOMEM;
        return -1;
    }
    if (op->live) digest_begin(op->live, (uint64_t)op->n_data);
    int result = write_parts(file, op, head, tail, copied), error = errno;
    free(copied);
    errno = error;
    return result;
}

static int open_new(int directory, const char *name)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, file = openat(directory, name, flags, 0666);
    if (file >= 0 || errno != EEXIST) return file;
    /* A killed process left it. */
    return unlinkat(directory, name, 0) < 0 ? -1 : openat(directory, name, flags, 0666);
}

/* What a file is called until it is complete: opening and writing are two calls, and a kill may end a write at any page. */
static void hidden_name(char *out, size_t room, const char *name)
{
    uint32_t crc = ~crc_portable(0xFFFFFFFFu, (const unsigned char *)name, (int64_t)strlen(name));
    snprintf(out, room, ".%08x.next", (unsigned)crc);
}

static int write_file(int directory, const Operation *op)
{
    char hidden[32];
    char *around = malloc((size_t)(op->n_head + op->n_tail));
    if (!around) return ENOMEM;
    memcpy(around, op->head, (size_t)op->n_head);
    memcpy(around + op->n_head, op->tail, (size_t)op->n_tail);
    hidden_name(hidden, sizeof hidden, op->name);
    int error = 0, file = open_new(directory, hidden);
    if (file < 0) {
        error = errno;
    } else {
        if (write_content(file, op, around, around + op->n_head) < 0) error = errno;
        if (close(file) < 0 && !error && errno != EINTR) error = errno;
        if (!error && renameat(directory, hidden, directory, op->name) < 0) error = errno;
        if (error) unlinkat(directory, hidden, 0);
        if (error) unlinkat(directory, op->name, 0); /* of an earlier content */
    }
    free(around);
    return error;
}

static int link_file(int directory, const Operation *op)
{
    if (linkat(directory, op->original, directory, op->name, 0) == 0) return 0;
    if (errno != EEXIST) return errno;
    if (strcmp(op->original, op->name) == 0) return 0;
    if (unlinkat(directory, op->name, 0) < 0 || linkat(directory, op->original, directory, op->name, 0) < 0) return errno;
    return 0;
}

#endif
