/*
 * keyring.h - the public keys of a run's host agents, as they announce them over the launcher's
 * channel.
 *
 * An agent prints one line before it connects:
 *
 *   unisono-host key JOB ATTEMPT RANK KEY      (job and key in hexadecimal)
 *
 * ssh, mpirun and srun carry it to their own output, which is a file that the controller reads
 * (logs/launcher.log). Inside a foreign mpirun the agents write it into files in the storage
 * instead. Nothing in it is secret; but others must not be able to write there. The first
 * key of a rank counts. Any thread; one at a time per ring.
 */
#ifndef UNISONO_GROUP_KEYRING_H
#define UNISONO_GROUP_KEYRING_H

#include "group/secure.h"

#define UNI__ANNOUNCEMENT_MAX 256

typedef struct uni__keyring {
    struct {
        bool known;
        uint8_t key[UNI__KEY_BYTES];
    } * ranks;
    uint32_t num_ranks;
} uni__keyring;

int uni__keyring_new(uni__keyring **out, uint32_t num_ranks, uni_error *err) UNI_MUST_USE;
void uni__keyring_free(uni__keyring *ring);
/* 1: this is the key of that rank; 0: the rank has announced none yet; -1: it has another one, or
 * there is no such rank. */
int uni__keyring_find(const uni__keyring *ring, uint32_t rank, const uint8_t key[UNI__KEY_BYTES]);
/* The line of an agent, with its newline. */
void uni__announcement_write(const uni__credentials *credentials, uint32_t rank,
                             char out[UNI__ANNOUNCEMENT_MAX]);
/* What such a line says. */
typedef struct uni__announcement {
    uint8_t job[UNI__JOB_BYTES], key[UNI__KEY_BYTES];
    uint32_t attempt, rank;
} uni__announcement;
/* Reads the announcement that the text begins with. Returns its length without the newline, or 0 if
 * it is not one, character by character as uni__announcement_write makes it: every reader
 * understands the same. */
size_t uni__announcement_read(const char *text, uni__announcement *out);
/* Takes the keys of this job and attempt out of whole lines of text; what else is there is skipped.
 * Returns how many bytes were whole lines. */
size_t uni__keyring_read(uni__keyring *ring, const uni__credentials *credentials, const char *text,
                         size_t size);
/* The same for what was added to a file since *offset. A file that is not this user's is not
 * read. */
void uni__keyring_follow(uni__keyring *ring, const uni__credentials *credentials, const char *path,
                         int64_t *offset);

#endif
