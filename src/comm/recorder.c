/* recorder.c - writes the flight recorder; recorder.h has the file format. Called on the rank's
 * thread. */
#include "comm/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "comm/recorder_internal.h"

struct uni__recorder {
    uni__recorder_header *header;
    uni__late *late;
    uni__record *records;
    size_t bytes;
};

static int map_file(void **out, const char *dir, int rank, size_t bytes, uni_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "comm_rank_%d.bin", rank);
    char *path = uni__path_join(dir, name, NULL);
    if (!path)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the name of a recorder file");
    int status = 0, fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    *out = MAP_FAILED;
    /* posix_fallocate reports a full disk now; with ftruncate it would be a SIGBUS later. */
    if (fd < 0)
        status = uni_error_set_errno(err, errno, "cannot make the recorder file %s", path);
    else if ((errno = posix_fallocate(fd, 0, (off_t)bytes)) != 0)
        status = uni_error_set_errno(err, errno, "cannot reserve %zu bytes for %s", bytes, path);
    else if ((*out = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
        status = uni_error_set_errno(err, errno, "cannot map the recorder file %s", path);
    if (fd >= 0)
        close(fd);
    free(path);
    return status;
}

int uni__recorder_new(uni__recorder **out, const char *dir, int rank, int size,
                      const char *transport, uni_error *err)
{
    size_t bytes = uni__recorder_offset(size) + UNI__RECORDER_RECORDS * sizeof(uni__record);
    void *memory = MAP_FAILED;
    *out = NULL;
    if (dir)
        UNI_TRY(map_file(&memory, dir, rank, bytes, err));
    else
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uni__recorder *recorder = memory == MAP_FAILED ? NULL : calloc(1, sizeof *recorder);
    if (!recorder) {
        if (memory != MAP_FAILED)
            munmap(memory, bytes);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the collective recorder");
    }
    uni__recorder_header *header = memory;
    *recorder = (uni__recorder){
        .header = header,
        .late = (uni__late *)(header + 1),
        .records = (uni__record *)((char *)memory + uni__recorder_offset(size)),
        .bytes = bytes,
    };
    header->version = UNI__RECORDER_VERSION;
    header->rank = (uint32_t)rank;
    header->size = (uint32_t)size;
    header->capacity = UNI__RECORDER_RECORDS;
    header->pid = (uint32_t)getpid();
    strncpy(header->transport, transport, sizeof header->transport - 1);
    header->clock_offset_ns = (int64_t)(uni__wall_seconds() * 1e9) - (int64_t)uni__monotonic_ns();
    header->magic = UNI__RECORDER_MAGIC;
    *out = recorder;
    return 0;
}

void uni__recorder_free(uni__recorder *recorder)
{
    if (recorder)
        munmap(recorder->header, recorder->bytes);
    free(recorder);
}

uni__record *uni__recorder_begin(uni__recorder *recorder, uint64_t now_ns)
{
    uni__record *record = &recorder->records[recorder->header->begun % UNI__RECORDER_RECORDS];
    record->state = UNI__RECORD_WAITING;
    record->begun_ns = now_ns;
    record->arrived_ns = record->ended_ns = record->late_ns = 0;
    record->late_rank = -1;
    record->status = 0;
    recorder->header->begun++;
    return record;
}

void uni__recorder_late(uni__recorder *recorder, int rank, uint64_t ns)
{
    recorder->late[rank].times++;
    recorder->late[rank].ns += ns;
}
