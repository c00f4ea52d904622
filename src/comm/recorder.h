/*
 * recorder.h - the flight recorder: the last collectives of each rank, readable after every process
 * was killed.
 *
 * Each rank has one file, comm_rank_N.bin in the given directory (the run directory), mapped
 * shared. What is stored is in the page cache and survives SIGKILL of every process. Without a
 * directory the same memory is anonymous. A record costs two clock readings and one cache line.
 *
 * The file, little-endian, offsets in bytes:
 *   0     u64 magic "UNICOMM1"; u32 version (1); u32 rank; u32 size; u32 capacity (records)
 *   24    u32 pid; u32 zero; u64 begun (records begun; record i is at i % capacity)
 *   40    char transport[16]; i64 clock_offset_ns (wall clock minus the monotonic one)
 *   64    size x { u64 times; u64 ns }: how often a rank was the last to arrive, and the total time
 *         after the rank before it
 *   then, at the next multiple of 64: capacity x record of 64 bytes (uni__record)
 */
#ifndef UNISONO_COMM_RECORDER_H
#define UNISONO_COMM_RECORDER_H

#include <stdatomic.h>
#include <stdint.h>
#include <unisono/status.h>

#include "base/text.h"

#define UNI__RECORDER_RECORDS 256u

/* The state of a collective. */
enum { UNI__RECORD_WAITING = 1, UNI__RECORD_DONE = 2, UNI__RECORD_FAILED = 3 };

typedef struct uni__record {
    /* Of the collective; for send and recv the number in their pair. */
    uint64_t number;
    uint8_t kind, dtype, op, state;
    int32_t root;
    uint64_t count;
    /* Monotonic. arrived_ns: when all ranks had arrived. 0: not yet. */
    uint64_t begun_ns, arrived_ns, ended_ns;
    int32_t late_rank; /* -1: not known */
    int32_t status; /* the error's code */
    uint64_t late_ns;
} uni__record;
_Static_assert(sizeof(uni__record) == 64, "a record is one cache line");

typedef struct uni__late {
    uint64_t times, ns;
} uni__late;

typedef struct uni__recorder uni__recorder;

int uni__recorder_new(uni__recorder **out, const char *dir, int rank, int size,
                      const char *transport, uni_error *err) UNI_MUST_USE;
void uni__recorder_free(uni__recorder *recorder); /* the file stays */
/* Begins the next record. The returned record may be written until `capacity` more have begun. */
uni__record *uni__recorder_begin(uni__recorder *recorder, uint64_t now_ns);
void uni__recorder_late(uni__recorder *recorder, int rank, uint64_t ns);

/* The contents of a file. Everything is validated, because the writer may have been killed at any
 * point. */
typedef struct uni__record_file {
    int rank, size, pid;
    char transport[17];
    uint64_t begun;
    int64_t clock_offset_ns;
    uni__late *late; /* `size` entries */
    uni__record *records; /* oldest first */
    int num_records;
} uni__record_file;

int uni__record_file_read(uni__record_file *out, const char *path, uni_error *err) UNI_MUST_USE;
void uni__record_file_free(uni__record_file *file);

/* For `unisono why`: each rank's position from the recorders in `dir`, its last `last` collectives,
 * and which ranks were late. UNI_ENOTFOUND when there is no recorder file. */
int uni__recorder_describe(uni__text *text, const char *dir, int last, uni_error *err) UNI_MUST_USE;

#endif
