/* Without arguments, only the child of this program takes a lock. With a path, stderr becomes that
   file, and the program takes a lock if there is another argument that is not empty. */
#include "common.h"

static void take(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
}

int main(int count, char **arguments)
{
    if (count == 1) {
        pid_t child = fork();
        if (child == 0) {
            take();
            _exit(0);
        }
        return end_of(child);
    }
    close(2);
    CHECK(open(arguments[1], O_RDWR | O_CREAT | O_TRUNC, 0600) == 2);
    CHECK(write(2, "data\n", 5) == 5);
    if (count > 2 && arguments[2][0])
        take();
    return 0;
}
