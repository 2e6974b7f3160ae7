/* A disk that fails at one operation: preloaded, it stands between a program and the kernel.

   Counts what is written, created, synced, renamed or removed under a folder. At the chosen
   operation the process is killed or gets an error; of a write, half arrives before. From then on
   a full disk stays full. Sees what C++ writes too, which patches of Python do not. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static char failed[2 * PATH_MAX];
static long count, chosen;
static int code, armed; /* code 0: kill */

enum { MAKES = 1, REMOVES = 2 }; /* a full disk refuses only the first */

void disk_arm(const char *path, long number, int error) {
    snprintf(folder, sizeof folder, "%s/", path);
    count = 0, chosen = number, code = error, armed = 1, failed[0] = 0;
}

void disk_disarm(void) { armed = 0; }
long disk_count(void) { return count; }
const char *disk_failed(void) { return failed; }

static int inside(int at, const char *path) {
    char whole[2 * PATH_MAX], link[64];
    ssize_t length = 0;
    if (!armed || !path) return 0;
    if (path[0] == '/') return strncmp(path, folder, strlen(folder)) == 0;
    if (at == AT_FDCWD) {
        if (!getcwd(whole, PATH_MAX)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        length = readlink(link, whole, PATH_MAX - 1);
        if (length < 0) return 0;
        whole[length] = 0;
    }
    return strncmp(whole, folder, strlen(folder)) == 0;
}

/* Whether this operation fails; sets errno, or does not return. */
static int fails(int kind, const char *name, const char *path) {
    if (code == ENOSPC && kind == REMOVES) return 0;
    count++;
    if (count < chosen || (count > chosen && code != ENOSPC)) return 0;
    if (count == chosen) snprintf(failed, sizeof failed, "%s %s", name, path);
    if (code) return errno = code, 1;
    return 2;
}

static void die(void) {
    for (;;) kill(getpid(), SIGKILL);
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int fails_at(int kind, const char *name, int at, const char *path) {
    int how;
    if (!inside(at, path)) return 0;
    how = fails(kind, name, path);
    if (how == 2) die();
    return how;
}

/* The file of a descriptor, if it is on the disk that fails; /proc/self/fd of a pipe is no path. */
static const char *file_of(int fd, char *path) {
    char link[64];
    ssize_t length;
    if (!armed) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    return inside(AT_FDCWD, path) ? path : NULL;
}

ssize_t write(int fd, const void *data, size_t size) {
    char path[PATH_MAX];
    int how;
    REAL(write);
    if (!file_of(fd, path) || !(how = fails(MAKES, "write", path))) return real(fd, data, size);
    if (count == chosen && size > 1) real(fd, data, size / 2);
    if (how == 2) die();
    return errno = code, -1;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t where) {
    char path[PATH_MAX];
    int how;
    REAL(pwrite64);
    if (!file_of(fd, path) || !(how = fails(MAKES, "pwrite", path)))
        return real(fd, data, size, where);
    if (count == chosen && size > 1) real(fd, data, size / 2, where);
    if (how == 2) die();
    return errno = code, -1;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t where) {
    return pwrite64(fd, data, size, where);
}

ssize_t writev(int fd, const struct iovec *parts, int number) {
    char path[PATH_MAX];
    int how;
    REAL(writev);
    if (!file_of(fd, path) || !(how = fails(MAKES, "writev", path)))
        return real(fd, parts, number);
    if (how == 2) die();
    return errno = code, -1;
}

#define SYNC(name) \
    int name(int fd) { \
        char path[PATH_MAX]; \
        int how; \
        REAL(name); \
        if (!file_of(fd, path) || !(how = fails(MAKES, #name, path))) return real(fd); \
        if (how == 2) die(); \
        return errno = code, -1; \
    }
SYNC(fsync)
SYNC(fdatasync)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; \
        mode_t mode; \
        REAL(name); \
        va_start(rest, flags); \
        mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        if (flags & (O_CREAT | O_TRUNC) && fails_at(MAKES, #name, AT_FDCWD, path)) return -1; \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        va_list rest; \
        mode_t mode; \
        REAL(name); \
        va_start(rest, flags); \
        mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        if (flags & (O_CREAT | O_TRUNC) && fails_at(MAKES, #name, at, path)) return -1; \
        return real(at, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name) \
    FILE *name(const char *path, const char *mode) { \
        REAL(name); \
        if (mode[0] != 'r' && fails_at(MAKES, #name, AT_FDCWD, path)) return NULL; \
        return real(path, mode); \
    }
FOPEN(fopen)
FOPEN(fopen64)

int ftruncate64(int fd, off64_t size) {
    char path[PATH_MAX];
    int how;
    REAL(ftruncate64);
    if (!file_of(fd, path) || !(how = fails(MAKES, "ftruncate", path))) return real(fd, size);
    if (how == 2) die();
    return errno = code, -1;
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    return fails_at(MAKES, "mkdir", AT_FDCWD, path) ? -1 : real(path, mode);
}

int rename(const char *old, const char *new) {
    REAL(rename);
    return fails_at(REMOVES, "rename", AT_FDCWD, new) ? -1 : real(old, new);
}

int renameat(int from, const char *old, int to, const char *new) {
    REAL(renameat);
    return fails_at(REMOVES, "renameat", to, new) ? -1 : real(from, old, to, new);
}

int renameat2(int from, const char *old, int to, const char *new, unsigned int flags) {
    REAL(renameat2);
    return fails_at(REMOVES, "renameat2", to, new) ? -1 : real(from, old, to, new, flags);
}

int unlink(const char *path) {
    REAL(unlink);
    return fails_at(REMOVES, "unlink", AT_FDCWD, path) ? -1 : real(path);
}

int unlinkat(int at, const char *path, int flags) {
    REAL(unlinkat);
    return fails_at(REMOVES, "unlinkat", at, path) ? -1 : real(at, path, flags);
}

int rmdir(const char *path) {
    REAL(rmdir);
    return fails_at(REMOVES, "rmdir", AT_FDCWD, path) ? -1 : real(path);
}
