/*
 * cause_words.c - one table says for every class of cause how it reads and what helps.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/cause_words.h"
#include "cli/format.h"

typedef struct cause_words {
    const char *name; /* class in run.json */
    const char *says; /* %s: the detail (signal or exit code), when there is one */
    const char *advice; /* what to do, before the commands */
} cause_words;

static const cause_words causes[] = {
    { "exit", "ended with exit code %s",
      "The program ended by itself: the reason is in its own last lines." },
    { "signal", "was killed by %s",
      "It crashed in its own code or in a library: its last lines may say where, gdb does." },
    { "error", "returned an error from its train function",
      "The message above is the function's own." },
    { "oom", "was killed because memory ran out (%s)",
      "Give each worker less to do (a smaller batch), start fewer workers, or ask for more "
      "memory." },
    { "stopped", "was frozen (SIGSTOP) for too long",
      "Somebody stopped the process (Ctrl-Z, a debugger, kill -STOP)." },
    { "silent", "gave no sign of life for too long",
      "The process exists but does not run: the machine may be swapping, or a driver is stuck." },
    { "no_hello", "never connected to the trainer",
      "A program that uses libunisono must open its session (or call uni_main) soon after its "
      "start." },
    { "preempted", "was asked to stop (%s)", "Nothing is wrong: it can go on where it stopped." },
    { "disk_full", "found the disk full",
      "Make room (`unisono rm` removes old runs, --keep N keeps fewer checkpoints) and resume." },
    { "time_limit", "reached the time limit", "Give it a longer --time-limit and resume." },
    { "no_progress", "made no progress for too long",
      "It did not report within --progress-timeout: it hangs, or one iteration takes longer than "
      "that." },
    { "controller", "lost its controller",
      "The process that watched over the workers was killed; the workers were ended with it." },
    { "agent", "lost its agent",
      "The process that starts the workers (unisono-agent) was killed." },
    { "host_lost", "lost a host",
      "The host is down or frozen, or the network to it is: with more slots in --hosts than "
      "workers, or "
      "with --min-workers, a run goes on without it." },
    { "launcher", "lost mpirun or srun",
      "Something killed the launcher or its daemon on a host, and with it what it had started "
      "there. "
      "To stop a run, signal the controller (`unisono stop`), not mpirun." },
    { "checkpoint", "could not save a checkpoint",
      "The message above says which; check the files that it hands over and the free space." },
    { "internal", "failed inside unisono itself",
      "This is an error of unisono or of the machine: the message above says where." },
    { "launch", "could not be started",
      "Check the program's name and that it may be executed; `unisono run --dry-run` shows what "
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
        return "Somebody killed it: an administrator, a job limit, or the kernel for lack of "
               "memory (`dmesg` "
               "tells).";
    if (words && strcmp(words->name, "launch") == 0 && cli_cause_is_launchers(cause))
        return "mpirun or srun says why in logs/launcher.log: check the names of the hosts, that a "
               "process can be started there (for mpirun ssh without a password), and that unisono "
               "is at the same path on all.";
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
        snprintf(out, size, "failed (%s)",
                 uni_dict_get_string(cause, "class", "no class is known"));
    else if (strstr(words->says, "%s")) {
        const char *mark = strstr(words->says, "%s");
        snprintf(out, size, "%.*s%s%s", (int)(mark - words->says), words->says, detail, mark + 2);
    } else
        snprintf(out, size, "%s", words->says);
}
