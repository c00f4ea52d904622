/*
 * trainer_options.c - checking and copying what a trainer was asked for, before anything is
 * started.
 *
 * Whatever can be known now is an error now: impossible resources, unknown names, a storage path
 * that cannot be used.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/shared.h"
#include "base/clock.h"
#include "base/file.h"
#include "train/run_reader.h"
#include "train/variables.h"
#include "train/hosts_internal.h"
#include "train/main_internal.h"
#include "train/trainer_internal.h"

#define DEFAULT_MAX_FAILURES 3
#define DEFAULT_GRACE 10.0
#define DEFAULT_HELLO_TIMEOUT 60.0
#define DEFAULT_SILENT_TIMEOUT 5.0
#define DEFAULT_STOPPED_TIMEOUT 0.5 /* of ranks whose replacement costs little */
#define DEFAULT_HOST_TIMEOUT 2 /* of hosts that others can do without */
#define DEFAULT_LOG_CAP (64u << 20)
#define MAX_WORKERS 4096
#define GIB (1024.0 * 1024 * 1024)

static int one_of(const char *what, const char *value, const char *const *allowed, uni_error *err)
{
    char list[256] = "";
    for (; *allowed; allowed++) {
        if (strcmp(*allowed, value) == 0)
            return 0;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", list[0] ? ", " : "",
                 *allowed);
    }
    return uni_error_set(err, UNI_EINVAL, "%s \"%s\" is not known; there are: %s", what, value,
                         list);
}

static int check_names(const uni_trainer_options *asked, const char *launcher, uni_error *err)
{
    static const char *const backends[] = {
        "native", "tensorflow", "torch", "horovod", "none", NULL
    };
    if (asked->backend)
        UNI_TRY(one_of("backend", asked->backend, backends, err));
    static const char *const launchers[] = { "local", "ssh", "mpi", "slurm", NULL };
    UNI_TRY(one_of("launcher", asked->launcher ? asked->launcher : launcher, launchers, err));
    return asked->name ? uni__run_check_name(asked->name, err) : 0;
}

/* A variable of the environment, or else `otherwise`. */
static const char *given(const char *name, const char *otherwise)
{
    const char *text = getenv(name);
    return text && text[0] ? text : otherwise;
}

static int check_numbers(const uni_trainer_options *asked, uni_error *err)
{
    if (asked->num_workers < 0 || asked->num_workers > MAX_WORKERS)
        return uni_error_set(err, UNI_EINVAL, "num_workers must be between 1 and %d, not %d",
                             MAX_WORKERS, asked->num_workers);
    if (asked->servers < 0 || asked->servers > MAX_WORKERS || asked->evaluators < 0 ||
        asked->evaluators > 1)
        return uni_error_set(err, UNI_EINVAL,
                             "servers must be between 0 and %d and evaluators 0 or 1, not %d and "
                             "%d",
                             MAX_WORKERS, asked->servers, asked->evaluators);
    if (asked->max_failures < UNI_NO_RETRIES)
        return uni_error_set(
            err, UNI_EINVAL,
            "max_failures must be a positive number, UNI_UNLIMITED (-1) or UNI_NO_RETRIES, not %d",
            asked->max_failures);
    const struct {
        const char *name;
        double value;
    } numbers[] = { { "cpus_per_worker", asked->cpus_per_worker },
                    { "memory_per_worker", asked->memory_per_worker },
                    { "address_space_limit", asked->address_space_limit },
                    { "gpus_per_worker", asked->gpus_per_worker },
                    { "grace_seconds", asked->grace_seconds },
                    { "hello_timeout", asked->hello_timeout },
                    { "silent_timeout", asked->silent_timeout } };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (!(numbers[i].value >= 0))
            return uni_error_set(err, UNI_EINVAL, "%s must not be negative, but is %g",
                                 numbers[i].name, numbers[i].value);
    return 0;
}

