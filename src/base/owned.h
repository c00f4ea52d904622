/*
 * owned.h - files and directories that only this user can change.
 *
 * Many users may share a storage directory (mode 1777). What is read there to be acted on (a
 * program to restart, a process to signal, a tree to remove) must be ours: owned by the effective
 * user, not writable by group or others, and reached without a symbolic link. Everything uses
 * descriptors (openat, O_NOFOLLOW), so the object that was checked is the one used. Root is not
 * exempt: a program that another user chose must not run as root either. Any thread.
 */
#ifndef UNISONO_BASE_OWNED_H
#define UNISONO_BASE_OWNED_H

#include <stdbool.h>
#include <unisono/status.h>

/* Opens a directory (or regular file) `name` in the directory `at`, for reading. `shown` is its
 * path, for messages. Returns the descriptor; UNI_EPERMISSION when it is not ours alone or is a
 * link, UNI_ENOTFOUND when it does not exist. */
int uni__open_owned_dir(int at, const char *name, const char *shown, uni_error *err) UNI_MUST_USE;
int uni__open_owned_file(int at, const char *name, const char *shown, uni_error *err) UNI_MUST_USE;

/* Opens a directory that may be shared. Links are followed, because the caller chose the path. A
 * directory in which any user can replace our entries (writable by others, no sticky bit) is
 * UNI_EPERMISSION. So is one below such a directory, which could be replaced as a whole. */
int uni__open_shared_dir(const char *path, uni_error *err) UNI_MUST_USE;

/* Checks that the directory `dir` (an absolute path) and its parent are ours alone, and that the
 * one above is at most shared. Returns a descriptor of `dir`. */
int uni__open_owned_below(const char *dir, uni_error *err) UNI_MUST_USE;

/* Creates the directory `dir` (STORAGE/NAME, an absolute path) with mode 0700, and what is missing
 * above it, unless it exists. STORAGE must be at most shared, `dir` ours alone. Returns a
 * descriptor of `dir`: what is created through it stays in it, whatever happens to the path. */
int uni__make_owned_dir(const char *dir, uni_error *err) UNI_MUST_USE;

/* Creates the directory `name` in the directory `at` with mode 0700 unless it exists; it must be
 * ours alone. `shown` is its path, for messages. Returns a descriptor. */
int uni__make_owned_in(int at, const char *name, const char *shown, uni_error *err) UNI_MUST_USE;

/* Checks that a directory that we are about to write to is ours alone. */
int uni__check_owned_place(const char *dir, uni_error *err) UNI_MUST_USE;

/* For STORAGE/NAME/run_NNN that is only read: neither it nor its parent may be a symbolic link of
 * another user (except root), so that no other user chooses what is shown. UNI_EPERMISSION
 * otherwise. */
int uni__check_foreign_links(const char *dir, uni_error *err) UNI_MUST_USE;

/* Whether code from this file may run in our process or as our helper: it belongs to root, to the
 * effective user or to the owner of `own` (the library or program that we are), and others cannot
 * write to it. Build trees and copies look for their parts in surrounding directories, which may
 * belong to anyone (/tmp). */
bool uni__may_run(const char *path, const char *own);

#endif
