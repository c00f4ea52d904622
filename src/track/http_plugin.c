/*
 * http_plugin.c - libunisono-mlflow.so: HTTP with libcurl, behind http_plugin.h.
 *
 * One easy handle per client keeps the connection open. Only http and https; redirects are not
 * followed, because the token would go where the user did not send it. Thread: one at a time per
 * client.
 */
#include "track/http_plugin.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_ANSWER (16 * 1024 * 1024)

typedef struct client {
    CURL *easy;
    struct curl_slist *headers, *plain_headers;
    char error[CURL_ERROR_SIZE];
    uni__http_options options;
} client;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void initialise(void)
{
    /* Process-wide initialization of libcurl, which cannot be avoided. */
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* The next power of two, so that an answer in small pieces is not copied for each of them. */
static size_t room_for(size_t size)
{
    size_t room = 4096;
    while (room < size)
        room *= 2;
    return room;
}

static size_t take_answer(char *data, size_t one, size_t size, void *context)
{
    uni__http_answer *answer = context;
    /* No server has so much to say: one that never ends would hold the run for ever. */
    if (size > MAX_ANSWER - answer->size)
        return 0;
    size_t room = room_for(answer->size + size + 1);
    if (answer->size == 0 || room > room_for(answer->size + 1)) {
        char *grown = realloc(answer->body, room);
        if (grown == NULL)
            return 0;
        answer->body = grown;
    }
    memcpy(answer->body + answer->size, data, size);
    answer->size += size;
    answer->body[answer->size] = 0;
    return size;
}

static size_t give_file(char *data, size_t one, size_t size, void *context)
{
    ssize_t got = read(*(int *)context, data, one * size);
    return got < 0 ? CURL_READFUNC_ABORT : (size_t)got;
}

static struct curl_slist *add_header(struct curl_slist *list, const char *text)
{
    struct curl_slist *longer = curl_slist_append(list, text);
    return longer != NULL ? longer : list;
}

static void client_close(void *self)
{
    client *c = self;
    if (c == NULL)
        return;
    curl_easy_cleanup(c->easy);
    curl_slist_free_all(c->headers);
    curl_slist_free_all(c->plain_headers);
    free((char *)c->options.user);
    free((char *)c->options.password);
    free(c);
}

static void *client_open(const uni__http_options *options)
{
    pthread_once(&once, initialise);
    client *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->easy = curl_easy_init();
    c->options = *options;
    c->options.user = options->user != NULL ? strdup(options->user) : NULL;
    c->options.password = options->password != NULL ? strdup(options->password) : NULL;
    c->options.token = NULL;
    if (c->easy == NULL) {
        client_close(c);
        return NULL;
    }
    c->headers = add_header(c->headers, "Content-Type: application/json");
    c->headers = add_header(c->headers, "Expect:");
    c->plain_headers = add_header(c->plain_headers, "Content-Type: application/octet-stream");
    c->plain_headers = add_header(c->plain_headers, "Expect:");
    if (options->token != NULL) {
        size_t size = strlen(options->token) + sizeof "Authorization: Bearer ";
        char *header = malloc(size);
        if (header == NULL) {
            client_close(c);
            return NULL;
        }
        snprintf(header, size, "Authorization: Bearer %s", options->token);
        c->headers = add_header(c->headers, header);
        c->plain_headers = add_header(c->plain_headers, header);
        memset(header, 0, size);
        free(header);
    }
    return c;
}

static void set_options(client *c, const uni__http_request *request, uni__http_answer *answer)
{
    curl_easy_reset(c->easy); /* keeps the connection */
    curl_easy_setopt(c->easy, CURLOPT_URL, request->url);
    curl_easy_setopt(c->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c->easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT, 5L);
    curl_easy_setopt(c->easy, CURLOPT_TIMEOUT, request->fd >= 0 ? 0L : c->options.timeout_seconds);
    curl_easy_setopt(c->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c->easy, CURLOPT_LOW_SPEED_TIME, c->options.timeout_seconds);
    curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->error);
    curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, take_answer);
    curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, answer);
    curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, request->fd >= 0 ? c->plain_headers : c->headers);
    if (c->options.insecure) {
        curl_easy_setopt(c->easy, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(c->easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (c->options.user != NULL) {
        curl_easy_setopt(c->easy, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        curl_easy_setopt(c->easy, CURLOPT_USERNAME, c->options.user);
        curl_easy_setopt(c->easy, CURLOPT_PASSWORD,
                         c->options.password != NULL ? c->options.password : "");
    }
    if (request->body != NULL) {
        curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, request->body);
        curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->size);
    } else if (request->fd >= 0) {
        curl_easy_setopt(c->easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(c->easy, CURLOPT_READFUNCTION, give_file);
        curl_easy_setopt(c->easy, CURLOPT_READDATA, &request->fd);
        curl_easy_setopt(c->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->size);
    }
    curl_easy_setopt(c->easy, CURLOPT_CUSTOMREQUEST, request->method);
}

static uni__http_outcome client_send(void *self, const uni__http_request *request,
                                     uni__http_answer *answer)
{
    client *c = self;
    *answer = (uni__http_answer){ 0 };
    answer->body = calloc(1, 1);
    if (answer->body == NULL)
        return UNI__HTTP_NOT_SENT;
    c->error[0] = 0;
    set_options(c, request, answer);
    CURLcode code = curl_easy_perform(c->easy);
    if (code != CURLE_OK) {
        snprintf(answer->message, sizeof answer->message, "%s",
                 c->error[0] != 0 ? c->error : curl_easy_strerror(code));
        bool unsent = code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
                      code == CURLE_COULDNT_RESOLVE_PROXY || code == CURLE_URL_MALFORMAT;
        return unsent ? UNI__HTTP_NOT_SENT : UNI__HTTP_FAILED;
    }
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &answer->status);
    return UNI__HTTP_ANSWERED;
}

static void release(uni__http_answer *answer)
{
    free(answer->body);
    answer->body = NULL;
}

const uni__http_plugin *uni__http_plugin_get(void);

__attribute__((visibility("default"))) const uni__http_plugin *uni__http_plugin_get(void)
{
    static const uni__http_plugin plugin = {
        .version = UNI__HTTP_PLUGIN_VERSION,
        .name = "libcurl/" LIBCURL_VERSION,
        .open = client_open,
        .send = client_send,
        .release = release,
        .close = client_close,
    };
    return &plugin;
}
