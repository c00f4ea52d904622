/* variables_test.c - variables for workers: words, files of them, and which ones are secret. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "train/variables.h"

static char dir[] = "/tmp/unisono-variables-XXXXXX";
static char path[sizeof dir + 16];
static uni_error err;

static void write_file(const char *text, size_t size, mode_t mode)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

/* The pairs, with "|" behind each; or the error. */
static const char *read_all(const char *const *words, const char *file)
{
    static char text[2048];
    uni_value *list = NULL;
    text[0] = '\0';
    memset(&err, 0, sizeof err);
    if (uni__variables_read(&list, words, file, &err) < 0) {
        assert_null(list);
        return err.message;
    }
    for (size_t i = 0; i < uni_list_size(list); i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s|",
                 uni_value_as_string(uni_list_get(list, i), "?"));
    }
    uni_value_free(list);
    return text;
}

static void words(void **state)
{
    setenv("FROM_HERE", "its value", 1);
    setenv("EMPTY", "", 1);
    unsetenv("NOT_SET");
    static const struct {
        const char *words[4];
        const char *told;
    } cases[] = {
        { { NULL }, "" },
        { { "A=1", "B=", "C=x=y" }, "A=1|B=|C=x=y|" },
        { { "FROM_HERE", "EMPTY" }, "FROM_HERE=its value|EMPTY=|" },
        { { "A=1", "=2" },
          "environment: a variable without a name; write NAME=VALUE, or NAME to take the value "
          "from the environment" },
        { { "" },
          "environment: a variable without a name; write NAME=VALUE, or NAME to take the value "
          "from the environment" },
        { { "NOT_SET" },
          "environment: the variable NOT_SET is not set in the environment, so there is no value "
          "to hand on; set it, or write NOT_SET=VALUE" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(read_all(cases[i].words, NULL), cases[i].told);
    assert_string_equal(read_all(NULL, NULL), "");
}

static void files(void **state)
{
    static const struct {
        const char *text, *told; /* errors: what comes after the path */
        bool bad;
    } cases[] = {
        { "", "", false },
        { "A=1\n# a comment\n\n  \t B=2 \r\nFROM_HERE\n", "A=1|B=2 |FROM_HERE=its value|", false },
        { "A=1", "A=1|", false }, /* no newline at the end */
        { "A= spaces stay \n", "A= spaces stay |", false },
        { "  # indented\nA=b # c\n", "A=b # c|", false },
        { "A=1\nB C\n", ", line 2: write NAME=VALUE or NAME", true },
        { "A =1\n", ", line 1: write NAME=VALUE or NAME", true },
        { "\n\n=1\n",
          ", line 3: a variable without a name; write NAME=VALUE, or NAME to take the value from "
          "the environment",
          true },
        { "NOT_SET\n",
          ", line 1: the variable NOT_SET is not set in the environment, so there is no value to "
          "hand on; set it, or write NOT_SET=VALUE",
          true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file(cases[i].text, strlen(cases[i].text), 0600);
        const char *told = read_all(NULL, path);
        if (cases[i].bad) {
            assert_memory_equal(told, path, strlen(path));
            told += strlen(path);
        }
        assert_string_equal(told, cases[i].told);
    }
    /* Words come later, so that they win. */
    write_file("A=file\n", 7, 0600);
    const char *const after[] = { "A=word", NULL };
    assert_string_equal(read_all(after, path), "A=file|A=word|");
}

static void files_that_are_refused(void **state)
{
    char *large = malloc((1 << 20) + 1);
    memset(large, '#', (1 << 20) + 1);
    write_file("A=1\n", 4, 0640);
    assert_non_null(strstr(read_all(NULL, path), "(mode 0640): it may hold secrets; `chmod 600`"));
    assert_int_equal(err.code, UNI_EPERMISSION);
    write_file("A=1\n", 4, 0604);
    assert_non_null(strstr(read_all(NULL, path), "can be read by others"));
    write_file("A=1\0B=2\n", 8, 0600);
    assert_non_null(strstr(read_all(NULL, path), "has a zero byte"));
    write_file(large, (1 << 20) + 1, 0600);
    assert_non_null(strstr(read_all(NULL, path), "is larger than 1048576 bytes"));
    assert_int_equal(err.code, UNI_ELIMIT);
    write_file(large, 1 << 20, 0600); /* the largest */
    assert_string_equal(read_all(NULL, path), "");
    assert_int_equal(err.code, 0);
    assert_int_equal(unlink(path), 0);
    assert_non_null(strstr(read_all(NULL, path), "cannot open the environment file"));
    assert_int_equal(mkfifo(path, 0600), 0); /* opening it does not wait */
    assert_non_null(strstr(read_all(NULL, path), "is not a regular file"));
    assert_int_equal(unlink(path), 0);
    free(large);
}

static void secrets(void **state)
{
    static const struct {
        const char *word;
        bool secret;
    } cases[] = {
        { "API_KEY=1", true },
        { "key", true },
        { "MyToken=", true },
        { "SECRETS", true },
        { "db_password=x", true },
        { "PASSWD", true },
        { "GOOGLE_CREDENTIALS=", true },
        { "PATH=/key", false },
        { "A=SECRET", false },
        { "TOKE=1", false },
        { "", false },
        { "KE=Y", false },
        { "PASS=1", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(uni__variable_is_secret(cases[i].word), cases[i].secret);
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/variables", dir);
    const struct CMUnitTest tests[] = { cmocka_unit_test(words), cmocka_unit_test(files),
                                        cmocka_unit_test(files_that_are_refused),
                                        cmocka_unit_test(secrets) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(dir) == 0 ? failed : 1;
}
