/*
 * recorder.h - the flight recorder: the last collectives of each rank, readable after everything was
 * killed.
 *
 * One file a rank, comm_rank_N.bin in the directory given (the run directory), mapped shared: what
 * is stored is in the page cache and survives SIGKILL of every process. Without a directory the same
 * memory is anonymous. A record costs two clock readings and one cache line.
 *
 * The file, little-endian, offsets in bytes:
 *   0     u64 magic "UNICOMM1"; u32 version (1); u32 rank; u32 size; u32 capacity (records)
 *   24    u32 pid; u32 zero; u64 begun (records begun; record i is at i % capacity)
 *   40    char transport[16]; i64 clock_offset_ns (wall clock minus the monotonic one)
 *   64    size x { u64 times; u64 ns }: how often a rank was the last to arrive, and by how much after
 *         the one before it, in sum
 *   then, at the next multiple of 64: capacity x record of 64 bytes (uni__record)
 */
#ifndef UNISONO_COMM_RECORDER_H
#define UNISONO_COMM_RECORDER_H

#include <stdatomic.h>
#include <stdint.h>
#include <unisono/status.h>

#include "base/text.h"

#define UNI__RECORDER_RECORDS 256u

/* What became of a collective. */
enum { UNI__RECORD_WAITING = 1, UNI__RECORD_DONE = 2, UNI__RECORD_FAILED = 3 };

typedef struct uni__record {
    uint64_t number; /* of the collective; send and recv: in their pair */
    uint8_t kind, dtype, op, state;
    int32_t root;
    uint64_t count;
    uint64_t begun_ns, arrived_ns,
        ended_ns; /* monotonic; arrived: all ranks had come; 0: not yet */
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
/* Begins the next record; its place may be written until `capacity` more have begun. */
uni__record *uni__recorder_begin(uni__recorder *recorder, uint64_t now_ns);
void uni__recorder_late(uni__recorder *recorder, int rank, uint64_t ns);

/* A file read back; everything in it is checked, because its writer may have been killed anywhere. */
typedef struct uni__record_file {
    int rank, size, pid;
    char transport[17];
    uint64_t begun;
    int64_t clock_offset_ns;
    uni__late *late; /* size of them */
    uni__record *records; /* oldest first */
    int num_records;
} uni__record_file;

int uni__record_file_read(uni__record_file *out, const char *path, uni_error *err) UNI_MUST_USE;
void uni__record_file_free(uni__record_file *file);

/* For `unisono why`: where each rank of the directory's recorders stood, its last `last` collectives,
 * and who was late. UNI_ENOTFOUND when there is no recorder file. */
int uni__recorder_describe(uni__text *text, const char *dir, int last, uni_error *err) UNI_MUST_USE;

#endif
