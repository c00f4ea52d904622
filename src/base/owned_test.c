/* owned_test.c - what is ours alone is opened, everything else is rejected with the reason. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/owned.h"
#include "base/test.h"

#define STRANGER 64002

static char root[256];

static const char *at(const char *below)
{
    static char paths[4][600];
    static int next;
    char *out = paths[next++ % 4];
    snprintf(out, sizeof paths[0], "%s/%s", root, below);
    return out;
}

static int set_up(void **state)
{
    (void)state;
    umask(022);
    if (!mkdtemp(uni__temporary_name(root, sizeof root, "owned")) || mkdir(at("s"), 0755) < 0 ||
        mkdir(at("s/name"), 0755) < 0 || mkdir(at("s/name/run_001"), 0700) < 0)
        return -1;
    return uni__write_file(at("s/name/run_001/run.json"), "{}", 2, false, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    return uni__remove_tree(root, NULL);
}

static void refused(const char *word)
{
    uni_error err = { 0 };
    int fd = uni__open_owned_below(at("s/name/run_001"), &err);
    assert_int_equal(fd, UNI_EPERMISSION);
    if (!strstr(err.message, word))
        fail_msg("\"%s\" is not in \"%s\"", word, err.message);
}

static void accepted(void)
{
    uni_error err = { 0 };
    int fd = uni__open_owned_below(at("s/name/run_001"), &err);
    if (fd < 0)
        fail_msg("%s", err.message);
    int file = uni__open_owned_file(fd, "run.json", "run.json", &err);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(uni__open_owned_file(fd, "none", "none", &err), UNI_ENOTFOUND);
    close(fd);
}

static void modes(void **state)
{
    static const struct {
        const char *path;
        mode_t bad, good;
    } cases[] = {
        { ".", 0777, 0700 }, /* others could replace the storage itself */
        { "s", 0777, 0755 },
        { "s/name", 0777, 0755 },
        { "s/name", 0775, 0755 },
        { "s/name/run_001", 0770, 0700 },
        { "s/name/run_001", 0702, 0700 },
    };
    (void)state;
    accepted();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(chmod(at(cases[i].path), cases[i].bad), 0);
        refused("chmod");
        assert_int_equal(chmod(at(cases[i].path), cases[i].good), 0);
        accepted();
    }
    assert_int_equal(chmod(at("s"), 01777), 0); /* shared, as intended */
    accepted();
}

static void links(void **state)
{
    (void)state;
    assert_int_equal(rename(at("s/name"), at("s/moved")), 0);
    assert_int_equal(symlink("moved", at("s/name")), 0);
    refused("symbolic link");
    assert_int_equal(uni__check_owned_place(at("s/name"), NULL), UNI_EPERMISSION);
    assert_int_equal(unlink(at("s/name")), 0);
    assert_int_equal(rename(at("s/moved"), at("s/name")), 0);
    /* The user chose the storage path. */
    assert_int_equal(symlink("s", at("storage")), 0);
    uni_error err = { 0 };
    int fd = uni__open_owned_below(at("storage/name/run_001"), &err);
    assert_true(fd >= 0);
    close(fd);
    fd = open(at("s/name/run_001"), O_RDONLY | O_DIRECTORY);
    assert_int_equal(symlinkat("run.json", fd, "link"), 0);
    assert_int_equal(uni__open_owned_file(fd, "link", "link", &err), UNI_EPERMISSION);
    assert_int_equal(mkfifoat(fd, "fifo", 0600), 0); /* must not block */
    assert_int_equal(uni__open_owned_file(fd, "fifo", "fifo", &err), UNI_EPERMISSION);
    assert_int_equal(uni__open_owned_dir(fd, "run.json", "run.json", &err), UNI_EPERMISSION);
    close(fd);
}

static void strangers(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can give files away */
    static const char *const paths[] = { "s/name", "s/name/run_001" };
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(chown(at(paths[i]), STRANGER, STRANGER), 0);
        refused("belongs to another user");
        assert_int_equal(chown(at(paths[i]), 0, 0), 0);
    }
    assert_int_equal(uni__check_owned_place(at("s/name"), NULL), 0);
    assert_int_equal(chown(at("s/name"), STRANGER, STRANGER), 0);
    assert_int_equal(uni__check_owned_place(at("s/name"), NULL), UNI_EPERMISSION);
    assert_int_equal(chown(at("s/name"), 0, 0), 0);
    accepted();
}

static void foreign_links(void **state)
{
    uni_error err = { 0 };
    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can give links away */
    assert_int_equal(symlink("name", at("s/link")), 0);
    assert_int_equal(symlink("run_001", at("s/name/run_002")), 0);
    static const char *const paths[] = { "s/link", "s/link/run_001", "s/name/run_002" };
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(uni__check_foreign_links(at(paths[i]), &err), 0);
    assert_int_equal(lchown(at("s/link"), STRANGER, STRANGER), 0);
    assert_int_equal(lchown(at("s/name/run_002"), STRANGER, STRANGER), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(uni__check_foreign_links(at(paths[i]), &err), UNI_EPERMISSION);
        assert_non_null(strstr(err.message, "symbolic link of another user (uid 64002)"));
    }
    assert_int_equal(uni__check_foreign_links(at("s/name/run_001"), &err), 0);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(modes),
        IN_FOLDER(links),
        IN_FOLDER(strangers),
        IN_FOLDER(foreign_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
