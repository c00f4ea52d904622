/*
 * run_reader.c - one run directory seen from outside (unisono/run.h); run_find.c finds it.
 *
 * Everything comes from the files of docs/formats.md: run.json says what was asked and how it
 * stands, journal.jsonl what happened, results.jsonl what was reported. run.json is rewritten
 * atomically, so it is always whole; but after SIGKILL of the controller it says "running" for
 * ever. So a run that claims to be alive is believed only if the process with the recorded pid
 * exists and started at the recorded tick (field 22 of /proc/PID/stat): a pid that was given to
 * another process is told apart. A run of another host cannot be asked and is believed. A
 * controller that was killed between the end in its journal and the one in run.json has ended all
 * the same: the journal is the truth.
 *
 * Thread: the caller's; a handle belongs to one at a time.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/journal.h"
#include "base/json.h"
#include "base/log.h"
#include "base/owned.h"
#include "group/launchers.h"
#include "track/results.h"
#include "train/run_owner.h"
#include "train/run_reader.h"
#include "train/shared.h"

#define RUN_FORMAT "unisono run"
#define RUN_VERSION 1
#define MOST_WORKERS 131072 /* readers loop over the ranks and allocate for each */

struct uni_run {
    uni_run_info info; /* filled by uni_run_info_of */
    char *dir;
    char *id;
    uni_value *description;
    uni_value *events; /* NULL until asked for */
    uni_run_status status;
};

/* ---- is it alive ---- */

static bool is_other_host(const uni_value *description)
{
    char here[256] = "";
    gethostname(here, sizeof here - 1);
    return strcmp(uni_dict_get_string(description, "hostname", here), here) != 0;
}

static bool controller_alive(const uni_value *description)
{
    if (is_other_host(description))
        return true;
    const uni_value *controller = uni_dict_get(description, "controller");
    int64_t pid = uni_dict_get_int(controller, "pid", 0);
    int64_t ticks = uni_dict_get_int(controller, "start_ticks", 0);
    if (pid <= 0 || pid > INT32_MAX)
        return false;
    uint64_t now = uni__process_start((pid_t)pid);
    return now != 0 && (ticks == 0 || now == (uint64_t)ticks);
}

static const char *const status_names[] = {
    [UNI_RUN_STARTING] = "starting",   [UNI_RUN_RUNNING] = "running",
    [UNI_RUN_SUCCEEDED] = "succeeded", [UNI_RUN_FAILED] = "failed",
    [UNI_RUN_STOPPED] = "stopped",     [UNI_RUN_INTERRUPTED] = "interrupted",
};

const char *uni_run_status_name(uni_run_status status)
{
    return (unsigned)status <= UNI_RUN_INTERRUPTED ? status_names[status] : "?";
}

static uni_run_status read_status(const uni_value *description)
{
    const char *text = uni_dict_get_string(description, "status", "");
    for (int status = UNI_RUN_STARTING; status <= UNI_RUN_STOPPED; status++) {
        if (strcmp(text, status_names[status]) != 0)
            continue;
        if (status <= UNI_RUN_RUNNING && !controller_alive(description))
            return UNI_RUN_INTERRUPTED;
        return (uni_run_status)status;
    }
    return UNI_RUN_INTERRUPTED;
}

/* ---- opening ---- */

static int read_description(uni_run *run, uni_error *err)
{
    char *path = uni__path_join(run->dir, "run.json", NULL);
    if (!path)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    int status = uni__json_read_unlinked(&run->description, path, err);
    if (status == 0 && strcmp(uni_dict_get_string(run->description, "format", ""), RUN_FORMAT) != 0)
        status = uni_error_set(err, UNI_EFORMAT,
                               "%s is not a run's description (its format is not "
                               "\"" RUN_FORMAT "\")",
                               path);
    else if (status == 0 && uni_dict_get_int(run->description, "version", 0) > RUN_VERSION)
        status = uni_error_set(
            err, UNI_EVERSION,
            "%s has format version %lld, this program reads up to %d: use a newer "
            "unisono",
            path, (long long)uni_dict_get_int(run->description, "version", 0), RUN_VERSION);
    int64_t workers = uni_dict_get_int(run->description, "num_workers", 0);
    if (status == 0 && (workers < 0 || workers > MOST_WORKERS))
        status = uni_error_set(err, UNI_EFORMAT, "%s: num_workers is %lld, not a number of workers",
                               path, (long long)workers);
    free(path);
    return status;
}

