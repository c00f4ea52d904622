/*
 * journal.c - the append-only journal; journal.h describes the format.
 *
 * Reader and writer share one scan of the file: lines in chunks, each verified by its checksum. A
 * bad line is held back until it is known whether another one follows. If so, it was damaged in the
 * middle; otherwise it is a torn write. The writer scans when it opens, to find the end of the good
 * lines, truncates a torn write, and remembers the end. After a write that failed halfway (a full
 * disk), the next append first truncates the file to it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/fault.h"
#include "base/file.h"
#include "base/journal.h"
#include "base/json.h"

#define FORMAT_VERSION 1
#define TAIL_SIZE 16 /* ,"x":"01234567"} */
#define CHUNK ((size_t)64 << 10)
/* Longer lines are not ours; this bounds the reader's memory. */
#define LINE_LIMIT ((size_t)16 << 20)
static const char header_start[] = "{\"format\":\"unisono ";

struct uni__journal {
    int fd;
    char *path;
    uni__text line; /* the current record; reuses its memory */
    off_t end; /* after the last complete line */
    bool dirty; /* a partial line may follow `end` */
    bool name_synced; /* the directory entry is on the disk */
};

static void make_tail(char tail[TAIL_SIZE + 1], const char *line, size_t length)
{
    snprintf(tail, TAIL_SIZE + 1, ",\"x\":\"%08x\"}", (uint32_t)XXH3_64bits(line, length));
}

/* The record of a line (without its LF), or NULL when the line is not one. */
static uni_value *parse_line(char *line, size_t length)
{
    if (length <= TAIL_SIZE)
        return NULL;
    char tail[TAIL_SIZE + 1], *end = line + length - TAIL_SIZE;
    make_tail(tail, line, (size_t)(end - line));
    if (memcmp(end, tail, TAIL_SIZE) != 0)
        return NULL;
    *end = '}';
    uni_value *record = NULL;
    if (uni_json_read(&record, line, (size_t)(end - line) + 1, NULL) < 0)
        return NULL;
    if (uni_value_type_of(record) != UNI_TYPE_DICT) {
        uni_value_free(record);
        return NULL;
    }
    return record;
}

typedef struct scan {
    int fd;
    const char *path, *kind;
    uni__journal_visit visit; /* may be NULL */
    void *context;
    uni__text buffer;
    off_t line_start; /* file offset of buffer.data[0] */
    /* After the last line that stays: all but a bad one at the end. */
    off_t good_end;
    bool skipping; /* in the rest of a line that was too long */
    bool bad_before; /* the line before this one was bad */
    bool header_seen;
    size_t lines;
    uni__journal_report report;
} scan;

static int check_header(const scan *s, const uni_value *header, uni_error *err)
{
    const char *format = uni_dict_get_string(header, "format", "");
    if (strncmp(format, "unisono ", 8) != 0 || strcmp(format + 8, s->kind) != 0)
        return uni_error_set(err, UNI_EFORMAT, "\"%s\" is not a unisono %s (its format is \"%s\")",
                             s->path, s->kind, format);
    int64_t version = uni_dict_get_int(header, "version", 0);
    if (version > FORMAT_VERSION)
        return uni_error_set(err, UNI_EVERSION,
                             "\"%s\" has format version %lld, this program reads up to %d: use a "
                             "newer unisono",
                             s->path, (long long)version, FORMAT_VERSION);
    return 0;
}

/* One line without its LF; NULL for one that was too long. `next` is the offset after its LF. */
static int scan_line(scan *s, char *line, size_t length, off_t next, uni_error *err)
{
    uni_value *record = line ? parse_line(line, length) : NULL;
    int status = 0;
    if (s->bad_before)
        s->report.damaged++;
    s->bad_before = !record;
    s->lines++;
    if (record) {
        s->good_end = next;
        if (s->lines == 1) {
            s->header_seen = true;
            status = check_header(s, record, err);
        } else {
            s->report.records++;
            if (s->visit)
                status = s->visit(s->context, record, err);
        }
    }
    uni_value_free(record);
    return status < 0 ? status : 0;
}

