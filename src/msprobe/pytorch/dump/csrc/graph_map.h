/* A map from (address, number) to a number, for walks over a graph. */
#ifndef MSPROBE_GRAPH_MAP_H
#define MSPROBE_GRAPH_MAP_H

#include "pieces.h"

#include <stdint.h>

typedef struct {
    void *node;
    long number;
    int value;
} Slot;

enum { FIRST = 32 };

typedef struct {
    Slot *slots;
    int used, size;
    Slot first[FIRST];
} Map;

static void map_init(Map *map)
{
    map->slots = map->first;
    map->used = 0;
    map->size = FIRST;
    memset(map->first, 0, sizeof map->first);
}

static void map_free(Map *map)
{
    if (map->slots != map->first) PyMem_Free(map->slots);
}

/* Where (node, number) is, or would be. */
static Slot *map_find(const Map *map, void *node, long number)
{
    uint64_t hash = ((uint64_t)(uintptr_t)node >> 4) * 0x9E3779B97F4A7C15u + (uint64_t)number * 0xC2B2AE3D27D4EB4Fu;
    unsigned at = (unsigned)(hash >> 32) & (unsigned)(map->size - 1);
    while (map->slots[at].node && (map->slots[at].node != node || map->slots[at].number != number)) at = (at + 1) & (unsigned)(map->size - 1);
    return map->slots + at;
}

static Slot *map_get(const Map *map, void *node, long number)
{
    if (!map->used) return NULL;
    Slot *slot = map_find(map, node, number);
    return slot->node ? slot : NULL;
}

/* Adds an edge that is not there yet; 0: no memory. */
static int map_add(Map *map, void *node, long number, int value)
{
    if (4 * (map->used + 1) > 3 * map->size) {
        Map bigger = {.slots = PyMem_Calloc(2 * (size_t)map->size, sizeof(Slot)), .used = map->used, .size = 2 * map->size};
        if (!bigger.slots) {
            PyErr_NoMemory();
            return 0;
        }
        for (int k = 0; k < map->size; k++)
            if (map->slots[k].node) *map_find(&bigger, map->slots[k].node, map->slots[k].number) = map->slots[k];
        map_free(map);
        map->slots = bigger.slots;
        map->size = bigger.size;
    }
    Slot *slot = map_find(map, node, number);
    *slot = (Slot){node, number, value};
    map->used++;
    return 1;
}

/* Integers in a row. */
typedef struct {
    int *items;
    int used, room;
    int first[FIRST];
} Ints;

static void ints_init(Ints *ints)
{
    ints->items = ints->first;
    ints->used = 0;
    ints->room = FIRST;
}

static void ints_free(Ints *ints)
{
    if (ints->items != ints->first) PyMem_Free(ints->items);
}

/* The items with twice the room; `first` is where an array begins, and is never freed. NULL: no memory. */
static void *more_room(void *items, int *room, const void *first, size_t size)
{
    void *more = PyMem_Realloc(items == first ? NULL : items, 2 * (size_t)*room * size);
    if (!more) return PyErr_NoMemory();
    if (items == first) memcpy(more, first, (size_t)*room * size);
    *room *= 2;
    return more;
}

static int ints_add(Ints *ints, int value)
{
    if (ints->used == ints->room) {
        int *items = more_room(ints->items, &ints->room, ints->first, sizeof *items);
        if (!items) return 0;
        ints->items = items;
    }
    ints->items[ints->used++] = value;
    return 1;
}

#endif