/* NAME/run_001, by where it is: a run that was copied or moved by hand is found under its new name,
 * not under the one in run.json. */
static char *make_id(const uni_run *run)
{
    char *real = realpath(run->dir, NULL);
    const char *dir = real ? real : run->dir;
    const char *slash = strrchr(dir, '/');
    while (slash && slash > dir && slash[-1] != '/')
        slash--;
    char *id = strdup(slash ? slash : dir);
    free(real);
    return id;
}

/* How a run ended whose run.json was not written any more; otherwise, where its journal does not
 * end with that. */
static uni_run_status status_in_journal(uni_run *run, uni_run_status otherwise)
{
    const uni_value *events = NULL;
    if (uni_run_events(&events, run, NULL) < 0)
        return otherwise;
    const uni_value *last =
        uni_list_size(events) > 0 ? uni_list_get(events, uni_list_size(events) - 1) : NULL;
    bool ended = strcmp(uni_dict_get_string(last, "event", ""), "finish") == 0;
    const char *text = ended ? uni_dict_get_string(last, "status", "") : "";
    for (int status = UNI_RUN_SUCCEEDED; status <= UNI_RUN_STOPPED; status++)
        if (strcmp(text, status_names[status]) == 0)
            otherwise = (uni_run_status)status;
    uni_value_free(run->events); /* a live run goes on */
    run->events = NULL;
    return otherwise;
}

int uni__run_open_dir(uni_run **out, char *dir, uni_error *err)
{
    *out = NULL;
    int status = 0;
    uni_run *run = calloc(1, sizeof *run);
    if (!run) {
        free(dir);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a run");
    }
    run->dir = dir;
    UNI_TRY_GOTO(uni__check_foreign_links(dir, err), fail);
    UNI_TRY_GOTO(read_description(run, err), fail);
    run->id = make_id(run);
    if (!run->id) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a run");
        goto fail;
    }
    run->status = read_status(run->description);
    if (run->status == UNI_RUN_INTERRUPTED ||
        (run->status <= UNI_RUN_RUNNING && is_other_host(run->description)))
        run->status = status_in_journal(run, run->status);
    *out = run;
    return 0;
fail:
    uni_run_close(run);
    return status;
}

void uni_run_close(uni_run *run)
{
    if (!run)
        return;
    uni_value_free(run->description);
    uni_value_free(run->events);
    free(run->id);
    free(run->dir);
    free(run);
}

const uni_run_info *uni_run_info_of(const uni_run *run)
{
    uni_run_info *info = &((uni_run *)run)->info;
    *info = (uni_run_info){
        .id = run->id,
        .dir = run->dir,
        .status = run->status,
        .description = run->description,
    };
    return info;
}

bool uni_run_is_live(const uni_run *run)
{
    return run->status == UNI_RUN_STARTING || run->status == UNI_RUN_RUNNING;
}

/* ---- what happened, what was reported ---- */

static int keep_event(void *context, const uni_value *record, uni_error *err)
{
    if (uni_list_take(context, uni_value_copy(record)) < 0)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the journal");
    return 0;
}

int uni_run_events(const uni_value **out, uni_run *run, uni_error *err)
{
    *out = NULL;
    if (!run->events) {
        char *path = uni__path_join(run->dir, "journal.jsonl", NULL);
        uni_value *events = uni_value_list();
        uni__journal_report report = { 0 };
        int status =
            path && events ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for the journal");
        if (status == 0 && uni__path_exists(path))
            status = uni__journal_read(path, "journal", keep_event, events, &report, err);
        if (status == 0 && report.damaged > 0)
            uni__warn("%s: %zu damaged lines were passed over", path, report.damaged);
        free(path);
        if (status < 0) {
            uni_value_free(events);
            return status;
        }
        run->events = events;
    }
    *out = run->events;
    return 0;
}

int uni_run_reports(uni_run *run, uni_run_visit visit, void *context, uni_error *err)
{
    char *path = uni__path_join(run->dir, "results.jsonl", NULL);
    if (!path)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    int status = uni__path_exists(path) ? uni__results_read(path, visit, context, err) : 0;
    free(path);
    return status;
}

/* ---- stopping and removing ---- */

