/* request.c - see request.h. */
#include "train/request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unisono/data.h>
#include <unistd.h>

#include "base/shared.h"
#include "checkpoint/shared.h"
#include "base/file.h"
#include "checkpoint/dict.h"
#include "checkpoint/state.h"
#include "train/trainer_internal.h"

/* Every description makes a dataset: a wrong path or key is an error before a worker starts. */
static int check_datasets(const uni_value *datasets, uni_error *err)
{
    if (datasets && uni_value_type_of(datasets) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL,
                             "datasets must be a dictionary of descriptions, not a %s",
                             uni__value_type_name(uni_value_type_of(datasets)));
    for (size_t i = 0; i < uni_dict_size(datasets); i++) {
        uni_dataset *dataset = NULL;
        int status = uni_dataset_from_config(&dataset, uni_dict_value_at(datasets, i), err);
        uni_dataset_unref(dataset);
        if (status < 0)
            return uni_error_prefix(err, "dataset %s", uni_dict_key_at(datasets, i));
    }
    return 0;
}

static int copy_function(uni__request *request, const uni_run_options *asked, bool has_workers,
                         const uni_function *at, uni_error *err)
{
    char known[512] = "";
    if (!has_workers)
        return uni_error_set(err, UNI_ESTATE,
                             "the function \"%s\" cannot run in workers, because this trainer does "
                             "not know the program: let main be "
                             "`return uni_main(argc, argv, functions, driver)` and give the "
                             "trainer the program that the driver gets",
                             asked->function);
    for (; at && at->name && strcmp(at->name, asked->function) != 0; at++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", known[0] ? ", " : "",
                 at->name);
    if (at && !at->name)
        return uni_error_set(
            err, UNI_ENOTFOUND,
            "there is no train function \"%s\" in the list given to uni_main; there are: %s",
            asked->function, known[0] ? known : "none");
    request->function = strdup(asked->function);
    return request->function ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a run");
}

static int copy_program(uni__request *request, const uni_run_options *asked, uni_error *err)
{
    UNI_TRY(uni__find_program(asked->program[0], &request->exe, err));
    request->program = uni_value_list();
    for (const char *const *word = asked->program; *word; word++)
        if (uni_list_take(request->program, uni_value_string(*word)) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the program's arguments");
    return 0;
}

static int copy_start(uni__request *request, const uni_run_options *asked, uni_error *err)
{
    if (asked->from_checkpoint && asked->from_dict)
        return uni_error_set(err, UNI_EINVAL, "from_checkpoint and from_dict exclude each other");
    if (asked->from_dict) {
        size_t size;
        UNI_TRY(uni__dict_encoded_size(asked->from_dict, &size, err));
        request->from_fd = memfd_create("unisono-resume", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (request->from_fd < 0 || ftruncate(request->from_fd, (off_t)size) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the dictionary to start from");
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, request->from_fd, 0);
        if (memory == MAP_FAILED)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the dictionary to start from");
        int status = uni__dict_encode(asked->from_dict, memory, size, err);
        munmap(memory, size);
        /* Every worker gets it, and a later attempt needs it again. */
        if (status == 0 &&
            fcntl(request->from_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
            return uni_error_set_errno(err, errno, "cannot seal the dictionary to start from");
        return status;
    }
    if (!asked->from_checkpoint)
        return 0;
    uni_checkpoint *checkpoint = NULL;
    char *path = uni__path_absolute(asked->from_checkpoint, err);
    if (!path)
        return UNI_EINVAL;
    char *manifest = uni__path_join(path, ".unisono-manifest.json", NULL);
    bool is_checkpoint = manifest && uni__path_exists(manifest);
    free(manifest);
    int status;
    if (!uni__path_is_dir(path))
        status = uni_error_set(err, UNI_ENOTFOUND, "the checkpoint to start from, %s, is not there",
                               path);
    else if (is_checkpoint)
        status = uni_checkpoint_open(&checkpoint, path, err);
    else
        status = uni_checkpoint_open_latest(&checkpoint, path, err);
    if (status == 0)
        status = uni_checkpoint_verify(checkpoint, err);
    if (status == 0)
        status = uni__checkpoint_read_state(&request->from_state, checkpoint, err);
    if (status == 0 &&
        !(request->from_checkpoint = strdup(uni_checkpoint_info_of(checkpoint)->path)))
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    uni_checkpoint_close(checkpoint);
    free(path);
    return status < 0 ? uni_error_prefix(err, "cannot start from %s", asked->from_checkpoint) : 0;
}

int uni__request_read(uni__request *request, const uni_run_options *asked, bool has_workers,
                      const uni_function *functions, uni_error *err)
{
    *request = (uni__request){ .from_fd = -1 };
    if (!asked->function == !(asked->program && asked->program[0]))
        return uni_error_set(err, UNI_EINVAL, "a run needs either a function or a program");
    UNI_TRY(asked->function ? copy_function(request, asked, has_workers, functions, err)
                            : copy_program(request, asked, err));
    const uni_value *config = asked->config;
    if (config && uni_value_type_of(config) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL, "config must be a dictionary, not a %s",
                             uni__value_type_name(uni_value_type_of(config)));
    request->config = config ? uni_value_copy(config) : uni_value_dict();
    if (!request->config)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the config");
    if (asked->attachment && !(request->attachment = uni_value_copy(asked->attachment)))
        return uni_error_set(err, UNI_ENOMEM, "no memory for the attachment");
    UNI_TRY(check_datasets(asked->datasets, err));
    if (asked->datasets && !(request->datasets = uni_value_copy(asked->datasets)))
        return uni_error_set(err, UNI_ENOMEM, "no memory for the datasets");
    request->synchronous = asked->synchronous_checkpoints;
    UNI_TRY(uni__checkpoint_policy_check(asked->policy, err));
    if (asked->policy)
        request->policy = *asked->policy;
    if (request->policy.score_attribute) {
        request->policy.score_attribute = strdup(request->policy.score_attribute);
        if (!request->policy.score_attribute)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a run");
    }
    if (!(asked->time_limit >= 0) || !(asked->progress_timeout >= 0))
        return uni_error_set(err, UNI_EINVAL,
                             "time_limit and progress_timeout must not be negative");
    request->time_limit = asked->time_limit;
    request->progress_timeout = asked->progress_timeout;
    request->v1 = asked->v1_checkpoints;
    request->trial = asked->trial;
    return copy_start(request, asked, err);
}

void uni__request_clear(uni__request *request)
{
    free(request->function);
    free(request->exe);
    uni_value_free(request->program);
    uni_value_free(request->config);
    uni_value_free(request->attachment);
    uni_value_free(request->datasets);
    free((char *)request->policy.score_attribute);
    free(request->from_checkpoint);
    uni_value_free(request->from_state);
    if (request->from_fd >= 0)
        close(request->from_fd);
}
