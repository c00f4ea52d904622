/*
 * session_checkpoint.c - the worker's half of checkpoints.
 *
 * A dictionary is copied once, into a buffer that the controller maps too (memfd, two of them, kept
 * and already faulted in from the second use on, the other one prepared by the heartbeat thread):
 * the worker pays for a memcpy. A directory that the session made is only named; a user's own is
 * copied into the staging directory. At most two are in flight: a worker that saves faster than the
 * disk takes waits here, and the time is counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/shared.h"
#include "train/shared.h"
#include "base/file.h"
#include "checkpoint/dict.h"
#include "checkpoint/stage.h"
#include "train/session_internal.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define REPLACED_MAX 20

/* ---- snapshot buffers ---- */

/* Makes slot's buffer at least `size` large, faulted in, and known to the controller; keep: with
 * what is in it, which may be the newest dictionary (load_own). With snapshot_lock held. */
static int grow_snapshot(uni_session *session, int slot, size_t size, bool keep, uni_error *err)
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
    if (buffer->memory && keep)
        memcpy(memory, buffer->memory, buffer->size);
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
        (void)grow_snapshot(session, 1, size, true,
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

static int say_checkpoint(uni_session *session, int64_t iteration, uni__checkpoint_kind kind,
                          const char *path, int slot, size_t size, uni_error *err)
{
    uni__packer packer = { 0 }, state = { 0 };
    bool alone = kind != UNI__OF_REPORT;
    int packed =
        alone ? uni__session_pack_own_state(session, kind == UNI__OF_STEP, &state, err) : 0;
    if (packed < 0) {
        uni__packer_free(&state);
        return packed;
    }
    uni__pack_map(&packer, (path ? 4u : 5u) + alone);
    if (alone) {
        uni__pack_string(&packer, "state", 5);
        uni__pack_bytes(&packer, state.data, state.size);
        uni__packer_free(&state);
    }
    uni__pack_string(&packer, "iteration", 9);
    uni__pack_int(&packer, iteration);
    uni__pack_string(&packer, "alone", 5);
    uni__pack_bool(&packer, alone);
    uni__pack_string(&packer, "step", 4);
    uni__pack_bool(&packer, kind == UNI__OF_STEP);
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
        /* What a step's dictionary was written over is to be asked for. */
        bool keeps = kind == UNI__OF_STEP && (path || session->own_slot != slot);
        if (!keeps)
            session->own_slot = path || kind == UNI__OF_STEP ? -1 : slot;
        if (kind != UNI__OF_STEP)
            session->own_size = size;
    }
    return status;
}

static int take_dict(uni_session *session, const uni_value *dict, int64_t iteration,
                     uni__checkpoint_kind kind, uni_error *err)
{
    uni__page *page = session->page;
    size_t size;
    UNI_TRY(uni__dict_encoded_size(dict, &size, err));
    int slot = atomic_load(&page->slot_free[0]) ? 0 : 1;
    UNI_TRY(uni__session_wait(session, &page->slot_free[slot], 0, err));
    pthread_mutex_lock(&session->snapshot_lock);
    int status = grow_snapshot(session, slot, size, false, err);
    bool wanting = session->snapshots[1].size < size;
    if (status == 0)
        atomic_store(&page->slot_free[slot], 0); /* the heart leaves it alone from now on */
    pthread_mutex_unlock(&session->snapshot_lock);
    UNI_TRY(status);
    status = uni__dict_encode(dict, session->snapshots[slot].memory, size, err);
    if (status == 0)
        status = say_checkpoint(session, iteration, kind, NULL, slot, size, err);
    if (status < 0)
        atomic_store(&page->slot_free[slot], 1);
    else if (wanting)
        atomic_store(&session->prefault, size);
    return status;
}

static int take_directory(uni_session *session, const char *directory, int64_t iteration,
                          uni__checkpoint_kind kind, uni_error *err)
{
    if (uni__stage_owns(session->staging_dir, directory))
        return say_checkpoint(session, iteration, kind, directory, 0, 0, err);
    char *staged = NULL;
    UNI_TRY(uni__stage_copy(&staged, session->staging_dir, session->rank, directory, err));
    int status = say_checkpoint(session, iteration, kind, staged, 0, 0, err);
    free(staged);
    return status;
}

