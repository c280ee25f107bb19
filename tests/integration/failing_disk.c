/* A disk that is slow, hangs, has no inodes, is read-only or fails: preloaded into a broker, this
   delays or rejects what the broker asks of files below $FAILING_DISKS/<name>/, as
   $FAILING_DISKS/<name>.disk says: "SYNC_MS CREATE_ERRNO WRITE_ERRNO WRITE_MS SYNC_ERRNO". Without
   that file all calls are the kernel's alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct faults {
  long sync_ms, write_ms;
  int create_errno, write_errno, sync_errno;
};

enum call { SYNC_CALL, WRITE_CALL };

static const long STEP_MS = 20;

#define KERNELS(name) __typeof__(&name) kernels = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static struct faults of_path(const char *path) {
  struct faults found = {0, 0, 0, 0, 0};
  const char *root = getenv("FAILING_DISKS");
  char control[PATH_MAX], text[64];
  size_t prefix = root == NULL ? 0 : strlen(root);
  if (root == NULL || strncmp(path, root, prefix) != 0 || path[prefix] != '/') return found;
  int name = (int)strcspn(path + prefix + 1, "/");
  snprintf(control, sizeof control, "%s/%.*s.disk", root, name, path + prefix + 1);
  KERNELS(open);
  int file = kernels(control, O_RDONLY | O_CLOEXEC);
  if (file < 0) return found;
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  text[length > 0 ? length : 0] = '\0';
  sscanf(text, "%ld %d %d %ld %d", &found.sync_ms, &found.create_errno, &found.write_errno,
         &found.write_ms, &found.sync_errno);
  return found;
}

static struct faults of_file(int descriptor) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, path, sizeof path - 1);
  path[length > 0 ? length : 0] = '\0';
  return of_path(path);
}

/* Ends early when the disk is sound again. Returns the faults at its end. */
static struct faults wait_for_disk(int descriptor, enum call call) {
  struct timespec step = {0, STEP_MS * 1000000};
  for (long waited_ms = 0;; waited_ms += STEP_MS) {
    struct faults faults = of_file(descriptor);
    if (waited_ms >= (call == SYNC_CALL ? faults.sync_ms : faults.write_ms)) return faults;
    nanosleep(&step, NULL);
  }
}

static int rejects(int error) {
  if (error != 0) errno = error;
  return error != 0;
}

/* Of a file that is not there; a read-only disk opens none for writing either. */
static int rejects_open(const char *path, int flags) {
  struct faults faults = of_path(path);
  if ((flags & O_ACCMODE) != O_RDONLY && rejects(faults.write_errno)) return 1;
  return (flags & O_CREAT) && access(path, F_OK) != 0 && rejects(faults.create_errno);
}

#define OPEN(name)                                   \
  int name(const char *path, int flags, ...) {       \
    KERNELS(name);                                   \
    va_list rest;                                    \
    va_start(rest, flags);                           \
    mode_t mode = va_arg(rest, mode_t);              \
    va_end(rest);                                    \
    if (rejects_open(path, flags)) return -1;        \
    return kernels(path, flags, mode);               \
  }

OPEN(open)
OPEN(open64)

int mkdir(const char *path, mode_t mode) {
  KERNELS(mkdir);
  struct faults faults = of_path(path);
  if (rejects(faults.write_errno) || rejects(faults.create_errno)) return -1;
  return kernels(path, mode);
}

#define WRITE(name, offset)                                                                \
  ssize_t name(int file, const struct iovec *parts, int count, offset at, int flags) {    \
    KERNELS(name);                                                                         \
    if (rejects(wait_for_disk(file, WRITE_CALL).write_errno)) return -1;                   \
    return kernels(file, parts, count, at, flags);                                         \
  }

/* What CPython's os.pwritev calls. */
WRITE(pwritev2, off_t)
WRITE(pwritev64v2, off64_t)

#define SYNC(name)                                                           \
  int name(int descriptor) {                                                 \
    KERNELS(name);                                                           \
    if (rejects(wait_for_disk(descriptor, SYNC_CALL).sync_errno)) return -1; \
    return kernels(descriptor);                                              \
  }

SYNC(fsync)
SYNC(fdatasync)

#define STATVFS(name)                                                  \
  int name(const char *path, struct name *found) {                     \
    KERNELS(name);                                                     \
    int status = kernels(path, found);                                 \
    if (status == 0 && of_path(path).create_errno == ENOSPC) found->f_favail = 0; \
    return status;                                                     \
  }

STATVFS(statvfs)
STATVFS(statvfs64)