/* Scans all complete lines of the buffer; moves the rest to its front. */
static int scan_buffer(scan *s, uni_error *err)
{
    char *begin = s->buffer.data, *end = begin + s->buffer.size, *lf;
    while (begin < end && (lf = memchr(begin, '\n', (size_t)(end - begin)))) {
        off_t next = s->line_start + (lf + 1 - s->buffer.data);
        if (s->bad_before) /* a bad line that is not the last one stays */
            s->good_end = s->line_start + (begin - s->buffer.data);
        UNI_TRY(scan_line(s, s->skipping ? NULL : begin, (size_t)(lf - begin), next, err));
        s->skipping = false;
        begin = lf + 1;
    }
    size_t rest = (size_t)(end - begin);
    if (rest > LINE_LIMIT) {
        s->skipping = true;
        begin = end;
        rest = 0;
    }
    memmove(s->buffer.data, begin, rest);
    s->line_start += begin - s->buffer.data;
    s->buffer.size = rest;
    return 0;
}

/* Reads the whole file. The caller opened it and frees the buffer. */
static int scan_file(scan *s, uni_error *err)
{
    for (;;) {
        char *at = uni__text_reserve(&s->buffer, CHUNK);
        if (!at)
            return uni_error_set(err, UNI_ENOMEM, "no memory to read \"%s\"", s->path);
        ssize_t got = read(s->fd, at, CHUNK);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return uni_error_set_errno(err, errno, "cannot read \"%s\"", s->path);
        if (got == 0)
            break;
        s->buffer.size += (size_t)got;
        UNI_TRY(scan_buffer(s, err));
    }
    bool rest = s->buffer.size > 0 || s->skipping;
    if (rest && s->bad_before) {
        s->report.damaged++;
        s->good_end = s->line_start;
    }
    s->report.torn = rest || s->bad_before;
    return 0;
}

/* A file without a good line is ours only if it can be a truncated header: empty, the beginning of
 * one, or the zeros that some file systems leave after a power cut. */
static int check_torn_header(int fd, const char *path, uni_error *err)
{
    char start[sizeof header_start - 1] = { 0 };
    ssize_t got = pread(fd, start, sizeof start, 0);
    if (got < 0)
        return uni_error_set_errno(err, errno, "cannot read \"%s\"", path);
    static const char zeros[sizeof start];
    if (memcmp(start, header_start, (size_t)got) == 0 || memcmp(start, zeros, (size_t)got) == 0)
        return 0;
    return uni_error_set(err, UNI_EFORMAT, "\"%s\" is not a unisono journal", path);
}

static int scan_and_judge(scan *s, uni_error *err)
{
    UNI_TRY(scan_file(s, err));
    if (!s->header_seen && s->report.records == 0)
        return check_torn_header(s->fd, s->path, err);
    return 0;
}

int uni__journal_read(const char *path, const char *kind, uni__journal_visit visit, void *context,
                      uni__journal_report *report, uni_error *err)
{
    scan s = { .path = path, .kind = kind, .visit = visit, .context = context };
    if (report)
        *report = (uni__journal_report){ 0 };
    s.fd = uni__open_unlinked(path, err);
    if (s.fd < 0)
        return s.fd;
    int status = scan_and_judge(&s, err);
    if (report)
        *report = s.report;
    uni__text_free(&s.buffer);
    close(s.fd);
    return status;
}

/* Truncates the file to its last complete line. */
static int cut_back(uni__journal *journal, uni_error *err)
{
    int fault = uni__fault(UNI__FAULT_TRUNCATE, journal->path, NULL);
    if (fault == 0 && ftruncate(journal->fd, journal->end) < 0)
        fault = errno;
    if (fault)
        return uni_error_set_errno(err, fault, "cannot cut a torn line off \"%s\"", journal->path);
    journal->dirty = false;
    return 0;
}

/* Adds the checksum to the record in journal->line, which has no closing brace yet, and writes
 * it. */
static int write_line(uni__journal *journal, uni_error *err)
{
    char tail[TAIL_SIZE + 1];
    if (!journal->line.failed)
        make_tail(tail, journal->line.data, journal->line.size);
    uni__text_add(&journal->line, tail, TAIL_SIZE);
    uni__text_add(&journal->line, "\n", 1);
    if (journal->line.failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a line of \"%s\"", journal->path);
    if (journal->line.size > LINE_LIMIT)
        return uni_error_set(err, UNI_ELIMIT, "a record for \"%s\" has %zu bytes, more than %zu",
                             journal->path, journal->line.size, LINE_LIMIT);
    if (journal->dirty)
        UNI_TRY(cut_back(journal, err));
    journal->dirty = true;
    int status =
        uni__write_all(journal->fd, journal->line.data, journal->line.size, journal->path, err);
    if (status < 0) {
        /* At once, for readers. If this fails too, the next append retries. */
        int ignored = cut_back(journal, NULL);
        (void)ignored;
        return status;
    }
    journal->end += (off_t)journal->line.size;
    journal->dirty = false;
    return 0;
}

