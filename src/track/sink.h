/* sink.h - what a uni_sink is made of, for the runner, and small things that the sinks share. Used
 * by this module only. */
#ifndef UNISONO_TRACK_SINK_H
#define UNISONO_TRACK_SINK_H

#include <unisono/track.h>

#include "base/text.h"

struct uni_sink {
    const uni_sink_vtable *vtable;
    void *self;
};

/* The name: "DIR/FILE" where dir NULL is the run directory; made if it is not there. malloc'ed. */
int uni__sink_path(char **out, const char *dir, const char *filename, const char *run_dir,
                   uni_error *err) UNI_MUST_USE;
/* A copy of the caller's string, or NULL for NULL; *failed is set when there is no memory. */
char *uni__sink_copy(const char *text, bool *failed);

/* A value as JSON: non-finite numbers as Python's json writes them; indent 0 is one line, otherwise
 * spaces per level. */
void uni__emit_json(uni__text *out, const uni_value *value, int indent);

/* Calls visit for every leaf below dict with its joined name ("a.b" with separator '.'); lists and
 * arrays are leaves. */
typedef int (*uni__flat_visit)(void *context, const char *name, const uni_value *leaf,
                               uni_error *err);
int uni__flatten(const uni_value *dict, char separator, uni__text *scratch, uni__flat_visit visit,
                 void *context, uni_error *err) UNI_MUST_USE;
/* "_timestamp" and the like: filled in by the session, not by the user. */
bool uni__is_autofilled(const char *name);
/* The rank's dictionary, or NULL when it did not report or there is no such rank. */
const uni_value *uni__reports_rank(const uni_reports *reports, int rank);

#endif