static int check_resources(uni_trainer *trainer, uni_error *err)
{
    const uni_trainer_options *asked = &trainer->options;
    const uni__host *host = &trainer->host;
    if (asked->cpus_per_worker > 0 && asked->cpus_per_worker * asked->num_workers > host->cpus)
        return uni_error_set(err, UNI_ERESOURCE,
                             "%d workers with %g CPUs each need %g, but this machine gives %g: ask "
                             "for fewer, or leave cpus_per_worker out "
                             "to share what is there",
                             asked->num_workers, asked->cpus_per_worker,
                             asked->cpus_per_worker * asked->num_workers, host->cpus);
    if (asked->memory_per_worker > 0 &&
        asked->memory_per_worker * asked->num_workers > (double)host->memory)
        return uni_error_set(err, UNI_ERESOURCE,
                             "%d workers with %.1f GiB each need %.1f GiB, but this machine has "
                             "%.1f GiB: start fewer, "
                             "or reserve less with memory_per_worker (--memory)",
                             asked->num_workers, asked->memory_per_worker / GIB,
                             asked->memory_per_worker * asked->num_workers / GIB,
                             (double)host->memory / GIB);
    if (!asked->use_gpu && asked->gpus_per_worker > 0)
        return uni_error_set(err, UNI_EINVAL, "gpus_per_worker is %d but use_gpu is off",
                             asked->gpus_per_worker);
    if (!asked->use_gpu)
        return 0;
    if (strcmp(asked->backend, "native") == 0)
        return uni_error_set(
            err, UNI_EUNSUPPORTED,
            "the native backend computes on the CPU: leave use_gpu off, or choose another backend");
    int need = asked->num_workers * asked->gpus_per_worker;
    if (host->gpus < need)
        return uni_error_set(err, UNI_ERESOURCE,
                             "use_gpu with %d workers needs %d GPU%s, but this machine shows %d",
                             asked->num_workers, need, need == 1 ? "" : "s", host->gpus);
    return 0;
}

static int check_storage(uni_trainer *trainer, uni_error *err)
{
    struct stat info;
    char *at = strdup(trainer->storage);
    if (!at)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    int status = 0;
    /* The nearest part that exists must be a directory that we may write into. */
    while (stat(at, &info) < 0 && errno == ENOENT) {
        char *slash = strrchr(at, '/');
        if (!slash || slash == at) {
            strcpy(at, "/");
            break;
        }
        *slash = '\0';
    }
    if (stat(at, &info) < 0)
        status =
            uni_error_set_errno(err, errno, "the storage path %s cannot be used", trainer->storage);
    else if (!S_ISDIR(info.st_mode))
        status = uni_error_set(err, UNI_EINVAL, "the storage path %s cannot be used: %s is a file",
                               trainer->storage, at);
    else if (access(at, W_OK | X_OK) < 0)
        status =
            uni_error_set_errno(err, errno,
                                "the storage path %s cannot be used (storage_path, --storage or "
                                "UNISONO_RESULTS names another): %s is not writable",
                                trainer->storage, at);
    free(at);
    return status;
}

static char *copy_or_null(const char *text)
{
    return text ? strdup(text) : NULL;
}

static uni_value *list_of(const char *const *strings)
{
    uni_value *list = uni_value_list();
    for (; strings && *strings; strings++)
        if (uni_list_take(list, uni_value_string(*strings)) < 0)
            break;
    return list;
}

int uni__find_program(const char *name, char **out, uni_error *err)
{
    char path[PATH_MAX];
    *out = NULL;
    if (strchr(name, '/')) {
        struct stat info;
        if (access(name, X_OK) < 0)
            return uni_error_set_errno(err, errno, "the program %s cannot be executed", name);
        if (stat(name, &info) == 0 && S_ISDIR(info.st_mode))
            return uni_error_set(err, UNI_EINVAL, "the program %s is a directory", name);
        *out = uni__path_absolute(name, err);
        return *out ? 0 : UNI_ENOMEM;
    }
    const char *search = getenv("PATH");
    for (const char *at = search ? search : "/usr/bin:/bin"; *at;) {
        size_t length = strcspn(at, ":");
        struct stat info;
        if (length > 0 &&
            snprintf(path, sizeof path, "%.*s/%s", (int)length, at, name) < (int)sizeof path &&
            access(path, X_OK) == 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
            *out = strdup(path);
            return *out ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
        }
        at += length + (at[length] == ':');
    }
    return uni_error_set(err, UNI_ENOTFOUND, "the program \"%s\" is not in PATH", name);
}

