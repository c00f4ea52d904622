/*
 * files.c - finds files, reads them in blocks, and finds the whole lines of a block. Any thread; a
 * descriptor is open only during a call.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "data/sources/source.h"

#define MIN_BLOCK ((int64_t)64 << 10)
#define MAX_BLOCK ((int64_t)2 << 20) /* larger blocks leave the caches before they are parsed */
#define MANY_BLOCKS 256
#define FEW_BLOCKS 16
#define COLUMN_BYTES 1024
#define MAX_LINE ((int64_t)128 << 20)

/* ---- finding ---- */

static int add_file(uni__files *files, const char *path, uni_error *err)
{
    struct stat stat_;
    if (stat(path, &stat_) < 0)
        return uni_error_set_errno(err, errno, "cannot read %s", path);
    if (!S_ISREG(stat_.st_mode))
        return uni_error_set(err, UNI_EINVAL,
                             "%s is neither a file nor a directory; a dataset reads files", path);
    uni__file *items = reallocarray(files->items, (size_t)files->count + 1, sizeof *items);
    if (items == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the list of files");
    files->items = items;
    char *copy = strdup(path);
    if (copy == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the list of files");
    items[files->count++] = (uni__file){ .path = copy,
                                         .size = stat_.st_size,
                                         .changed = (int64_t)stat_.st_mtim.tv_sec * 1000000000 +
                                                    stat_.st_mtim.tv_nsec };
    files->bytes += stat_.st_size;
    return 0;
}

static bool has_suffix(const char *name, const char *const *suffixes)
{
    if (suffixes == NULL)
        return true;
    size_t length = strlen(name);
    for (; *suffixes != NULL; suffixes++) {
        size_t size = strlen(*suffixes);
        if (length > size && strcasecmp(name + length - size, *suffixes) == 0)
            return true;
    }
    return false;
}

struct finding {
    uni__files *files;
    const char *const *suffixes;
};

static int find_in_directory(void *context, const char *relative, const char *full, uint64_t size,
                             uni_error *err)
{
    const struct finding *finding = context;
    const char *part = relative;
    do {
        part += *part == '/';
        if (*part == '.' || *part == '_')
            return 0;
        part = strchr(part, '/');
    } while (part != NULL);
    return has_suffix(relative, finding->suffixes) ? add_file(finding->files, full, err) : 0;
}

static int find_one(struct finding *finding, const char *path, uni_error *err)
{
    if (!uni__path_is_dir(path))
        return add_file(finding->files, path, err);
    int before = finding->files->count;
    UNI_TRY(uni__walk_files(path, find_in_directory, finding, err));
    if (finding->files->count == before)
        return uni_error_set(err, UNI_ENOTFOUND, "the directory %s has no file of this format",
                             path);
    return 0;
}

static int find_glob(struct finding *finding, const char *pattern, uni_error *err)
{
    glob_t found = { 0 };
    int code = glob(pattern, GLOB_BRACE | GLOB_TILDE, NULL, &found), status = 0;
    if (code == GLOB_NOMATCH)
        status = uni_error_set(err, UNI_ENOTFOUND, "no file fits the pattern %s", pattern);
    else if (code != 0)
        status = uni_error_set(err, UNI_EIO, "cannot look for files that fit %s", pattern);
    for (size_t i = 0; status == 0 && i < found.gl_pathc; i++)
        status = find_one(finding, found.gl_pathv[i], err);
    globfree(&found);
    return status;
}

int uni__files_open(uni__files **out, int num_paths, const char *const *paths,
                    const char *const *suffixes, uni_error *err)
{
    *out = NULL;
    if (num_paths < 1 || paths == NULL)
        return uni_error_set(err, UNI_EINVAL, "a dataset of files needs at least one path");
    uni__files *files = calloc(1, sizeof *files);
    if (files == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the list of files");
    struct finding finding = { .files = files, .suffixes = suffixes };
    int status = 0;
    for (int i = 0; i < num_paths; i++) {
        if (paths[i] == NULL || paths[i][0] == 0) {
            status = uni_error_set(err, UNI_EINVAL, "path %d of %d is empty", i + 1, num_paths);
            goto fail;
        }
        bool pattern = strpbrk(paths[i], "*?[{~") != NULL && !uni__path_exists(paths[i]);
        UNI_TRY_GOTO(
            pattern ? find_glob(&finding, paths[i], err) : find_one(&finding, paths[i], err), fail);
    }
    *out = files;
    return 0;
fail:
    uni__files_free(files);
    return status;
}

void uni__files_free(uni__files *files)
{
    if (files == NULL)
        return;
    for (int i = 0; i < files->count; i++)
        free(files->items[i].path);
    free(files->items);
    free(files);
}

/* ---- reading ---- */

static int check_same(const uni__file *file, const struct stat *now, uni_error *err)
{
    int64_t changed = (int64_t)now->st_mtim.tv_sec * 1000000000 + now->st_mtim.tv_nsec;
    if (now->st_size == file->size && changed == file->changed)
        return 0;
    return uni_error_set(err, UNI_EIO,
                         "%s changed while it was in use (%lld bytes, now %lld); make the dataset "
                         "again to read it as it is now",
                         file->path, (long long)file->size, (long long)now->st_size);
}

int uni__files_check(const uni__files *files, int file, uni_error *err)
{
    const uni__file *item = &files->items[file];
    struct stat now;
    if (stat(item->path, &now) < 0)
        return uni_error_set_errno(err, errno, "cannot read %s any more", item->path);
    return check_same(item, &now, err);
}

int uni__files_check_open(const uni__files *files, int file, int fd, uni_error *err)
{
    const uni__file *item = &files->items[file];
    struct stat now;
    if (fstat(fd, &now) < 0)
        return uni_error_set_errno(err, errno, "cannot read %s", item->path);
    return check_same(item, &now, err);
}

int uni__pread_all(int fd, const char *path, int64_t offset, void *out, size_t size, uni_error *err)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(fd, (char *)out + done, size - done, offset + (int64_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return uni_error_set_errno(err, errno, "cannot read %s at byte %lld", path,
                                       (long long)offset);
        if (got == 0)
            return uni_error_set(err, UNI_EIO, "%s was truncated while it was read (byte %lld)",
                                 path, (long long)(offset + (int64_t)done));
        done += (size_t)got;
    }
    return 0;
}

int uni__files_pread(const uni__files *files, int file, int64_t offset, void *out, size_t size,
                     uni_error *err)
{
    const uni__file *item = &files->items[file];
    int fd = open(item->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return uni_error_set_errno(err, errno, "cannot open %s", item->path);
    int status = uni__files_check_open(files, file, fd, err);
    if (status == 0)
        status = uni__pread_all(fd, item->path, offset, out, size, err);
    close(fd);
    return status;
}

void uni__place_of_block(const uni__files *files, const uni__block *block, uni__place *out)
{
    *out = (uni__place){
        .file = files->items[block->file].path, .begin = block->begin, .end = block->end, .rows = -1
    };
}

void uni__place_of_file(const uni__files *files, int64_t index, uni__place *out)
{
    const uni__file *file = &files->items[index];
    *out = (uni__place){ .file = file->path, .end = file->size, .rows = -1 };
}

int64_t uni__files_num_places(void *self)
{
    return (*(uni__files *const *)self)->count;
}

void uni__files_place(void *self, int64_t index, uni__place *out)
{
    uni__place_of_file(*(uni__files *const *)self, index, out);
}

/* Powers of two, so that a file that grows a little keeps its blocks. */
static int64_t default_block(const uni__files *files)
{
    int64_t bytes = MIN_BLOCK;
    while (bytes < MAX_BLOCK && bytes * MANY_BLOCKS < files->bytes)
        bytes *= 2;
    return bytes;
}

int64_t uni__files_wide_blocks(const uni__files *files, int64_t num_columns)
{
    int64_t bytes = default_block(files);
    while (bytes < MAX_BLOCK && bytes < num_columns * COLUMN_BYTES &&
           bytes * FEW_BLOCKS < files->bytes)
        bytes *= 2;
    return bytes;
}

int uni__files_blocks(const uni__files *files, int64_t block_bytes, uni__block **out,
                      int64_t *count, uni_error *err)
{
    *out = NULL;
    *count = 0;
    if (block_bytes < 0)
        return uni_error_set(err, UNI_EINVAL, "block_bytes: %lld; 0 chooses by the files' sizes",
                             (long long)block_bytes);
    if (block_bytes == 0)
        block_bytes = default_block(files);
    int64_t total = 0;
    for (int i = 0; i < files->count; i++)
        total += files->items[i].size / block_bytes + (files->items[i].size % block_bytes != 0);
    uni__block *blocks = calloc((size_t)total + 1, sizeof *blocks);
    if (blocks == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %lld blocks", (long long)total);
    int64_t next = 0;
    for (int i = 0; i < files->count; i++) {
        int64_t size = files->items[i].size;
        for (int64_t begin = 0, end; begin < size; begin = end) {
            end = size - begin > block_bytes ? begin + block_bytes : size;
            blocks[next++] = (uni__block){ .file = i, .begin = begin, .end = end };
        }
    }
    *out = blocks;
    *count = total;
    return 0;
}

/* ---- lines ---- */

static int read_bytes(const uni__files *files, const uni__block *block, int64_t begin, int64_t end,
                      uni__reader *reader, char **out, uni_error *err)
{
    const char *path = files->items[block->file].path;
    if (end - begin > MAX_LINE)
        return uni_error_set(err, UNI_ELIMIT,
                             "%s: a line at byte %lld is longer than 128 MiB; is this a text file?",
                             path, (long long)block->begin);
    *out = uni__reader_scratch(reader, UNI__SCRATCH_FILE_LINES, (size_t)(end - begin));
    if (*out == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a block of %s", path);
    return uni__files_pread(files, block->file, begin, *out, (size_t)(end - begin), err);
}

int uni__files_read_lines(const uni__files *files, const uni__block *block, uni__reader *reader,
                          char **text, size_t *size, int64_t *offset, uni_error *err)
{
    /* Begins one byte earlier: if that byte is a newline, a line begins at block->begin. */
    int64_t begin = block->begin > 0 ? block->begin - 1 : 0, last = block->end - 1 - begin;
    int64_t file_size = files->items[block->file].size;
    for (int64_t extra = 16 << 10;; extra *= 8) {
        int64_t end = block->end + extra < file_size ? block->end + extra : file_size;
        UNI_TRY(read_bytes(files, block, begin, end, reader, text, err));
        const char *first = *text, *stop = *text + (end - begin), *newline = *text;
        if (block->begin > 0) {
            newline = memchr(*text, '\n', (size_t)last);
            /* Inside a line that began earlier: it is read only once, however long it is. */
            first = newline != NULL ? newline + 1 : stop;
        }
        *offset = begin + (first - *text);
        *size = 0;
        if (newline == NULL)
            return 0;
        /* The last line is the one whose first byte is before block->end. */
        newline = memchr(*text + last, '\n', (size_t)(stop - *text - last));
        *size = (size_t)((newline != NULL ? newline + 1 : stop) - first);
        *text += first - *text;
        if (newline != NULL || end == file_size)
            return 0;
    }
}

int64_t uni__files_line_number(const uni__files *files, int file, int64_t offset)
{
    enum { STEP = 1 << 20 };
    char *memory = malloc(STEP);
    int64_t lines = 1;
    if (memory == NULL)
        return 0;
    for (int64_t at = 0; at < offset; at += STEP) {
        size_t size = offset - at < STEP ? (size_t)(offset - at) : STEP;
        if (uni__files_pread(files, file, at, memory, size, NULL) < 0) {
            free(memory);
            return 0;
        }
        const char *end = memory + size;
        for (const char *p = memory; (p = memchr(p, '\n', (size_t)(end - p))) != NULL; p++)
            lines++;
    }
    free(memory);
    return lines;
}
