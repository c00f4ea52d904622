/*
 * dict_internal.h - shared by dict.c (bytes) and dict_file.c (files). Only this module includes it.
 */
#ifndef UNISONO_CHECKPOINT_DICT_INTERNAL_H
#define UNISONO_CHECKPOINT_DICT_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include "checkpoint/dict.h"
#include "checkpoint/manifest.h"

typedef struct uni__dict_header {
    char magic[8];
    uint64_t tree_size, arrays_offset, arrays_size;
} uni__dict_header;
_Static_assert(sizeof(uni__dict_header) == 32, "the header has no padding");

/* Where the arrays of a tree are. They are either copied, or each becomes a view that holds the
 * owner by retain/release. */
typedef struct uni__dict_source {
    const void *arrays;
    uint64_t arrays_size;
    bool copy;
    void *owner;
    void (*retain)(void *owner);
    void (*release)(void *owner);
} uni__dict_source;

/* head_size: the bytes of header and tree (or more, when the arrays follow). */
int uni__dict_header_check(const uni__dict_header *header, size_t head_size,
                           uni_error *err) UNI_MUST_USE;
int uni__dict_decode_tree(uni_value **out, const void *tree, size_t tree_size,
                          const uni__dict_source *source, uni_error *err) UNI_MUST_USE;
/* uni__dict_read with a manifest that is already loaded. */
int uni__dict_read_part(uni_value **out, const char *dir, const char *suffix,
                        const uni__manifest *manifest, uni_error *err) UNI_MUST_USE;

/* Writes a rank's part into dir (no fsync) and adds its files with their checksums to the
 * manifest. */
int uni__write_dict_part(const char *dir, int rank, const void *encoded, size_t size,
                         uni__manifest *manifest, uni_error *err) UNI_MUST_USE;

#endif
