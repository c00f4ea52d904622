/*
 * hosts_again.c - hosts that are lost while ranks on other hosts keep training, and what takes their
 * place. Controller thread.
 *
 * A host that dies, or is silent for too long, takes all of its ranks with it. If the others can go
 * on (replace.c, resize.c), its ranks are vacant: they have neither a process nor a host. A spare
 * host with enough slots gets them; without one, the lost host is tried again, after 1, 2, 4 and at
 * most 30 s. When a host has come, its ranks are started there like any replacement, and join.
 *
 * Where the number of workers is fixed, the group waits for that. If no host has come within a
 * minute, the attempt fails with the loss as its cause, and the group restarts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "train/hosts_internal.h"

#define BACKOFF_NS 1000000000ull /* doubled each time */
#define BACKOFF_MAX_NS 30000000000ull
#define PATIENCE_NS 60000000000ull
#define SILENT_NS 1000000000ull /* what it takes to be called silent */

int uni__hosts_seat(uni__run *run, uni_error *err)
{
    uni__hosts *hosts = run->trainer->hosts;
    uni__rank_place place;
    size_t count = (size_t)hosts->num_hosts + 1;
    free(hosts->seats);
    free(hosts->vacancies);
    hosts->seats = calloc(count, sizeof *hosts->seats);
    hosts->vacancies = calloc((size_t)run->num_workers + 1, sizeof *hosts->vacancies);
    hosts->num_vacancies = 0;
    hosts->coming = -1;
    if (!hosts->seats || !hosts->vacancies)
        return uni_error_set(err, UNI_ENOMEM, "no memory for hosts");
    for (int i = 0, host = -1, node = -1; i < run->num_workers; i++) {
        run->ranks[i].homeless = !uni__group_place(run->group, i, &place);
        if (run->ranks[i].homeless)
            continue;
        while (place.node != node && ++host < hosts->num_hosts &&
               strcmp(hosts->list[host].name, place.host) != 0)
            ;
        node = place.node;
        if (host >= hosts->num_hosts)
            break; /* inside a foreign launcher */
        if (hosts->seats[host].count++ == 0)
            hosts->seats[host].first = i;
    }
    for (int i = 0; i < hosts->num_hosts; i++)
        hosts->seats[i].down = hosts->list[i].lost;
    return 0;
}

/* ---- a host is lost ---- */

/* The vacant ranks that have no cause yet: all are lost in one moment. */
static bool is_being_lost(const uni__rank *slot)
{
    return slot->homeless && !slot->away && !slot->joining && !slot->done;
}

static void set_homeless(uni__run *run, int node, bool homeless)
{
    uni__rank_place place;
    for (int i = 0; i < run->num_workers; i++)
        if (uni__group_place(run->group, i, &place) && place.node == node)
            run->ranks[i].homeless = homeless;
}

static bool others_go_on(const uni__run *run)
{
    for (int i = 0; i < run->num_workers; i++)
        if (is_being_lost(&run->ranks[i]) && !uni__resize_can_lose(run, i) &&
            !uni__replace_can(run, i))
            return false;
    return true;
}

static bool can_lose(uni__run *run, int node)
{
    if (!run->trainer->hosts->seats || !uni__run_is_elastic(run))
        return false;
    set_homeless(run, node, true);
    bool can = others_go_on(run);
    set_homeless(run, node, false);
    return can;
}

/* Of the first of its ranks the loss of a host is a failure; the others went with it. */
static bool lose_rank(uni__run *run, int rank, const uni__cause *loss, const char *host, bool first)
{
    uni__cause cause = *loss;
    int failures = run->budget.failures;
    cause.rank = rank;
    if (!first)
        snprintf(cause.message, sizeof cause.message, "rank %d is lost with its host %.200s", rank,
                 host);
    bool taken = uni__resize_lost(run, rank, &cause) || uni__replace_lost(run, rank, &cause);
    if (!first)
        run->budget.failures = failures;
    return taken;
}

