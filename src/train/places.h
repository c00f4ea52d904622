/*
 * places.h - where a run is on disk: its directory, the journal in it, the logs of its workers
 * (docs/formats.md). Made by the user's thread; the journal is written by the controller and the
 * persist thread, the rest is the controller's.
 */
#ifndef UNISONO_TRAIN_PLACES_H
#define UNISONO_TRAIN_PLACES_H

#include <pthread.h>
#include <unisono/value.h>

#include "base/journal.h"

typedef struct uni__places {
    char *id, *dir, *logs_dir, *staging_dir;
    int dir_fd; /* of dir: the controller makes its files in it, not by their paths; -1: none */
    int number;
    uni__journal *journal;
    pthread_mutex_t journal_lock;
} uni__places;

void uni__places_init(uni__places *places);
void uni__places_clear(uni__places *places);
/* A new directory below logdir. ranks: how many workers the end of the run must be written of. */
int uni__places_make(uni__places *places, const char *logdir, int ranks,
                     uni_error *err) UNI_MUST_USE;
/* One that is there: dir, id and number are set. */
int uni__places_reopen(uni__places *places, int ranks, uni_error *err) UNI_MUST_USE;
/* One line of the journal; takes the record (may be NULL). */
void uni__places_note(uni__places *places, int attempt, const char *event, uni_value *record,
                      bool durable);
/* Gives the room back that was kept on the disk for the end of the run: run.json and the
 * journal's last lines. */
void uni__places_release_reserve(const uni__places *places);

char *uni__places_log(const uni__places *places, int rank); /* path; NULL without memory */
/* The last lines of a log, of those behind `start`; NULL: there is none. */
char *uni__places_log_tail(const uni__places *places, int rank, int64_t start, int lines);
/* Older lines go to rank_N.log.1. */
void uni__places_cap_log(const uni__places *places, int rank, uint64_t cap);

#endif
