/*
 * said.h - what workers say, taken apart and checked, for runs and trials: reports, checkpoints
 * that they hand in, and the JSON lines of programs that do not link the library. [controller]
 */
#ifndef UNISONO_TRAIN_SAID_H
#define UNISONO_TRAIN_SAID_H

#include "group/group.h"
#include "train/state.h"

/* A report's frame (group/protocol.h), its state checked. The parts lie inside of the payload. */
typedef struct uni__report_parts {
    int64_t iteration;
    uni__state_section state; /* size 0: as the report before said */
    const uint8_t *metrics;
    size_t metrics_size;
} uni__report_parts;
int uni__report_split(uni__report_parts *out, const uint8_t *payload, size_t size,
                      uni_error *err) UNI_MUST_USE;

/* A part of a checkpoint that a rank hands in. */
typedef struct uni__handed {
    int rank;
    uint64_t life; /* of that rank's worker: what is given back is for that process alone */
    int64_t iteration;
    bool alone; /* complete at once (v1's save_checkpoint); otherwise with the reports */
    bool of_step; /* alone, and only there to resume from */
    uni__state_section state; /* of that rank, of one that is alone */
    const char *path; /* a directory; or a dictionary: */
    bool copy; /* the directory is the user's own and stays where it is */
    int slot; /* -1: a directory */
    uni__region *region;
    size_t size;
    uni_value *message; /* that path and state lie in, or NULL */
} uni__handed;
/* The snapshot buffer is looked up in the group. On failure there is nothing to clear. */
int uni__handed_read(uni__handed *out, uni__group *group, int rank, const uint8_t *payload,
                     size_t size, uni_error *err) UNI_MUST_USE;
void uni__handed_clear(uni__handed *handed);

/* A line of a program's report pipe: {"loss": 0.3}, or {"metrics": {...}, "checkpoint": "dir"}. */
typedef struct uni__line {
    uni_value *metrics;
    char *path; /* the directory of its checkpoint, or NULL */
    bool staged; /* `unisono report` has put it where we asked for it */
    bool disk_full; /* there was no room for it; then there is nothing else */
} uni__line;
/* line NULL: it was longer than a line may be. */
int uni__line_read(uni__line *out, const char *line, size_t size, uni_error *err) UNI_MUST_USE;
void uni__line_clear(uni__line *line);

#endif
