/*
 * cause_words.c - one table that says, for every class of cause, how it reads and what helps.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/cause_words.h"
#include "cli/format.h"

typedef struct cause_words {
    const char *name; /* class in run.json */
    const char *says; /* %s: the detail (signal or exit code), if any */
    const char *advice; /* what to do, before the commands */
} cause_words;

static const cause_words causes[] = {
    { "exit", "ended with exit code %s",
      "The program exited on its own; the last lines of its log say why." },
    { "signal", "was killed by %s",
      "It crashed in its own code or in a library. The last lines of its log may say where; gdb "
      "will." },
    { "error", "returned an error from its train function",
      "The message above comes from that function." },
    { "oom", "ran out of memory and was killed (%s)",
      "Use a smaller batch, start fewer workers, or request more memory." },
    { "stopped", "was frozen (SIGSTOP) for too long",
      "Something stopped the process (Ctrl-Z, a debugger, kill -STOP)." },
    { "silent", "sent no heartbeat for too long",
      "The process exists but is not running: the machine may be swapping, or a driver is stuck." },
    { "no_hello", "never connected to the trainer",
      "A program that uses libunisono must open its session (or call uni_main) soon after it "
      "starts." },
    { "preempted", "was asked to stop (%s)",
      "Nothing is wrong: the run can be resumed where it stopped." },
    { "disk_full", "ran out of disk space",
      "Free some space (`unisono rm` removes old runs, --keep N keeps fewer checkpoints) and "
      "resume." },
    { "time_limit", "reached the time limit", "Resume with a longer --time-limit." },
    { "no_progress", "made no progress for too long",
      "No rank reported within --progress-timeout: the run hangs, or one iteration takes longer "
      "than that." },
    { "controller", "lost its controller",
      "The process that supervised the workers was killed; the workers ended with it." },
    { "agent", "lost its agent",
      "The process that starts the workers (unisono-agent) was killed." },
    { "host_lost", "lost a host",
      "The host is down or frozen, or its network is. With spare slots in --hosts, or with "
      "--min-workers, a run continues without it." },
    { "launcher", "lost mpirun or srun",
      "Something killed the launcher or its daemon on a host, and the workers there with it. To "
      "stop a run, signal the controller (`unisono stop`), not mpirun." },
    { "checkpoint", "could not save a checkpoint",
      "The message above says which one. Check the files it contains and the free disk space." },
    { "internal", "failed inside unisono itself",
      "This is a bug in unisono or a problem with the machine; the message above says where." },
    { "launch", "could not be started",
      "Check the program's name and that it is executable; `unisono run --dry-run` shows what "
      "would be started." },
};

static const cause_words *words_for(const uni_value *cause)
{
    const char *name = uni_dict_get_string(cause, "class", "");
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++)
        if (strcmp(causes[i].name, name) == 0)
            return &causes[i];
    return NULL;
}

bool cli_cause_is_launchers(const uni_value *cause)
{
    return uni_dict_get_int(cause, "rank", 0) < 0 &&
           uni_list_size(uni_dict_get(cause, "log_tail")) > 0;
}

const char *cli_cause_advice(const uni_value *cause)
{
    const cause_words *words = words_for(cause);
    if (words && strcmp(words->name, "signal") == 0 &&
        uni_dict_get_int(cause, "signal", 0) == SIGKILL)
        return "Something sent it SIGKILL: an administrator, a job limit, or the kernel's OOM "
               "killer (see `dmesg`).";
    if (words && strcmp(words->name, "launch") == 0 && cli_cause_is_launchers(cause))
        return "logs/launcher.log has the reason from ssh, mpirun or srun. Check the host names, "
               "that "
               "processes can be started there (ssh without a password), and that "
               "unisono is installed at the same path on every host.";
    return words ? words->advice : "";
}

void cli_cause_sentence(const uni_value *cause, char *out, size_t size)
{
    const cause_words *words = words_for(cause);
    char detail[CLI_SHORT] = "?", name[CLI_SHORT];
    int64_t number = uni_dict_get_int(cause, "signal", 0);
    if (number > 0)
        snprintf(detail, sizeof detail, "%.20s, signal %d", cli_signal((int)number, name),
                 (int)number);
    else if (uni_value_is_number(uni_dict_get(cause, "exit_code")))
        snprintf(detail, sizeof detail, "%d", (int)uni_dict_get_int(cause, "exit_code", 0));
    else if (words && strcmp(words->name, "preempted") == 0)
        snprintf(detail, sizeof detail, "SIGTERM");
    else if (words && strcmp(words->name, "oom") == 0)
        snprintf(detail, sizeof detail, "SIGKILL, signal 9");
    if (!words)
        snprintf(out, size, "failed (%s)", uni_dict_get_string(cause, "class", "unknown cause"));
    else if (strstr(words->says, "%s")) {
        const char *mark = strstr(words->says, "%s");
        snprintf(out, size, "%.*s%s%s", (int)(mark - words->says), words->says, detail, mark + 2);
    } else
        snprintf(out, size, "%s", words->says);
}