static int write_header(uni__journal *journal, const char *kind, uni_error *err)
{
    uni__text_clear(&journal->line);
    uni__text_add_string(&journal->line, "{\"format\":");
    char format[128];
    int length = snprintf(format, sizeof format, "unisono %s", kind);
    if (length < 0 || (size_t)length >= sizeof format)
        return uni_error_set(err, UNI_EINVAL, "the kind of a journal is too long (\"%s\")", kind);
    uni__text_add_json_string(&journal->line, format, (size_t)length);
    uni__text_add_format(&journal->line, ",\"version\":%d", FORMAT_VERSION);
    return write_line(journal, err);
}

/* Locks, finds the end, truncates a torn write, and writes the header of a new file. */
static int prepare(uni__journal *journal, const char *kind, uni__journal_visit visit, void *context,
                   uni__journal_report *report, uni_error *err)
{
    if (flock(journal->fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            return uni_error_set(err, UNI_EBUSY, "another process is writing \"%s\"",
                                 journal->path);
        return uni_error_set_errno(err, errno, "cannot lock \"%s\"", journal->path);
    }
    scan s = {
        .fd = journal->fd, .path = journal->path, .kind = kind, .visit = visit, .context = context
    };
    int status = scan_and_judge(&s, err);
    uni__text_free(&s.buffer);
    if (report)
        *report = s.report;
    UNI_TRY(status);
    journal->end = s.good_end;
    if (s.report.torn)
        UNI_TRY(cut_back(journal, err));
    return journal->end == 0 ? write_header(journal, kind, err) : 0;
}

int uni__journal_open(uni__journal **out, const char *path, const char *kind, uni_error *err)
{
    return uni__journal_open_read(out, AT_FDCWD, path, kind, NULL, NULL, NULL, err);
}

int uni__journal_open_at(uni__journal **out, int dir, const char *path, const char *kind,
                         uni_error *err)
{
    return uni__journal_open_read(out, dir, path, kind, NULL, NULL, NULL, err);
}

int uni__journal_open_read(uni__journal **out, int dir, const char *path, const char *kind,
                           uni__journal_visit visit, void *context, uni__journal_report *report,
                           uni_error *err)
{
    *out = NULL;
    uni__journal *journal = calloc(1, sizeof *journal);
    if (!journal || !(journal->path = strdup(path))) {
        free(journal);
        return uni_error_set(err, UNI_ENOMEM, "no memory to open \"%s\"", path);
    }
    int fault = uni__fault(UNI__FAULT_CREATE, path, NULL);
    journal->fd = fault ? -1
                        : openat(dir, uni__name_at(dir, path),
                                 O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    int status = journal->fd < 0 ? uni_error_set_errno(err, fault ? fault : errno,
                                                       "cannot open \"%s\" for appending", path)
                                 : prepare(journal, kind, visit, context, report, err);
    if (status < 0) {
        uni__journal_close(journal);
        return status;
    }
    *out = journal;
    return 0;
}

void uni__journal_close(uni__journal *journal)
{
    if (!journal)
        return;
    if (journal->fd >= 0)
        close(journal->fd);
    uni__text_free(&journal->line);
    free(journal->path);
    free(journal);
}

/* The first durable record also makes the file's name durable. */
int uni__journal_sync(uni__journal *journal, uni_error *err)
{
    int fault = uni__fault(UNI__FAULT_FSYNC, journal->path, NULL);
    if (fault == 0 && fdatasync(journal->fd) < 0)
        fault = errno;
    if (fault)
        return uni_error_set_errno(err, fault, "cannot sync \"%s\" to disk", journal->path);
    if (!journal->name_synced)
        UNI_TRY(uni__fsync_parent(journal->path, err));
    journal->name_synced = true;
    return 0;
}

int uni__journal_append(uni__journal *journal, const uni_value *record, bool durable,
                        uni_error *err)
{
    if (uni_dict_size(record) == 0 || uni_dict_get(record, "x"))
        return uni_error_set(err, UNI_EINVAL,
                             "a record for \"%s\" must be a dictionary with keys, none called "
                             "\"x\" (the checksum)",
                             journal->path);
    uni__text_clear(&journal->line);
    UNI_TRY(uni__json_add(&journal->line, record, 0, err));
    journal->line.size--; /* the checksum goes before the brace */
    UNI_TRY(write_line(journal, err));
    return durable ? uni__journal_sync(journal, err) : 0;
}
