/*
 * session_checkpoint.c - the worker's half of checkpoints.
 *
 * A dictionary is copied once, into a buffer that the controller maps too (memfd, two of them, kept and already faulted in
 * from the second use on, the other one prepared by the heartbeat thread): the worker pays for a memcpy. A directory that the session made is
 * only named; a user's own is copied into the staging directory. At most two are in flight: a worker that saves faster than the disk
 * takes waits here, and the time is counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/dict.h"
#include "checkpoint/stage.h"
#include "train/session_internal.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* ---- snapshot buffers ---- */

/* Makes slot's buffer at least `size` large, faulted in, and known to the controller. With snapshot_lock held. */
static int grow_snapshot(uni_session *session, int slot, size_t size, uni_error *err)
{
    uni__snapshot *buffer = &session->snapshots[slot];
    if (buffer->size >= size)
        return 0;
    size_t room = (size + size / 8 + 4095) & ~(size_t)4095;
    int fd = memfd_create("unisono-snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* Sealed against shrinking: the controller reads it and must not fault. */
    if (fd < 0 || ftruncate(fd, (off_t)room) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0) {
        int saved = errno;
        if (fd >= 0)
            close(fd);
        return uni_error_set_errno(err, saved, "cannot make a checkpoint buffer of %zu bytes",
                                   room);
    }
    uint8_t *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        int saved = errno;
        close(fd);
        return uni_error_set_errno(err, saved, "cannot map a checkpoint buffer of %zu bytes", room);
    }
    (void)madvise(memory, room,
                  MADV_POPULATE_WRITE); /* otherwise the first copy faults page by page */
    int status = uni__session_pass(session, slot + 1, fd, err);
    close(fd);
    if (status < 0) {
        munmap(memory, room);
        return status;
    }
    if (buffer->memory)
        munmap(buffer->memory, buffer->size);
    buffer->memory = memory;
    buffer->size = room;
    return 0;
}

void uni__session_prefault(uni_session *session)
{
    size_t size = atomic_exchange(&session->prefault, 0);
    pthread_mutex_lock(&session->snapshot_lock);
    if (atomic_load(&session->page->slot_free[1]))
        (void)grow_snapshot(session, 1, size,
                            NULL); /* it is tried again, with an error, when it is needed */
    pthread_mutex_unlock(&session->snapshot_lock);
}

void uni__session_drop_snapshots(uni_session *session)
{
    for (int i = 0; i < UNI__SNAPSHOT_SLOTS; i++)
        if (session->snapshots[i].memory)
            munmap(session->snapshots[i].memory, session->snapshots[i].size);
}

/* ---- taking ---- */

/* Waits until fewer than the allowed number of this worker's checkpoints are on their way. */
static int wait_for_turn(uni_session *session, uni_error *err)
{
    uni__page *page = session->page;
    for (;;) {
        uint32_t done = atomic_load(&page->checkpoints_done);
        if (atomic_load(&page->checkpoints_taken) - done < UNI__CHECKPOINTS_IN_FLIGHT)
            return 0;
        UNI_TRY(uni__session_wait(session, &page->checkpoints_done, done, err));
    }
}

static int say_checkpoint(uni_session *session, int64_t iteration, bool alone, const char *path,
                          int slot, size_t size, uni_error *err)
{
    uni__packer packer = { 0 };
    uni__pack_map(&packer, path ? 3 : 4);
    uni__pack_string(&packer, "iteration", 9);
    uni__pack_int(&packer, iteration);
    uni__pack_string(&packer, "alone", 5);
    uni__pack_bool(&packer, alone);
    if (path) {
        uni__pack_string(&packer, "path", 4);
        uni__pack_string(&packer, path, strlen(path));
    } else {
        uni__pack_string(&packer, "slot", 4);
        uni__pack_int(&packer, slot);
        uni__pack_string(&packer, "size", 4);
        uni__pack_int(&packer, (int64_t)size);
    }
    int status =
        packer.overflow
            ? uni_error_set(err, UNI_ENOMEM, "no memory to hand over a checkpoint")
            : uni__session_say(session, UNI__SAYS_CHECKPOINT, packer.data, packer.size, err);
    uni__packer_free(&packer);
    if (status == 0) {
        atomic_fetch_add(&session->page->checkpoints_taken, 1);
        session->took_checkpoint = true;
    }
    return status;
}

