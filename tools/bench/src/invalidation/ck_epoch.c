/* Concurrency Kit's epochs, one domain for the process and a record for each thread. */
#include <ck_epoch.h>
#include <stdlib.h>

static ck_epoch_t epoch;
static _Thread_local ck_epoch_record_t *record;

__attribute__((constructor)) static void prepare(void) { ck_epoch_init(&epoch); }

void kinlock_ck_epoch_register(void) {
	record = ck_epoch_recycle(&epoch, NULL);
	if (record == NULL) {
		/* Never freed, since other threads look at it. It is recycled when its thread has ended. */
		void *memory = NULL;
		if (posix_memalign(&memory, 128, sizeof(ck_epoch_record_t)) != 0)
			abort();
		record = memory;
		ck_epoch_register(&epoch, record, NULL);
	}
}

void kinlock_ck_epoch_unregister(void) { ck_epoch_unregister(record); }

void kinlock_ck_epoch_begin(void) { ck_epoch_begin(record, NULL); }

void kinlock_ck_epoch_end(void) { ck_epoch_end(record, NULL); }

void kinlock_ck_epoch_synchronize(void) { ck_epoch_synchronize(record); }
