/* requeue.c - see requeue.h. */
#include "cli/requeue.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "train/run_owner.h"
#include "train/shared.h"

/* ---- Slurm's commands ---- */

/* Runs it with its output in `out`, cut to `size`; the exit code, or -1. */
static int run_command(const char *const *words, char *out, size_t size)
{
    int ends[2], how = -1;
    size_t used = 0;
    out[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        if (dup2(ends[1], 1) >= 0 && dup2(ends[1], 2) >= 0)
            execvp(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t got = 1; pid > 0 && got > 0;) {
        char rest[256];
        bool fits = used + 1 < size;
        got = fits ? read(ends[0], out + used, size - 1 - used) : read(ends[0], rest, sizeof rest);
        used += fits && got > 0 ? (size_t)got : 0;
    }
    out[used < size ? used : size - 1] = '\0';
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &how, 0) != pid || !WIFEXITED(how))
        return -1;
    return WEXITSTATUS(how);
}

/* What commands call this job: of an array one task's number is that of the whole array. */
static const char *job_name(char *out, size_t size)
{
    const char *array = getenv("SLURM_ARRAY_JOB_ID"), *task = getenv("SLURM_ARRAY_TASK_ID");
    const char *job = getenv("SLURM_JOB_ID");
    if (array && task)
        snprintf(out, size, "%s_%s", array, task);
    else
        snprintf(out, size, "%s", job ? job : "");
    return out;
}

/* ---- the job's own run ---- */

typedef struct search {
    const char *job;
    char *dir;
    bool done;
} search;

/* Runs come newest first. */
static int look(void *context, uni_run *run, uni_error *err)
{
    search *wanted = context;
    const uni_run_info *info = uni_run_info_of(run);
    const char *job =
        uni_dict_get_string(uni_dict_get(info->description, "options"), "slurm_job", "");
    if (strcmp(job, wanted->job) != 0 ||
        uni_list_size(uni_dict_get(info->description, "program")) == 0 ||
        uni__run_check_owner(info->dir, NULL) < 0)
        return 0;
    wanted->done = info->status == UNI_RUN_SUCCEEDED;
    wanted->dir = wanted->done ? NULL : strdup(info->dir);
    if (!wanted->done && !wanted->dir)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    return UNI_EEND;
}

int cli_requeue_find(char **dir, bool *done, const char *storage, uni_error *err)
{
    const char *restarts = getenv("SLURM_RESTART_COUNT");
    search wanted = { .job = getenv("SLURM_JOB_ID") };
    *dir = NULL;
    *done = false;
    if (!wanted.job || !wanted.job[0])
        return uni_error_set(err, UNI_EINVAL,
                             "--requeue: this is not a Slurm job (SLURM_JOB_ID is not set); submit "
                             "it with sbatch --requeue");
    if (!restarts || atoi(restarts) == 0)
        return 0;
    int status = uni_run_list(storage, look, &wanted, err);
    if (status < 0 && status != UNI_EEND)
        return status;
    *dir = wanted.dir;
    *done = wanted.done;
    return 0;
}

void cli_requeue(const cli_context *context)
{
    char job[128], answer[512];
    job_name(job, sizeof job);
    /* After scancel, or when Slurm has put it back itself, the job is no longer RUNNING. */
    int code = run_command((const char *const[]){ "squeue", "-h", "-j", job, "-o", "%T", NULL },
                           answer, sizeof answer);
    answer[strcspn(answer, "\n")] = '\0';
    if (code != 0) {
        uni__warn("squeue does not say whether job %s was cancelled (%s), so it is not put back in "
                  "the queue. `scontrol requeue %s`, or a new job with `unisono run --resume`, "
                  "continues the run",
                  job, answer[0] ? answer : "it could not be started", job);
        return;
    }
    if (strcmp(answer, "RUNNING") != 0) {
        fprintf(context->err.out, "job %s is %s: not put back in the queue\n", job,
                answer[0] ? answer : "not in the queue any more");
        return;
    }
    code = run_command((const char *const[]){ "scontrol", "requeue", job, NULL }, answer,
                       sizeof answer);
    answer[strcspn(answer, "\n")] = '\0';
    if (code == 0)
        fprintf(context->err.out, "job %s goes back to the queue and continues from here\n", job);
    else
        uni__warn("scontrol requeue %s failed: %s. Submit the job again; `unisono run --resume` "
                  "continues the run",
                  job, answer[0] ? answer : "it could not be started");
}
