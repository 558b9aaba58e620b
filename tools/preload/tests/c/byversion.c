/* Functions that are looked up by their version, as wrappers do, and by name are the same. */
#include "common.h"
#include <dlfcn.h>

#ifdef __x86_64__
#define FIRST "GLIBC_2.2.5"
#define CONDVARS "GLIBC_2.3.2"
#else
#define FIRST "GLIBC_2.17"
#define CONDVARS "GLIBC_2.17"
#endif

static const char *const functions[][2] = {
    {"pthread_mutex_init", FIRST}, {"pthread_mutex_lock", FIRST}, {"pthread_mutex_trylock", FIRST},
    {"pthread_mutex_timedlock", FIRST}, {"pthread_mutex_clocklock", "GLIBC_2.30"}, {"pthread_mutex_unlock", FIRST},
    {"pthread_mutex_destroy", FIRST}, {"pthread_cond_init", FIRST}, {"pthread_cond_init", CONDVARS},
    {"pthread_cond_wait", FIRST}, {"pthread_cond_wait", CONDVARS}, {"pthread_cond_timedwait", CONDVARS},
    {"pthread_cond_clockwait", "GLIBC_2.30"}, {"pthread_cond_signal", CONDVARS},
    {"pthread_cond_broadcast", CONDVARS}, {"pthread_cond_destroy", CONDVARS}, {"pthread_rwlock_rdlock", FIRST},
    {"pthread_rwlock_wrlock", FIRST}, {"pthread_rwlock_unlock", FIRST}, {"pthread_spin_lock", FIRST},
    {"pthread_spin_unlock", FIRST}, {"mtx_lock", "GLIBC_2.28"}, {"cnd_wait", "GLIBC_2.28"}, {"_exit", FIRST},
    /* A function that the library does not replace. */
    {"sem_wait", FIRST}, {"pthread_create", FIRST},
};

static const char *file_of(void *function)
{
    Dl_info info;
    return function && dladdr(function, &info) ? info.dli_fname : "none";
}

typedef int waits(pthread_cond_t *, pthread_mutex_t *);
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
static int go;

static void *wait_by(void *function)
{
    pthread_mutex_lock(&mutex);
    while (!go)
        ((waits *)function)(&condvar, &mutex);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

int main(void)
{
    for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++) {
        const char *const *f = functions[i];
        const char *named = file_of(dlsym(RTLD_NEXT, f[0]));
        const char *versioned = file_of(dlvsym(RTLD_NEXT, f[0], f[1]));
        const char *by_default = file_of(dlvsym(RTLD_DEFAULT, f[0], f[1]));
        int same = !strcmp(named, versioned) && !strcmp(named, by_default);
        printf("%s %d\n", f[0], same);
        if (!same)
            fprintf(stderr, "%s: %s, %s, %s\n", f[0], named, versioned, by_default);
    }
    printf("none: %d\n", dlvsym(RTLD_DEFAULT, "pthread_mutex_lock", "GLIBC_0.1") == NULL);
    void *function = dlvsym(RTLD_NEXT, "pthread_cond_wait", CONDVARS);
    CHECK(function);
    pthread_t thread = start(wait_by, function);
    nap(50);
    pthread_mutex_lock(&mutex);
    go = 1;
    pthread_cond_signal(&condvar);
    pthread_mutex_unlock(&mutex);
    end(thread);
    printf("woken\n");
    return 0;
}
