/*
 * hyperband.c - synchronous HyperBand (Li et al. 2017).
 *
 * Bracket s begins with about (s_max + 1) / (s + 1) * eta^s trials that run max_t / eta^s
 * iterations each. Then all are paused: the best 1/eta continue eta times as far and the others
 * end, until max_t. New trials fill one bracket after the other, from the one with the most
 * halvings to the one with none. A bracket advances when all of its live trials have reached their
 * mark, and it is full or no more trials will come. A paused trial continues from its checkpoint.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/schedule.h"
#include "tune/search.h"

typedef struct member {
    int64_t trial, iteration;
    /* mark: the milestone at which it waits; 0: still running. */
    double value, mark;
    bool over;
} member;

typedef struct bracket {
    member *members;
    size_t count, wanted;
    double milestone;
} bracket;

typedef struct action {
    int64_t trial;
    bool resume;
} action;

typedef struct hyperband {
    double max_t, eta;
    /* next: the size index of the next bracket. */
    int s_max, next;
    bracket *brackets;
    size_t num_brackets;
    action *actions; /* not taken yet */
    size_t num_actions;
    bool complete;
} hyperband;

static void hyperband_free(void *context)
{
    hyperband *self = context;
    for (size_t i = 0; i < self->num_brackets; i++)
        free(self->brackets[i].members);
    free(self->brackets);
    free(self->actions);
    free(self);
}

static int hyperband_new(void **out, const uni__schedule_setting *setting, uni_error *err)
{
    static const char *const known[] = { "time_attr", "max_t", "reduction_factor", NULL };
    hyperband *self = calloc(1, sizeof *self);
    if (!self)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a scheduler");
    int status = uni__check_keys("the hyperband scheduler", setting->options, known, err);
    if (status == 0)
        status = uni__option_number(setting->options, "max_t", 81, 1, &self->max_t, err);
    if (status == 0)
        status = uni__option_number(setting->options, "reduction_factor", 3, 1.1, &self->eta, err);
    if (status < 0) {
        free(self);
        return status;
    }
    self->s_max = self->next = (int)floor(log(self->max_t) / log(self->eta) + 1e-9);
    *out = self;
    return 0;
}

static bracket *open_bracket(hyperband *self)
{
    bracket *last = self->num_brackets ? &self->brackets[self->num_brackets - 1] : NULL;
    if (last && last->count < last->wanted)
        return last;
    bracket *grown = realloc(self->brackets, (self->num_brackets + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    self->brackets = grown;
    int s = self->next;
    self->next = s > 0 ? s - 1 : self->s_max;
    grown[self->num_brackets] =
        (bracket){ .wanted = (size_t)ceil((self->s_max + 1.0) / (s + 1.0) * pow(self->eta, s)),
                   .milestone = fmax(round(self->max_t / pow(self->eta, s)), 1) };
    return &grown[self->num_brackets++];
}

static int hyperband_added(void *context, int64_t trial, uni_error *err)
{
    bracket *into = open_bracket(context);
    member *grown = into ? realloc(into->members, (into->count + 1) * sizeof *grown) : NULL;
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a scheduler");
    into->members = grown;
    grown[into->count++] = (member){ .trial = trial };
    return 0;
}

static member *find(hyperband *self, int64_t trial, bracket **of)
{
    for (size_t b = 0; b < self->num_brackets; b++)
        for (size_t i = 0; i < self->brackets[b].count; i++)
            if (self->brackets[b].members[i].trial == trial) {
                *of = &self->brackets[b];
                return &self->brackets[b].members[i];
            }
    return NULL;
}

static int best_first(const void *left, const void *right)
{
    const member *a = *(member *const *)left, *b = *(member *const *)right;
    if (a->value != b->value)
        return a->value > b->value ? -1 : 1;
    return a->trial < b->trial ? -1 : 1;
}

static void plan(hyperband *self, int64_t trial, bool resume)
{
    action *grown = realloc(self->actions, (self->num_actions + 1) * sizeof *grown);
    if (!grown)
        return;
    self->actions = grown;
    grown[self->num_actions++] = (action){ .trial = trial, .resume = resume };
}

/* Once all trials wait at the mark: the best continue, the others end. */
static void halve(hyperband *self, bracket *at)
{
    size_t alive = 0;
    if (at->count < at->wanted && !self->complete)
        return;
    member **waiting = malloc((at->count + 1) * sizeof *waiting);
    for (size_t i = 0; waiting && i < at->count; i++) {
        if (at->members[i].over)
            continue;
        if (at->members[i].mark < at->milestone) {
            free(waiting);
            return;
        }
        waiting[alive++] = &at->members[i];
    }
    if (!waiting || !alive) {
        free(waiting);
        return;
    }
    qsort(waiting, alive, sizeof *waiting, best_first);
    size_t kept = (size_t)fmax(floor((double)alive / self->eta), 1);
    at->milestone = fmin(round(at->milestone * self->eta), self->max_t);
    for (size_t i = 0; i < alive; i++) {
        waiting[i]->mark = 0;
        waiting[i]->over = i >= kept;
        plan(self, waiting[i]->trial, i < kept);
    }
    free(waiting);
}

static int hyperband_report(void *context, const uni__schedule_report *report, uni__decision *out,
                            uni_error *err)
{
    hyperband *self = context;
    bracket *of = NULL;
    member *mine = find(self, report->trial, &of);
    if (!mine)
        return 0;
    mine->value = report->value;
    mine->iteration = report->iteration;
    if (report->time >= self->max_t) {
        out->verdict = UNI__END;
        return 0;
    }
    if (report->time < of->milestone)
        return 0;
    mine->mark = of->milestone;
    out->verdict = UNI__PAUSE;
    halve(self, of);
    return 0;
}

static void hyperband_ended(void *context, int64_t trial)
{
    hyperband *self = context;
    bracket *of = NULL;
    member *mine = find(self, trial, &of);
    if (!mine || mine->over)
        return;
    mine->over = true;
    halve(self, of);
}

static void hyperband_forget(void *context, int64_t trial, int64_t iteration)
{
    bracket *of = NULL;
    member *mine = find(context, trial, &of);
    if (mine && mine->iteration > iteration)
        mine->mark = 0;
}

static void hyperband_complete(void *context)
{
    hyperband *self = context;
    self->complete = true;
    for (size_t i = 0; i < self->num_brackets; i++)
        halve(self, &self->brackets[i]);
}

static bool hyperband_act(void *context, int64_t *trial, bool *resume)
{
    hyperband *self = context;
    if (!self->num_actions)
        return false;
    *trial = self->actions[0].trial;
    *resume = self->actions[0].resume;
    memmove(self->actions, self->actions + 1, --self->num_actions * sizeof *self->actions);
    return true;
}

const uni__scheduler_methods uni__hyperband = { .name = "hyperband",
                                                .decides = true,
                                                .new = hyperband_new,
                                                .free = hyperband_free,
                                                .added = hyperband_added,
                                                .report = hyperband_report,
                                                .ended = hyperband_ended,
                                                .forget = hyperband_forget,
                                                .complete = hyperband_complete,
                                                .act = hyperband_act };
