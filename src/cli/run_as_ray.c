/*
 * run_as_ray.c - `unisono run --as-ray script.py`: this process becomes the interpreter, because
 * the script is the driver of its own workers. The environment tells the script where they run.
 *
 * The package `unisono` that belongs to this command (in its build tree, or below its prefix) is
 * appended to the interpreter's path, so that the command works both in the build tree and
 * installed; an installed package takes precedence. In a virtual environment the environment's own
 * interpreter is used, activated or not.
 */
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/run_command.h"

/* argv: the package's directory or "", the script and its arguments. */
static const char starter[] =
    "import sys\n"
    "folder, here = sys.argv.pop(1), sys.path.pop(0)\n"
    "if folder:\n"
    "    sys.path.append(folder)\n"
    "try:\n"
    "    from unisono import ray\n"
    "except ModuleNotFoundError as error:\n"
    "    if error.name != 'unisono':\n"
    "        raise\n"
    "    sys.exit('unisono run: %s has no package unisono: `pip install .` in the source of "
    "unisono '\n"
    "             'installs it, and UNISONO_PYTHON names another interpreter' % sys.executable)\n"
    "sys.path.insert(0, here)\n"
    "sys.exit(ray.main(sys.argv[1:]))\n";

/* The directory of this command; "" if unknown. */
static void own_folder(char *out, size_t size)
{
    char real[PATH_MAX];
    char *slash = realpath("/proc/self/exe", real) ? strrchr(real, '/') : NULL;
    if (slash)
        *slash = '\0';
    snprintf(out, size, "%s", slash ? real : "");
}

/* The directory that holds this command's package `unisono`; "" if there is none. */
static void find_package(const char *folder, char *out, size_t size)
{
    static const char *const below[] = { "../../python", "../lib/python3*/dist-packages",
                                         "../lib/python3*/site-packages",
                                         "../lib64/python3*/site-packages" };
    static const char module[] = "/unisono/ray/__init__.py";
    out[0] = '\0';
    for (size_t i = 0; folder[0] && !out[0] && i < sizeof below / sizeof below[0]; i++) {
        char pattern[PATH_MAX + 64];
        glob_t found = { 0 };
        snprintf(pattern, sizeof pattern, "%s/%s%s", folder, below[i], module);
        if (glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc)
            snprintf(out, size, "%.*s", (int)(strlen(found.gl_pathv[0]) - strlen(module)),
                     found.gl_pathv[0]);
        globfree(&found);
    }
}

static const char *find_python(const char *folder, char *out, size_t size)
{
    const char *asked = getenv("UNISONO_PYTHON");
    char mark[PATH_MAX + 64];
    if (asked && asked[0])
        return asked;
    snprintf(mark, sizeof mark, "%s/../pyvenv.cfg", folder);
    snprintf(out, size, "%s/python3", folder);
    return folder[0] && access(mark, F_OK) == 0 && access(out, X_OK) == 0 ? out : "python3";
}

static int check(const cli_parsed *parsed, const cli_option *options, uni_error *err)
{
    static const char *const allowed[] = { "as-ray",    "launcher", "hosts",       "interface",
                                           "encrypt",   "no-seal",  "secret-file", "storage",
                                           "transport", NULL };
    if (parsed->num_args < 1 || cli_given(parsed, "num-workers") || cli_given(parsed, "backend"))
        return uni_error_set(err, UNI_EINVAL,
                             "--as-ray takes a script and its arguments; the script itself sets "
                             "the number of workers and the backend");
    for (const cli_option *option = options; option->name; option++) {
        bool fits = false;
        for (int i = 0; allowed[i]; i++)
            fits = fits || strcmp(option->name, allowed[i]) == 0;
        if (!fits && cli_given(parsed, option->name))
            return uni_error_set(err, UNI_EINVAL,
                                 "--%s cannot be used with --as-ray: the script's trainer sets it",
                                 option->name);
    }
    if (access(parsed->args[0], R_OK) < 0)
        return uni_error_set_errno(err, errno, "cannot read the script %s", parsed->args[0]);
    return 0;
}

int cli_run_as_ray(const cli_parsed *parsed, const cli_option *options, uni_error *err)
{
    const run_values *values = parsed->values;
    char folder[PATH_MAX], package[PATH_MAX], beside[PATH_MAX + 64];
    UNI_TRY(check(parsed, options, err));
    const char **argv = calloc((size_t)parsed->num_args + 5, sizeof *argv);
    if (!argv)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the interpreter's arguments");
    own_folder(folder, sizeof folder);
    find_package(folder, package, sizeof package);
    argv[0] = find_python(folder, beside, sizeof beside);
    argv[1] = "-c";
    argv[2] = starter;
    argv[3] = package;
    for (int i = 0; i < parsed->num_args; i++)
        argv[4 + i] = parsed->args[i];
    if (cli_given(parsed, "launcher"))
        setenv("UNISONO_LAUNCHER", values->launcher, 1);
    if (values->hosts)
        setenv("UNISONO_HOSTS", values->hosts, 1);
    if (values->interface)
        setenv("UNISONO_INTERFACE", values->interface, 1);
    if (values->transport)
        setenv("UNISONO_TRANSPORT", values->transport, 1);
    if (values->encrypt)
        setenv("UNISONO_ENCRYPT", "1", 1);
    if (values->no_seal)
        setenv("UNISONO_NO_SEAL", "1", 1);
    if (values->secret_file)
        setenv("UNISONO_SECRET_FILE", values->secret_file, 1);
    if (cli_given(parsed, "storage"))
        setenv("UNISONO_RESULTS", values->storage, 1);
    execvp(argv[0], (char *const *)argv);
    int status = uni_error_set_errno(
        err, errno, "cannot start %s for --as-ray (UNISONO_PYTHON names another interpreter)",
        argv[0]);
    free(argv);
    return status;
}
