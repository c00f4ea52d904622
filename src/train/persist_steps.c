/*
 * persist_steps.c - checkpoints of steps: where a fit stands in the middle of an epoch.
 *
 * They belong to no report, have no score, and only the newest is of use, until the checkpoint of a
 * later report is complete. So they have a store of their own in the run directory, which users do
 * not see: .steps/, with the same drafts, manifests and renames as the run's. A run that ended well
 * leaves none behind. Persist thread.
 */
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "train/persist.h"
#include "train/shared.h"

int uni__steps_store(uni__persist *persist, uni__store **out, uni_error *err)
{
    static const uni_checkpoint_policy newest = { .num_to_keep = 1 };
    int status = 0;
    if (!persist->steps) {
        char *dir = uni__path_join(persist->run->places.dir, UNI__STEPS_NAME, NULL);
        status =
            dir ? uni__store_open(&persist->steps,
                                  &(uni__store_options){ .run_dir = dir, .policy = &newest }, err)
                : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
        free(dir);
    }
    *out = persist->steps;
    return status;
}

uni_checkpoint *uni__steps_newest(uni__persist *persist)
{
    char *dir = uni__path_join(persist->run->places.dir, UNI__STEPS_NAME, NULL);
    uni_checkpoint *newest = NULL;
    uni__store *store = NULL;
    uni_error err = { 0 };
    if (dir && uni__path_is_dir(dir) &&
        (uni__steps_store(persist, &store, &err) < 0 ||
         uni_checkpoint_open_latest(&newest, dir, &err) < 0) &&
        err.code != UNI_ENOTFOUND)
        uni__warn("the checkpoint of the last step is left out: %s", err.message);
    free(dir);
    return newest;
}

void uni__steps_end(uni__persist *persist, bool keep)
{
    char *dir = uni__path_join(persist->run->places.dir, UNI__STEPS_NAME, NULL);
    uni_error err = { 0 };
    if (persist->steps)
        uni__store_close(persist->steps, true);
    if (dir && !keep && uni__path_is_dir(dir) && uni__remove_tree(dir, &err) < 0)
        uni__warn("%s is left behind: %s", dir, err.message);
    free(dir);
}
