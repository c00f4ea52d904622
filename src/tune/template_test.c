/* template_test.c - hostile values in every place of a shell script that evaluates them, and what
 * the machine's own shells make of the accepted ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tune/template.h"

/* Each runs `echo PWNED` in at least one of the places below, with or without quotes. */
static const char *const hostile[] = {
    "",
    "two words",
    "; echo PWNED >&2",
    "$(echo PWNED >&2)",
    "`echo PWNED >&2`",
    "'; echo PWNED >&2; '",
    "\"; echo PWNED >&2; \"",
    "a'b\"c",
    "back\\slash",
    "line\nbreak",
    "$HOME",
    "*",
    "~",
    "a[$(echo PWNED >&2)]",
    "a[`echo PWNED >&2`]",
    "x=a[$(echo PWNED >&2)]",
    "LD_PRELOAD=/tmp/pwned.so",
    "# no comment",
    "(1)",
    "1\r",
    "{a,b}",
    "100%n",
    "\xff",
};

/* The places: quotes, arithmetic, subscripts, variable names, words that are evaluated again. */
static const char *const scripts[] = {
    "echo {x}",
    "echo '{x}'",
    "echo \"{x}\"",
    "echo \"$(echo {x})\"",
    "echo `echo {x}`",
    "echo $'{x}'",
    "echo ${y:-{x}}",
    "cat <<E\n{x}\nE",
    "# {x}",
    "case x in x) echo {x};; esac",
    "[[ {x} -eq 1 ]]",
    "[[ '{x}' -gt 1 ]]",
    "a[{x}]=1",
    "unset 'a[{x}]'",
    "echo $[{x}]",
    "echo $(( {x} ))",
    "echo $(( \"{x}\" + 1 ))",
    "(( {x} ))",
    "let '{x}'",
    "let y={x}",
    "declare -i y={x}",
    "typeset -i 'y={x}'",
    "declare {x}",
    "export {x}; true",
    "{x} true",
    "test -v '{x}'",
    "[ -v {x} ]",
    "[[ -v {x} ]]",
    "printf -v '{x}' %s 1",
    "read '{x}' </dev/null",
    "eval {x}",
    "eval '{x}'",
    "eval \"echo '{x}'\"",
    "sh -c {x}",
    "sh -c 'echo {x}'",
    "bash -c '[[ {x} -eq 1 ]]'",
    "trap '{x}' EXIT",
    "echo ${y:{x}}",
    "y=12; echo ${y:{x}:1}",
    "for ((i={x};i<1;i++)); do :; done",
    "awk 'BEGIN {print {x}}'",
    "env {x} true",
    ". '{x}'",
    "[ {x} = 1 ]",
    "f() { local -i y={x}; }; f",
    "mapfile -C {x} -c 1 y </dev/null",
    "ulimit -c {x}",
    "echo {x} | xargs sh -c",
};

#define COUNT(array) (sizeof array / sizeof array[0])

/* Word number `index` of the program with x = value; NULL when it is rejected. */
static char *fill_in(uni_value *program, size_t index, uni_value *value, uni_error *err)
{
    uni_value *config = uni_value_dict(), *out = NULL;
    assert_int_equal(uni_dict_take(config, "x", value), 0);
    int status = uni__fill_word(program, index, config, &out, err);
    char *text = status == 0 ? strdup(uni_value_as_string(out, "")) : NULL;
    assert_true(status == 0 || status == UNI_EINVAL);
    uni_value_free(config);
    uni_value_free(out);
    return text;
}

static uni_value *list_of(const char *const *words)
{
    uni_value *list = uni_value_list();
    for (; *words; words++)
        assert_int_equal(uni_list_take(list, uni_value_string(*words)), 0);
    return list;
}

static void hostile_values_never_reach_a_script(void **state)
{
    for (size_t i = 0; i < COUNT(scripts); i++)
        for (size_t n = 0; n < COUNT(hostile); n++) {
            uni_error err = { 0 };
            uni_value *program = list_of((const char *const[]){ "bash", "-c", scripts[i], NULL });
            char *text = fill_in(program, 2, uni_value_string(hostile[n]), &err);
            if (text)
                fail_msg("<%s> is let into <%s>", hostile[n], scripts[i]);
            assert_non_null(strstr(err.message, "argument of its own"));
            uni_value_free(program);
        }
}

