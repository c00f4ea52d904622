/*
 * stage.h - the worker's half of a checkpoint: getting files into the run's .staging directory.
 *
 * A directory that the session made (uni__stage_new) is already there. A user's own directory is
 * copied (reflink where the filesystem can) and left alone. A checkpoint is complete by itself: a
 * link that leads out of the copied directory becomes a copy of what it points to; links inside
 * stay links. Any thread.
 */
#ifndef UNISONO_CHECKPOINT_STAGE_H
#define UNISONO_CHECKPOINT_STAGE_H

#include <stdbool.h>
#include <unisono/status.h>

/* A fresh empty directory below staging_dir ("<staging_dir>/rank_<rank>.<serial>.<random>"),
 * mode 0700; malloc'ed path. staging_dir itself is made when it is missing. */
int uni__stage_new(char **out, const char *staging_dir, int rank, uni_error *err) UNI_MUST_USE;
/* Copies a user's directory into a fresh staged one. A missing or unreadable source is an
 * error that names it. */
int uni__stage_copy(char **out, const char *staging_dir, int rank, const char *user_dir,
                    uni_error *err) UNI_MUST_USE;
/* true when path lies directly below staging_dir, that is, the session made it. */
bool uni__stage_owns(const char *staging_dir, const char *path);
/* Replaces links below dir that lead out of it by copies. Relative targets are looked up from
 * origin, where the links came from (may be dir itself). A target that is gone is
 * UNI_ENOTFOUND. Used by the store too. */
int uni__stage_settle_links(const char *dir, const char *origin, uni_error *err) UNI_MUST_USE;

#endif
