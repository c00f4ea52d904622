/*
 * fake_http_plugin.c - for mlflow_test.c: a plug-in that talks to no server.
 *
 * Each request is a line "METHOD URL BODY" of the file FAKE_HTTP_LOG. Answers are the lines "STATUS
 * BODY" of FAKE_HTTP_ANSWERS (0: no connection, 1: the connection broke), the last one again and
 * again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "track/http_plugin.h"

typedef struct fake {
    char lines[32][256];
    int count, next;
} fake;

static void *fake_open(const uni__http_options *options)
{
    fake *self = calloc(1, sizeof *self);
    FILE *file = fopen(getenv("FAKE_HTTP_ANSWERS"), "r");
    if (self == NULL || file == NULL)
        abort();
    while (self->count < 32 && fgets(self->lines[self->count], sizeof self->lines[0], file))
        self->count++;
    fclose(file);
    file = fopen(getenv("FAKE_HTTP_LOG"), "a");
    if (file == NULL)
        abort();
    fprintf(file, "OPEN %s %s %s\n", options->token ? options->token : "-",
            options->user ? options->user : "-", options->password ? options->password : "-");
    fclose(file);
    return self;
}

static uni__http_outcome fake_send(void *client, const uni__http_request *request,
                                   uni__http_answer *answer)
{
    fake *self = client;
    char body[4096] = "";
    size_t size = request->size < sizeof body - 1 ? request->size : sizeof body - 1;
    if (request->body != NULL)
        memcpy(body, request->body, size);
    else if (request->fd >= 0 && read(request->fd, body, size) < 0)
        abort();
    FILE *log = fopen(getenv("FAKE_HTTP_LOG"), "a");
    fprintf(log, "%s %s %s\n", request->method, request->url, body);
    fclose(log);
    char *text = self->lines[self->next < self->count - 1 ? self->next++ : self->next];
    answer->status = strtol(text, &text, 10);
    snprintf(answer->message, sizeof answer->message, "it is not there");
    if (answer->status < 2)
        return answer->status == 0 ? UNI__HTTP_NOT_SENT : UNI__HTTP_FAILED;
    answer->body = strdup(*text == ' ' ? text + 1 : text);
    answer->size = strlen(answer->body);
    return UNI__HTTP_ANSWERED;
}

static void fake_release(uni__http_answer *answer)
{
    free(answer->body);
}

__attribute__((visibility("default"))) const uni__http_plugin *uni__http_plugin_get(void);

const uni__http_plugin *uni__http_plugin_get(void)
{
    static const uni__http_plugin plugin = { .version = UNI__HTTP_PLUGIN_VERSION,
                                             .name = "fake",
                                             .open = fake_open,
                                             .send = fake_send,
                                             .release = fake_release,
                                             .close = free };
    return &plugin;
}
