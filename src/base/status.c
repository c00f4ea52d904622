/*
 * status.c - the names of the codes, and the three ways to fill a uni_error.
 *
 * Every text is first formatted into a buffer on the stack, because callers put the old message
 * into the new one (`uni_error_set(err, code, "%s: %s", path, err->message)`), and vsnprintf must
 * not read what it writes. Nothing is shared; any thread.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unisono/status.h>

const char *uni_status_name(int code)
{
    switch (code) {
#define STATUS_NAME(name, number, sentence)                                                        \
    case number:                                                                                   \
        return #name;
        UNI_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    default:
        return "EUNKNOWN";
    }
}

const char *uni_status_sentence(int code)
{
    switch (code) {
#define STATUS_SENTENCE(name, number, sentence)                                                    \
    case number:                                                                                   \
        return sentence;
        UNI_STATUS_LIST(STATUS_SENTENCE)
#undef STATUS_SENTENCE
    default:
        return "a code that this version does not know";
    }
}

/* Truncation must not split a UTF-8 character: the message may go into JSON or to a terminal. */
static void store_message(uni_error *err, const char *text)
{
    size_t length = strlen(text);
    if (length >= sizeof err->message) {
        length = sizeof err->message - 1;
        while (length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80)
            length--;
    }
    memcpy(err->message, text, length);
    err->message[length] = 0;
}

int uni_error_set(uni_error *err, int code, const char *format, ...)
{
    if (!err)
        return code;
    char text[UNI_ERROR_MESSAGE_SIZE + 8];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    err->code = code;
    err->os_error = 0;
    store_message(err, text);
    return code;
}

static int code_of_errno(int os_error)
{
    switch (os_error) {
    case ENOSPC:
    case EDQUOT:
        return UNI_EDISKFULL;
    case ENOENT:
        return UNI_ENOTFOUND;
    case EACCES:
    case EPERM:
        return UNI_EPERMISSION;
    case ENOMEM:
        return UNI_ENOMEM;
    default:
        return UNI_EIO;
    }
}

int uni_error_set_errno(uni_error *err, int os_error, const char *format, ...)
{
    int code = code_of_errno(os_error);
    if (!err)
        return code;
    char text[UNI_ERROR_MESSAGE_SIZE + 8], reason[128];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const char *why = strerror_r(os_error, reason, sizeof reason);
    size_t at = length < 0 ? 0 : (size_t)length;
    /* A long path must not push out the reason, which people need most. */
    size_t room = sizeof err->message - 1 - strlen(why) - 2;
    if (at > room) {
        at = room;
        while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80)
            at--;
    }
    snprintf(text + at, sizeof text - at, ": %s", why);
    err->code = code;
    err->os_error = os_error;
    store_message(err, text);
    return code;
}

int uni_error_prefix(uni_error *err, const char *format, ...)
{
    if (!err)
        return 0;
    char text[2 * UNI_ERROR_MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, UNI_ERROR_MESSAGE_SIZE, format, arguments);
    va_end(arguments);
    size_t at = length < 0 ? 0 : (size_t)length;
    if (at >= UNI_ERROR_MESSAGE_SIZE)
        at = UNI_ERROR_MESSAGE_SIZE - 1;
    snprintf(text + at, sizeof text - at, ": %s", err->message);
    store_message(err, text);
    return err->code;
}
