/*
 * manifest.h - the file `.unisono-manifest.json` that makes a directory a checkpoint. Only this
 * module includes it.
 *
 * Byte by byte, version 2 (UTF-8 text, LF line ends, the members in this order, all required unless
 * noted):
 *
 *   {"format":"unisono checkpoint","version":2,
 *   "number":3,                  integer, 0 or more: NNNNNN of its name (0: made outside a run)
 *   "iteration":12,              integer: the report it came with
 *   "attempt":1,                 integer: which start of the group
 *   "timestamp":1763243774.25,   number: seconds since 1970
 *   "kind":"dict",               "dict" (a tree and arrays, dict.h) or "directory" (user's files)
 *   "score":0.25,                number, "NaN", "Infinity" or "-Infinity"; null without a policy's
 *   "score_attribute":"loss",    string, or null
 *   "metrics":{...},             what was reported with it; a non-finite number in it is null
 *   "nonfinite":{"loss":"NaN","a":{"b":"-Infinity"},"list":{"2":"NaN"}},
 *                                these numbers: a tree in the form of the metrics with only them in
 *                                it, list positions as keys ({} if there are none)
 *   "files":[
 *   {"path":"sub/w.bin","size":4096,"xxh3":"0123456789abcdef"},
 *                                regular file: its size, and XXH3-64 of its bytes as 16 hex digits
 *   {"path":"last","size":9,"xxh3":"0123456789abcdef","link":true},
 *                                symbolic link: size and checksum of its target's text
 *   {"path_hex":"ff41","size":1,"xxh3":"0123456789abcdef"}
 *                                a name that is not UTF-8, as hex
 *   ]
 *   ,"checksum":"0123456789abcdef"}LF
 *
 * The last 32 bytes are exactly `,"checksum":"` + 16 hex digits + `"}` + LF: XXH3-64 over all bytes
 * before them. So any changed, missing or added byte is detected. Later versions keep this tail.
 * Files are sorted by path. A path is relative and has no empty, "." or ".." component. Every file
 * of the checkpoint except the manifest is listed, including `.unisono-state` (state.h), which is
 * why version 1 became 2. Extra files that a user adds later are ignored.
 *
 * Pure functions on memory, and one that reads the file. Any thread.
 */
#ifndef UNISONO_CHECKPOINT_MANIFEST_H
#define UNISONO_CHECKPOINT_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/value.h>

#define UNI__MANIFEST_VERSION 2
#define UNI__MANIFEST_LIMIT ((size_t)64 << 20) /* bytes: some 600,000 files */

typedef struct uni__manifest_file {
    char *path; /* relative to the checkpoint */
    uint64_t size;
    char xxh3[17];
    bool link;
} uni__manifest_file;

typedef struct uni__manifest {
    int64_t number, iteration;
    int attempt;
    double timestamp;
    bool is_dict;
    double score; /* NaN when there is none */
    bool has_score; /* distinguishes a score of NaN from none */
    char *score_attribute; /* NULL: none */
    uni_value *metrics; /* NULL is written as {}; never NULL after reading */
    uni__manifest_file *files;
    size_t file_count, file_capacity;
} uni__manifest;

void uni__manifest_clear(uni__manifest *manifest);
/* Appends a file (copies path). UNI_ENOMEM. */
int uni__manifest_add(uni__manifest *manifest, const char *path, uint64_t size, const char xxh3[17],
                      bool link, uni_error *err) UNI_MUST_USE;
void uni__manifest_sort(uni__manifest *manifest);
/* NULL: none; linear search. */
const uni__manifest_file *uni__manifest_find(const uni__manifest *manifest, const char *path);
uint64_t uni__manifest_bytes(const uni__manifest *manifest); /* sum of the sizes */

/* Converts to text (malloc'ed) and back. Reading: UNI_EFORMAT when it is not a manifest,
 * UNI_ECORRUPT when the checksum differs, UNI_EVERSION for another version. Writing reads its
 * output back, so that nothing unreadable ever gets to the disk. */
int uni__manifest_write(char **out, size_t *size, const uni__manifest *manifest,
                        uni_error *err) UNI_MUST_USE;
int uni__manifest_read(uni__manifest *out, const char *text, size_t size,
                       uni_error *err) UNI_MUST_USE;
/* Loads it from the checkpoint directory dir. UNI_EFORMAT "not complete" when it has none. */
int uni__manifest_load(uni__manifest *out, const char *dir, uni_error *err) UNI_MUST_USE;

#endif