static int take_dict(uni_session *session, const uni_value *dict, int64_t iteration, bool alone,
                     uni_error *err)
{
    uni__page *page = session->page;
    size_t size;
    UNI_TRY(uni__dict_encoded_size(dict, &size, err));
    int slot = atomic_load(&page->slot_free[0]) ? 0 : 1;
    UNI_TRY(uni__session_wait(session, &page->slot_free[slot], 0, err));
    pthread_mutex_lock(&session->snapshot_lock);
    int status = grow_snapshot(session, slot, size, err);
    pthread_mutex_unlock(&session->snapshot_lock);
    if (status == 0)
        status = uni__dict_encode(dict, session->snapshots[slot].memory, size, err);
    if (status < 0)
        return status;
    atomic_store(&page->slot_free[slot], 0);
    status = say_checkpoint(session, iteration, alone, NULL, slot, size, err);
    if (status < 0)
        atomic_store(&page->slot_free[slot], 1);
    else if (session->snapshots[1].size < size)
        atomic_store(&session->prefault, size);
    return status;
}

static int take_directory(uni_session *session, const char *directory, int64_t iteration,
                          bool alone, uni_error *err)
{
    if (uni__stage_owns(session->staging_dir, directory))
        return say_checkpoint(session, iteration, alone, directory, 0, 0, err);
    char *staged = NULL;
    UNI_TRY(uni__stage_copy(&staged, session->staging_dir, session->rank, directory, err));
    int status = say_checkpoint(session, iteration, alone, staged, 0, 0, err);
    free(staged);
    return status;
}

int uni__session_take_checkpoint(uni_session *session, const uni_checkpoint_source *source,
                                 int64_t iteration, bool alone, uni_error *err)
{
    if (source->directory && source->dict)
        return uni_error_set(err, UNI_EINVAL,
                             "a checkpoint is a directory or a dictionary, not both");
    if (source->dict && uni_value_type_of(source->dict) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL, "a checkpoint must be a dictionary, not a %s",
                             uni_value_type_name(uni_value_type_of(source->dict)));
    UNI_TRY(uni__session_is_own(session, err));
    UNI_TRY(wait_for_turn(session, err));
    return source->directory ? take_directory(session, source->directory, iteration, alone, err)
                             : take_dict(session, source->dict, iteration, alone, err);
}

int uni_session_save_checkpoint(uni_session *session, const uni_value *dict, uni_error *err)
{
    if (!session->is_worker) {
        uni__session_warn_alone(session, UNI__WARNED_SAVE, "save_checkpoint");
        return 0;
    }
    if (!dict || uni_value_type_of(dict) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL, "save_checkpoint needs a dictionary");
    if (session->rank != 0)
        return 0;
    return uni__session_take_checkpoint(session, &(uni_checkpoint_source){ .dict = dict },
                                        session->iteration, true, err);
}

int uni_session_checkpoint_dir(uni_session *session, char **out, uni_error *err)
{
    *out = NULL;
    if (session->is_worker)
        return uni__stage_new(out, session->staging_dir, session->rank, err);
    uni__session_warn_alone(session, UNI__WARNED_DIRECTORY, "checkpoint_dir");
    char template[512];
    if (!mkdtemp(uni__temporary_name(template, sizeof template, "alone")))
        return uni_error_set_errno(err, errno, "cannot make a directory %s", template);
    *out = strdup(template);
    return *out ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
}

/* ---- loading ---- */

/* The checkpoint that this attempt began with, or, once this rank has taken one itself, the newest complete one. All ranks of a restarted
 * group thus begin with the same. */
int uni_session_get_checkpoint(uni_session *session, uni_checkpoint **out, uni_error *err)
{
    *out = NULL;
    if (!session->is_worker) {
        uni__session_warn_alone(session, UNI__WARNED_LOAD, "load_checkpoint");
        return 0;
    }
    atomic_store(&session->page->loaded, 1);
    if (session->took_checkpoint) {
        uni_error newest = { 0 };
        if (uni_checkpoint_open_latest(out, session->run_dir, &newest) == 0)
            return 0;
        if (newest.code != UNI_ENOTFOUND) {
            if (err)
                *err = newest;
            return newest.code;
        }
    }
    return session->checkpoint && session->checkpoint[0]
               ? uni_checkpoint_open(out, session->checkpoint, err)
               : 0;
}

static int load_from_memory(int fd, uni_value **out, uni_error *err)
{
    struct stat info;
    if (fstat(fd, &info) < 0)
        return uni_error_set_errno(err, errno, "cannot look at the dictionary to resume from");
    void *memory = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED)
        return uni_error_set_errno(err, errno, "cannot map the dictionary to resume from");
    int status = uni__dict_decode(out, memory, (size_t)info.st_size, err);
    munmap(memory, (size_t)info.st_size);
    return status;
}

int uni_session_load_checkpoint(uni_session *session, uni_value **out, uni_error *err)
{
    uni_checkpoint *checkpoint = NULL;
    *out = NULL;
    UNI_TRY(uni_session_get_checkpoint(session, &checkpoint, err));
    if (!checkpoint)
        return session->resume_fd >= 0 ? load_from_memory(session->resume_fd, out, err) : 0;
    int status = uni_checkpoint_read_dict(checkpoint, out, err);
    uni_checkpoint_close(checkpoint);
    return status;
}
