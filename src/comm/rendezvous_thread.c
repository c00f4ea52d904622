/*
 * rendezvous_thread.c - the rendezvous for threads of one process: a list of (rank, key, bytes) under a
 * lock. Any thread.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/rendezvous.h"

#define KEY_SIZE 64

typedef struct entry {
    struct entry *next;
    int rank;
    char key[KEY_SIZE];
    size_t size;
    char data[];
} entry;

typedef struct place {
    struct uni__thread_hub *hub;
    int rank;
} place;

struct uni__thread_hub {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    entry *entries;
    int size;
    place places[];
};

static int put(void *context, const char *key, const void *data, size_t size, uni_error *err)
{
    place *at = context;
    entry *made = malloc(sizeof *made + size);
    if (!made)
        return uni_error_set(err, UNI_ENOMEM, "no memory to publish %s", key);
    made->rank = at->rank;
    made->size = size;
    snprintf(made->key, sizeof made->key, "%s", key);
    memcpy(made->data, data, size);
    pthread_mutex_lock(&at->hub->lock);
    made->next = at->hub->entries;
    at->hub->entries = made;
    pthread_cond_broadcast(&at->hub->changed);
    pthread_mutex_unlock(&at->hub->lock);
    return 0;
}

static const entry *find(const uni__thread_hub *hub, int rank, const char *key)
{
    for (const entry *e = hub->entries; e; e = e->next)
        if (e->rank == rank && strncmp(e->key, key, sizeof e->key - 1) == 0)
            return e;
    return NULL;
}

static int get(void *context, int rank, const char *key, void *data, size_t capacity, size_t *size,
               int timeout_ms, uni_error *err)
{
    place *at = context;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += timeout_ms / 1000;
    end.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (end.tv_nsec >= 1000000000L) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000L;
    }
    int status = 0, waited = 0;
    const entry *found;
    pthread_mutex_lock(&at->hub->lock);
    while (!(found = find(at->hub, rank, key)) && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&at->hub->changed, &at->hub->lock, &end);
    if (!found)
        status = uni_error_set(err, UNI_ETIMEOUT, "rank %d did not publish %s within %d ms", rank,
                               key, timeout_ms);
    else if (found->size > capacity)
        status = uni_error_set(err, UNI_ELIMIT, "%s of rank %d has %zu bytes, more than %zu", key,
                               rank, found->size, capacity);
    else
        memcpy(data, found->data, *size = found->size);
    pthread_mutex_unlock(&at->hub->lock);
    return status;
}

static const uni__rendezvous_vtable thread_vtable = { .name = "threads", .put = put, .get = get };

int uni__thread_hub_new(uni__thread_hub **out, int size, uni_error *err)
{
    uni__thread_hub *hub = calloc(1, sizeof *hub + (size_t)size * sizeof hub->places[0]);
    *out = hub;
    if (!hub)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d ranks to meet", size);
    pthread_mutex_init(&hub->lock, NULL);
    pthread_cond_init(&hub->changed, NULL);
    hub->size = size;
    for (int r = 0; r < size; r++)
        hub->places[r] = (place){ hub, r };
    return 0;
}

void uni__thread_hub_free(uni__thread_hub *hub)
{
    if (!hub)
        return;
    while (hub->entries) {
        entry *next = hub->entries->next;
        free(hub->entries);
        hub->entries = next;
    }
    pthread_cond_destroy(&hub->changed);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

uni__rendezvous uni__thread_hub_rank(uni__thread_hub *hub, int rank)
{
    return (uni__rendezvous){
        .vtable = &thread_vtable, .context = &hub->places[rank], .rank = rank, .size = hub->size
    };
}