int uni__session_take_checkpoint(uni_session *session, const uni_checkpoint_source *source,
                                 int64_t iteration, uni__checkpoint_kind kind, uni_error *err)
{
    if (source->directory && source->dict)
        return uni_error_set(err, UNI_EINVAL,
                             "a checkpoint is a directory or a dictionary, not both");
    if (source->dict && uni_value_type_of(source->dict) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL, "a checkpoint must be a dictionary, not a %s",
                             uni__value_type_name(uni_value_type_of(source->dict)));
    UNI_TRY(uni__session_is_own(session, err));
    UNI_TRY(wait_for_turn(session, err));
    return source->directory ? take_directory(session, source->directory, iteration, kind, err)
                             : take_dict(session, source->dict, iteration, kind, err);
}

int uni__session_wait_complete(uni_session *session, uni_error *err)
{
    uni__page *page = session->page;
    for (uint32_t over;
         (over = atomic_load(&page->checkpoints_over)) != atomic_load(&page->checkpoints_taken);)
        UNI_TRY(uni__session_wait(session, &page->checkpoints_over, over, err));
    return 0;
}

int uni_session_save_checkpoint(uni_session *session, const uni_value *dict, uni_error *err)
{
    if (!session->is_worker) {
        uni__session_warn_alone(session, UNI__WARNED_SAVE, "save_checkpoint");
        return 0;
    }
    if (!dict || uni_value_type_of(dict) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL, "save_checkpoint needs a dictionary");
    session->advanced = true;
    session->saves++;
    if (session->rank != 0)
        return 0;
    UNI_TRY(uni__session_take_checkpoint(session, &(uni_checkpoint_source){ .dict = dict },
                                         session->iteration, UNI__OF_SAVE, err));
    return session->synchronous ? uni__session_wait_complete(session, err) : 0;
}

int64_t uni__session_every_steps(const uni_session *session)
{
    return session->every_steps;
}

double uni__session_every_seconds(const uni_session *session)
{
    return session->every_seconds;
}

void uni__session_keeps_steps(uni_session *session)
{
    session->keeps_steps = true;
}

int uni__session_keep_step(uni_session *session, const uni_value *dict, uni_error *err)
{
    return uni__session_take_checkpoint(session, &(uni_checkpoint_source){ .dict = dict },
                                        session->iteration, UNI__OF_STEP, err);
}

int uni_session_checkpoint_dir(char **out, uni_session *session, uni_error *err)
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

/* Where a checkpoint is: a path, or a dictionary in memory, or neither. */
typedef struct place {
    char path[4096];
    int fd; /* the place's own, or -1 */
} place;