static int run(const char *shell, const char *script, char *output, size_t room)
{
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        /* The config is also in the environment: a name must not evaluate it. */
        setenv("UNISONO_CONFIG", "{\"v\":\"a[$(echo PWNED)]\"}", 1);
        execlp(shell, shell, "-c", script, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    size_t size = 0;
    for (ssize_t got; size + 1 < room && (got = read(ends[0], output + size, room - 1 - size)) > 0;)
        size += (size_t)got;
    output[size] = '\0';
    close(ends[0]);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Every accepted value, in every place, in every installed shell. */
static void what_is_let_in_runs_nothing(void **state)
{
    static const char *const plain[] = { "1",    "-0.5",           "1e-5",
                                         "adam", "UNISONO_CONFIG", "a-b_c:d@e+f,g" };
    static const char *const shells[] = { "sh", "bash" };
    for (size_t s = 0; s < COUNT(shells); s++)
        for (size_t i = 0; i < COUNT(scripts); i++)
            for (size_t n = 0; n < COUNT(plain); n++) {
                char output[2000];
                uni_value *program =
                    list_of((const char *const[]){ "bash", "-c", scripts[i], NULL });
                char *script = fill_in(program, 2, uni_value_string(plain[n]), NULL);
                assert_non_null(script);
                run(shells[s], script, output, sizeof output);
                if (strstr(output, "PWNED\n") || strstr(output, "PWNED "))
                    fail_msg("%s: %s: %s", shells[s], script, output);
                free(script);
                uni_value_free(program);
            }
}

static void arguments_take_anything(void **state)
{
    static const char *const words[] = { "{x}", "--text={x}", "data/{x}.csv", "h\xc3\xb6he={x}" };
    for (size_t i = 0; i < COUNT(words); i++)
        for (size_t n = 0; n < COUNT(hostile); n++) {
            char expected[200];
            const char *brace = strstr(words[i], "{x}");
            snprintf(expected, sizeof expected, "%.*s%s%s", (int)(brace - words[i]), words[i],
                     hostile[n], brace + 3);
            uni_value *program = list_of((const char *const[]){ "./train", words[i], NULL });
            char *text = fill_in(program, 1, uni_value_string(hostile[n]), NULL);
            assert_non_null(text);
            assert_string_equal(text, expected);
            free(text);
            uni_value_free(program);
        }
}

static void numbers_fit_everywhere(void **state)
{
    uni_value *const numbers[] = { uni_value_int(-3), uni_value_float(1e-5), uni_value_bool(true),
                                   uni_value_null(), uni_value_float(1e300) };
    for (size_t n = 0; n < COUNT(numbers); n++) {
        for (size_t i = 0; i < COUNT(scripts); i++) {
            uni_value *program = list_of((const char *const[]){ "sh", "-c", scripts[i], NULL });
            char *text = fill_in(program, 2, uni_value_copy(numbers[n]), NULL);
            assert_non_null(text);
            free(text);
            uni_value_free(program);
        }
        uni_value_free(numbers[n]);
    }
}

static void variables_of_the_shell_are_not_values(void **state)
{
    uni_error err = { 0 };
    uni_value *program = list_of((const char *const[]){ "sh", "-c", "echo ${x}", NULL });
    assert_null(fill_in(program, 2, uni_value_float(0.5), &err));
    assert_non_null(strstr(err.message, "write {x} for the value"));
    uni_value_free(program);
}

static bool code_at(const char *json, size_t index)
{
    uni_value *argv = NULL;
    assert_int_equal(uni_json_read(&argv, json, strlen(json), NULL), 0);
    bool is = uni__is_code(argv, index);
    uni_value_free(argv);
    return is;
}

static void code_is_known(void **state)
{
    assert_true(code_at("[\"sh\", \"-c\", \"{x}\"]", 2));
    assert_true(code_at("[\"/bin/bash\", \"-o\", \"pipefail\", \"-ec\", \"{x}\"]", 4));
    assert_true(code_at("[\"bash\", \"-cx\", \"{x}\"]", 2));
    assert_true(code_at("[\"env\", \"A=1\", \"dash\", \"-c\", \"{x}\"]", 4));
    assert_true(code_at("[\"timeout\", \"5\", \"busybox\", \"sh\", \"-c\", \"{x}\"]", 5));
    assert_true(code_at("[\"/usr/bin/python3.11\", \"-u\", \"-c\", \"{x}\"]", 3));
    assert_true(code_at("[\"perl\", \"-pe\", \"{x}\"]", 2));
    assert_true(code_at("[\"perl\", \"-e{x}\"]", 1));
    assert_true(code_at("[\"python3\", \"-u\", \"-c{x}\"]", 2));
    assert_true(code_at("[\"nice\", \"node\", \"--eval={x}\"]", 2));
    assert_true(code_at("[\"octave\", \"--eval\", \"{x}\"]", 2));
    assert_true(code_at("[\"ssh\", \"host\", \"{x}\"]", 2));
    assert_true(code_at("[\"awk\", \"-f\", \"a\", \"{x}\"]", 3));
    assert_true(code_at("[\"env\", \"{x}\", \"./train\"]", 1));
    assert_true(code_at("[\"./wrapper\", \"run --lr {x}\"]", 1));
    assert_true(code_at("[\"./wrapper\", \"{\\\"lr\\\": {x}}\"]", 1));
    assert_true(code_at("[\"./wrapper\", \"f({x})\"]", 1));
    assert_false(code_at("[\"sh\", \"-c\", \"x\", \"sh\", \"{x}\"]", 4));
    assert_false(code_at("[\"sh\", \"train.sh\", \"{x}\"]", 2));
    assert_false(code_at("[\"python3\", \"train.py\", \"-c\", \"{x}\"]", 3));
    assert_false(code_at("[\"python3\", \"train.py\", \"--name={x}\"]", 2));
    assert_false(code_at("[\"env\", \"A=1\", \"./train\", \"{x}\"]", 3));
    assert_false(code_at("[\"./train\", \"--lr\", \"{x}\"]", 2));
    assert_false(code_at("[\"./train\", \"--lr={x}\"]", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_values_never_reach_a_script),
        cmocka_unit_test(what_is_let_in_runs_nothing),
        cmocka_unit_test(arguments_take_anything),
        cmocka_unit_test(numbers_fit_everywhere),
        cmocka_unit_test(variables_of_the_shell_are_not_values),
        cmocka_unit_test(code_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