/* The workers of a C program are the program itself; /proc/self/exe is right even when it was
 * started by a relative path. */
static int find_workers(uni_trainer *trainer, const uni_trainer_options *asked, uni_error *err)
{
    if (asked->main) {
        char exe[PATH_MAX];
        ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
        if (length < 0)
            return uni_error_set_errno(err, errno, "cannot find this program's own file");
        exe[length] = '\0';
        trainer->worker_exe = strdup(exe);
        trainer->worker_argv = uni_value_list();
        trainer->functions = asked->main->functions;
        for (int i = 0; i < asked->main->argc; i++)
            if (uni_list_take(trainer->worker_argv, uni_value_string(asked->main->argv[i])) < 0)
                break;
        return trainer->worker_exe ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    }
    if (asked->worker_program && asked->worker_program[0]) {
        UNI_TRY(uni__find_program(asked->worker_program[0], &trainer->worker_exe, err));
        trainer->worker_argv = list_of(asked->worker_program);
    }
    return 0;
}

static void fill_defaults(uni_trainer_options *options)
{
    if (!options->num_workers)
        options->num_workers = 1;
    if (!options->max_failures)
        options->max_failures = DEFAULT_MAX_FAILURES;
    if (options->use_gpu && !options->gpus_per_worker)
        options->gpus_per_worker = 1;
    if (!options->grace_seconds)
        options->grace_seconds = DEFAULT_GRACE;
    if (!options->hello_timeout)
        options->hello_timeout = DEFAULT_HELLO_TIMEOUT;
    if (!options->silent_timeout)
        options->silent_timeout = DEFAULT_SILENT_TIMEOUT;
    if (!options->log_cap)
        options->log_cap = DEFAULT_LOG_CAP;
}

/* A number of workers that changes: from here on num_workers is the largest. */
static int read_sizes(uni_trainer *trainer, const uni_trainer_options *asked, uni_error *err)
{
    int first = asked->num_workers, least = asked->min_workers, most = asked->max_workers;
    if (least == 0 && most == 0)
        return 0;
    if (first == 0)
        first = most > 0 ? most : least;
    if (most == 0)
        most = first;
    if (least == 0)
        least = 1;
    if (least < 1 || least > most || first < least || first > most || most > UNI__MOST_MEMBERS)
        return uni_error_set(err, UNI_EINVAL,
                             "min_workers %d, num_workers %d and max_workers %d must be between 1 "
                             "and %d, in this order",
                             least, first, most, UNI__MOST_MEMBERS);
    if (asked->servers > 0 || asked->evaluators > 0 || asked->lockstep)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "min_workers and max_workers are for groups without parameter servers "
                             "(whose workers come and go by themselves), evaluators and lockstep");
    trainer->first_workers = first;
    trainer->min_workers = least;
    trainer->options.num_workers = most;
    return 0;
}

