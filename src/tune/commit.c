/* commit.c - the thread that syncs the journal; see commit.h. */
#include "tune/commit.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* Between two syncs. Records that arrive meanwhile share the next sync. */
#define PAUSE_NS 5000000

struct uni__commit {
    uni__journal *journal;
    pthread_t thread;
    bool runs, quit;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t appended, synced; /* protected by the lock, like the error */
    bool somebody_waits;
    uni_error error;
};

static void *sync_thread(void *context)
{
    uni__commit *commit = context;
    pthread_mutex_lock(&commit->lock);
    for (;;) {
        while (commit->appended == commit->synced && !commit->quit)
            pthread_cond_wait(&commit->changed, &commit->lock);
        if (commit->appended == commit->synced)
            break;
        uint64_t upto = commit->appended;
        bool hurry = commit->somebody_waits || commit->quit;
        pthread_mutex_unlock(&commit->lock);
        uni_error err = { 0 };
        int status = uni__journal_sync(commit->journal, &err);
        if (!hurry)
            nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
        pthread_mutex_lock(&commit->lock);
        commit->synced = upto;
        if (status < 0)
            commit->error = err;
        pthread_cond_broadcast(&commit->changed);
    }
    pthread_mutex_unlock(&commit->lock);
    return NULL;
}

int uni__commit_new(uni__commit **out, uni__journal *journal, uni_error *err)
{
    *out = NULL;
    uni__commit *commit = calloc(1, sizeof *commit);
    if (!commit) {
        uni__journal_close(journal);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a journal");
    }
    commit->journal = journal;
    pthread_mutex_init(&commit->lock, NULL);
    pthread_cond_init(&commit->changed, NULL);
    int error = pthread_create(&commit->thread, NULL, sync_thread, commit);
    commit->runs = error == 0;
    if (error) {
        uni__commit_free(commit);
        return uni_error_set_errno(err, error, "cannot start the journal's thread");
    }
    *out = commit;
    return 0;
}

int uni__commit_append(uni__commit *commit, const uni_value *record, uni_error *err)
{
    UNI_TRY(uni__journal_append(commit->journal, record, false, err));
    pthread_mutex_lock(&commit->lock);
    commit->appended++;
    int code = commit->error.code;
    if (code < 0 && err)
        *err = commit->error;
    pthread_cond_broadcast(&commit->changed);
    pthread_mutex_unlock(&commit->lock);
    return code;
}

int uni__commit_wait(uni__commit *commit, uni_error *err)
{
    pthread_mutex_lock(&commit->lock);
    commit->somebody_waits = true;
    pthread_cond_broadcast(&commit->changed);
    while (commit->synced < commit->appended)
        pthread_cond_wait(&commit->changed, &commit->lock);
    commit->somebody_waits = false;
    int code = commit->error.code;
    if (code < 0 && err)
        *err = commit->error;
    pthread_mutex_unlock(&commit->lock);
    return code;
}

void uni__commit_free(uni__commit *commit)
{
    if (!commit)
        return;
    if (commit->runs) {
        pthread_mutex_lock(&commit->lock);
        commit->quit = true;
        pthread_cond_broadcast(&commit->changed);
        pthread_mutex_unlock(&commit->lock);
        pthread_join(commit->thread, NULL);
    }
    uni__journal_close(commit->journal);
    pthread_cond_destroy(&commit->changed);
    pthread_mutex_destroy(&commit->lock);
    free(commit);
}
