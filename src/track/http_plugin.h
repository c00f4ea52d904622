/*
 * http_plugin.h - what libunisono and libunisono-mlflow.so agree on: a small HTTP client. Used by
 * this module only.
 *
 * The plugin is the only part that links libcurl, so that a program that never talks to a server
 * does not load it. The plugin knows nothing of libunisono (no symbol of it is used), and the
 * version is checked before anything else: a plugin of another build is refused with a sentence.
 */
#ifndef UNISONO_TRACK_HTTP_PLUGIN_H
#define UNISONO_TRACK_HTTP_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

#define UNI__HTTP_PLUGIN_VERSION 1
#define UNI__HTTP_PLUGIN_SYMBOL "uni__http_plugin_get"
#define UNI__HTTP_PLUGIN_FILE "libunisono-mlflow.so"

typedef struct uni__http_options {
    const char *token; /* "Authorization: Bearer ...", or NULL */
    const char *user, *password; /* basic authentication, or NULL */
    bool insecure; /* certificates are not checked */
    long timeout_seconds; /* of a whole request */
} uni__http_options;

typedef enum uni__http_outcome {
    UNI__HTTP_ANSWERED = 0,
    UNI__HTTP_NOT_SENT = -1, /* no connection: sending it again is safe */
    UNI__HTTP_FAILED = -2 /* it may have been received */
} uni__http_outcome;

typedef struct uni__http_request {
    const char *method, *url;
    const void *body; /* JSON, or NULL */
    size_t size;
    int fd; /* with body NULL: this file's `size` bytes are sent; -1: nothing is */
} uni__http_request;

typedef struct uni__http_answer {
    long status; /* 200 */
    char *body; /* zero-terminated, never NULL after UNI__HTTP_ANSWERED; freed by release */
    size_t size; /* more than 16 MiB is cut off */
    char message[300]; /* why it was not answered */
} uni__http_answer;

typedef struct uni__http_plugin {
    int version;
    const char *name; /* "libcurl/7.88.1" */
    void *(*open)(const uni__http_options *options); /* NULL: no memory */
    uni__http_outcome (*send)(void *client, const uni__http_request *request,
                              uni__http_answer *answer);
    void (*release)(uni__http_answer *answer);
    void (*close)(void *client);
} uni__http_plugin;

#endif
