/* shell_test.c - hostile values in scripts of every kind of quoting, and what the machine's own sh makes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tune/shell.h"

static const char *const hostile[] = { "plain",
                                       "",
                                       "two words",
                                       "; echo PWNED",
                                       "$(echo PWNED)",
                                       "`echo PWNED`",
                                       "'; echo PWNED; '",
                                       "\"; echo PWNED; \"",
                                       "a'b\"c",
                                       "back\\slash",
                                       "line\nbreak",
                                       "$HOME",
                                       "* ? [a-z] ~ {a,b}",
                                       "!x",
                                       "-n",
                                       "# no comment" };

/* The script with the value where @ is; NULL when it is refused. */
static char *fill(const char *script, const char *value)
{
    uni__text out = { 0 };
    uni__shell shell = { 0 };
    for (const char *at = script; *at;) {
        if (*at == '@') {
            if (uni__shell_add(&out, &shell, value) < 0) {
                uni__text_free(&out);
                return NULL;
            }
            shell.before = 'x';
            at++;
            continue;
        }
        int length = uni__shell_read(&shell, at);
        uni__text_add(&out, at, (size_t)length);
        at += length;
    }
    return out.data;
}

static void run(const char *script, char *output, size_t room)
{
    char path[] = "shell-test-XXXXXX", command[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    fputs(script, file);
    fclose(file);
    snprintf(command, sizeof command, "sh %s 2>&1", path);
    FILE *pipe = popen(command, "r");
    size_t size = fread(output, 1, room - 1, pipe);
    output[size] = '\0';
    pclose(pipe);
    remove(path);
}

static void values_are_data(void **state)
{
    static const char *const scripts[] = {
        "printf '%s' @",
        "printf '%s' '@'",
        "printf '%s' \"@\"",
        "printf '%s' \"$(printf '%s' @)\"",
        "printf '%s' \"$(printf '%s' \"@\" | cat)\" # it's a comment",
        "x=@; printf '%s' \"$x\"",
        "echo 'it'\\''s' >/dev/null; (printf '%s' '@')",
        "# it's \"odd\nprintf '%s' @",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++)
        for (size_t n = 0; n < sizeof hostile / sizeof hostile[0]; n++) {
            char output[500], *script = fill(scripts[i], hostile[n]);
            assert_non_null(script);
            run(script, output, sizeof output);
            if (strcmp(output, hostile[n]) != 0)
                fail_msg("%s with <%s>: <%s>", script, hostile[n], output);
            free(script);
        }
}

static void what_cannot_be_followed_is_refused(void **state)
{
    static const char *const scripts[] = { "cat <<E\n@\nE",
                                           "echo `echo @`",
                                           "echo ${x:-@}",
                                           "echo $((1 + @))",
                                           "# @",
                                           "echo $'a' @",
                                           "case x in x) echo @;; esac" };
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        assert_null(fill(scripts[i], "; echo PWNED"));
        assert_null(fill(scripts[i], "\n echo PWNED"));
        char *number = fill(scripts[i], "0.5");
        assert_non_null(number);
        free(number);
    }
}

static bool script_at(const char *json, size_t index)
{
    uni_value *argv = NULL;
    assert_int_equal(uni_json_read(&argv, json, strlen(json), NULL), 0);
    bool is = uni__is_script(argv, index);
    uni_value_free(argv);
    return is;
}

static void scripts_are_known(void **state)
{
    assert_true(script_at("[\"sh\", \"-c\", \"x\"]", 2));
    assert_true(script_at("[\"/bin/bash\", \"-o\", \"pipefail\", \"-ec\", \"x\"]", 4));
    assert_true(script_at("[\"env\", \"A=1\", \"dash\", \"-c\", \"x\"]", 4));
    assert_false(script_at("[\"sh\", \"-c\", \"x\", \"sh\"]", 3));
    assert_false(script_at("[\"python3\", \"-c\", \"x\"]", 2));
    assert_false(script_at("[\"./train\", \"--lr\", \"x\"]", 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_data),
        cmocka_unit_test(what_cannot_be_followed_is_refused),
        cmocka_unit_test(scripts_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
