/* Memory that is used again and again for what waits to be written; the C twin of staging_ring.py, which says why. */
#ifndef MSPROBE_RING_H
#define MSPROBE_RING_H

#include <stdlib.h>
#include <sys/mman.h>

/* Where something lies, or lay; in the order in which they were taken. */
typedef struct Span {
    size_t start, end;
    int done;
    struct Span *next;
} Span;

typedef struct {
    size_t size;
    char *memory; /* NULL: not yet needed */
    int refused;  /* the system has none */
    Span *first, *last;
} Ring;

static void ring_drop_done(Ring *ring)
{
    while (ring->first && ring->first->done) {
        Span *gone = ring->first;
        ring->first = gone->next;
        if (!ring->first) ring->last = NULL;
        free(gone);
    }
}

/* Where so many bytes would go; -1: nowhere now. */
static int64_t ring_start(const Ring *ring, size_t nbytes)
{
    if (!ring->first) return nbytes <= ring->size ? 0 : -1;
    size_t first = ring->first->start, end = ring->last->end;
    if (end > first) {
        if (end + nbytes <= ring->size) return (int64_t)end;
        end = 0;
    }
    return end + nbytes <= first ? (int64_t)end : -1;
}

static int ring_ready(Ring *ring)
{
    if (ring->memory || ring->refused) return !ring->refused;
    void *memory = mmap(NULL, ring->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ring->refused = memory == MAP_FAILED;
    if (ring->refused) return 0;
#ifdef MADV_HUGEPAGE
    madvise(memory, ring->size, MADV_HUGEPAGE);
#endif
    ring->memory = (char *)memory;
    return 1;
}

/* A place for so many bytes, at least one; NULL where there is none now. */
static Span *ring_take(Ring *ring, size_t nbytes)
{
    ring_drop_done(ring);
    int64_t start = ring_start(ring, nbytes);
    if (start < 0 || !ring_ready(ring)) return NULL;
    Span *span = malloc(sizeof *span);
    if (!span) return NULL;
    *span = (Span){(size_t)start, (size_t)start + nbytes, 0, NULL};
    if (ring->last) ring->last->next = span;
    else ring->first = span;
    ring->last = span;
    return span;
}

static void ring_free(Ring *ring)
{
    for (Span *span = ring->first; span; span = ring->first) {
        ring->first = span->next;
        free(span);
    }
    if (ring->memory) munmap(ring->memory, ring->size);
}

#endif
