/* budget.c - see budget.h. */
#include "train/budget.h"

#include <signal.h>
#include <stdio.h>

#define BACKOFF_FIRST_MS 50
#define QUICK_FAILURE_NS 1000000000ull
/* How shells and the dynamic linker end when there is nothing to run. */
#define NOT_FOUND 127
#define NOT_EXECUTABLE 126

bool uni__budget_stands_still(const uni__budget *budget, const uni__progress *now)
{
    return now->iteration <= budget->at_start.iteration &&
           now->checkpoints <= budget->at_start.checkpoints && now->steps <= budget->at_start.steps;
}

/* Signals that a program does not bring upon itself by a crash: restarts without limit go on when
 * an administrator or a machine's limits kill a rank twice before it got anywhere. */
static bool came_from_outside(const uni__cause *cause)
{
    if (cause->kind == UNI__CAUSE_HOST || cause->kind == UNI__CAUSE_LAUNCHER ||
        cause->kind == UNI__CAUSE_LAUNCH)
        return true;
    return cause->kind == UNI__CAUSE_SIGNAL &&
           (cause->signal == SIGKILL || cause->signal == SIGINT || cause->signal == SIGHUP ||
            cause->signal == SIGQUIT || cause->signal == SIGUSR1 || cause->signal == SIGUSR2);
}

/* An error of the user's code. A code above 128 is a shell that tells of a signal. */
static bool is_error(const uni__budget *budget, const uni__cause *cause)
{
    return cause->kind == UNI__CAUSE_ERROR || (budget->programs && cause->kind == UNI__CAUSE_EXIT &&
                                               cause->exit_code > 0 && cause->exit_code <= 128);
}

const char *uni__budget_verdict(const uni__budget *budget, const uni_trainer_options *rules,
                                const uni__cause *cause, const uni__progress *now, bool counts,
                                char *sentence, size_t size)
{
    int most = rules->max_failures == UNI_NO_RETRIES ? 0 : rules->max_failures;
    const uni__cause *before = &budget->before;
    if (budget->no_retry)
        return budget->why;
    if (is_error(budget, cause) && rules->no_retry_errors)
        return "";
    if (cause->kind == UNI__CAUSE_EXIT && cause->exit_code == UNI_EXIT_USAGE)
        return " (a usage error, so it is not started again)";
    if (cause->kind == UNI__CAUSE_EXIT && now->iteration == 0 &&
        (cause->exit_code == NOT_FOUND || cause->exit_code == NOT_EXECUTABLE))
        return " (a program or a library of it was not found there, so it is not started again)";
    if (cause->kind == UNI__CAUSE_DISK_FULL)
        return " (not started again: first make room)";
    if (counts && most >= 0 && budget->failures >= most) {
        if (most > 0)
            snprintf(sentence, size, " (restarted %d time%s, as many as max_failures allows)", most,
                     most == 1 ? "" : "s");
        return sentence;
    }
    if ((most < 0 || !counts) && before->kind == cause->kind && before->rank == cause->rank &&
        before->iteration == cause->iteration && uni__budget_stands_still(budget, now) &&
        !came_from_outside(cause)) {
        snprintf(sentence, size,
                 " (the same failure at the same iteration %lld twice without progress: restarting "
                 "again would not help)",
                 (long long)cause->iteration);
        return sentence;
    }
    return NULL;
}

int uni__budget_wait_ms(uni__budget *budget, uint64_t lasted_ns, const uni__progress *now)
{
    bool quick = lasted_ns < QUICK_FAILURE_NS && uni__budget_stands_still(budget, now);
    budget->quick_failures = quick ? budget->quick_failures + 1 : 0;
    if (budget->quick_failures < 2)
        return 0;
    int doublings = budget->quick_failures < 8 ? budget->quick_failures - 2 : 6;
    return BACKOFF_FIRST_MS << doublings;
}