static void add_vacancy(uni__run *run, int node)
{
    uni__hosts *hosts = run->trainer->hosts;
    uni__vacancy *vacancy = &hosts->vacancies[hosts->num_vacancies];
    uni__rank_place place;
    *vacancy = (uni__vacancy){ .first = -1, .since_ns = uni__monotonic_ns() };
    for (int i = 0; i < run->num_workers; i++) {
        if (!uni__group_place(run->group, i, &place) || place.node != node)
            continue;
        vacancy->first = vacancy->count++ == 0 ? i : vacancy->first;
        uni__group_vacate(run->group, i);
        run->ranks[i].host_silent_ns = 0;
    }
    hosts->num_vacancies += vacancy->count > 0;
    for (int i = 0; i < hosts->num_hosts; i++) {
        uni__host_seat *seat = &hosts->seats[i];
        if (seat->count == 0 || seat->first != vacancy->first)
            continue;
        *seat = (uni__host_seat){ .down = true, .next_ns = vacancy->since_ns };
        hosts->list[i].was_lost = true; /* if the attempt is made again, it may still be away */
    }
}

bool uni__hosts_lose_ranks(uni__run *run, int first_rank, uni__cause *cause)
{
    uni__rank_place lost;
    if (run->state != UNI__RUN_RUNNING || !uni__group_place(run->group, first_rank, &lost) ||
        !can_lose(run, lost.node))
        return false;
    char name[256];
    bool first = true, taken = true;
    int node = lost.node;
    snprintf(name, sizeof name, "%.200s", lost.host);
    set_homeless(run, node, true);
    for (int i = 0; i < run->num_workers && taken; i++) {
        if (!is_being_lost(&run->ranks[i]) && !(run->ranks[i].homeless && run->ranks[i].joining))
            continue;
        uni__rank_place place;
        if (!uni__group_place(run->group, i, &place) || place.node != node)
            continue;
        taken = lose_rank(run, i, cause, name, first);
        first = false;
    }
    add_vacancy(run, node);
    return taken;
}

/* ---- another one ---- */

/* Some rank of it is waited for, or wanted. */
static bool is_wanted(const uni__run *run, const uni__vacancy *vacancy)
{
    for (int i = vacancy->first; i < vacancy->first + vacancy->count; i++) {
        const uni__rank *slot = &run->ranks[i];
        if (slot->away ? i < run->target && !slot->dismissed : slot->joining)
            return true;
    }
    return false;
}

/* The group cannot go on without it. */
static bool is_awaited(const uni__run *run, const uni__vacancy *vacancy)
{
    for (int i = vacancy->first; i < vacancy->first + vacancy->count; i++)
        if (!run->ranks[i].away && run->ranks[i].joining)
            return true;
    return false;
}

/* A spare before a host that was lost; -1: none for now. */
static int choose_host(const uni__hosts *hosts, int count, uint64_t now)
{
    int found = -1;
    for (int i = 0; i < hosts->num_hosts; i++) {
        const uni__host_seat *seat = &hosts->seats[i];
        if (seat->count > 0 || hosts->list[i].slots < count || now < seat->next_ns)
            continue;
        if (found < 0 || (hosts->seats[found].down && !seat->down))
            found = i;
    }
    return found;
}

static void wait_for_host(uni__host_seat *seat, uint64_t now)
{
    uint64_t wait = seat->tries < 5 ? BACKOFF_NS << seat->tries : BACKOFF_MAX_NS;
    seat->down = true;
    seat->tries++;
    seat->next_ns = now + wait;
}

static void fetch_host(uni__run *run, const uni__vacancy *vacancy, uint64_t now)
{
    uni__hosts *hosts = run->trainer->hosts;
    uni_error err = { 0 };
    int host = choose_host(hosts, vacancy->count, now);
    if (host < 0)
        return;
    hosts->coming = host;
    if (uni__hosts_launch_more(run, hosts->list[host].name, vacancy->first, vacancy->count, &err) ==
        0)
        return;
    hosts->coming = -1;
    wait_for_host(&hosts->seats[host], now);
    uni__hosts_remove_tokens(run);
    uni__run_tell(run, UNI_EVENT_WARNING, -1, "host %s could not be started: %s",
                  hosts->list[host].name, err.message);
}

static void give_up_silent(uni__run *run, uint64_t now)
{
    double patience = run->trainer->host_timeout - (double)SILENT_NS * 1e-9;
    uni__rank_place place;
    for (int i = 0; i < run->num_workers; i++) {
        uint64_t since = run->ranks[i].host_silent_ns;
        if (since == 0 || (double)(now - since) * 1e-9 < patience ||
            !uni__group_place(run->group, i, &place) || !can_lose(run, place.node))
            continue;
        uni__group_give_up_host(run->group, i,
                                "nothing was heard of it in time, not even a pulse: it is down, "
                                "frozen, or the network between drops what it sends");
        return; /* the ranks are others now */
    }
}

