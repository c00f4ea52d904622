/*
 * backup.c - BackupAndRestore: writes the model's whole state (weights, optimizer, step count,
 * seed) and the position in the training at the end of every epoch or every N batches, atomically.
 * A fit that finds a backup in the directory continues from it. Shuffles and random numbers are
 * keyed by seed, epoch and step, so it ends exactly as an uninterrupted fit would have.
 *
 * The file is DIRECTORY/backup.unidict, encoded by checkpoint/dict.h: {"format": 2, "state",
 * "fit"}, from uni_model_get_state and uni__model_get_fit_state. Runs on fit's thread.
 */
#include "nn/callbacks/callback.h"

#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "base/file.h"
#include "checkpoint/dict.h"

#define FORMAT 2

struct backup {
    char *directory, *path;
    int64_t every;
    bool keep;
    int64_t since; /* batches since the last write */
};

static int write_state(struct backup *backup, const uni_model *model, uni_error *err)
{
    uni_value *state = NULL, *fit = NULL, *all = uni_value_dict();
    void *encoded = NULL;
    size_t size = 0;
    int status = 0;
    UNI_TRY_GOTO(uni_model_get_state(&state, model, err), done);
    status = uni_dict_take(all, "state", state);
    if (status == 0)
        UNI_TRY_GOTO(uni__model_get_fit_state(model, &fit, err), done);
    if (status == 0)
        status = uni_dict_take(all, "fit", fit);
    if (status == 0)
        status = uni_dict_take(all, "format", uni_value_int(FORMAT));
    if (status < 0) {
        uni_error_set(err, status, "no memory for the backup in %s", backup->directory);
        goto done;
    }
    UNI_TRY_GOTO(uni__dict_encoded_size(all, &size, err), done);
    encoded = malloc(size);
    if (encoded == NULL)
        UNI_TRY_GOTO(uni_error_set(err, UNI_ENOMEM, "no memory for a backup of %zu bytes", size),
                     done);
    UNI_TRY_GOTO(uni__dict_encode(all, encoded, size, err), done);
    UNI_TRY_GOTO(uni__make_dirs(backup->directory, 0777, err), done);
    status = uni__write_file(backup->path, encoded, size, true, err);
done:
    free(encoded);
    uni_value_free(all);
    return status;
}

static int restore(struct backup *backup, uni_model *model, uni_error *err)
{
    char *bytes = NULL;
    size_t size = 0;
    uni_value *all = NULL;
    int status = 0;
    UNI_TRY_GOTO(uni__read_file(&bytes, &size, backup->path, (size_t)1 << 40, err), done);
    UNI_TRY_GOTO(uni__dict_decode(&all, bytes, size, err), done);
    if (uni_dict_get_int(all, "format", 0) != FORMAT)
        UNI_TRY_GOTO(uni_error_set(err, UNI_EVERSION, "%s has format %lld, this program reads %d",
                                   backup->path, (long long)uni_dict_get_int(all, "format", 0),
                                   FORMAT),
                     done);
    UNI_TRY_GOTO(uni_model_set_state(model, uni_dict_get(all, "state"), err), done);
    UNI_TRY_GOTO(uni__model_set_fit_state(model, uni_dict_get(all, "fit"), err), done);
    model->resume_anywhere = true;
done:
    if (status < 0)
        uni_error_prefix(err, "cannot go on from the backup %s", backup->path);
    uni_value_free(all);
    free(bytes);
    return status;
}

static int train_begin(void *self, uni_model *model, const uni_fit_info *info, uni_error *err)
{
    struct backup *backup = self;
    backup->since = 0;
    return uni__path_exists(backup->path) ? restore(backup, model, err) : 0;
}

/* Covers a crash before the end of the first epoch: other callbacks may have written by then. */
static int epoch_begin(void *self, uni_model *model, int epoch, uni_error *err)
{
    struct backup *backup = self;
    return uni__path_exists(backup->path) ? 0 : write_state(backup, model, err);
}

static int after_epoch(void *self, uni_model *model, int epoch, const uni_logs *logs,
                       uni_error *err)
{
    return write_state(self, model, err);
}

static int after_batch(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    struct backup *backup = self;
    if (++backup->since < backup->every)
        return 0;
    backup->since = 0;
    return write_state(backup, model, err);
}

static int get_state(void *self, uni_value **out, uni_error *err)
{
    *out = uni__callback_numbers(1, (const char *const[]){ "since" },
                                 (const int64_t[]){ ((struct backup *)self)->since });
    return *out != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a backup's state");
}

static int set_state(void *self, const uni_value *state, uni_error *err)
{
    ((struct backup *)self)->since = uni_dict_get_int(state, "since", 0);
    return 0;
}

static int train_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    struct backup *backup = self;
    return backup->keep ? 0 : uni__unlink(backup->path, err);
}

static void free_backup(void *self)
{
    struct backup *backup = self;
    free(backup->directory);
    free(backup->path);
    free(backup);
}

static const uni_callback_class epoch_class = { .name = "BackupAndRestore",
                                                .train_begin = train_begin,
                                                .train_end = train_end,
                                                .epoch_begin = epoch_begin,
                                                .after_epoch = after_epoch,
                                                .free = free_backup };
static const uni_callback_class batch_class = { .name = "BackupAndRestore",
                                                .train_begin = train_begin,
                                                .train_end = train_end,
                                                .epoch_begin = epoch_begin,
                                                .after_epoch = after_epoch,
                                                .after_batch = after_batch,
                                                .get_state = get_state,
                                                .set_state = set_state,
                                                .free = free_backup };

int uni_callback_backup_and_restore(uni_callback **out, const char *directory,
                                    int64_t save_every_batches, bool keep, uni_error *err)
{
    *out = NULL;
    if (directory == NULL || directory[0] == '\0')
        return uni_error_set(err, UNI_EINVAL, "BackupAndRestore needs a directory");
    if (save_every_batches < 0)
        return uni_error_set(err, UNI_EINVAL,
                             "BackupAndRestore: save_every_batches must not be negative, got %lld",
                             (long long)save_every_batches);
    struct backup *backup = uni__callback_make(
        out, save_every_batches > 0 ? &batch_class : &epoch_class, sizeof *backup, err);
    if (backup == NULL)
        return UNI_ENOMEM;
    *backup = (struct backup){ .directory = strdup(directory),
                               .path = uni__path_join(directory, "backup.unidict", NULL),
                               .every = save_every_batches,
                               .keep = keep };
    if (backup->directory != NULL && backup->path != NULL)
        return 0;
    uni_callback_free(*out);
    *out = NULL;
    return uni_error_set(err, UNI_ENOMEM, "no memory for the path of a backup");
}
