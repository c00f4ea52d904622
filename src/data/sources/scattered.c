/* scattered.c - see scattered.h. `lock` guards the creation of mappings; copies run without it. */
#include "data/sources/scattered.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/machine_limits.h"

enum {
    FEW_ROWS = 32, /* for fewer rows a lease costs more than it saves */
    LARGE_ROW = 32 << 10, /* from here on a lookup costs little compared to the row */
    AHEAD = 8, /* rows prefetched while one is copied */
    AHEAD_BYTES = 2048, /* prefetched of each row; the CPU prefetches the rest itself */
    WINDOW = 64 << 10, /* bytes that the kernel copies per call; stays in the L2 cache */
    WINDOW_ROWS = 256,
    MANY_FILES = 1024 /* mappings are limited, too: 65,530 per process */
};

struct mapping {
    char *memory; /* NULL: not mapped yet, or not possible */
    bool tried;
    dev_t device; /* identifies the file: its name may come to mean another */
    ino_t number;
};

struct uni__scattered {
    const uni__files *files;
    pthread_mutex_t lock;
    /* Once `sized`, `stays` says whether all files fit into memory and stay there after the first
     * read. */
    bool sized, stays;
    struct mapping mappings[]; /* one per file */
};

int uni__scattered_new(uni__scattered **out, const uni__files *files, uni_error *err)
{
    uni__scattered *scattered = *out =
        calloc(1, sizeof *scattered + (size_t)files->count * sizeof scattered->mappings[0]);
    if (scattered == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to read %d files", files->count);
    scattered->files = files;
    pthread_mutex_init(&scattered->lock, NULL);
    return 0;
}

void uni__scattered_free(uni__scattered *scattered)
{
    if (scattered == NULL)
        return;
    for (int i = 0; i < scattered->files->count; i++) {
        if (scattered->mappings[i].memory != NULL)
            munmap(scattered->mappings[i].memory, (size_t)scattered->files->items[i].size);
    }
    pthread_mutex_destroy(&scattered->lock);
    free(scattered);
}

static void map(uni__scattered *scattered, int file, int fd, const struct stat *found)
{
    struct mapping *mapping = &scattered->mappings[file];
    size_t size = (size_t)scattered->files->items[file].size;
    mapping->tried = true;
    void *memory = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return;
    if (!scattered->sized) { /* reads /proc and /sys, so only if something is shuffled */
        scattered->stays = (uint64_t)scattered->files->bytes <= uni__memory_available() / 2;
        scattered->sized = true;
    }
    if (!scattered->stays)
        madvise(memory, size, MADV_RANDOM);
    mapping->memory = memory;
    mapping->device = found->st_dev;
    mapping->number = found->st_ino;
}

/* The mapping of the file that fd refers to, or NULL to read it another way. */
static const char *mapping_of(uni__scattered *scattered, int file, int fd)
{
    struct mapping *mapping = &scattered->mappings[file];
    struct stat found;
    if (scattered->files->count > MANY_FILES || fstat(fd, &found) < 0)
        return NULL;
    pthread_mutex_lock(&scattered->lock);
    if (!mapping->tried)
        map(scattered, file, fd, &found);
    pthread_mutex_unlock(&scattered->lock);
    return mapping->device == found.st_dev && mapping->number == found.st_ino ? mapping->memory
                                                                              : NULL;
}

/* Takes a read lease: nothing can change the file until the lease is released. Closing fd is not
 * enough for that, because a mapping keeps the file open. Returns false if no lease was granted.
 * When another process wants to write, the kernel signals the holder with SIGIO by default, which
 * would kill the program; SIGURG is ignored. The signal can be ignored because copies are short. */
static bool lease(int fd)
{
    return fcntl(fd, F_SETSIG, SIGURG) == 0 && fcntl(fd, F_SETLEASE, F_RDLCK) == 0;
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

static int copy_by_pread(int fd, const char *path, const uni__scattered_row *rows, int64_t count,
                         size_t row_bytes, uni_error *err)
{
    for (int64_t i = 0; i < count; i++)
        UNI_TRY(uni__pread_all(fd, path, rows[i].offset, rows[i].to, row_bytes, err));
    return 0;
}

/* The kernel writes the rows into a memory file, which is mapped at `window`. */
static int copy_through(int memory, const char *window, int fd, const char *path,
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
        } else { /* a page cannot be read: pread will report why */
            UNI_TRY(copy_by_pread(fd, path, rows + i, n, row_bytes, err));
        }
    }
    return 0;
}

static int copy_by_kernel(int fd, const char *path, const char *mapping,
                          const uni__scattered_row *rows, int64_t count, size_t row_bytes,
                          uni_error *err)
{
    int memory = memfd_create("unisono-rows", MFD_CLOEXEC);
    void *window = MAP_FAILED;
    if (memory >= 0 && ftruncate(memory, WINDOW) == 0)
        window = mmap(NULL, WINDOW, PROT_READ, MAP_SHARED, memory, 0);
    int status = window != MAP_FAILED
                     ? copy_through(memory, window, fd, path, mapping, rows, count, row_bytes, err)
                     : copy_by_pread(fd, path, rows, count, row_bytes, err);
    if (window != MAP_FAILED)
        munmap(window, WINDOW);
    if (memory >= 0)
        close(memory);
    return status;
}

static int copy_open(uni__scattered *scattered, int file, int fd, const uni__scattered_row *rows,
                     int64_t count, size_t row_bytes, uni_error *err)
{
    const char *path = scattered->files->items[file].path, *mapping = NULL;
    if (count >= FEW_ROWS && row_bytes < LARGE_ROW)
        mapping = mapping_of(scattered, file, fd);
    bool leased = mapping != NULL && lease(fd);
    /* Checked only after taking the lease. */
    int status = uni__files_check_open(scattered->files, file, fd, err);
    if (status == 0 && leased)
        copy_leased(mapping, rows, count, row_bytes);
    else if (status == 0 && mapping != NULL)
        status = copy_by_kernel(fd, path, mapping, rows, count, row_bytes, err);
    else if (status == 0)
        status = copy_by_pread(fd, path, rows, count, row_bytes, err);
    if (leased)
        fcntl(fd, F_SETLEASE, F_UNLCK);
    return status;
}

int uni__scattered_copy(uni__scattered *scattered, int file, const uni__scattered_row *rows,
                        int64_t count, size_t row_bytes, uni_error *err)
{
    const char *path = scattered->files->items[file].path;
    if (row_bytes == 0)
        return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC); /* a lease needs its own descriptor */
    if (fd < 0)
        return uni_error_set_errno(err, errno, "cannot open %s", path);
    int status = copy_open(scattered, file, fd, rows, count, row_bytes, err);
    close(fd);
    return status;
}