int uni_run_stop(uni_run *run, bool now, uni_error *err)
{
    /* What is acted on is read after its owner was checked. */
    uni_run *own = NULL;
    UNI_TRY(uni__run_open_own(&own, run->dir, NULL, err));
    int status;
    if (!uni_run_is_live(own))
        status = uni_error_set(err, UNI_ESTATE, "%s is not running: it is %s", own->id,
                               uni_run_status_name(own->status));
    else if (is_other_host(own->description))
        status = uni_error_set(err, UNI_EUNSUPPORTED, "%s runs on host %s: stop it there", own->id,
                               uni_dict_get_string(own->description, "hostname", "?"));
    else
        status = uni__controller_signal(own->description, own->dir, own->id,
                                        now ? SIGKILL : SIGTERM, err);
    uni_run_close(own);
    return status;
}

static int check_scalable(const uni_run *own, uni_error *err)
{
    const uni_value *options = uni_dict_get(own->description, "options");
    if (!uni_run_is_live(own))
        return uni_error_set(err, UNI_ESTATE, "%s is not running: it is %s", own->id,
                             uni_run_status_name(own->status));
    if (is_other_host(own->description))
        return uni_error_set(err, UNI_EUNSUPPORTED, "%s runs on host %s: scale it there", own->id,
                             uni_dict_get_string(own->description, "hostname", "?"));
    if (uni_dict_get_int(options, "max_workers", 0) == 0)
        return uni_error_set(
            err, UNI_ESTATE,
            "the number of workers of %s is fixed: start it with --workers MIN:MAX", own->id);
    return 0;
}

static int write_wish(const uni_run *own, const char *text, uni_error *err)
{
    char *path = uni__path_join(own->dir, UNI__SCALE_FILE, NULL);
    if (!path)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    int status = uni__write_file(path, text, strlen(text), false, err);
    free(path);
    return status;
}

static int write_scale(const uni_run *own, int workers, uni_error *err)
{
    const uni_value *options = uni_dict_get(own->description, "options");
    int64_t least = uni_dict_get_int(options, "min_workers", 0),
            most = uni_dict_get_int(options, "max_workers", 0);
    char text[16];
    UNI_TRY(check_scalable(own, err));
    if (workers < least || workers > most)
        return uni_error_set(err, UNI_EINVAL, "%s has %lld to %lld workers, not %d", own->id,
                             (long long)least, (long long)most, workers);
    snprintf(text, sizeof text, "%d\n", workers);
    return write_wish(own, text, err);
}

static int write_hosts(const uni_run *own, const char *hosts, uni_error *err)
{
    const char *launcher = uni_dict_get_string(own->description, "launcher", "local");
    uni__host_slots *list = NULL;
    char text[UNI__SCALE_BYTES];
    int count;
    UNI_TRY(check_scalable(own, err));
    if (strcmp(launcher, "ssh") != 0)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "hosts can be added to a run over ssh; that of %s is %s", own->id,
                             launcher);
    UNI_TRY(uni__hosts_parse(hosts, &list, &count, err));
    free(list);
    if (snprintf(text, sizeof text, "+%s\n", hosts) >= (int)sizeof text)
        return uni_error_set(err, UNI_ELIMIT, "the list of hosts is too long");
    return write_wish(own, text, err);
}

int uni__run_add_hosts(const uni_run *run, const char *hosts, uni_error *err)
{
    uni_run *own = NULL;
    UNI_TRY(uni__run_open_own(&own, run->dir, NULL, err));
    int status = write_hosts(own, hosts, err);
    uni_run_close(own);
    return status;
}

int uni__run_scale(const uni_run *run, int workers, uni_error *err)
{
    uni_run *own = NULL;
    UNI_TRY(uni__run_open_own(&own, run->dir, NULL, err));
    int status = write_scale(own, workers, err);
    uni_run_close(own);
    return status;
}

int uni_run_remove(uni_run *run, uni_error *err)
{
    /* It may have been resumed since it was opened. */
    uni_run *again = NULL;
    UNI_TRY(uni__run_open_own(&again, run->dir, NULL, err));
    bool live = uni_run_is_live(again);
    uni_run_close(again);
    if (live)
        return uni_error_set(err, UNI_EBUSY, "%s is running: `unisono stop %s` first", run->id,
                             run->id);
    UNI_TRY(uni__remove_tree(run->dir, err));
    /* The experiment's directory goes with its last run; one with other files in it stays. */
    char *parent = strdup(run->dir);
    char *slash = parent ? strrchr(parent, '/') : NULL;
    if (slash && slash > parent) {
        *slash = '\0';
        (void)!rmdir(parent);
    }
    free(parent);
    return 0;
}
