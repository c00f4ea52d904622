/*
 * files.h - the files of a source: found once, read in blocks with pread.
 *
 * Paths are files, directories (their files, sorted, without those that begin with '.' or '_') or globs. Sizes and times are noted when
 * they are opened: a file that is gone, shorter or changed when it is read is an error that names it. Nothing is mapped here: blocks go into recycled
 * buffers, so that memory is bounded by the buffers and not by the files. All functions but open and unref may be called from any thread.
 */
#ifndef UNISONO_DATA_FILES_H
#define UNISONO_DATA_FILES_H

#include <stddef.h>
#include <stdint.h>
#include <unisono/status.h>

typedef struct uni__file {
    char *path;
    int64_t size;
    int64_t changed; /* mtime in ns */
} uni__file;

typedef struct uni__files {
    int count;
    uni__file *items;
    int64_t bytes; /* all together */
} uni__files;

/* suffixes: NULL, or a NULL-terminated list (".csv", ".csv.gz") that files of a directory must have (case does not matter); files and
 * globs that are named by the user are taken whatever they are called. No file at all is UNI_ENOTFOUND. Empty files are kept. */
int uni__files_open(uni__files **out, int num_paths, const char *const *paths,
                    const char *const *suffixes, uni_error *err) UNI_MUST_USE;
void uni__files_free(uni__files *files);
/* Exactly `size` bytes at offset; fewer is UNI_EIO "was truncated while it was read". */
int uni__files_pread(const uni__files *files, int file, int64_t offset, void *out, size_t size,
                     uni_error *err) UNI_MUST_USE;
/* The same from an open file; `path` is for messages. */
int uni__pread_all(int fd, const char *path, int64_t offset, void *out, size_t size,
                   uni_error *err) UNI_MUST_USE;
/* The file's size and time are still those of the opening. */
int uni__files_check(const uni__files *files, int file, uni_error *err) UNI_MUST_USE;
/* The same of a descriptor that stays open. */
int uni__files_check_open(const uni__files *files, int file, int fd, uni_error *err) UNI_MUST_USE;

/* A byte range of a file. A row belongs to the block in which its first byte lies. */
typedef struct uni__block {
    int file;
    int64_t begin, end;
} uni__block;

/* Cuts all files into blocks of block_bytes (0: by the total size, 64 KiB to 2 MiB, about 256 blocks or more); a block never spans files. Where they
 * are depends on nothing but the sizes of the files. malloc'ed. */
int uni__files_blocks(const uni__files *files, int64_t block_bytes, uni__block **out,
                      int64_t *count, uni_error *err) UNI_MUST_USE;

/* Whole lines of a block for formats where a newline always ends a row (JSON lines, text): all lines whose first byte is in the
 * block. *text is in the reader's scratch slot 0, *size bytes with 64 readable ones behind; the last line may lack its newline only at the end of the file. *offset: of
 * text[0] in the file. A line that begins in the block is followed to its end, however long (at most 1 GiB, UNI_ELIMIT). */
struct uni__reader;
int uni__files_read_lines(const uni__files *files, const uni__block *block,
                          struct uni__reader *reader, char **text, size_t *size, int64_t *offset,
                          uni_error *err) UNI_MUST_USE;
/* Lines before `offset`, plus 1: for messages only, reads the file up to there. 0 when that fails. */
int64_t uni__files_line_number(const uni__files *files, int file, int64_t offset);

#endif
