/*
 * dict_file.c - a dictionary to and from the files of a checkpoint.
 *
 * Writing hashes on the way. Reading: the tree is copied out; arrays.bin is mapped once (private,
 * writable: a program may train on the loaded arrays in place and the file never changes), hashed
 * through the mapping, and shared by the views, which hold it by an atomic count until the last
 * of them goes. So a load touches each byte once, and pages that are never written are never
 * copied. A mapping ends the process with SIGBUS when the file is shortened under it, and shows
 * other bytes than those that were hashed when it is overwritten; so a file that another user can
 * write to is copied into memory instead. Any thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/dict_internal.h"
#include "checkpoint/seal.h"

typedef struct mapping {
    atomic_size_t references;
    void *data;
    size_t size;
} mapping;

static void mapping_retain(void *owner)
{
    mapping *map = owner;
    atomic_fetch_add_explicit(&map->references, 1, memory_order_relaxed);
}

static void mapping_release(void *owner)
{
    mapping *map = owner;
    if (atomic_fetch_sub_explicit(&map->references, 1, memory_order_acq_rel) != 1)
        return;
    munmap(map->data, map->size);
    free(map);
}

static int damaged(const char *dir, const char *name, uni_error *err)
{
    return uni_error_set(err, UNI_ECORRUPT,
                         "the checkpoint %s is damaged: %s has other bytes than when it was saved",
                         dir, name);
}

/* Opens one file of the checkpoint and looks that its size is the manifest's. `ours`: it can be
 * changed by this user and root only. */
