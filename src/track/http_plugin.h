/*
 * http_plugin.h - the interface between libunisono and libunisono-mlflow.so: a small HTTP client.
 * For this module only.
 *
 * Only the plug-in links libcurl, so that a program that never talks to a server does not load it.
 * The plug-in uses no symbol of libunisono. The version is checked first: a plug-in of another
 * build is rejected with a message.
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
    bool insecure; /* do not verify certificates */
    long timeout_seconds; /* of a whole request */
} uni__http_options;

typedef enum uni__http_outcome {
    UNI__HTTP_ANSWERED = 0,
    UNI__HTTP_NOT_SENT = -1, /* no connection: safe to send again */
    UNI__HTTP_FAILED = -2 /* the server may have received it */
} uni__http_outcome;

typedef struct uni__http_request {
    const char *method, *url;
    const void *body; /* JSON, or NULL */
    size_t size;
    int fd; /* with body NULL: sends this file's `size` bytes; -1: sends nothing */
} uni__http_request;

typedef struct uni__http_answer {
    long status; /* 200 */
    char *body; /* NUL-terminated, never NULL after UNI__HTTP_ANSWERED; freed by release */
    size_t size; /* truncated at 16 MiB */
    char message[300]; /* why there was no answer */
} uni__http_answer;

typedef struct uni__http_plugin {
    int version;
    const char *name; /* "libcurl/7.88.1" */
    void *(*open)(const uni__http_options *options); /* NULL: out of memory */
    uni__http_outcome (*send)(void *client, const uni__http_request *request,
                              uni__http_answer *answer);
    void (*release)(uni__http_answer *answer);
    void (*close)(void *client);
} uni__http_plugin;

#endif