/* What all ranks of this attempt begin with. */
static int place_of_start(const uni_session *session, place *out, uni_error *err)
{
    out->fd = session->resume_fd >= 0 ? fcntl(session->resume_fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (session->resume_fd >= 0 && out->fd < 0)
        return uni_error_set_errno(err, errno, "cannot open the dictionary to resume from");
    snprintf(out->path, sizeof out->path, "%s",
             out->fd < 0 && session->checkpoint ? session->checkpoint : "");
    return 0;
}

/* A tuner's trial is a world of one whose checkpoints are in its directory. */
static int place_in_directory(uni_session *session, place *out, uni_error *err)
{
    uni_checkpoint *newest = NULL;
    uni_error why = { 0 };
    UNI_TRY(uni__session_wait_complete(session, err));
    if (uni_checkpoint_open_latest(&newest, session->run_dir, &why) == 0) {
        snprintf(out->path, sizeof out->path, "%s", uni_checkpoint_info_of(newest)->path);
        uni_checkpoint_close(newest);
        return 0;
    }
    if (why.code == UNI_ENOTFOUND)
        return place_of_start(session, out, err);
    if (err)
        *err = why;
    return why.code;
}

static int ask_for_newest(uni_session *session, place *out, uni_error *err)
{
    char key[UNI__SESSION_KEY_SIZE];
    uint32_t asked[2] = { ++session->newest_serial, session->saves };
    size_t size = 0;
    snprintf(key, sizeof key, UNI__NEWEST_KEY, asked[0]);
    UNI_TRY(uni__session_say(session, UNI__SAYS_NEWEST, asked, sizeof asked, err));
    UNI_TRY(uni__session_mail_wait(session, UNI__CONTROLLER, key, out->path, sizeof out->path - 1,
                                   &size, &out->fd, -1, err));
    out->path[size] = '\0';
    if (out->path[0] == '!')
        return uni_error_set(err, UNI_ESTATE, "%s", out->path + 1);
    return out->path[0] || out->fd >= 0 ? 0 : place_of_start(session, out, err);
}

/* Until this rank has reported or saved, the checkpoint that the attempt began with: ranks that
 * start late begin with the same one. After that the newest that any rank has saved. */
static int find_place(uni_session *session, place *out, uni_error *err)
{
    *out = (place){ .fd = -1 };
    atomic_store(&session->page->loaded, 1);
    UNI_TRY(uni__session_is_own(session, err));
    if (!session->advanced)
        return place_of_start(session, out, err);
    return session->answers ? ask_for_newest(session, out, err)
                            : place_in_directory(session, out, err);
}

/* The policy may have removed it since the controller named it, because there is a newer one: then
 * that one is meant. */
static bool was_replaced(const uni_session *session, const place *newest, int tried)
{
    return session->advanced && newest->path[0] && access(newest->path, F_OK) != 0 &&
           tried < REPLACED_MAX;
}

int uni_session_get_checkpoint(uni_checkpoint **out, uni_session *session, uni_error *err)
{
    *out = NULL;
    if (!session->is_worker) {
        uni__session_warn_alone(session, UNI__WARNED_LOAD, "load_checkpoint");
        return 0;
    }
    for (int tried = 0;; tried++) {
        place newest;
        UNI_TRY(find_place(session, &newest, err));
        if (newest.fd >= 0)
            close(newest.fd);
        int status = newest.path[0] ? uni_checkpoint_open(out, newest.path, err) : 0;
        if (status == 0 || !was_replaced(session, &newest, tried))
            return status;
    }
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

static int load_own(uni_session *session, uni_value **out, uni_error *err)
{
    pthread_mutex_lock(&session->snapshot_lock);
    int status =
        uni__dict_decode(out, session->snapshots[session->own_slot].memory, session->own_size, err);
    pthread_mutex_unlock(&session->snapshot_lock);
    return status;
}

static int load_place(const place *from, uni_value **out, uni_error *err)
{
    uni_checkpoint *checkpoint = NULL;
    if (from->fd >= 0) {
        int status = load_from_memory(from->fd, out, err);
        close(from->fd);
        return status;
    }
    if (!from->path[0])
        return 0;
    UNI_TRY(uni_checkpoint_open(&checkpoint, from->path, err));
    int status = uni_checkpoint_read_dict(out, checkpoint, err);
    uni_checkpoint_close(checkpoint);
    return status;
}

int uni_session_load_checkpoint(uni_value **out, uni_session *session, uni_error *err)
{
    *out = NULL;
    if (!session->is_worker) {
        uni__session_warn_alone(session, UNI__WARNED_LOAD, "load_checkpoint");
        return 0;
    }
    /* The dictionary of a checkpoint is that of the lowest rank: rank 0 still has its own. */
    if (session->rank == 0 && session->own_slot >= 0 && *session->own) {
        atomic_store(&session->page->loaded, 1);
        return load_own(session, out, err);
    }
    for (int tried = 0;; tried++) {
        place newest;
        UNI_TRY(find_place(session, &newest, err));
        int status = load_place(&newest, out, err);
        if (status == 0 || !was_replaced(session, &newest, tried))
            return status;
    }
}
