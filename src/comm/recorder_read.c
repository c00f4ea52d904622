/*
 * recorder_read.c - reads recorder files and describes their contents, after a crash or while the
 * ranks still run. Nothing in a file is trusted. Any thread.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "comm/kinds.h"
#include "comm/recorder_internal.h"
#include <unisono/array.h>

#define MAX_FILE (1u << 20)
#define MAX_RANKS 1024

static int take_records(uni__record_file *out, const char *data, size_t size,
                        const uni__recorder_header *header)
{
    size_t offset = uni__recorder_offset((int)header->size);
    if (header->capacity == 0 || header->capacity > MAX_FILE / sizeof(uni__record) ||
        size < offset + header->capacity * sizeof(uni__record))
        return UNI_EFORMAT;
    uint64_t count = header->begun < header->capacity ? header->begun : header->capacity;
    out->late = calloc(header->size, sizeof *out->late);
    out->records = calloc(count ? count : 1, sizeof *out->records);
    if (!out->late || !out->records)
        return UNI_ENOMEM;
    memcpy(out->late, data + sizeof *header, header->size * sizeof *out->late);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t place = (header->begun - count + i) % header->capacity;
        memcpy(&out->records[i], data + offset + place * sizeof(uni__record), sizeof(uni__record));
    }
    out->num_records = (int)count;
    return 0;
}

int uni__record_file_read(uni__record_file *out, const char *path, uni_error *err)
{
    char *data = NULL;
    size_t size = 0;
    uni__recorder_header header = { 0 };
    memset(out, 0, sizeof *out);
    UNI_TRY(uni__read_unlinked(&data, &size, path, MAX_FILE, err));
    if (size >= sizeof header)
        memcpy(&header, data, sizeof header);
    int status = 0;
    if (header.magic != UNI__RECORDER_MAGIC || header.size == 0 || header.size > MAX_RANKS ||
        header.rank >= header.size)
        status =
            uni_error_set(err, UNI_EFORMAT, "%s is not a file of the collective recorder", path);
    else if (header.version > UNI__RECORDER_VERSION)
        status = uni_error_set(err, UNI_EVERSION,
                               "%s has format %u, this program reads %u: use a newer unisono", path,
                               header.version, UNI__RECORDER_VERSION);
    else if ((status = take_records(out, data, size, &header)) < 0)
        uni_error_set(err, status, "%s is damaged: %s", path, uni_status_sentence(status));
    if (status == 0) {
        out->rank = (int)header.rank;
        out->size = (int)header.size;
        out->pid = (int)header.pid;
        out->begun = header.begun;
        out->clock_offset_ns = header.clock_offset_ns;
        memcpy(out->transport, header.transport, sizeof header.transport);
    } else {
        uni__record_file_free(out);
    }
    free(data);
    return status;
}

void uni__record_file_free(uni__record_file *file)
{
    free(file->late);
    free(file->records);
    memset(file, 0, sizeof *file);
}

static void describe_record(uni__text *text, const uni__record *record)
{
    uni__text_add_format(text, "  #%-6llu %-14s %10llu %-8s %-4s",
                         (unsigned long long)record->number, uni__kind_name(record->kind),
                         (unsigned long long)record->count,
                         uni_dtype_name((uni_dtype)record->dtype), uni__op_name(record->op));
    if (record->state == UNI__RECORD_DONE)
        uni__text_add_format(text, " took %.1f us",
                             (double)(record->ended_ns - record->begun_ns) * 1e-3);
    else if (record->state == UNI__RECORD_FAILED)
        uni__text_add_format(text, " failed after %.1f ms (%s)",
                             (double)(record->ended_ns - record->begun_ns) * 1e-6,
                             uni_status_name(record->status));
    else
        uni__text_add_string(text, " did not end");
    if (record->late_rank >= 0 && record->state == UNI__RECORD_DONE)
        uni__text_add_format(text, ", rank %d came last (%.1f us)", record->late_rank,
                             (double)record->late_ns * 1e-3);
    uni__text_add_char(text, '\n');
}

/* Names the rank whose lateness cost the most time. */
static void describe_late(uni__text *text, const uni__record_file *file)
{
    uint64_t all = 0;
    int worst = 0;
    for (int r = 0; r < file->size; r++) {
        all += file->late[r].times;
        if (file->late[r].ns > file->late[worst].ns)
            worst = r;
    }
    const uni__late *late = &file->late[worst];
    if (all == 0 || late->times == 0 || file->size < 2)
        return;
    uni__text_add_format(text,
                         "rank %d came last in %llu of %llu collectives, on average %.3f ms after "
                         "the one before it\n",
                         worst, (unsigned long long)late->times, (unsigned long long)all,
                         (double)late->ns / (double)late->times * 1e-6);
}

static void describe_rank(uni__text *text, const uni__record_file *file, int last)
{
    const uni__record *end = file->num_records ? &file->records[file->num_records - 1] : NULL;
    uni__text_add_format(text, "rank %d (pid %d, %s): ", file->rank, file->pid, file->transport);
    if (!end)
        uni__text_add_string(text, "called no collective\n");
    else if (end->state == UNI__RECORD_DONE)
        uni__text_add_format(text, "finished %s #%llu and called nothing more\n",
                             uni__kind_name(end->kind), (unsigned long long)end->number);
    else
        uni__text_add_format(text, "was in %s #%llu\n", uni__kind_name(end->kind),
                             (unsigned long long)end->number);
    int first = file->num_records > last ? file->num_records - last : 0;
    for (int i = first; i < file->num_records; i++)
        describe_record(text, &file->records[i]);
}

int uni__recorder_describe(uni__text *text, const char *dir, int last, uni_error *err)
{
    bool any = false;
    int size = 1, status = 0;
    for (int rank = 0; rank < size && status == 0; rank++) {
        char name[64];
        uni__record_file file;
        snprintf(name, sizeof name, "comm_rank_%d.bin", rank);
        char *path = uni__path_join(dir, name, NULL);
        if (!path)
            return uni_error_set(err, UNI_ENOMEM, "no memory to read %s", dir);
        if (uni__path_exists(path) && (status = uni__record_file_read(&file, path, err)) == 0) {
            if (!any)
                describe_late(text, &file);
            any = true;
            size = file.size;
            describe_rank(text, &file, last);
            uni__record_file_free(&file);
        } else if (status == 0 && any) {
            uni__text_add_format(text, "rank %d left no recorder file\n", rank);
        }
        free(path);
        /* Rank 0's file may be on another host: look a little further for a file that has the
         * size. */
        if (!any && rank + 1 == size && size < 64)
            size++;
    }
    if (status == 0 && !any)
        return uni_error_set(err, UNI_ENOTFOUND, "there is no collective recorder file in %s", dir);
    return status;
}