static void fail_for_want(uni__run *run, const uni__vacancy *vacancy)
{
    uni__cause cause = uni__cause_new(run, UNI__CAUSE_HOST, vacancy->first, UNI_EWORKER,
                                      "no host came for rank %d within %d s", vacancy->first,
                                      (int)(PATIENCE_NS / 1000000000u));
    uni__run_fail(run, &cause);
}

void uni__hosts_look(uni__run *run, uint64_t now)
{
    uni__hosts *hosts = run->trainer->hosts;
    if (!hosts || !hosts->seats || run->state != UNI__RUN_RUNNING || !uni__run_is_elastic(run))
        return;
    give_up_silent(run, now);
    now = uni__monotonic_ns(); /* hosts may be lost since */
    for (int i = 0; i < hosts->num_vacancies && run->state == UNI__RUN_RUNNING; i++) {
        const uni__vacancy *vacancy = &hosts->vacancies[i];
        if (is_awaited(run, vacancy) && now - vacancy->since_ns > PATIENCE_NS)
            fail_for_want(run, vacancy);
        else if (hosts->coming < 0 && !run->attempt.closed &&
                 run->stop.reason == UNI__NOT_STOPPING && is_wanted(run, vacancy))
            fetch_host(run, vacancy, now);
    }
}

/* ---- more hosts than before ---- */

static int find_host(const uni__hosts *hosts, const char *name)
{
    int found = hosts->num_hosts - 1;
    while (found >= 0 && strcmp(hosts->list[found].name, name) != 0)
        found--;
    return found;
}

/* Its index, or -1 without memory. */
static int append_host(uni__hosts *hosts, const uni__host_slots *fresh)
{
    size_t count = (size_t)hosts->num_hosts + 1;
    uni__host_slots *list = realloc(hosts->list, count * sizeof *list);
    if (list)
        hosts->list = list;
    uni__host_seat *seats = list ? realloc(hosts->seats, count * sizeof *seats) : NULL;
    if (!seats)
        return -1;
    hosts->seats = seats;
    hosts->list[hosts->num_hosts] = *fresh;
    hosts->seats[hosts->num_hosts] = (uni__host_seat){ 0 };
    return hosts->num_hosts++;
}

/* No host was ever meant for it. */
static bool is_spare_rank(const uni__run *run, int rank)
{
    const uni__hosts *hosts = run->trainer->hosts;
    bool spare = run->ranks[rank].homeless && run->ranks[rank].away;
    for (int i = 0; i < hosts->num_vacancies; i++)
        spare &= rank < hosts->vacancies[i].first ||
                 rank >= hosts->vacancies[i].first + hosts->vacancies[i].count;
    return spare;
}

static uni__vacancy spare_ranks(const uni__run *run, int slots)
{
    uni__vacancy found = { .first = 0, .since_ns = uni__monotonic_ns() };
    while (found.first < run->num_workers && !is_spare_rank(run, found.first))
        found.first++;
    while (found.count < slots && found.first + found.count < run->num_workers &&
           is_spare_rank(run, found.first + found.count))
        found.count++;
    return found;
}

static void add_host(uni__run *run, const uni__host_slots *fresh)
{
    uni__hosts *hosts = run->trainer->hosts;
    int host = find_host(hosts, fresh->name);
    if (host >= 0 && hosts->seats[host].count > 0) {
        uni__run_tell(run, UNI_EVENT_WARNING, -1, "host %s is not added: it is in the run already",
                      fresh->name);
        return;
    }
    uni__vacancy ranks = spare_ranks(run, fresh->slots);
    bool again = host >= 0 && hosts->seats[host].down;
    if (ranks.count == 0 && !again) {
        uni__run_tell(run, UNI_EVENT_WARNING, -1,
                      "host %s is not added: %d is the largest number of workers (--workers "
                      "MIN:MAX), and every one of them has a host",
                      fresh->name, run->num_workers);
        return;
    }
    if (host < 0 && (host = append_host(hosts, fresh)) < 0) {
        uni__run_tell(run, UNI_EVENT_WARNING, -1, "host %s is not added: out of memory",
                      fresh->name);
        return;
    }
    hosts->list[host].slots = fresh->slots;
    hosts->seats[host] = (uni__host_seat){ 0 };
    if (ranks.count == 0)
        return; /* it is tried again, for the ranks that it had */
    hosts->vacancies[hosts->num_vacancies++] = ranks;
    int least = ranks.first + ranks.count;
    uni__resize_to(run, run->target > least ? run->target : least);
}

