/*
 * sink.c - a sink is a class and its self; and the sink that calls user functions.
 *
 * Thread: construction anywhere, everything else on the sink thread (runner.c).
 */
#include <unisono/track.h>

#include <stdlib.h>

#include "track/sink.h"

#include "track/shared.h"
#include "track/trials.h"

int uni_sink_new(uni_sink **out, const uni_sink_class *class_, void *self, uni_error *err)
{
    *out = NULL;
    if (class_ == NULL || class_->name == NULL)
        return uni_error_set(err, UNI_EINVAL, "a sink needs a class with a name");
    uni_sink *sink = malloc(sizeof *sink);
    if (sink == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the sink \"%s\"", class_->name);
    *sink = (uni_sink){ class_, self };
    *out = sink;
    return 0;
}

void uni_sink_free(uni_sink *sink)
{
    if (sink == NULL)
        return;
    if (sink->class_->free != NULL)
        sink->class_->free(sink->self);
    free(sink);
}

const char *uni__sink_name(const uni_sink *sink)
{
    return sink->class_->name;
}

int uni__sink_feed(uni_sink *sink, const uni_start_info *info, const uni_reports *reports,
                   size_t count, const uni_finish_info *finish, uni_error *err)
{
    const uni_sink_class *class_ = sink->class_;
    if (class_->start != NULL)
        UNI_TRY(class_->start(sink->self, info, err));
    for (size_t i = 0; i < count && class_->result != NULL; i++)
        UNI_TRY(class_->result(sink->self, &reports[i], err));
    return class_->finish != NULL ? class_->finish(sink->self, finish, err) : 0;
}

/* ---- user functions ---- */

static int callback_start(void *self, const uni_start_info *info, uni_error *err)
{
    const uni_sink_functions *callback = self;
    if (callback->on_start != NULL)
        callback->on_start(callback->context, info);
    return 0;
}

static int callback_result(void *self, const uni_reports *reports, uni_error *err)
{
    const uni_sink_functions *callback = self;
    if (callback->on_result != NULL)
        callback->on_result(callback->context, reports);
    return 0;
}

static int callback_event(void *self, const uni_event *event, uni_error *err)
{
    const uni_sink_functions *callback = self;
    if (callback->on_event != NULL)
        callback->on_event(callback->context, event);
    return 0;
}

static int callback_finish(void *self, const uni_finish_info *info, uni_error *err)
{
    const uni_sink_functions *callback = self;
    if (callback->on_finish != NULL)
        callback->on_finish(callback->context, info);
    return 0;
}

static const uni_sink_class callback_class = {
    .name = "callback",
    .start = callback_start,
    .result = callback_result,
    .event = callback_event,
    .finish = callback_finish,
    .free = free,
};

int uni_sink_from_functions(uni_sink **out, const uni_sink_functions *callback, uni_error *err)
{
    *out = NULL;
    uni_sink_functions *copy = malloc(sizeof *copy);
    if (copy == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a callback");
    *copy = *callback;
    int status = uni_sink_new(out, &callback_class, copy, err);
    if (status < 0)
        free(copy);
    return status;
}
