/*
 * restarts_watch.c - a thread beside a run of the net for restarts. When the run takes too long, the thread records what each process waits for: all threads of all
 * processes, by gdb where there is one, otherwise the kernel's words for them. The file is kept with RESTARTS_KEEP (restarts.c).
 */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "restarts.h"

struct restarts_watch {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool over;
    struct timespec until;
    char pids[4200];
};

static void record(const char *pids)
{
    char command[16384];
    snprintf(command, sizeof command,
             "cd '%s' && for pid in $( (tail -q -n 1 [0-9]*; pgrep -P %d) | sort -u); do "
             "echo \"== process $pid (rank: $(grep -lx $pid [0-9]*)): $(cat /proc/$pid/stat)\"; "
             "if command -v gdb; then gdb -p $pid --batch -ex 'thread apply all backtrace'; "
             "else for task in /proc/$pid/task/*; do echo $task $(cat $task/wchan) "
             "$(cat $task/syscall); done; fi; done > stacks 2>&1",
             pids, (int)getpid());
    if (system(command) != 0)
        fprintf(stderr, "the stacks of a run that hangs are not complete\n");
    fprintf(stderr, "a run hangs: what its processes wait for is in %s/stacks\n", pids);
}

static void *watch_run(void *context)
{
    restarts_watch *watch = context;
    int status = 0;
    pthread_mutex_lock(&watch->mutex);
    while (!watch->over && status != ETIMEDOUT)
        status = pthread_cond_timedwait(&watch->ended, &watch->mutex, &watch->until);
    bool hangs = !watch->over;
    pthread_mutex_unlock(&watch->mutex);
    if (hangs)
        record(watch->pids);
    return NULL;
}

restarts_watch *restarts_watch_begin(const char *pids, double seconds)
{
    restarts_watch *watch = calloc(1, sizeof *watch);
    CHECK(watch && clock_gettime(CLOCK_REALTIME, &watch->until) == 0);
    watch->until.tv_sec += (time_t)seconds;
    snprintf(watch->pids, sizeof watch->pids, "%s", pids);
    CHECK(pthread_mutex_init(&watch->mutex, NULL) == 0 &&
          pthread_cond_init(&watch->ended, NULL) == 0 &&
          pthread_create(&watch->thread, NULL, watch_run, watch) == 0);
    return watch;
}

void restarts_watch_end(restarts_watch *watch)
{
    pthread_mutex_lock(&watch->mutex);
    watch->over = true;
    pthread_cond_signal(&watch->ended);
    pthread_mutex_unlock(&watch->mutex);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->ended);
    pthread_mutex_destroy(&watch->mutex);
    free(watch);
}