void uni__hosts_add(uni__run *run, const char *list)
{
    const uni__hosts *hosts = run->trainer->hosts;
    uni__host_slots *fresh = NULL;
    uni_error err = { 0 };
    int count = 0;
    if (!hosts || !hosts->seats || uni__hosts_parse(list, &fresh, &count, &err) < 0) {
        uni__run_tell(run, UNI_EVENT_WARNING, -1, "no host is added: %s",
                      err.message[0] ? err.message : "the run has none");
        return;
    }
    for (int i = 0; i < count; i++)
        add_host(run, &fresh[i]);
    free(fresh);
}

/* ---- it has come, or not ---- */

static void refuse_host(uni__run *run, int host, int first_rank, const char *why)
{
    uni__hosts *hosts = run->trainer->hosts;
    uni__vacancy vacancy = { .first = first_rank, .count = hosts->list[host].slots };
    uni__run_tell(run, UNI_EVENT_WARNING, -1, "host %s is not used: %.900s", hosts->list[host].name,
                  why);
    hosts->refuses = true; /* its end is no loss */
    uni__group_give_up_host(run->group, first_rank, why);
    hosts->refuses = false;
    for (int i = 0; i < hosts->num_vacancies; i++)
        if (hosts->vacancies[i].first == first_rank)
            vacancy = hosts->vacancies[i];
    for (int i = 0; i < vacancy.count; i++)
        uni__group_vacate(run->group, vacancy.first + i);
    wait_for_host(&hosts->seats[host], uni__monotonic_ns());
}

/* Those that the group waits for start at once; the others as the number of workers wants it. */
static void start_ranks(uni__run *run, const uni__vacancy *vacancy)
{
    uni_error err = { 0 };
    bool awaited = is_awaited(run, vacancy);
    int status = 0;
    for (int i = vacancy->first; i < vacancy->first + vacancy->count && status == 0; i++) {
        uni__rank *slot = &run->ranks[i];
        slot->homeless = false;
        if (!slot->away && slot->joining)
            status = uni__attempt_replace_rank(run, i, &err);
    }
    if (status < 0) {
        uni__run_fatal(run, UNI__CAUSE_LAUNCH, &err);
    } else if (awaited) {
        run->attempt.group++;
        uni__replace_regroup(run);
    }
}

void uni__hosts_joined(void *context, int first_rank)
{
    uni__run *run = ((uni_trainer *)context)->run;
    uni__hosts *hosts = ((uni_trainer *)context)->hosts;
    uni_error err = { 0 };
    int host = hosts->coming, at = 0;
    hosts->coming = -1;
    while (at < hosts->num_vacancies && hosts->vacancies[at].first != first_rank)
        at++;
    if (!run || run->state != UNI__RUN_RUNNING || host < 0 || at == hosts->num_vacancies)
        return;
    if (uni__hosts_prepare(run, first_rank, &err) < 0) {
        refuse_host(run, host, first_rank, err.message);
        return;
    }
    uni__vacancy vacancy = hosts->vacancies[at];
    hosts->num_vacancies--;
    memmove(&hosts->vacancies[at], &hosts->vacancies[at + 1],
            (size_t)(hosts->num_vacancies - at) * sizeof vacancy);
    hosts->seats[host] = (uni__host_seat){ .first = vacancy.first, .count = vacancy.count };
    hosts->list[host].was_lost = hosts->list[host].lost = false;
    uni__run_tell(run, UNI_EVENT_WORKERS, -1, "host %s has joined, for rank%s %d to %d",
                  hosts->list[host].name, vacancy.count == 1 ? "" : "s", vacancy.first,
                  vacancy.first + vacancy.count - 1);
    start_ranks(run, &vacancy);
    uni__run_describe(run, "running");
}

void uni__hosts_missing(void *context, const char *sentence)
{
    uni__run *run = ((uni_trainer *)context)->run;
    uni__hosts *hosts = ((uni_trainer *)context)->hosts;
    int host = hosts->coming;
    hosts->coming = -1;
    if (!run || host < 0)
        return;
    uni__hosts_remove_tokens(run);
    if (hosts->seats[host].tries == 0)
        uni__run_tell(run, UNI_EVENT_WARNING, -1, "%s; it is tried again (logs/launcher.log)",
                      sentence);
    wait_for_host(&hosts->seats[host], uni__monotonic_ns());
}
