/*
 * journal.h - an append-only file of JSON lines that stays readable after kill -9 at any byte.
 *
 * On disk: line 1 is {"format":"unisono <kind>","version":1,...}; every line ends in `,"x":"<8
 * hex>"}` + LF where the hex is the low 32 bits of XXH3 over all bytes of the line before `,"x":`.
 * A last line without LF or with a wrong checksum is a torn write: the reader stops there and
 * reports it, and the writer truncates it when it opens the file again. A bad line in the middle is
 * skipped, counted and reported, never fatal. There is one writer (flock on the file rejects a
 * second with UNI_EBUSY). Any thread; one at a time per handle.
 */
#ifndef UNISONO_BASE_JOURNAL_H
#define UNISONO_BASE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/value.h>

typedef struct uni__journal uni__journal;

/* Creates it (with its header line) or opens it for appending. */
int uni__journal_open(uni__journal **out, const char *path, const char *kind,
                      uni_error *err) UNI_MUST_USE;
/* The same by the last part of `path`, in the directory `dir` (a descriptor, or AT_FDCWD for the
 * whole path): the checked directory is the one that is written. */
int uni__journal_open_at(uni__journal **out, int dir, const char *path, const char *kind,
                         uni_error *err) UNI_MUST_USE;
void uni__journal_close(uni__journal *journal);
/* fdatasync, separate from appending: another thread may call it during an append, so that many
 * records share one sync. Do not combine it with durable appends. */
int uni__journal_sync(uni__journal *journal, uni_error *err) UNI_MUST_USE;
/* The record must be a dictionary. durable: fdatasync before returning. A record is one
 * write(2). */
int uni__journal_append(uni__journal *journal, const uni_value *record, bool durable,
                        uni_error *err) UNI_MUST_USE;

typedef struct uni__journal_report {
    /* damaged: lines in the middle that were skipped. */
    size_t records, damaged;
    bool torn; /* the last line was incomplete */
} uni__journal_report;
/* Called for every good record after the header. A newer version is UNI_EVERSION, another kind
 * UNI_EFORMAT. */
typedef int (*uni__journal_visit)(void *context, const uni_value *record, uni_error *err);
/* Opens for appending and visits the existing records in the same pass. */
int uni__journal_open_read(uni__journal **out, int dir, const char *path, const char *kind,
                           uni__journal_visit visit, void *context, uni__journal_report *report,
                           uni_error *err) UNI_MUST_USE;
int uni__journal_read(const char *path, const char *kind, uni__journal_visit visit, void *context,
                      uni__journal_report *report, uni_error *err) UNI_MUST_USE;

#endif
