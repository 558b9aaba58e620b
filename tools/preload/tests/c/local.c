/* A library with a thread-local, to be loaded. */
static __thread int values[10];

int *of_thread(void) { return values; }
