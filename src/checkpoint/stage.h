/*
 * stage.h - the worker's half of a checkpoint: getting files into the run's .staging directory.
 *
 * A directory that the session made (uni__stage_new) is already there. A user's own directory is
 * copied (reflinked if the file system can) and left alone. A checkpoint is self-contained: a link
 * that leads outside the copied directory becomes a copy of its target; links inside stay links.
 * Any thread.
 */
#ifndef UNISONO_CHECKPOINT_STAGE_H
#define UNISONO_CHECKPOINT_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/status.h>

/* Creates an empty directory below staging_dir ("<staging_dir>/rank_<rank>.<serial>.<random>"),
 * mode 0700; malloc'ed path. Creates staging_dir itself if it is missing. */
int uni__stage_new(char **out, const char *staging_dir, int rank, uni_error *err) UNI_MUST_USE;
/* Copies a user's directory into a fresh staged one. A missing or unreadable source is an error
 * that names it. */
int uni__stage_copy(char **out, const char *staging_dir, int rank, const char *user_dir,
                    uni_error *err) UNI_MUST_USE;
/* A piece of the file `path` of a staged directory, as another host sends it; the path was checked
 * (no "..", no leading slash). Pieces follow each other: one that leaves a gap is UNI_EFORMAT:
 * two bytes would be a file of terabytes, which is hashed whole. UNI_EDISKFULL when it would use
 * the last of the disk: 1 GiB, or a twentieth of a smaller one. */
int uni__stage_write(const char *staged, const char *path, uint64_t offset, const void *data,
                     size_t size, uni_error *err) UNI_MUST_USE;
/* true when path lies directly below staging_dir, that is, the session made it. */
bool uni__stage_owns(const char *staging_dir, const char *path);
/* Replaces links below dir that lead outside by copies. Relative targets are resolved from origin,
 * the original place of the links (may be dir itself). A missing target is UNI_ENOTFOUND. The store
 * uses this, too. */
int uni__stage_settle_links(const char *dir, const char *origin, uni_error *err) UNI_MUST_USE;

#endif
