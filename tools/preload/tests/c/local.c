/* To be loaded: it has a variable of each thread. */
static __thread int values[10];

int *of_thread(void) { return values; }