static int open_listed(int *fd, bool *ours, const char *dir, const uni__manifest_file *file,
                       uni_error *err)
{
    struct stat info;
    UNI_TRY(uni__open_beneath(fd, dir, file->path, err));
    if (fstat(*fd, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size == file->size) {
        *ours = (info.st_uid == geteuid() || info.st_uid == 0) &&
                (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
        return 0;
    }
    close(*fd);
    return damaged(dir, file->path, err);
}

/* Private and populated: the pages are about to be hashed, and one call is cheaper than a
 * fault for each. An errno, or 0. */
static int map_own(void **data, int fd, size_t size)
{
    /* An address range that is readable only is filled from the page cache without copies;
     * then writing is allowed. */
    *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (*data == MAP_FAILED)
        return errno;
    if (mprotect(*data, size, PROT_READ | PROT_WRITE) == 0)
        return 0;
    int failure = errno;
    munmap(*data, size);
    return failure;
}

/* Into memory that is a mapping, too, so that both are released in one way. What the file has lost
 * since it was looked at stays zero, and the hash tells. An errno, or 0. */
static int copy_foreign(void **data, int fd, size_t size)
{
    *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*data == MAP_FAILED)
        return errno;
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(fd, (char *)*data + done, size - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int failure = errno;
            munmap(*data, size);
            return failure;
        }
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return 0;
}

static int map_file(void **data, const char *dir, const uni__manifest_file *file, uni_error *err)
{
    int fd = -1;
    bool ours = false;
    size_t size = (size_t)file->size;
    UNI_TRY(open_listed(&fd, &ours, dir, file, err));
    int failure = ours ? map_own(data, fd, size) : copy_foreign(data, fd, size);
    close(fd);
    if (failure)
        return uni_error_set_errno(err, failure, "cannot map %s/%s", dir, file->path);
    char sum[17];
    uni__hash_bytes(*data, size, sum);
    if (strcmp(sum, file->xxh3) == 0)
        return 0;
    munmap(*data, size);
    return damaged(dir, file->path, err);
}

static int map_arrays(mapping **out, const char *dir, const uni__manifest_file *file,
                      uni_error *err)
{
    mapping *map = malloc(sizeof *map);
    if (!map)
        return uni_error_set(err, UNI_ENOMEM, "no memory to read %s/%s", dir, file->path);
    atomic_init(&map->references, 1);
    map->size = (size_t)file->size;
    int status = map_file(&map->data, dir, file, err);
    if (status < 0) {
        free(map);
        return status;
    }
    *out = map;
    return 0;
}

/* The arrays that the header promises: the mapping, or NULL when there are none. */
static int find_arrays(mapping **out, const char *dir, const char *suffix, uint64_t size,
                       const uni__manifest *manifest, uni_error *err)
{
    char name[64];
    *out = NULL;
    if (size == 0)
        return 0;
    snprintf(name, sizeof name, "arrays.bin%s", suffix);
    const uni__manifest_file *file = uni__manifest_find(manifest, name);
    if (!file || file->link || file->size != size)
        return uni_error_set(err, UNI_EFORMAT,
                             "the checkpoint %s has no %s of %llu bytes, as its dictionary says",
                             dir, name, (unsigned long long)size);
    return map_arrays(out, dir, file, err);
}

static int read_mapped(uni_value **out, const char *dir, const char *suffix, const char *head,
                       size_t head_size, const uni__manifest *manifest, uni_error *err)
{
    uni__dict_header header;
    mapping *map = NULL;
    if (head_size < sizeof header)
        return uni_error_set(err, UNI_EFORMAT, "%s: dict.msgpack%s is cut off", dir, suffix);
    memcpy(&header, head, sizeof header);
    UNI_TRY(uni__dict_header_check(&header, head_size, err));
    UNI_TRY(find_arrays(&map, dir, suffix, header.arrays_size, manifest, err));
    uni__dict_source source = {
        .arrays = map ? map->data : NULL,
        .arrays_size = header.arrays_size,
        .owner = map,
        .retain = mapping_retain,
        .release = mapping_release,
    };
    int status = uni__dict_decode_tree(out, head + sizeof header, header.tree_size, &source, err);
    if (map)
        mapping_release(map); /* the views hold their own references */
    return status;
}

/* Writes dict.msgpack and arrays.bin into dir, with a suffix for ranks other than 0, and adds them
 * to the manifest. */
int uni__write_dict_part(const char *dir, int rank, const void *encoded, size_t size,
                         uni__manifest *manifest, uni_error *err)
{
    uni__dict_parts parts;
    UNI_TRY(uni__dict_split(&parts, encoded, size, err));
    for (int i = 0; i < 2; i++) {
        char name[64], suffix[32] = "", sum[17];
        const void *data = i == 0 ? parts.head : parts.arrays;
        size_t bytes = i == 0 ? parts.head_size : parts.arrays_size;
        if (i == 1 && bytes == 0)
            break;
        if (rank != 0)
            snprintf(suffix, sizeof suffix, ".rank_%d", rank);
        snprintf(name, sizeof name, "%s%s", i == 0 ? "dict.msgpack" : "arrays.bin", suffix);
        char *path = uni__path_join(dir, name, NULL);
        if (!path)
            return uni_error_set(err, UNI_ENOMEM, "no memory to write %s", name);
        int status = uni__write_hashed(path, data, bytes, sum, err);
        free(path);
        UNI_TRY(status);
        UNI_TRY(uni__manifest_add(manifest, name, bytes, sum, false, err));
    }
    return 0;
}

int uni__dict_read_part(uni_value **out, const char *dir, const char *suffix,
                        const uni__manifest *manifest, uni_error *err)
{
    char name[64];
    *out = NULL;
    if (snprintf(name, sizeof name, "dict.msgpack%s", suffix) >= (int)sizeof name)
        return uni_error_set(err, UNI_EINVAL, "the suffix \"%s\" is too long", suffix);
    const uni__manifest_file *file = uni__manifest_find(manifest, name);
    if (!file || file->link)
        return uni_error_set(err, UNI_ENOTFOUND, "the checkpoint %s has no %s", dir, name);
    if (file->size == 0)
        return uni_error_set(err, UNI_EFORMAT, "the checkpoint %s has an empty %s", dir, name);
    void *head = NULL;
    UNI_TRY(map_file(&head, dir, file, err));
    int status = read_mapped(out, dir, suffix, head, (size_t)file->size, manifest, err);
    munmap(head, (size_t)file->size);
    return status;
}

int uni__dict_read(uni_value **out, const char *dir, const char *suffix, uni_error *err)
{
    uni__manifest manifest;
    *out = NULL;
    UNI_TRY(uni__manifest_load(&manifest, dir, err));
    int status = uni__dict_read_part(out, dir, suffix, &manifest, err);
    uni__manifest_clear(&manifest);
    return status;
}
