/*
 * owned.h - files and directories that nobody but this user can change.
 *
 * A storage directory may be shared by many users (mode 1777). What is read there to be acted on
 * (a program to start again, a process to signal, a tree to remove) must be ours: owned by the
 * effective user, not writable by group or others, and reached without a symbolic link. Everything
 * goes by descriptors (openat, O_NOFOLLOW), so what was checked is what is used. Root is not
 * excepted: a program that another user chose must not run as root either. Any thread.
 */
#ifndef UNISONO_BASE_OWNED_H
#define UNISONO_BASE_OWNED_H

#include <stdbool.h>
#include <unisono/status.h>

/* Opens a directory (or regular file) `name` in the directory `at`, for reading. `shown` is its
 * path, for messages. Returns the descriptor; UNI_EPERMISSION when it is not ours alone or is a
 * link, UNI_ENOTFOUND when it is not there. */
int uni__open_owned_dir(int at, const char *name, const char *shown, uni_error *err) UNI_MUST_USE;
int uni__open_owned_file(int at, const char *name, const char *shown, uni_error *err) UNI_MUST_USE;

/* Opens a directory that may be shared. Links are followed, because its path is the caller's own
 * word. One in which any user can replace our entries (writable by others, no sticky bit) is
 * UNI_EPERMISSION, and so is one below such a directory, which could be replaced as a whole. */
int uni__open_shared_dir(const char *path, uni_error *err) UNI_MUST_USE;

/* The directory `dir` (an absolute path) and the one it is in are ours alone, the one above is no
 * worse than shared. Returns a descriptor of `dir`. */
int uni__open_owned_below(const char *dir, uni_error *err) UNI_MUST_USE;

/* Makes the directory `dir` (STORAGE/NAME, an absolute path) of mode 0700, and what is missing above
 * it, unless it is there. STORAGE is no worse than shared, `dir` is ours alone. Returns a descriptor
 * of `dir`: what is made in it by descriptors stays in it, whatever happens to the path. */
int uni__make_owned_dir(const char *dir, uni_error *err) UNI_MUST_USE;

/* The directory `name` in the directory `at`, made with mode 0700 unless it is there; ours alone.
 * `shown` is its path, for messages. Returns a descriptor. */
int uni__make_owned_in(int at, const char *name, const char *shown, uni_error *err) UNI_MUST_USE;

/* A directory that we are about to write into is ours alone. */
int uni__check_owned_place(const char *dir, uni_error *err) UNI_MUST_USE;

/* STORAGE/NAME/run_NNN that is only read: neither it nor the one it is in is a symbolic link of
 * another user (root excepted), so that no other user chooses what is shown. UNI_EPERMISSION otherwise. */
int uni__check_foreign_links(const char *dir, uni_error *err) UNI_MUST_USE;

/* Whether code from this file may run in our process or as our helper: it belongs to root, to the
 * effective user or to the owner of `own` (the library or program that we are), and others cannot
 * write to it. Build trees and copies look for their parts in directories around them, which may be
 * anybody's (/tmp). */
bool uni__may_run(const char *path, const char *own);

#endif