int uni__trainer_copy_options(uni_trainer *trainer, const uni_trainer_options *asked,
                              uni_error *err)
{
    static const uni_trainer_options none = { 0 };
    char date[20];
    asked = asked ? asked : &none;
    /* A program that leaves these open runs on other hosts without a change. */
    const char *hosts = asked->hosts ? asked->hosts : given("UNISONO_HOSTS", NULL);
    const char *launcher = given("UNISONO_LAUNCHER", hosts ? "ssh" : "local");
    UNI_TRY(check_names(asked, launcher, err));
    UNI_TRY(check_numbers(asked, err));
    trainer->options = *asked;
    trainer->stopped_timeout =
        asked->silent_timeout ? asked->silent_timeout : DEFAULT_STOPPED_TIMEOUT;
    trainer->host_timeout = asked->silent_timeout ? asked->silent_timeout : DEFAULT_HOST_TIMEOUT;
    trainer->options.backend = strdup(asked->backend ? asked->backend : "native");
    trainer->options.launcher = strdup(asked->launcher ? asked->launcher : launcher);
    trainer->options.working_directory = copy_or_null(asked->working_directory);
    UNI_TRY(uni__variables_read(&trainer->extra_environment, asked->environment,
                                asked->environment_file, err));
    trainer->options.environment_file = NULL; /* it has been read */
    uni__format_date(uni__wall_seconds(), date);
    if (asked->name)
        trainer->name = strdup(asked->name);
    else if (asprintf(&trainer->name, "train_%s", date) < 0)
        trainer->name = NULL;
    if (!trainer->options.backend || !trainer->options.launcher || !trainer->name ||
        !trainer->extra_environment)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a trainer");
    trainer->options.hosts = hosts;
    if (!asked->interface)
        trainer->options.interface = given("UNISONO_INTERFACE", NULL);
    if (!asked->transport)
        trainer->options.transport = given("UNISONO_TRANSPORT", NULL);
    if (!asked->secret_file)
        trainer->options.secret_file = given("UNISONO_SECRET_FILE", NULL);
    trainer->options.encrypt |= strcmp(given("UNISONO_ENCRYPT", "0"), "0") != 0;
    trainer->options.no_seal |= strcmp(given("UNISONO_NO_SEAL", "0"), "0") != 0;
    uni__host_look(&trainer->host);
    bool local = strcmp(trainer->options.launcher, "local") == 0;
    if (local && (asked->hosts || asked->interface || asked->encrypt || asked->no_seal ||
                  asked->secret_file || asked->transport))
        return uni_error_set(err, UNI_EINVAL,
                             "hosts, interface, transport, encrypt, no_seal and secret_file are "
                             "for the launchers ssh, mpi and slurm; this one is local");
    if (local)
        UNI_TRY(read_sizes(trainer, asked, err));
    if (!local)
        UNI_TRY(uni__hosts_new(trainer, &trainer->options, err));
    /* trainer->hosts has copies. */
    trainer->options.hosts = trainer->options.interface = trainer->options.secret_file = NULL;
    trainer->options.transport = NULL;
    fill_defaults(&trainer->options);
    if (trainer->first_workers == 0)
        trainer->first_workers = trainer->options.num_workers;
    if (local)
        UNI_TRY(check_resources(trainer, err));
    trainer->cpus_each = asked->cpus_per_worker > 0
                             ? asked->cpus_per_worker
                             : trainer->host.cpus / trainer->options.num_workers;
    /* From here on num_workers counts all processes: chief, workers, servers, evaluators. */
    trainer->roles = (uni__roles){ .workers = trainer->options.num_workers,
                                   .servers = asked->servers,
                                   .evaluators = asked->evaluators };
    trainer->options.num_workers = uni__roles_size(&trainer->roles);
    if (asked->working_directory && !uni__path_is_dir(asked->working_directory))
        return uni_error_set(err, UNI_ENOTFOUND, "the working directory %s does not exist",
                             asked->working_directory);
    UNI_TRY(uni__run_storage(&trainer->storage, asked->storage_path, err));
    UNI_TRY(check_storage(trainer, err));
    trainer->logdir = uni__path_join(trainer->storage, trainer->name, NULL);
    if (!trainer->logdir)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    return find_workers(trainer, asked, err);
}

void uni__trainer_drop_options(uni_trainer *trainer)
{
    free((char *)trainer->options.backend);
    free((char *)trainer->options.launcher);
    free((char *)trainer->options.working_directory);
    uni_value_free(trainer->extra_environment);
    uni_value_free(trainer->worker_argv);
    free(trainer->worker_exe);
    free(trainer->storage);
    free(trainer->logdir);
    free(trainer->name);
}
