/*
 * state.h - the state channel's end on disk: the state that every rank keeps beside a checkpoint.
 *
 * A section is one rank's state: a msgpack map from name to bytes (positions in datasets as
 * "dataset/NAME", and whatever a train function keeps by uni_session_state_set). The checkpoint has
 * the sections of all ranks in the file `.unisono-state`, which is listed and hashed in the
 * manifest like any other file. A checkpoint without state has no such file.
 *
 * The file, version 1, is one msgpack map:
 *
 *   {"format": "unisono state", "version": 1, "ranks": [section of rank 0, section of rank 1, ...]}
 *
 * The cost of reading depends on the size of the state, not on the length of the run. Any thread.
 */
#ifndef UNISONO_CHECKPOINT_STATE_H
#define UNISONO_CHECKPOINT_STATE_H

#include <unisono/checkpoint.h>

#define UNI__STATE_NAME ".unisono-state"
#define UNI__STATE_VERSION 1
#define UNI__STATE_SECTION_MAX ((size_t)64 << 20) /* bytes of one rank's section */
#define UNI__STATE_FILE_MAX ((size_t)1 << 30)

typedef struct uni__state_section {
    const void *bytes; /* NULL: this rank has no state */
    size_t size;
} uni__state_section;

/* Checks for a map from names to bytes, with nothing after it. UNI_EFORMAT. */
int uni__state_check(const void *section, size_t size, uni_error *err) UNI_MUST_USE;

/* Builds the file's bytes (malloc'ed) from the sections of all ranks, which must be checked. *out
 * is NULL when no rank has state. */
int uni__state_pack(void **out, size_t *size, const uni__state_section *sections, int count,
                    uni_error *err) UNI_MUST_USE;
/* Converts it back to a list by rank of {name: bytes}. UNI_EVERSION when the file is newer. */
int uni__state_unpack(uni_value **out, const void *bytes, size_t size, uni_error *err) UNI_MUST_USE;

/* Reads the state of a complete checkpoint and verifies its checksum; *out is NULL when it has
 * none. */
int uni__checkpoint_read_state(uni_value **out, const uni_checkpoint *checkpoint,
                               uni_error *err) UNI_MUST_USE;

#endif
