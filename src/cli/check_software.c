/*
 * check_software.c - a trial run, and other programs: MPI, Slurm, Python's frameworks, our own
 * plug-ins and agent. Asks the programs themselves for their versions, each in a child that is
 * killed after a few seconds; --fast only looks for them.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unisono/trainer.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/check.h"

#define ANSWER_SECONDS 20 /* importing TensorFlow takes about 6 */

/* malloc'ed path of a program on PATH, or NULL. */
static char *find_program(const char *name)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        size_t length = strcspn(path, ":");
        char dir[1024];
        snprintf(dir, sizeof dir, "%.*s", (int)length, path);
        char *file = uni__path_join(length ? dir : ".", name, NULL);
        if (file && access(file, X_OK) == 0 && !uni__path_is_dir(file))
            return file;
        free(file);
        path += length + (path[length] == ':');
    }
    return NULL;
}

/* Reads until the end of file, a full buffer or the timeout. */
static size_t read_answer(int from, char *out, size_t size)
{
    size_t used = 0;
    uint64_t deadline = uni__monotonic_ns() + (uint64_t)ANSWER_SECONDS * 1000000000u;
    while (used + 1 < size) {
        uint64_t now = uni__monotonic_ns();
        struct pollfd waiting = { .fd = from, .events = POLLIN };
        if (now >= deadline || poll(&waiting, 1, (int)((deadline - now) / 1000000u) + 1) <= 0)
            break;
        ssize_t got = read(from, out + used, size - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    out[used] = '\0';
    return used;
}

/* Captures a program's stdout. Returns false if it cannot be started, fails, or does not answer in
 * time. Always kills its process group. */
static bool ask_program(char *const argv[], char *out, size_t size)
{
    int ends[2], status = 0;
    out[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        int nothing = open("/dev/null", O_RDWR);
        if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(ends[1], 1) < 0 || dup2(nothing, 2) < 0)
            _exit(127);
        execv(argv[0], argv);
        _exit(127);
    }
    close(ends[1]);
    size_t got = child > 0 ? read_answer(ends[0], out, size) : 0;
    close(ends[0]);
    if (child > 0) {
        setpgid(child, child);
        for (int i = 0; i < 20 && waitpid(child, &status, WNOHANG) == 0; i++) {
            if (i == 10)
                kill(-child, SIGKILL);
            usleep(10000);
            if (i == 19)
                waitpid(child, &status, 0);
        }
    }
    return got > 0;
}

static void check_program(cli_findings *findings, const char *section, const char *name,
                          const char *argument, bool fast, const char *needed_for)
{
    char *path = find_program(name);
    char answer[4096];
    if (!path) {
        cli_finding_add(findings, section, CLI_LEVEL_ABSENT, name, "not installed; %s", needed_for);
        return;
    }
    char *argv[] = { path, (char *)argument, NULL };
    if (!fast && ask_program(argv, answer, sizeof answer))
        cli_finding_add(findings, section, CLI_LEVEL_OK, name, "%.200s (%.150s)",
                        strtok(answer, "\n") ? answer : "?", path);
    else
        cli_finding_add(findings, section, CLI_LEVEL_OK, name, "%.300s", path);
    free(path);
}

/* The child prints "name version" for each module that it can import, or why the import failed. */
static char python_script[] =
    /* Import nothing from the current directory, which may belong to another user. */
    "import sys\n"
    "sys.path[:] = [entry for entry in sys.path if entry]\n"
    "import importlib, importlib.util, os\n"
    "os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n"
    "print('python', sys.version.split()[0], sys.executable, flush=True)\n"
    "for name in ('numpy', 'unisono', 'torch', 'tensorflow', 'keras', 'horovod', 'ray'):\n"
    "    if importlib.util.find_spec(name) is None:\n"
    "        print(name, '-', flush=True)\n"
    "        continue\n"
    "    try:\n"
    "        from importlib.metadata import version\n"
    "        found = version(name)\n"
    "    except Exception:\n"
    "        try:\n"
    "            found = getattr(importlib.import_module(name), '__version__', '?')\n"
    "        except Exception as error:\n"
    "            found = '! ' + ' '.join(str(error).split())[:200]\n"
    "    print(name, found, flush=True)\n";

static void check_python(cli_findings *findings, bool fast)
{
    static const char section[] = "Python";
    char *python = find_program("python3");
    char answer[4096];
    if (!python) {
        cli_finding_add(findings, section, CLI_LEVEL_ABSENT, "python3",
                        "not installed; Python programs need it");
        return;
    }
    char *argv[] = { python, "-c", python_script, NULL };
    if (fast || !ask_program(argv, answer, sizeof answer)) {
        cli_finding_add(findings, section, fast ? CLI_LEVEL_OK : CLI_LEVEL_WARNING, "python3",
                        "%.200s%s", python, fast ? "" : " does not answer");
        free(python);
        return;
    }
    char *rest = NULL;
    for (char *line = strtok_r(answer, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *version = strchr(line, ' ');
        if (!version)
            continue;
        *version++ = '\0';
        if (strcmp(version, "-") == 0)
            cli_finding_add(findings, section, CLI_LEVEL_ABSENT, line,
                            "not installed for this python3");
        else if (version[0] == '!')
            cli_finding_add(findings, section, CLI_LEVEL_WARNING, line,
                            "installed but cannot be imported:%.300s", version + 1);
        else
            cli_finding_add(findings, section, CLI_LEVEL_OK, line, "%.300s", version);
    }
    free(python);
}

/* Plug-ins that the library loads on first use; each needs its own package. */
static void check_libraries(cli_findings *findings)
{
    static const char section[] = "Libraries";
    static const struct {
        const char *file, *name, *needed_for;
    } libraries[] = {
        { "libdnnl.so.2", "oneDNN", "the native engine needs it (Debian: libdnnl2)" },
        { "libcurl.so.4", "libcurl",
          "the MLflow sink needs it for a tracking server (Debian: libcurl4)" },
        { "libhdf5_serial.so.103", "HDF5", ".keras files need it (Debian: libhdf5-103-1)" },
        { "libzip.so.4", "libzip", ".keras files need it (Debian: libzip4)" },
    };
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        void *handle = dlopen(libraries[i].file, RTLD_LAZY | RTLD_LOCAL);
        cli_finding_add(findings, section, handle ? CLI_LEVEL_OK : CLI_LEVEL_ABSENT,
                        libraries[i].name, "%s%s", handle ? libraries[i].file : "not installed; ",
                        handle ? "" : libraries[i].needed_for);
        if (handle)
            dlclose(handle);
    }
}

/* Runs one worker from start to end, in a directory of its own. */
static void check_worker(cli_findings *findings)
{
    static const char section[] = "Workers";
    const char *temporary = getenv("TMPDIR");
    char *storage = uni__path_join(temporary && temporary[0] ? temporary : "/tmp",
                                   "unisono-check-XXXXXX", NULL);
    uni_trainer *trainer = NULL;
    uni_result *result = NULL;
    uni_error err = { 0 };
    uint64_t begun = uni__monotonic_ns();
    bool made = storage && mkdtemp(storage);
    int status = made ? uni_trainer_new(&trainer,
                                        &(uni_trainer_options){ .name = "check",
                                                                .backend = "none",
                                                                .storage_path = storage,
                                                                .max_failures = UNI_NO_RETRIES },
                                        &err)
                      : uni_error_set_errno(&err, errno, "creating a directory for the trial run");
    const char *const program[] = { "true", NULL };
    if (status == 0)
        status = uni_trainer_fit(&result, trainer, &(uni_run_options){ .program = program }, &err);
    double milliseconds = (double)(uni__monotonic_ns() - begun) * 1e-6;
    if (status == 0)
        cli_finding_add(findings, section, CLI_LEVEL_OK, "trial run",
                        "one worker started and exited in %.0f ms", milliseconds);
    else
        cli_finding_add(findings, section, CLI_LEVEL_ERROR, "trial run", "%.390s", err.message);
    uni_result_free(result);
    uni_trainer_free(trainer);
    if (made && uni__remove_tree(storage, &err) < 0)
        cli_finding_add(findings, section, CLI_LEVEL_WARNING, "trial run", "%.390s", err.message);
    free(storage);
}

void cli_check_software(cli_findings *findings, bool fast)
{
    if (!fast)
        check_worker(findings);
    static const char clusters[] = "Clusters";
    check_program(findings, clusters, "mpirun", "--version", fast,
                  "needed for runs on several machines with MPI");
    check_program(findings, clusters, "srun", "--version", fast, "only present on Slurm clusters");
    const char *job = getenv("SLURM_JOB_ID");
    if (job)
        cli_finding_add(findings, clusters, CLI_LEVEL_OK, "Slurm job", "%s: inside an allocation",
                        job);
    check_libraries(findings);
    check_python(findings, fast);
}
