/* scattered.c - see scattered.h. `lock` guards the mapping's making and the lease; copies run outside of it. */
#include "data/sources/scattered.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include "data/files.h"

enum {
    FEW_ROWS = 32, /* below, the lease costs more than it saves */
    LARGE_ROW = 32 << 10, /* from here on a look-up is nothing beside the row */
    AHEAD = 8, /* rows that are on their way from memory while one is copied */
    AHEAD_BYTES = 2048, /* of each; the processor itself fetches what follows */
    WINDOW = 64 << 10, /* what the kernel copies at a time; stays in the second level cache */
    WINDOW_ROWS = 256
};

struct uni__scattered {
    int fd;
    const char *path;
    int64_t size;
    bool stays;
    pid_t owner; /* a fork shares the lease, but does not count in `holders`: it copies without */
    pthread_mutex_t lock;
    char *mapping; /* NULL: not yet, or it cannot be */
    bool mapping_tried, lease_refused;
    int holders; /* copies under way that rely on the lease */
};

int uni__scattered_new(uni__scattered **out, int fd, const char *path, int64_t size, bool stays,
                       uni_error *err)
{
    uni__scattered *file = *out = calloc(1, sizeof *file);
    if (file == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to read %s", path);
    *file =
        (uni__scattered){ .fd = fd, .path = path, .size = size, .stays = stays, .owner = getpid() };
    pthread_mutex_init(&file->lock, NULL);
    return 0;
}

void uni__scattered_free(uni__scattered *file)
{
    if (file == NULL)
        return;
    if (file->mapping != NULL)
        munmap(file->mapping, (size_t)file->size);
    pthread_mutex_destroy(&file->lock);
    free(file);
}

static const char *mapping_of(uni__scattered *file)
{
    pthread_mutex_lock(&file->lock);
    if (!file->mapping_tried) {
        void *mapping = mmap(NULL, (size_t)file->size, PROT_READ, MAP_SHARED, file->fd, 0);
        file->mapping_tried = true;
        if (mapping != MAP_FAILED) {
            file->mapping = mapping;
            if (!file->stays)
                madvise(mapping, (size_t)file->size, MADV_RANDOM);
        }
    }
    char *mapping = file->mapping;
    pthread_mutex_unlock(&file->lock);
    return mapping;
}

/* ---- the lease ---- */

static bool take_lease(uni__scattered *file)
{
    /* Who breaks a lease makes the kernel send SIGIO, which would end the program; SIGURG does nothing. Nobody needs to be told: copies are short. */
    if (file->lease_refused || getpid() != file->owner)
        return false;
    if (fcntl(file->fd, F_SETSIG, SIGURG) == 0 && fcntl(file->fd, F_SETLEASE, F_RDLCK) == 0)
        return true;
    file->lease_refused = errno != EAGAIN; /* EAGAIN: open for writing now */
    return false;
}

/* Until let_go() nobody changes the file. */
static bool hold(uni__scattered *file)
{
    struct stat now;
    pthread_mutex_lock(&file->lock);
    /* Where somebody already waits for the lease to end, copies that began go on and new ones do without. */
    bool held = file->holders > 0 ? fcntl(file->fd, F_GETLEASE) == F_RDLCK : take_lease(file);
    if (held && file->holders == 0 && (fstat(file->fd, &now) < 0 || now.st_size < file->size)) {
        fcntl(file->fd, F_SETLEASE, F_UNLCK); /* it was cut off before */
        held = false;
    }
    file->holders += held;
    pthread_mutex_unlock(&file->lock);
    return held;
}

static void let_go(uni__scattered *file)
{
    pthread_mutex_lock(&file->lock);
    if (--file->holders == 0)
        fcntl(file->fd, F_SETLEASE, F_UNLCK);
    pthread_mutex_unlock(&file->lock);
}

/* ---- three ways to copy ---- */

static void fetch_ahead(const char *from, size_t row_bytes)
{
    size_t bytes = row_bytes < AHEAD_BYTES ? row_bytes : AHEAD_BYTES;
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(from + i, 0, 2);
    __builtin_prefetch(from + bytes - 1, 0, 2);
}

static void copy_leased(const char *mapping, const uni__scattered_row *rows, int64_t count,
                        size_t row_bytes)
{
    for (int64_t i = 0; i < AHEAD && i < count; i++)
        fetch_ahead(mapping + rows[i].offset, row_bytes);
    for (int64_t i = 0; i < count; i++) {
        if (i + AHEAD < count)
            fetch_ahead(mapping + rows[i + AHEAD].offset, row_bytes);
        memcpy(rows[i].to, mapping + rows[i].offset, row_bytes);
    }
}

static int copy_by_pread(const uni__scattered *file, const uni__scattered_row *rows, int64_t count,
                         size_t row_bytes, uni_error *err)
{
    for (int64_t i = 0; i < count; i++)
        UNI_TRY(uni__pread_all(file->fd, file->path, rows[i].offset, rows[i].to, row_bytes, err));
    return 0;
}

/* The kernel writes the rows into a file in memory, of which `window` is a mapping. */
static int copy_through(const uni__scattered *file, int memory, const char *window,
                        const char *mapping, const uni__scattered_row *rows, int64_t count,
                        size_t row_bytes, uni_error *err)
{
    struct iovec pieces[WINDOW_ROWS];
    int64_t at_once = (int64_t)(WINDOW / row_bytes);
    at_once = at_once < WINDOW_ROWS ? at_once : WINDOW_ROWS;
    for (int64_t i = 0; i < count && i < at_once; i++)
        fetch_ahead(mapping + rows[i].offset, row_bytes);
    for (int64_t i = 0; i < count; i += at_once) {
        int64_t n = count - i < at_once ? count - i : at_once;
        for (int64_t k = 0; k < n; k++)
            pieces[k] = (struct iovec){ (char *)mapping + rows[i + k].offset, row_bytes };
        for (int64_t k = i + n; k < count && k < i + n + at_once; k++)
            fetch_ahead(mapping + rows[k].offset, row_bytes);
        if (pwritev(memory, pieces, (int)n, 0) == (ssize_t)((size_t)n * row_bytes)) {
            for (int64_t k = 0; k < n; k++)
                memcpy(rows[i + k].to, window + (size_t)k * row_bytes, row_bytes);
        } else { /* a page is not to be had: pread knows why */
            UNI_TRY(copy_by_pread(file, rows + i, n, row_bytes, err));
        }
    }
    return 0;
}

static int copy_by_kernel(const uni__scattered *file, const char *mapping,
                          const uni__scattered_row *rows, int64_t count, size_t row_bytes,
                          uni_error *err)
{
    int memory = memfd_create("unisono-rows", MFD_CLOEXEC);
    void *window = MAP_FAILED;
    if (memory >= 0 && ftruncate(memory, WINDOW) == 0)
        window = mmap(NULL, WINDOW, PROT_READ, MAP_SHARED, memory, 0);
    int status = window != MAP_FAILED
                     ? copy_through(file, memory, window, mapping, rows, count, row_bytes, err)
                     : copy_by_pread(file, rows, count, row_bytes, err);
    if (window != MAP_FAILED)
        munmap(window, WINDOW);
    if (memory >= 0)
        close(memory);
    return status;
}

int uni__scattered_copy(uni__scattered *file, const uni__scattered_row *rows, int64_t count,
                        size_t row_bytes, uni_error *err)
{
    const char *mapping = NULL;
    if (row_bytes == 0)
        return 0;
    if (count >= FEW_ROWS && row_bytes < LARGE_ROW)
        mapping = mapping_of(file);
    if (mapping == NULL)
        return copy_by_pread(file, rows, count, row_bytes, err);
    if (!hold(file))
        return copy_by_kernel(file, mapping, rows, count, row_bytes, err);
    copy_leased(mapping, rows, count, row_bytes);
    let_go(file);
    return 0;
}
