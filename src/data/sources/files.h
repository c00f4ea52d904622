/*
 * files.h - the files of a source: found once, read in blocks with pread.
 *
 * Paths are files, directories (their files, sorted, except those that begin with '.' or '_') or
 * globs. Sizes and times are recorded at opening. A file that is missing, shorter or changed when
 * it is read is an error that names it. Nothing is mapped here: blocks go into recycled buffers, so
 * memory is bounded by the buffers and not by the files. Any thread may call all functions except
 * open and unref.
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
    int64_t bytes; /* of all files */
} uni__files;

/* suffixes: NULL, or a NULL-terminated list (".csv", ".csv.gz") that files of a directory must
 * have, ignoring case. Files and globs named by the user are accepted with any name. If there is no
 * file at all, returns UNI_ENOTFOUND. Empty files are kept. */
int uni__files_open(uni__files **out, int num_paths, const char *const *paths,
                    const char *const *suffixes, uni_error *err) UNI_MUST_USE;
void uni__files_free(uni__files *files);
/* Reads exactly `size` bytes at offset; fewer is UNI_EIO "was truncated while it was read". */
int uni__files_pread(const uni__files *files, int file, int64_t offset, void *out, size_t size,
                     uni_error *err) UNI_MUST_USE;
/* The same for an open file; `path` is for messages. */
int uni__pread_all(int fd, const char *path, int64_t offset, void *out, size_t size,
                   uni_error *err) UNI_MUST_USE;
/* Checks that the file's size and time have not changed since opening. */
int uni__files_check(const uni__files *files, int file, uni_error *err) UNI_MUST_USE;
/* The same for an open descriptor. */
int uni__files_check_open(const uni__files *files, int file, int fd, uni_error *err) UNI_MUST_USE;

/* A byte range of a file. A row belongs to the block that contains its first byte. */
typedef struct uni__block {
    int file;
    int64_t begin, end;
} uni__block;

/* The size of blocks of a table of many columns: each column of a block is an array of its own, so
 * small blocks cost more than their cells. Up to 2 MiB for 1 KiB a column, 16 blocks or more. */
int64_t uni__files_wide_blocks(const uni__files *files, int64_t num_columns);

/* Cuts all files into blocks of block_bytes. 0: chosen by the total size, 64 KiB to 2 MiB, about
 * 256 blocks or more. A block never spans files. The cuts depend only on the file sizes.
 * malloc'ed. */
int uni__files_blocks(const uni__files *files, int64_t block_bytes, uni__block **out,
                      int64_t *count, uni_error *err) UNI_MUST_USE;

/* Reads the lines whose first byte is in the block, for formats where a newline always ends a row
 * (JSON lines, text). *text is in the reader's scratch memory and has *size bytes, with 64 readable
 * bytes after it; only the last line of the file may lack its newline. *offset: file offset of
 * text[0]. A line that begins in the block is read to its end, at most 128 MiB (UNI_ELIMIT). */
struct uni__reader;
int uni__files_read_lines(const uni__files *files, const uni__block *block,
                          struct uni__reader *reader, char **text, size_t *size, int64_t *offset,
                          uni_error *err) UNI_MUST_USE;
/* Number of lines before `offset`, plus 1. For messages only: reads the file up to there. 0 on
 * failure. */
int64_t uni__files_line_number(const uni__files *files, int file, int64_t offset);

#endif
